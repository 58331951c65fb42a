"""Pages for programs, as plain text in which options have the names of arguments."""

from __future__ import annotations

import io

from drainer.model.arguments import in_python
from drainer.view.layout import Pieces, plain
from drainer.view.page import Page, Tone
from drainer.view.terminal import Terminal


def text(page: Page) -> str:
    """Return a page as lines of text without colours. Long tables are cut, as on a terminal."""
    terminal = _Kept()
    terminal.keep(page)
    return "\n".join(terminal.kept)


class ProgramTerminal(Terminal):
    """A terminal that prints in the terms of programs."""

    def show(self, line: Pieces, *, urgent: bool = False, result: bool = False) -> None:
        super().show(_in_terms_of_programs(line), urgent=urgent, result=result)


class _Kept(Terminal):
    """A terminal that keeps lines of text instead of printing them."""

    def __init__(self) -> None:
        super().__init__(stdin=io.StringIO())
        self.kept: list[str] = []

    def keep(self, page: Page) -> None:
        """Keep a page, with its warnings first."""
        self._verdict(page, result=False)
        self._facts(page, result=False)

    def show(self, line: Pieces, *, urgent: bool = False, result: bool = False) -> None:
        self.kept.append(plain(_in_terms_of_programs(line)))


def _in_terms_of_programs(line: Pieces) -> Pieces:
    """Name arguments where a line names options. A command and its note stay the same."""
    if any(tone is Tone.COMMAND for _, tone in line):
        return line
    return [(in_python(text), tone) for text, tone in line]
