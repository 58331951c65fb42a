"""Plots as SVG: drawn by matplotlib, coloured by the page they are in, with a text to be read out.

Colours are named, and the page's style says what they are in the light and in the dark.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import (
    EngFormatter,
    FixedLocator,
    FuncFormatter,
    MaxNLocator,
    NullLocator,
    PercentFormatter,
)

from drainer.view import figures
from drainer.view.page import Clock, Counts, Plot, Series

WIDTH, HEIGHT = 400, 215  # in the units of the page, of which text has 10.5
_STEPS = [1, 2, 2.5, 5, 10]
_CLOCK_FROM_S = 180  # shorter ones are drawn over seconds since their beginning
_TICKS_MOST = 6  # for their labels not to touch
_DASHES = (0, (4, 3))

# What matplotlib is given, and what the page's style calls it. No two may be alike.
_INKS = {
    "muted": "#010101",
    "grid": "#010102",
    "bad": "#010103",
    "trouble": "#010104",
    **{f"c{n}": f"#0102{n:02x}" for n in range(1, 10)},
}
_NAMES = {colour: name for name, colour in _INKS.items()}
_COLOUR = re.compile(f"(?<=: )({'|'.join(_NAMES)})")
_BOX = re.compile(r'viewBox="[^"]*"')
_LEFT_OUT = re.compile(r'<(metadata|style).*?</\1>|(?<=<g) id="[^"]*"', re.DOTALL)

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a $ in a sub-key is a $
    "font.size": 10.5,
    "axes.edgecolor": _INKS["grid"],
    "axes.labelcolor": _INKS["muted"],
    "axes.axisbelow": True,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "xtick.color": _INKS["grid"],
    "ytick.color": _INKS["grid"],
    "xtick.labelcolor": _INKS["muted"],
    "ytick.labelcolor": _INKS["muted"],
    "ytick.major.size": 0,
    "grid.color": _INKS["grid"],
    "grid.linewidth": 0.7,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.7,
    "lines.solid_joinstyle": "round",
}
_ROUND_S = (
    *(step * 10.0**power for power in range(-3, 1) for step in (1, 3)),
    *(10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0),
    *(86400.0 * days for days in (1, 3, 7, 14, 30, 90, 365, 3650)),
)  # durations that read well


def draw(plot: Plot) -> Markup:
    """The plot as a picture for a page."""
    # It warns of a cache folder that it can't have, on a drain's own stderr.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with warnings.catch_warnings(), matplotlib.rc_context({**_STYLE, "svg.hashsalt": plot.name}):
        warnings.simplefilter("ignore")  # of glyphs that its font lacks: the browser's has them
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), layout="constrained")
        axes = figure.subplots()
        match plot.x:
            case Clock():
                _over_time(axes, plot, plot.x)
            case Counts():
                _curve(axes, plot, plot.x)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True)
    return _made_ours(file.getvalue(), plot)


def _made_ours(drawn: str, plot: Plot) -> Markup:
    """The SVG with the page's colours and a text to be read out; safe to stand in the page."""
    # Its style would be the whole page's, and no two ids on a page may be alike: the groups' are.
    _, _, inside = _LEFT_OUT.sub("", drawn[drawn.index("<svg") :]).partition(">")
    coloured = _COLOUR.sub(lambda match: f"var(--{_NAMES[match[0]]})", inside)
    box = _BOX.search(drawn)
    assert box is not None
    name = plot.name
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        f' {box[0]} role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(plot.title)}</title>'
        f'<desc id="{name}-desc">{escape(plot.tells)}</desc>{coloured}'
    )


def _over_time(axes: Axes, plot: Plot, clock: Clock) -> None:
    by_clock = bool(clock.seconds) and clock.seconds[-1] - clock.seconds[0] >= _CLOCK_FROM_S

    def at(seconds: float) -> Any:
        return clock.begun + timedelta(seconds=seconds) if by_clock else seconds

    x = [at(seconds) for seconds in clock.seconds]
    for begins, ends in clock.troubles:
        axes.axvspan(at(begins), at(ends), color=_INKS["trouble"], lw=0, alpha=0.25)
    if plot.stacked:
        colours = [_INKS[each.ink] for each in plot.series]
        axes.stackplot(x, *(s.values for s in plot.series), colors=colours, alpha=0.85, lw=0)
    for each in () if plot.stacked else plot.series:
        style = "steps-post" if each.stepped else "default"
        _line(axes, x, each, drawstyle=style)
        if each.filled:
            axes.fill_between(x, each.values, color=_INKS[each.ink], alpha=0.16, lw=0)
    log = plot.log and any(value > 0 for each in plot.series for value in each.values)
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
        if plot.unit == "" and axes.get_ylim()[1] < 1:
            axes.set_ylim(top=1)
    _scale(axes, plot.unit, log=log)
    if len(x) > 1:
        axes.set_xlim(x[0], x[-1])
    zone = figures.zone(clock.begun)
    if by_clock:
        tz = clock.begun.tzinfo
        locator: Any = AutoDateLocator(minticks=3, maxticks=6, tz=tz)  # type: ignore[no-untyped-call]
        form: Any = ConciseDateFormatter(locator, tz=tz, show_offset=False)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(form)
        axes.set_xlabel(f"time, {zone}")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=_STEPS))
        axes.set_xlabel(f"seconds since {clock.begun:%H:%M:%S} {zone}")


def _curve(axes: Axes, plot: Plot, counts: Counts) -> None:
    """Lines with dots over a logarithmic x."""
    axes.set_xscale("log")
    for each in plot.series:
        _line(axes, counts.values, each, marker="" if each.dashed else "o", markersize=3.6)
    if plot.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.02 if plot.unit == "share" else None)
    _scale(axes, plot.unit, log=plot.log)
    if plot.log and plot.unit == "s":
        low, high = axes.get_ylim()
        inside = [value for value in _ROUND_S if low <= value <= high]
        axes.yaxis.set_major_locator(FixedLocator(inside[:: -(-len(inside) // _TICKS_MOST) or 1]))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if len(counts.values) <= _TICKS_MOST + 2:
        axes.set_xticks(counts.values)
    axes.set_xlabel(counts.title)


def _line(axes: Axes, x: Sequence[Any], series: Series, **style: Any) -> None:
    dashes = _DASHES if series.dashed else "solid"
    axes.plot(x, series.values, color=_INKS[series.ink], linestyle=dashes, **style)


def _scale(axes: Axes, unit: str, *, log: bool) -> None:
    """Ticks of the y axis: of counts when there is no unit; ``s``, ``bytes`` and ``share`` else."""
    form: Any = EngFormatter(sep="")
    match unit:
        case "s":
            form = FuncFormatter(lambda value, _: figures.plain_duration(value))
        case "bytes":
            form = FuncFormatter(lambda value, _: figures.size(int(value)))
        case "share":
            form = PercentFormatter(1, decimals=None)
    axes.yaxis.set_major_formatter(form)
    if not log:
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=_STEPS, integer=unit == ""))
    axes.grid(axis="y")
