"""Counts the code lines of each folder of drainer, and the lines of the tests.

A code line is neither blank nor a comment, and belongs to no docstring. Comments cost nothing here,
so that nobody leaves one out to keep a budget. Run it in a checkout: it counts what git tracks.
"""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from pathlib import Path

WITH_DOCSTRING = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def tracked(folder: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", f"{folder}/*.py"], capture_output=True, text=True, check=True
    )
    return [Path(name) for name in listed.stdout.splitlines()]


def code_lines(text: str) -> int:
    """The number of code lines of a Python module."""
    in_docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            in_docstrings.update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return sum(
        number not in in_docstrings and not line.strip().startswith("#") and bool(line.strip())
        for number, line in enumerate(text.splitlines(), 1)
    )


def main() -> None:
    folders: Counter[str] = Counter()
    for path in tracked("drainer"):
        folder = "/".join(path.parts[:2]) if len(path.parts) > 2 else "drainer (top)"
        folders[folder] += code_lines(path.read_text("utf-8"))
    for folder, lines in folders.most_common():
        print(f"{lines:7,}  {folder}")
    print(f"{folders.total():7,}  code lines in all")
    tests = sum(len(path.read_text("utf-8").splitlines()) for path in tracked("tests"))
    print(f"{tests:7,}  lines of tests")


if __name__ == "__main__":
    main()
