"""How a page looks on a terminal. All text from elsewhere is made safe to show in one place."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.style import Style
from rich.text import Text

from drainer.escape import printable
from drainer.view.page import Cell, Field, Item, Line, Page, Table, Tone

HEAD_STYLE = Style.parse("bold")
QUIET_STYLE = Style.parse("dim")
STYLES: dict[str, Style] = {
    Tone.PLAIN: Style.null(),
    Tone.STRONG: HEAD_STYLE,
    Tone.GOOD: Style.parse("green"),
    Tone.WARN: Style.parse("bold yellow"),
    Tone.BAD: Style.parse("bold red"),
    Tone.HINT: Style.parse("bold cyan"),
    Tone.QUIET: QUIET_STYLE,
}
Pieces = list[tuple[str, str]]  # texts of a line, each with its tone
_BAR = 24  # characters of one in a table
_EIGHTHS = " ▏▎▍▌▋▊▉"


def words(*texts: str | tuple[str, str]) -> Text:
    """A line of texts, each in its tone, with only what can be seen."""
    line = Text()
    for each in texts:
        text, tone = (each, Tone.PLAIN) if isinstance(each, str) else each
        line.append(printable(text), STYLES[tone])
    return line


def headline(page: Page) -> Text:
    """The answer, behind what it is about."""
    about = words((f"{page.subject}: ", Tone.STRONG)) if page.subject else Text()
    return about.append_text(sentence(page.headline))


def sentence(line: Line) -> Text:
    """A line of words behind its mark."""
    return words((line.marked, line.tone), line.more)


def lay_out(item: Item, whole: bool = False) -> Iterator[RenderableType]:
    """An item as what a terminal shows of it: of a plot nothing, of a table ``whole`` all rows."""
    match item:
        case Line():
            yield Text("  ").append_text(sentence(item)) if item.mark else sentence(item)
        case Field():
            yield words(*pieces(item))
            for line in item.lines:
                yield words((f"    {line}", Tone.QUIET))
        case Table():
            yield from _table(item, len(item.rows) if whole else item.shown)


def pieces(field: Field) -> Pieces:
    """The label, the value and the note of a field."""
    label = (f"  {field.label:<13} ", Tone.QUIET)
    note = (f"  ({field.note})" if field.note else "", Tone.QUIET)
    return [label, (field.value, field.tone), note]


def is_urgent(item: Item) -> bool:
    """Whether something in it is bad."""
    match item:
        case Line() | Field():
            return item.tone is Tone.BAD
        case Table():
            cells = (cell for row in item.rows for cell in row)
            return any(isinstance(cell, Cell) and cell.tone is Tone.BAD for cell in cells)
    return False


def _table(found: Table, shown: int) -> Iterator[RenderableType]:
    if found.caption:
        yield words((found.caption, Tone.QUIET))
    rows = [[words((title, Tone.QUIET)) for title, _ in found.headings]]
    rows += [[*map(_cell, row)] for row in found.rows[:shown]]
    if found.total:
        rows.append([*map(_cell, found.total)])
        for cell in rows[-1]:
            cell.stylize_before(HEAD_STYLE)
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        line = Text()
        for cell, width, (_, kind) in zip(row, widths, found.headings, strict=True):
            gap = " " * (width - cell.cell_len)
            line.append_text(cell if kind else Text(gap) + cell).append(f"{gap if kind else ''}  ")
        line.rstrip()
        yield line
    if (more := len(found.rows) - shown) > 0:
        yield words((f"and {more:,} more", Tone.QUIET))


def _cell(cell: str | Cell) -> Text:
    if isinstance(cell, str):
        return words(cell)
    if cell.bar is not None:
        return words((_bar(cell.bar, _BAR), Tone.GOOD))
    return words((cell.text, cell.tone))


def _bar(share: float, room: int) -> str:
    """A bar over this share of so many characters; anything above 0 can be seen."""
    eighths = round(share * room * 8)
    if share > 0:
        eighths = max(1, eighths)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
