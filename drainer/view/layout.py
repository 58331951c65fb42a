"""The pieces that every view is laid out with, so that all of them look alike."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.style import Style
from rich.table import Table
from rich.text import Text

OK = "✓"
BAD = "✗"
GOOD_STYLE = Style.parse("green")
WARN_STYLE = Style.parse("bold yellow")
BAD_STYLE = Style.parse("bold red")
HEAD_STYLE = Style.parse("bold")
HINT_STYLE = Style.parse("bold cyan")
QUIET_STYLE = Style.parse("dim")

SHOWN = 12  # partitions in a table, before the rest is told in one line

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


def printable(text: str) -> str:
    """Text with its control characters spelled out: an error text must not steer the terminal."""
    return text.translate(_CONTROL)


def command(verb: str, plan: str | Path) -> str:
    """The exact command for a plan, ready to be copied: ``drainer resume 'my plan.json'``."""
    return f"drainer {verb} {shlex.quote(str(plan))}"


def table(*columns: str) -> Table:
    """An empty table: no frame, figures to the right, columns without a title to the left."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=QUIET_STYLE)
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
