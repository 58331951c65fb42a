"""How a page looks on a terminal, and the pieces that other views are laid out with as well."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import RenderableType
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from drainer.escape import is_printable, printable
from drainer.view import figures
from drainer.view.page import (
    BAD,
    OK,
    SHOWN,
    Bars,
    Cell,
    Column,
    Edges,
    Field,
    Item,
    Line,
    Page,
    Plot,
    Table,
    Tone,
    WayOn,
)

GOOD_STYLE = Style.parse("green")
WARN_STYLE = Style.parse("bold yellow")
BAD_STYLE = Style.parse("bold red")
HEAD_STYLE = Style.parse("bold")
HINT_STYLE = Style.parse("bold cyan")
QUIET_STYLE = Style.parse("dim")
STYLES: dict[str, Style] = {
    Tone.PLAIN: Style.null(),
    Tone.STRONG: HEAD_STYLE,
    Tone.GOOD: GOOD_STYLE,
    Tone.WARN: WARN_STYLE,
    Tone.BAD: BAD_STYLE,
    Tone.QUIET: QUIET_STYLE,
}
_BAR = 24  # characters of one in a table
_WIDEST = 100  # characters of a whole line; bars much longer than this don't read better
_LABEL = 40  # characters of a label
_EIGHTHS = " ▏▎▍▌▋▊▉"

__all__ = ["BAD", "OK", "SHOWN"]


def safe(shown: RenderableType) -> RenderableType:
    """A text as one line of what can be seen: it gives up its colours if that has to be made."""
    match shown:
        case str():
            return printable(shown)
        case Text() if not is_printable(shown.plain):
            return shown.blank_copy(printable(shown.plain))
    return shown


def headline(page: Page) -> Text:
    """The answer, behind what it is about."""
    line = Text()
    if page.subject:
        line.append(f"{printable(page.subject)}: ", HEAD_STYLE)
    return line.append_text(sentence(page.headline))


def sentence(line: Line) -> Text:
    """A line of words behind its mark."""
    found = Text(printable(line.marked), STYLES[line.tone])
    found.append(printable(line.more), Style.null())
    if line.note:
        found.append(f"  ({printable(line.note)})", QUIET_STYLE)
    return found


def way_on(way: WayOn) -> Iterator[Text]:
    """The command after its label, to be copied, and what it needs below it."""
    yield Text.assemble((f"{way.label}: ", HEAD_STYLE), printable(way.command))
    if way.note:
        yield Text(f"  {printable(way.note)}")


def lay_out(item: Item, width: int) -> Iterator[RenderableType]:
    """An item as what a terminal of so many columns shows of it: of most plots nothing."""
    match item:
        case Line():
            yield Text("  ").append_text(sentence(item)) if item.mark else sentence(item)
        case Field():
            yield field(item.label, item.value, item.note, STYLES[item.tone])
            for line in item.lines:
                yield Text(f"    {printable(line)}", QUIET_STYLE)
        case Table():
            yield from _table(item)
        case Bars():
            yield from bars(item, width)
        case Plot(x=Edges(labels=edges)):
            values = item.series[0].values
            whole = sum(values) or 1
            rows = tuple(
                (f"{low} to {high}", value / whole, figures.share(value / whole))
                for low, high, value in zip(edges, edges[1:], values, strict=False)
            )
            yield from bars(Bars(item.title, rows, item.note), width)


def is_shown(item: Item) -> bool:
    """Whether a terminal has room for it."""
    return not isinstance(item, Plot) or isinstance(item.x, Edges)


def is_urgent(item: Item) -> bool:
    """Whether something in it is bad."""
    match item:
        case Line() | Field():
            return item.tone is Tone.BAD
        case Table():
            cells = (cell for row in item.rows for cell in row)
            return any(isinstance(cell, Cell) and cell.tone is Tone.BAD for cell in cells)
    return False


def _table(found: Table) -> Iterator[RenderableType]:
    if found.caption:
        yield Text(printable(found.caption), QUIET_STYLE)
    made = table(*(each if isinstance(each, str) else each.title for each in found.columns))
    for column, each in zip(made.columns, found.columns, strict=True):
        column.justify = "left" if isinstance(each, Column) or not each else "right"
    for row in found.rows[: found.shown]:
        made.add_row(*map(_cell, row))
    if found.total:
        made.add_row(*map(_cell, found.total), style=HEAD_STYLE)
    yield made
    if found.rest and len(found.rows) > found.shown:
        yield Text(printable(found.rest), QUIET_STYLE)


def _cell(cell: str | Cell) -> Text:
    if isinstance(cell, str):
        return Text(printable(cell))
    if cell.bar is not None:
        return Text(bar_of(cell.bar, _BAR), GOOD_STYLE)
    return Text(printable(cell.text), STYLES[cell.tone])


class _Table(RichTable):
    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        super().add_row(*(safe(cell or "") for cell in cells), **more)


def table(*columns: str) -> RichTable:
    """An empty table: no frame, figures to the right, columns without a title to the left."""
    made = _Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=QUIET_STYLE)
    for title in columns:
        made.add_column(Text(printable(title)), justify="right" if title else "left", no_wrap=True)
    return made


def field(label: str, value: str, note: str = "", style: Style = STYLES[Tone.PLAIN]) -> Text:
    """One ``label  value`` line; the note after it is dim."""
    line = Text.assemble((f"  {label:<13} ", QUIET_STYLE), (printable(value), style))
    if note:
        line.append(f"  ({printable(note)})", QUIET_STYLE)
    return line


def bars(found: Bars, width: int) -> Iterator[Text]:
    """The title, and a line for each bar."""
    heading = Text(printable(found.title), "bold")
    if note := "log scale" if found.log else found.note:
        heading.append(f"  ({printable(note)})", "dim")
    yield heading
    labels = [printable(figures.shorten(label, _LABEL)) for label, _, _ in found.rows]
    texts = [printable(text) for _, _, text in found.rows]
    widest, text_width = (max(map(cell_len, each), default=0) for each in (labels, texts))
    room = max(10, min(width, _WIDEST) - widest - text_width - 6)
    shares = _shares([value for _, value, _ in found.rows], found.longest, log=found.log)
    for label, share, text in zip(labels, shares, texts, strict=True):
        drawn = bar_of(share, room)
        line = Text(f"  {label}{' ' * (widest - cell_len(label))}  ")
        line.append(drawn, "cyan")
        gap = room - cell_len(drawn) + text_width - cell_len(text)
        line.append(f"  {text}" if found.log else f"{' ' * gap}  {text}")
        yield line


def bar_of(share: float, room: int) -> str:
    """A bar over this share of so many characters; anything above 0 can be seen."""
    eighths = round(share * room * 8)
    if share > 0:
        eighths = max(1, eighths)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _shares(values: Sequence[float], longest: float | None, *, log: bool) -> list[float]:
    largest = longest or max(values, default=0.0)
    if largest <= 0:
        return [0.0] * len(values)
    if not log:
        return [min(1.0, max(0.0, value) / largest) for value in values]
    # One decade below the smallest is the zero line, so that the smallest still has a bar.
    floor = math.log10(min(value for value in values if value > 0)) - 1
    span = math.log10(largest) - floor
    return [(math.log10(value) - floor) / span if value > 0 else 0.0 for value in values]
