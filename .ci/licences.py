"""Prints the page of licences from two SBOMs: of the base install, and of [all].

Fails if a library has no licence that is known to be permissive or weakly copyleft.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

# A part of the name, or of the SPDX id, of each licence that may be used as it is.
PERMISSIVE = r"Apache|MIT|BSD|ISC|PSF|Python Software Foundation|Unlicense|Zlib|Boost|CNRI"
WEAK = r"MPL|Mozilla|LGPL|Lesser"  # Only changes of the library itself must be published.
CHOICE = rf"({WEAK})\S* OR |OR ({WEAK})"
STRONG = r"(?<!L)GPL|Affero|SSPL|BUSL"
KNOWN = {"protobuf": "BSD-3-Clause"}  # Its package has only the text.
HEAD = """# Licences

drainer has the [Apache License 2.0](../../LICENSE). This page lists what `pip install drainer` and
`pip install 'drainer[all]'` install, with the licences that the libraries name. `.ci/sbom` makes
it, and an SBOM in CycloneDX for each [release](../../CONTRIBUTING.md).

No licence obliges you to publish your own code. *Weak copyleft* obliges those who change the
library itself to publish that change. PySpark brings Java libraries, whose licences are in its
package. Kafka's jars, which the sandbox fetches, are under the Apache License 2.0.

library | licence | installed by
---|---|---
"""


def licences(component: dict[str, object]) -> list[str]:
    """Return the licences of a component, by SPDX id where it has one."""
    found: list[str] = []
    for each in component.get("licenses", []):  # type: ignore[attr-defined]
        inner = each.get("license", each)
        name = inner.get("id") or inner.get("expression") or inner.get("name", "")
        name = name.removeprefix("License :: OSI Approved :: ")
        if "\n" not in name and not name.startswith("declared license"):
            found.append(name)
    return sorted(set(found), key=lambda name: (len(name), name))


def main() -> int:
    base, every = (json.loads(Path(path).read_bytes())["components"] for path in sys.argv[1:])
    of_base = {each["name"] for each in base}
    unknown = 0
    print(HEAD, end="")
    for each in sorted(every, key=lambda each: each["name"].lower()):
        if each["name"] == "drainer":
            continue
        found = licences(each) or [KNOWN.get(each["name"], "unknown")]
        text, shown = " ".join(found), found[0]
        is_weak = bool(re.search(WEAK, text)) and not re.search(CHOICE, text)
        if re.search(STRONG, text) or not (is_weak or re.search(PERMISSIVE, text)):
            unknown += 1
            print(f"{each['name']}: {text}", file=sys.stderr)
        where = "drainer" if each["name"] in of_base else "`[all]`"
        print(f"{each['name']} | {shown}{' (*weak copyleft*)' * is_weak} | {where}")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
