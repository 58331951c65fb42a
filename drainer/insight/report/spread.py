"""Charts of how something is spread: histograms, curves, and bars side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axis import Axis
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, NullLocator

from drainer.escape import printable
from drainer.view import figures
from drainer.view.report.chart import INKS, Chart, Key, Line, drawn, scale

_EDGES_MOST = 6  # that are labelled, for the labels not to touch
_BAR_HEIGHT = 26


@dataclass(frozen=True, slots=True)
class Limit:
    """A line across a chart: what should not be passed."""

    value: float
    label: str


def histogram(
    name: str,
    title: str,
    tells: str,
    edges: Sequence[str],
    values: Sequence[float],
    x_label: str,
    unit: str = "",
) -> Chart:
    """A bar for each value, all of one width; ``edges`` are one more, and labelled sparsely."""
    with drawn(name, title, tells, [Key("c1", title)]) as drawing:
        axes = drawing.axes
        axes.bar(range(len(values)), values, width=0.92, align="edge", color=INKS["c1"])
        step = -(-len(edges) // _EDGES_MOST)
        # From the end on: the youngest and the largest are asked for most.
        places = sorted(range(len(edges) - 1, -1, -step))
        axes.set_xticks([place - 0.04 for place in places], [edges[place] for place in places])
        axes.set_ylim(bottom=0)
        scale(axes, unit, log=False)
        axes.set_xlabel(x_label)
    return drawing.chart


def curve(
    name: str,
    title: str,
    tells: str,
    x: Sequence[float],
    lines: Sequence[Line],
    x_label: str,
    unit: str,
    *,
    log: bool = False,
    limit: Limit | None = None,
) -> Chart:
    """Lines with dots over a logarithmic x, which are counts."""
    keys = [line.key for line in lines]
    if limit is not None:
        keys.append(Key("bad", limit.label, dashed=True))
    with drawn(name, title, tells, keys) as drawing:
        axes = drawing.axes
        axes.set_xscale("log")
        for line in lines:
            axes.plot(
                x,
                line.values,
                color=INKS[line.ink],
                linestyle=(0, (4, 3)) if line.dashed else "solid",
                marker="" if line.dashed else "o",
                markersize=3.6,
            )
        if limit is not None:
            axes.axhline(limit.value, color=INKS["bad"], linestyle=(0, (4, 3)))
        if log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.02 if unit == "share" else None)
        scale(axes, unit, log)
        if log:
            _tick_durations(axes.yaxis, axes.get_ylim())
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        if len(x) <= _EDGES_MOST + 2:
            axes.set_xticks(x)
        axes.set_xlabel(x_label)
    return drawing.chart


def durations(
    name: str,
    title: str,
    tells: str,
    rows: Sequence[tuple[str, float, str]],
    limit: Limit | None = None,
) -> Chart:
    """One bar for each (label, seconds, text), on a logarithmic scale: 9 s beside 14 days."""
    keys = [] if limit is None else [Key("c1", "takes"), Key("bad", limit.label, dashed=True)]
    height = 60 + _BAR_HEIGHT * max(3, len(rows))
    with drawn(name, title, tells, keys, height) as drawing:
        axes = drawing.axes
        labels = [printable(label) for label, _, _ in rows]
        values = [max(value, 1e-3) for _, value, _ in rows]
        bars = axes.barh(labels, values, height=0.62, color=INKS["c1"])
        behind = {"facecolor": INKS["card"], "linewidth": 0, "pad": 1}  # so that no line crosses it
        texts = [text for *_, text in rows]
        axes.bar_label(bars, texts, padding=4, color=INKS["muted"], bbox=behind)
        axes.invert_yaxis()
        axes.set_xscale("log")
        known = [*values, *([limit.value] if limit and limit.value > 0 else [])]
        axes.set_xlim(min(known) / 4, max(known) * 4)  # room for the texts behind the bars
        if limit is not None and limit.value > 0:
            axes.axvline(limit.value, color=INKS["bad"], linestyle=(0, (4, 3)))
        _tick_durations(axes.xaxis, axes.get_xlim())
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_xlabel("logarithmic")
    return drawing.chart


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
