"""Bars to compare a few values by: one glance for what a table needs reading for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from drainer.escape import printable
from drainer.view import figures
from drainer.view.page import Bars

_WIDEST = 100  # characters of a whole line; bars much longer than this don't read better
_LABEL = 40  # characters of a label
_EIGHTHS = " ▏▎▍▌▋▊▉"


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
