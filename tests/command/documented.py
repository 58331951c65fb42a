"""What commands print with -o json is as docs/reference/output.schema.json says, and no other."""

from __future__ import annotations

import json
import runpy
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from docs.pages import ROOT

OUTPUTS = ROOT / "docs/outputs.py"


@cache
def _schema() -> dict[str, Any]:
    """The schema without room for fields that it does not name."""
    found: dict[str, Any] = runpy.run_path(str(OUTPUTS))["schema"](closed=True)
    return found


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": _schema()["$defs"]})


def command_of(words: Sequence[str]) -> str | None:
    """The command in a line that may begin with options of the program, such as ``plan show``."""
    known = {each for each in _schema()["$defs"] if each.islower()}
    for at, word in enumerate(words):
        for name in (" ".join(words[at : at + 2]), word):
            if name in known:
                return name
    return None


def problems(command: str, found: object) -> list[str]:
    """How an object differs from the most similar one that a command may print."""
    allowed = [each["$ref"].rpartition("/")[2] for each in _schema()["$defs"][command]["anyOf"]]
    errors = [list(_validator(name).iter_errors(found)) for name in allowed]
    return [f"{each.json_path}: {each.message[:300]}" for each in min(errors, key=len)]


def ensure_documented(words: Sequence[str], out: str) -> None:
    """Ensure that the object of a command that was run with ``-o json`` has the declared fields."""
    if ("-o", "json") not in pairwise(words) or not out.startswith("{"):
        return
    if (command := command_of(words)) is not None:
        found = problems(command, json.loads(out))
        way = f"declare them in {OUTPUTS.relative_to(ROOT)}, then run `python docs/generate.py`"
        assert not found, f"`{command} -o json` has other fields ({way}): {'; '.join(found)}"
