"""The pieces that every view is laid out with, so that all of them look alike."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from drainer.escape import is_printable, printable

OK = "✓"
BAD = "✗"
GOOD_STYLE = Style.parse("green")
WARN_STYLE = Style.parse("bold yellow")
BAD_STYLE = Style.parse("bold red")
HEAD_STYLE = Style.parse("bold")
HINT_STYLE = Style.parse("bold cyan")
QUIET_STYLE = Style.parse("dim")

SHOWN = 12  # partitions in a table, before the rest is told in one line


def safe(shown: RenderableType) -> RenderableType:
    """A text as one line of what can be seen: it gives up its colours if that has to be made."""
    match shown:
        case str():
            return printable(shown)
        case Text() if not is_printable(shown.plain):
            return shown.blank_copy(printable(shown.plain))
    return shown


class _Table(Table):
    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        super().add_row(*(safe(cell or "") for cell in cells), **more)


def table(*columns: str) -> Table:
    """An empty table: no frame, figures to the right, columns without a title to the left."""
    made = _Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=QUIET_STYLE)
    for title in columns:
        made.add_column(Text(title), justify="right" if title else "left", no_wrap=True)
    return made


def field(label: str, value: str, note: str = "") -> Text:
    """One ``label  value`` line; the note after it is dim."""
    line = Text.assemble((f"  {label:<13} ", QUIET_STYLE), printable(value))
    if note:
        line.append(f"  ({printable(note)})", QUIET_STYLE)
    return line


def verdict(ok: bool, sentence: str) -> Text:
    """A sentence behind its ✓ or ✗."""
    mark = (f"  {OK} ", GOOD_STYLE) if ok else (f"  {BAD} ", BAD_STYLE)
    return Text.assemble(mark, (printable(sentence), "" if ok else BAD_STYLE))
