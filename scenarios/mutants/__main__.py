"""Deliberate mutants: small changes, each of which breaks a law, and the tests that must notice.

``python -m scenarios.mutants [NAME...]`` applies the mutants of ``table.txt`` one at a time to a
copy of the tree. It runs the tests of each until one fails, and prints the folder of that test. It
exits with 1 if a mutant survives, or if the tests fail without any mutant. Code that has changed
may no longer have the lines of a mutant: that mutant is listed as one that does not apply, and
``--check`` lists all of these without running a test.

An entry of the table is ``NAME (LAW) in PLACE: TESTS``, then the lines of the code with ``-``
before each, and those of the mutant with ``+``. The place is the name of the function, class or
constant that has the lines, with as much of its path as makes it unique. The tests lie in the
folder ``tests`` and are tried in their order, so that the fastest comes first.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("table.txt")
ENTRY = re.compile(r"^(\S+) \((.+)\) in (\S+): (.+)\n((?:-.*\n)+)((?:\+.*\n)*)", re.MULTILINE)
# The tests of one mutant have this long. Tests that take longer hang, which counts as a failure.
TIMEOUT_S = 240

# Hypothesis reports the first example that it finds, because the smallest one is of no use here.
UNSHRUNK = """
from hypothesis import Phase, settings
settings.register_profile("unshrunk", phases=[Phase.explicit, Phase.generate], deadline=None)
settings.load_profile("unshrunk")
"""


@dataclass(frozen=True)
class Mutant:
    """Lines of the product, at any indentation, and the lines that replace them."""

    name: str
    law: str
    place: str
    lines: str
    replacement: str
    tests: tuple[str, ...]


def mutants_of(table: str) -> Iterator[Mutant]:
    """Parse a table. Raises ValueError for a line that belongs to no mutant."""
    if rest := ENTRY.sub("", table).strip():
        raise ValueError(f"this is not a mutant: {rest}")
    for name, law, place, tests, *lines in ENTRY.findall(table):
        without, mutant = (re.sub(r"^.", "", each, flags=re.MULTILINE) for each in lines)
        paths = tuple(f"tests/{test}" for test in tests.split())
        yield Mutant(name, law, place, without, mutant, paths)


class Copy:
    """A copy of the tree in a temporary folder, and the tests that run in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
        for name in ("drainer", "tests", "scenarios"):
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)
        (folder / "unshrunk.py").write_text(UNSHRUNK)
        self._times = count(1_000_000_000)

    def write(self, path: Path, text: str) -> None:
        path = self._folder / path.relative_to(ROOT)
        path.write_text(text, "utf-8")
        # Python compares the second and the size to see whether what it compiled is up to date.
        now = next(self._times)
        os.utime(path, (now, now))

    def failed_test(self, tests: Iterable[str], timeout_s: float = TIMEOUT_S) -> str | None:
        """Run tests, and return the first that fails, or "timeout"; None when all of them pass."""
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "unshrunk", "-o", "addopts="]
        tests = list(tests)
        named = any("::" in each for each in tests)  # A test that is named runs, however long.
        words += ["-p", "no:cacheprovider", "-m", "" if named else "not long", "-n", "0", *tests]
        process = subprocess.Popen(
            words,
            cwd=self._folder,
            env=os.environ | {"PYTHONPATH": str(self._folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "timeout"
        if process.returncode == 0:
            return None
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        if process.returncode != 1 or found is None:
            raise SystemExit(output)
        return found[1]


@cache
def product() -> dict[Path, str]:
    """Return the texts of the product's modules."""
    return {path: path.read_text("utf-8") for path in sorted((ROOT / "drainer").rglob("*.py"))}


@cache
def definitions(path: Path) -> list[tuple[str, ast.stmt]]:
    """Return functions, classes and constants of a module, by their full names."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    waiting = [(module, each) for each in ast.parse(product()[path]).body]
    found: list[tuple[str, ast.stmt]] = []
    for prefix, node in waiting:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append((f"{prefix}.{node.name}", node))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.append((f"{prefix}.{node.targets[0].id}", node))
        if isinstance(node, ast.ClassDef):
            waiting += [(f"{prefix}.{node.name}", each) for each in node.body]
    return found


def mutated(mutant: Mutant) -> tuple[Path, str] | None:
    """Return the path of the module with the mutant's lines, and its text with the mutant.

    The lines may have moved: if the place has them not just once, but the whole product does, the
    mutant applies there. Otherwise returns None.
    """
    first, *_ = mutant.lines.splitlines()
    paths = [path for path, text in product().items() if first in text]
    in_place: list[tuple[Path, int, int | None]] = [
        (path, node.lineno - 1, node.end_lineno)
        for path in paths
        for name, node in definitions(path)
        if f".{name}".endswith(f".{mutant.place}")
    ]
    pattern = "".join(f"(?P=indent){re.escape(line)}" for line in mutant.lines.splitlines(True))
    pattern = pattern.replace("(?P=indent)", "^(?P<indent> *)", 1)
    for places in (in_place, [(path, 0, None) for path in paths]):
        found = []
        for path, start, end in places:
            lines = product()[path].splitlines(keepends=True)
            before, within = "".join(lines[:start]), "".join(lines[start:end])
            after = "" if end is None else "".join(lines[end:])
            for match in re.finditer(pattern, within, re.MULTILINE):
                mutant_lines = textwrap.indent(mutant.replacement, match["indent"])
                changed = within[: match.start()] + mutant_lines + within[match.end() :]
                found.append((path, before + changed + after))
        if len(found) == 1:
            return found[0]
    return None


def has_tests(mutant: Mutant) -> bool:
    """Return whether the tests of a mutant exist."""
    for test in mutant.tests:
        file, _, name = test.partition("::")
        path = ROOT / file
        if not path.exists() or (path.is_file() and f"def {name}" not in path.read_text("utf-8")):
            return False
    return True


def ensure_noticed(mutant: Mutant, copy: Copy) -> bool:
    """Print which tests notice a mutant; return False if none does."""
    began = monotonic()
    applied = mutated(mutant)
    assert applied is not None
    path, text = applied
    copy.write(path, text)
    failed = copy.failed_test(mutant.tests)
    copy.write(path, product()[path])
    # A failed test is named by its folder: "core" of "tests/core/test_lanes.py::test_order".
    noticed = "SURVIVES" if failed is None else failed.split("/")[1] if "/" in failed else failed
    took_s = monotonic() - began
    print(f"{mutant.name:36} {mutant.law:42} {noticed:14} {took_s:6.1f} s", flush=True)
    return failed is not None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scenarios.mutants", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="the mutants to try; by default all"
    )
    parser.add_argument(
        "--check", action="store_true", help="only list the mutants that do not apply"
    )
    given = parser.parse_args()
    known = list(mutants_of(TABLE.read_text("utf-8")))
    if unknown := set(given.names) - {mutant.name for mutant in known}:
        parser.error(f"there is no mutant named {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in known if not given.names or mutant.name in given.names]
    usable = [mutant for mutant in chosen if mutated(mutant) is not None and has_tests(mutant)]
    for mutant in chosen:
        if mutant not in usable:
            lacks = "its lines" if has_tests(mutant) else "its tests"
            print(f"{mutant.name:36} does not apply: {lacks} are gone from {mutant.place}")
    print(f"{len(usable)} of {len(chosen)} mutants apply")
    if given.check or not usable:
        return 0
    with tempfile.TemporaryDirectory(prefix="drainer-mutants-") as folder:
        copy = Copy(Path(folder))
        tests = dict.fromkeys(test for mutant in usable for test in mutant.tests)
        failed = copy.failed_test(tests, TIMEOUT_S * 10)
        if failed is not None:
            print(f"without any mutant, {failed} fails", file=sys.stderr)
            return 1
        survivors = [mutant for mutant in usable if not ensure_noticed(mutant, copy)]
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
