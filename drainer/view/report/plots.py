"""Plots of a page, drawn as charts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from drainer.escape import printable
from drainer.view import figures
from drainer.view.page import Clock, Counts, Edges, Labels, Limit, Plot, Series
from drainer.view.report.chart import HEIGHT, INKS, STEPS, Chart, Key, drawn, scale

_CLOCK_FROM_S = 180  # shorter ones are told in seconds since their beginning
_EDGES_MOST = 6  # that are labelled, for the labels not to touch
_BAR_HEIGHT = 26
_DASHES = (0, (4, 3))


def draw(plot: Plot) -> Chart:
    """The plot as a chart for a page."""
    keys = [Key(each.ink, each.label, each.dashed) for each in plot.series]
    if plot.limit is not None:
        keys.append(Key("bad", plot.limit.label, dashed=True))
    height = HEIGHT
    if isinstance(plot.x, Labels):
        height = 60 + _BAR_HEIGHT * max(3, len(plot.x.labels))
    with drawn(plot.name, plot.title, plot.tells, keys, height) as drawing:
        match plot.x:
            case Clock():
                _over_time(drawing.axes, plot, plot.x)
            case Edges():
                _histogram(drawing.axes, plot, plot.x)
            case Counts():
                _curve(drawing.axes, plot, plot.x)
            case Labels():
                _durations(drawing.axes, plot, plot.x)
    return drawing.chart


def _over_time(axes: Axes, plot: Plot, clock: Clock) -> None:
    by_clock = bool(clock.seconds) and clock.seconds[-1] - clock.seconds[0] >= _CLOCK_FROM_S

    def at(seconds: float) -> Any:
        return clock.begun + timedelta(seconds=seconds) if by_clock else seconds

    x = [at(seconds) for seconds in clock.seconds]
    for begins, ends in clock.troubles:
        axes.axvspan(at(begins), at(ends), color=INKS["trouble"], lw=0, alpha=0.25)
    if plot.stacked:
        colours = [INKS[each.ink] for each in plot.series]
        values = [each.values for each in plot.series]
        axes.stackplot(x, *values, colors=colours, alpha=0.85, lw=0)
    else:
        for each in plot.series:
            _draw(axes, x, each)
    log = plot.log and any(value > 0 for each in plot.series for value in each.values)
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
        if plot.unit == "" and axes.get_ylim()[1] < 1:
            axes.set_ylim(top=1)
    scale(axes, plot.unit, log)
    if len(x) > 1:
        axes.set_xlim(x[0], x[-1])
    zone = figures.zone(clock.begun)
    if by_clock:
        tz = clock.begun.tzinfo
        locator: Any = AutoDateLocator(minticks=3, maxticks=6, tz=tz)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(
            ConciseDateFormatter(locator, tz=tz, show_offset=False)  # type: ignore[no-untyped-call]
        )
        axes.set_xlabel(f"time, {zone}")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
        axes.set_xlabel(f"seconds since {clock.begun:%H:%M:%S} {zone}")


def _draw(axes: Axes, x: Sequence[Any], series: Series) -> None:
    colour = INKS[series.ink]
    if series.filled:
        axes.fill_between(x, series.values, color=colour, alpha=0.16, lw=0)
    axes.plot(
        x,
        series.values,
        color=colour,
        linestyle=_DASHES if series.dashed else "solid",
        drawstyle="steps-post" if series.stepped else "default",
    )


def _histogram(axes: Axes, plot: Plot, edges: Edges) -> None:
    """A bar for each value, all of one width; the edges are labelled sparsely."""
    (series,) = plot.series
    axes.bar(
        range(len(series.values)), series.values, width=0.92, align="edge", color=INKS[series.ink]
    )
    step = -(-len(edges.labels) // _EDGES_MOST)
    # From the end on: the youngest and the largest are asked for most.
    places = sorted(range(len(edges.labels) - 1, -1, -step))
    axes.set_xticks([place - 0.04 for place in places], [edges.labels[at] for at in places])
    axes.set_ylim(bottom=0)
    scale(axes, plot.unit, log=False)
    axes.set_xlabel(edges.title)


def _curve(axes: Axes, plot: Plot, counts: Counts) -> None:
    """Lines with dots over a logarithmic x."""
    axes.set_xscale("log")
    for each in plot.series:
        axes.plot(
            counts.values,
            each.values,
            color=INKS[each.ink],
            linestyle=_DASHES if each.dashed else "solid",
            marker="" if each.dashed else "o",
            markersize=3.6,
        )
    if plot.limit is not None:
        axes.axhline(plot.limit.value, color=INKS["bad"], linestyle=_DASHES)
    if plot.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.02 if plot.unit == "share" else None)
    scale(axes, plot.unit, plot.log)
    if plot.log and plot.unit == "s":
        _tick_durations(axes.yaxis, axes.get_ylim())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if len(counts.values) <= _EDGES_MOST + 2:
        axes.set_xticks(counts.values)
    axes.set_xlabel(counts.title)


def _durations(axes: Axes, plot: Plot, rows: Labels) -> None:
    """One bar for each, on a logarithmic scale: 9 s beside 14 days."""
    (series,) = plot.series
    values = [max(value, 1e-3) for value in series.values]
    labels = [printable(label) for label in rows.labels]
    bars = axes.barh(labels, values, height=0.62, color=INKS[series.ink])
    behind = {"facecolor": INKS["card"], "linewidth": 0, "pad": 1}  # so that no line crosses it
    axes.bar_label(bars, rows.texts, padding=4, color=INKS["muted"], bbox=behind)
    axes.invert_yaxis()
    axes.set_xscale("log")
    limit: Limit | None = plot.limit if plot.limit and plot.limit.value > 0 else None
    known = [*values, *([limit.value] if limit else [])]
    axes.set_xlim(min(known) / 4, max(known) * 4)  # room for the texts behind the bars
    if limit is not None:
        axes.axvline(limit.value, color=INKS["bad"], linestyle=_DASHES)
    _tick_durations(axes.xaxis, axes.get_xlim())
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlabel("logarithmic")


_ROUND_S = (
    *(step * 10.0**power for power in range(-3, 1) for step in (1, 3)),
    *(10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0),
    *(86400.0 * days for days in (1, 3, 7, 14, 30, 90, 365, 3650)),
)  # durations that read well


def _tick_durations(axis: Axis, ends: tuple[float, float]) -> None:
    inside = [value for value in _ROUND_S if ends[0] <= value <= ends[1]]
    step = -(-len(inside) // _EDGES_MOST) or 1
    axis.set_major_locator(FixedLocator(inside[::step]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: figures.plain_duration(value)))
