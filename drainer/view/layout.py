"""The layout of a page on a terminal: lines of text with tones, and how rich prints them.

Text from elsewhere may contain control characters. ``segments`` and ``plain`` escape them, so every
line that is printed has passed through one of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from drainer.text.escape import SCREEN, printable, shorten
from drainer.view.page import Cell, Field, Item, Line, Page, Table, Tone

STYLES: dict[str, Style] = {
    Tone.PLAIN: Style.null(),
    Tone.STRONG: Style.parse("bold"),
    Tone.GOOD: Style.parse("green"),
    Tone.WARN: Style.parse("bold yellow"),
    Tone.BAD: Style.parse("bold red"),
    Tone.HINT: Style.parse("bold cyan"),
    Tone.QUIET: Style.parse("dim"),
}
Pieces = list[tuple[str, Tone]]  # The texts of a line, each with its tone.
_BAR = 24  # The width of a full bar in a table, in characters.
_EIGHTHS = " ▏▎▍▌▋▊▉"


def segments(line: Pieces, width: int | None = None) -> list[Segment]:
    """Return a line as rich prints it, with control characters escaped.

    If there is a ``width``, the line is cut to it.
    """
    found = [Segment(printable(text), STYLES[tone]) for text, tone in line]
    if width is not None and Segment.get_line_length(found) > width:
        found = [*Segment.adjust_line_length(found, width - 1, pad=False), Segment("…")]
    return found


def plain(line: Pieces) -> str:
    """Return the text of a line without its tones."""
    return "".join(printable(text) for text, _ in line)


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines of this width, broken between words. No part of it is left out."""
    return wrap(printable(text), width, subsequent_indent="  ", break_on_hyphens=False)


def headline(page: Page) -> Pieces:
    """Return the first line of a page: what it is about, and the answer."""
    about = [(f"{page.subject}: ", Tone.STRONG)] if page.subject else []
    return _cut(about + sentence(page.headline))


def sentence(line: Line) -> Pieces:
    """Return a line of words with its mark before them."""
    return [(line.marked, line.tone), (line.more, Tone.PLAIN)]


def lay_out(item: Item, whole: bool = False) -> Iterator[Pieces]:
    """Yield the lines of an item as a terminal shows them. A plot has none.

    A long table is cut after its first rows, and a long text is cut in its middle. With ``whole``,
    nothing is cut.
    """
    match item:
        case Line():
            yield _cut([("  " if item.mark else "", Tone.PLAIN), *sentence(item)], whole)
        case Field():
            yield _cut(pieces(item), whole)
            for line in item.lines:
                yield _cut([(f"    {line}", Tone.QUIET)], whole)
        case Table():
            yield from _table(item, len(item.rows) if whole else item.shown, whole)


def pieces(field: Field) -> Pieces:
    """Return the line of a field: its label, its value and its note."""
    note = f"  ({field.note})" if field.note else ""
    return [(f"  {field.label:<13} ", Tone.QUIET), (field.value, field.tone), (note, Tone.QUIET)]


def is_urgent(item: Item) -> bool:
    """Return whether an item reports something bad, so that it is shown even with --quiet."""
    match item:
        case Line() | Field():
            return item.tone is Tone.BAD
        case Table():
            cells = (cell for row in item.rows for cell in row)
            return any(isinstance(cell, Cell) and cell.tone is Tone.BAD for cell in cells)
    return False


def _cut(line: Pieces, whole: bool = False) -> Pieces:
    return line if whole else [(shorten(text, SCREEN), tone) for text, tone in line]


def _table(found: Table, shown: int, whole: bool) -> Iterator[Pieces]:
    if found.caption:
        yield [(found.caption, Tone.QUIET)]
    rows = [[(title, Tone.QUIET) for title, _ in found.headings]]
    rows += [_cut([*map(_cell, row)], whole) for row in found.rows[:shown]]
    rows += [[(_cell(cell)[0], Tone.STRONG) for cell in found.total]] if found.total else []
    lengths = [[cell_len(printable(text)) for text, _ in row] for row in rows]
    widths = [*map(max, zip(*lengths, strict=True))]
    for row, taken in zip(rows, lengths, strict=True):
        line: Pieces = []
        for cell, length, width, (_, kind) in zip(row, taken, widths, found.headings, strict=True):
            gap = (" " * (width - length), Tone.PLAIN)
            line += [*((cell, gap) if kind else (gap, cell)), ("  ", Tone.PLAIN)]
        while line and not line[-1][0].strip(" "):
            line.pop()
        yield line
    if (more := len(found.rows) - shown) > 0:
        yield [(f"and {more:,} more", Tone.QUIET)]


def _cell(cell: str | Cell) -> tuple[str, Tone]:
    if isinstance(cell, str):
        return cell, Tone.PLAIN
    return (cell.text, cell.tone) if cell.bar is None else (_bar(cell.bar, _BAR), Tone.GOOD)


def _bar(share: float, room: int) -> str:
    """Draw a bar over a share of ``room``, in characters. A share above 0 is always visible."""
    eighths = round(share * room * 8)
    if share > 0:
        eighths = max(1, eighths)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
