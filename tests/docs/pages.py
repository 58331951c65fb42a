"""The pages, and the files and commands of their readers."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs/reference/cli"
PAGES = [
    page
    for page in (
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        ROOT / "scenarios/README.md",
    )
    if page.name not in ("CHANGELOG.md", "LICENSE.md")  # of what was
]


@cache
def product() -> dict[Path, ast.Module]:
    """The modules of the product, parsed once for all tests that look into them."""
    return {path: ast.parse(path.read_text()) for path in sorted((ROOT / "drainer").rglob("*.py"))}


_BLOCK = re.compile(r"^( *)```(\w+)\n(.+?)^\1```$", re.MULTILINE | re.DOTALL)
_PROMPT = re.compile(r"^(\w*)\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_SHELLS = ("console", "bash", "sh")
DRAINER = re.compile(r"(?:^|[\s(/])drainer(?=[\s)]|$)|drainer\.spark\.app\)\"")
_QUOTED = re.compile(r"'[^']*'|\"[^\"$]*\"")
_CONTROL = re.compile(r"[|<>&;$]|^\w+=")  # what only a shell understands


class Step(NamedTuple):
    """A file to write, or a command to run, and what the page prints below it."""

    does: str
    prints: list[str]
    file: str = ""
    user: str = ""  # whose prompt it is, where a page has several

    @property
    def words(self) -> list[str]:
        """The command as a shell splits it, without its comment."""
        return shlex.split(self.does.replace("\\\n", " "), comments=True)

    @property
    def needs_shell(self) -> bool:
        plain = _QUOTED.sub("", self.does)
        return self.words[:1] != ["drainer"] or bool(_CONTROL.search(plain))


def steps(text: str) -> Iterator[Step]:
    """The files and the commands of a page, in order."""
    for _, language, indented in _BLOCK.findall(text):
        block = dedent(indented)
        if language == "python" and (named := re.match(r"# (\S+\.py)\n", block)):
            yield Step(block, [], named[1])
        if language in _SHELLS:
            found = list(_PROMPT.finditer(block))
            assert found, f"no line begins with a prompt:\n{block}"
            ends = [each.start() for each in found[1:]] + [len(block)]
            for each, end in zip(found, ends, strict=True):
                printed = block[each.end() : end].strip("\n").splitlines()
                yield Step(each[2], printed, user=each[1])


def commands_of_drainer(text: str) -> Iterator[Step]:
    """Commands in blocks that run drainer, whatever stands before it in the line."""
    for step in steps(text):
        if not step.file and DRAINER.search(step.does):
            yield step


def mentioned(text: str) -> Iterator[list[str]]:
    """The words of each drainer command within a sentence or a table: names stand for values."""
    for code in _INLINE.findall(re.sub(_BLOCK, "", text)):
        if code.startswith("drainer "):
            yield code.replace("\\|", "|").split()


def options_mentioned(text: str) -> Iterator[str]:
    """Each option that stands in a sentence or a table as code."""
    for code in _INLINE.findall(re.sub(_BLOCK, "", text)):
        if not code.startswith("python "):
            yield from re.findall(r"(?:^|[\s(])(--[a-z][\w-]*)", code)
