"""Pages for programs: as plain text for ``print``, and as HTML for the cell of a notebook."""

from __future__ import annotations

import io
from collections.abc import Iterator
from html import escape

from drainer.model.arguments import in_python
from drainer.text.escape import printable
from drainer.view.layout import Pieces, plain, sentence
from drainer.view.page import Cell, Column, Field, Item, Line, Page, Table, Tone
from drainer.view.terminal import Terminal

_FACTS = (Column(""), Column(""))


def text(page: Page) -> str:
    """Return a page as lines of text without colours. Long tables are cut, as on a terminal."""
    terminal = _Kept()
    terminal.keep(page)
    return "\n".join(terminal.kept)


def html(page: Page) -> str:
    """Return a page as HTML, with all texts escaped. Long tables are cut, as on a terminal."""
    terminal = _Marked()
    terminal.keep(page)
    # Without these classes, a notebook takes text between dollar signs for mathematics.
    return f'<div class="tex2jax_ignore mathjax_ignore">{"".join(terminal.kept)}</div>'


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
        self.kept.append(_plain(line))


class _Marked(_Kept):
    """A terminal that keeps elements of HTML: tables, and a paragraph for each other line."""

    def show(self, line: Pieces, *, urgent: bool = False, result: bool = False) -> None:
        if line:
            self.kept.append(f"<p>{escape(_plain(line))}</p>")

    def _facts(self, page: Page, *, result: bool) -> None:
        for section in page.tables_last:
            rows = tuple(row for item in section.items for row in _rows(item))
            for each in (Table(_FACTS, rows, shown=len(rows)), *section.items):
                if isinstance(each, Table) and each.rows:
                    self.kept.append(_table(each))


def _in_terms_of_programs(line: Pieces) -> Pieces:
    """Name arguments where a line names options. A command and its note stay the same."""
    if any(tone is Tone.COMMAND for _, tone in line):
        return line
    return [(in_python(text), tone) for text, tone in line]


def _plain(line: Pieces) -> str:
    """Return the text of a line in the terms of programs."""
    return plain(_in_terms_of_programs(line))


def _rows(item: Item) -> Iterator[tuple[str, str]]:
    match item:
        case Line():
            yield "", _plain(sentence(item))
        case Field():
            note = f" ({item.note})" if item.note else ""
            yield item.label, _plain([(item.value, item.tone), (note, Tone.QUIET)])
            yield from (("", line) for line in item.lines)


def _table(found: Table) -> str:
    kinds, below = [kind for _, kind in found.headings], ""
    rows = (*found.rows[: found.shown], found.total)
    body = "".join(f"<tr>{''.join(map(_cell, row, kinds))}</tr>" for row in rows if row)
    if any(titles := [escape(title) for title, _ in found.headings]):
        body = f"<tr><th>{'</th><th>'.join(titles)}</th></tr>{body}"
    if (more := len(found.rows) - found.shown) > 0:
        below = f"<p>and {more:,} more</p>"
    return f"<table>{body}</table>{below}"


def _cell(cell: str | Cell, kind: str) -> str:
    if isinstance(cell, Cell) and cell.bar is not None:
        return f'<td><meter value="{cell.bar:.3f}"></meter></td>'
    value = cell if isinstance(cell, str) else cell.text
    return f'<td style="text-align: {"left" if kind else "right"}">{escape(printable(value))}</td>'
