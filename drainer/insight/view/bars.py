"""Bars to compare a few values by: one glance for what a table needs reading for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from drainer.escape import printable
from drainer.view.layout import HEAD_STYLE, QUIET_STYLE
from drainer.view.terminal import Terminal

_WIDEST = 100  # characters of a whole line; bars much longer than this don't read better
_EIGHTHS = " ▏▎▍▌▋▊▉"


def show_comparison(
    terminal: Terminal,
    title: str,
    rows: Sequence[tuple[str, float, str]],
    *,
    log: bool = False,
) -> None:
    """One bar for each (label, value, text), the last one stressed: it is what is argued for.

    Values are 0 or more. ``log`` draws orders of magnitude, and says so: 9 s is no visible bar
    beside 14 days otherwise.
    """
    heading = Text(printable(title), HEAD_STYLE)
    if log:
        heading.append("  (log scale)", QUIET_STYLE)
    terminal.show(heading)
    labels = max((len(label) for label, _, _ in rows), default=0)
    texts = max((len(text) for _, _, text in rows), default=0)
    room = max(10, min(terminal.console.width, _WIDEST) - labels - texts - 6)
    shares = _shares([value for _, value, _ in rows], log)
    for number, ((label, _, text), share) in enumerate(zip(rows, shares, strict=True)):
        stressed = number == len(rows) - 1
        style = "green" if stressed else "yellow"
        line = Text(f"  {printable(label):<{labels}}  ")
        line.append(bar_of(share, room), style)
        line.append(f"  {printable(text)}", HEAD_STYLE if stressed else "")
        terminal.show(line)


def show_bars(
    terminal: Terminal,
    title: str,
    rows: Sequence[tuple[str, float, str]],
    *,
    note: str = "",
    longest: float | None = None,
) -> None:
    """One bar for each (label, value, text), all alike: a histogram, or the largest of many.

    ``longest`` is the value that fills the line; the largest one does when it is not given.
    """
    heading = Text(printable(title), HEAD_STYLE)
    if note:
        heading.append(f"  ({printable(note)})", QUIET_STYLE)
    terminal.show(heading)
    if not rows:
        return
    cells = [cell_len(printable(label)) for label, _, _ in rows]
    texts = max(cell_len(text) for _, _, text in rows)
    room = max(10, min(terminal.console.width, _WIDEST) - max(cells) - texts - 6)
    largest = longest or max(value for _, value, _ in rows) or 1.0
    for (label, value, text), width in zip(rows, cells, strict=True):
        line = Text(f"  {printable(label)}{' ' * (max(cells) - width)}  ")
        drawn = bar_of(min(1.0, value / largest), room)
        line.append(drawn, "cyan")
        line.append(f"{' ' * (room - cell_len(drawn))}  {printable(text):>{texts}}")
        terminal.show(line)


def _shares(values: Sequence[float], log: bool) -> list[float]:
    largest = max(values, default=0.0)
    if largest <= 0:
        return [0.0] * len(values)
    if not log:
        return [max(0.0, value) / largest for value in values]
    # One decade below the smallest is the zero line, so that the smallest still has a bar.
    floor = math.log10(min(value for value in values if value > 0)) - 1
    span = math.log10(largest) - floor
    return [(math.log10(value) - floor) / span if value > 0 else 0.0 for value in values]


def bar_of(share: float, room: int) -> str:
    """A bar over this share of so many characters; anything above 0 can be seen."""
    eighths = round(share * room * 8)
    if share > 0:
        eighths = max(1, eighths)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
