"""The picture of what brokers bear: the boundary over the trials, in a page or as PNG."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from drainer.limits.search.boundary import Boundary, Limits
from drainer.limits.search.point import Trial, Verdict
from drainer.limits.search.settings import Axis, Value
from drainer.limits.view.limits import VERDICTS, at_least, held_fixed, is_open, value_words
from drainer.view import figures
from drainer.view.report.chart import INKS, Chart, Key, drawn

HEIGHT = 300
APART = 1.22  # the first and the last trial of a size lie so far apart from its place
REACH = 1.6  # times the smallest and the largest size, up to where the cap is drawn
ROUND = tuple(step * 10.0**power for power in range(-1, 9) for step in (1, 2, 5))
DECADES_MB = tuple(10.0**power for power in range(-4, 7))
TICKS_MOST = 7

# Shapes tell as much as colours do.
MARKERS = {
    Verdict.SAFE: ("o", "c3", "●"),
    Verdict.OVERLOADED: ("X", "bad", "✖"),
    Verdict.CLIENTS: ("^", "c5", "▲"),
    Verdict.UNCLEAR: ("d", "c8", "◆"),
}
_GLYPHS = "".join(glyph for _, _, glyph in MARKERS.values()) + " "
BOUNDARY, _CAP = "c1", "c2"
_ON_PAPER = {
    "muted": "#59636f",
    "grid": "#d5dae0",
    "bad": "#b3261e",
    "card": "#ffffff",
    "text": "#1d2430",
    "c1": "#2563b0",
    "c2": "#c2571a",
    "c3": "#1d8a6b",
    "c5": "#a87900",
    "c8": "#6b7785",
}
_PAPER_STYLE: dict[Any, Any] = {
    "text.parse_math": False,
    "font.size": 10,
    "axes.edgecolor": _ON_PAPER["grid"],
    "axes.labelcolor": _ON_PAPER["muted"],
    "text.color": _ON_PAPER["text"],
    "xtick.color": _ON_PAPER["grid"],
    "ytick.color": _ON_PAPER["grid"],
    "xtick.labelcolor": _ON_PAPER["muted"],
    "ytick.labelcolor": _ON_PAPER["muted"],
    "grid.color": _ON_PAPER["grid"],
    "grid.linewidth": 0.7,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.9,
}


def boundary_chart(limits: Limits) -> Chart:
    """The boundary over all trials, for a page."""
    with drawn("boundary", _title(limits), _tells(limits), _keys(limits), HEIGHT) as drawing:
        _draw(drawing.axes, limits, INKS)
    return drawing.chart


def boundary_png(limits: Limits) -> bytes:
    """The same picture as a PNG of 1,200 by 840 pixels."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with warnings.catch_warnings(), matplotlib.rc_context(_PAPER_STYLE):
        warnings.simplefilter("ignore")
        figure = Figure(figsize=(8, 5.6), layout="constrained", facecolor=_ON_PAPER["card"])
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        axes.set_title(_title(limits), loc="left", fontsize=13, fontweight="semibold")
        handles = _draw(axes, limits, _ON_PAPER)
        labels = [key.label.lstrip(_GLYPHS) for key in _keys(limits)]
        axes.legend(
            handles,
            labels,
            loc="lower left" if limits.settings.axis is Axis.MESSAGE_BYTES else "best",
            frameon=True,
            edgecolor="none",
            framealpha=0.85,
        )
        brokers = figures.counted(limits.brokers, "broker")
        figure.supxlabel(
            f"{brokers}, {held_fixed(limits.settings)}",
            fontsize=8.5,
            color=_ON_PAPER["muted"],
            x=0.5,
        )
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
    return file.getvalue()


def _draw(axes: Axes, limits: Limits, ink: Mapping[str, str]) -> list[Any]:
    """Draws all of it; gives what the keys are of, in their order."""
    places = _places(limits)
    sizes = limits.settings.axis is Axis.MESSAGE_BYTES
    axes.set_yscale("log")
    if sizes:
        axes.set_xscale("log")
    handles = [
        *_draw_boundary(axes, limits, places, ink),
        *(_draw_trials(axes, limits, places, verdict, ink) for verdict in _seen(limits)),
    ]
    xs = list(places.values())
    if sizes:
        axes.set_xlim(min(xs) / REACH**1.3, max(xs) * REACH**2.6)  # room for words
    else:
        axes.set_xlim(-0.5, len(xs) - 0.3)
    rates = _rates(limits)
    if rates:
        axes.set_ylim(min(rates) / 1.6, max(rates) * 2)
    if sizes:
        _draw_byte_rates(axes, limits, ink)
    axes.xaxis.set_major_locator(FixedLocator(xs))
    axes.xaxis.set_minor_locator(NullLocator())
    words = {x: value_words(limits.settings.axis, value) for value, x in places.items()}
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: words.get(x, "")))
    tick_rates(axes)
    axes.set_xlabel(
        "bytes of a message, logarithmic" if sizes else limits.settings.axis.value.replace("-", " ")
    )
    axes.set_ylabel("messages/s, logarithmic")
    return handles


def _draw_boundary(
    axes: Axes, limits: Limits, places: Mapping[Value, float], ink: Mapping[str, str]
) -> list[Any]:
    known = [
        each
        for value in places
        if (each := limits.boundary(value)) is not None and each.messages_per_s > 0
    ]
    if not known:
        return []
    xs = [places[each.value] for each in known]
    rates = [each.messages_per_s for each in known]
    lows = [min(each.low, each.messages_per_s) or each.messages_per_s for each in known]
    highs = [highest(each) for each in known]
    style = "solid" if len(known) > 1 else "none"
    if len(known) > 1:
        axes.fill_between(xs, lows, highs, color=ink[BOUNDARY], alpha=0.14, lw=0)
    (line,) = axes.plot(xs, rates, color=ink[BOUNDARY], linestyle=style, zorder=2)
    bars = axes.errorbar(
        xs,
        rates,
        [
            [rate - low for rate, low in zip(rates, lows, strict=True)],
            [high - rate for rate, high in zip(rates, highs, strict=True)],
        ],
        fmt="_",
        markersize=16,
        color=ink[BOUNDARY],
        capsize=5,
        elinewidth=1.3,
        zorder=4,
    )
    for x, each in zip(xs, known, strict=True):
        if is_open(each):
            axes.annotate(
                "",
                (x, each.messages_per_s),
                xytext=(0, 30),
                textcoords="offset points",
                arrowprops={"arrowstyle": "<-", "color": ink[BOUNDARY], "lw": 1.8},
                zorder=5,
            )
        axes.annotate(
            f"{at_least(each)}{limits.bytes_per_s_a_broker(each) / 1e6:,.3g} MB/s",
            (x, each.messages_per_s),
            xytext=(11, 9),
            textcoords="offset points",
            fontsize=8.5,
            color=ink[BOUNDARY],
            bbox={"facecolor": ink["card"], "alpha": 0.75, "linewidth": 0, "pad": 0.6},
            zorder=5,
        )
    cap_xs, caps = xs, [limits.settings.safe_share * rate for rate in rates]
    if limits.settings.axis is Axis.MESSAGE_BYTES:
        cap_xs = [xs[0] / REACH, *xs, xs[-1] * REACH]
        caps = [limits.curve().cap(x).messages_per_s for x in cap_xs]
    (cap,) = axes.plot(
        cap_xs,
        caps,
        color=ink[_CAP],
        linestyle=(0, (5, 3)),
        marker="" if len(cap_xs) > 1 else "_",
        markersize=16,
        zorder=2,
    )
    return [line if len(known) > 1 else bars, cap]


def _draw_trials(
    axes: Axes,
    limits: Limits,
    places: Mapping[Value, float],
    verdict: Verdict,
    ink: Mapping[str, str],
) -> Any:
    marker, colour, _ = MARKERS[verdict]
    xs, ys = [], []
    for value, place in places.items():
        trials = limits.trials_of(value)
        for number, trial in enumerate(trials):
            if trial.judgement.verdict is verdict and trial.point.producers:
                xs.append(_aside(limits, place, number, len(trials)))
                ys.append(trial.point.messages_per_s)
    return axes.scatter(
        xs,
        ys,
        s=34,
        marker=marker,
        color=ink[colour],
        edgecolors=ink["card"],
        linewidths=0.6,
        zorder=3,
    )


def _aside(limits: Limits, place: float, number: int, count: int) -> float:
    """Where a trial stands, for those of one value not to hide each other: by its turn."""
    turn = 2 * number / (count - 1) - 1 if count > 1 else 0.0
    if limits.settings.axis is Axis.MESSAGE_BYTES:
        return float(place * APART**turn)
    return place + 0.12 * turn


def _draw_byte_rates(axes: Axes, limits: Limits, ink: Mapping[str, str]) -> None:
    """Where bytes/s are the same: straight lines down, on such axes."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    tried = [trial.point.bytes_per_s / 1e6 for trial in limits.trials if trial.point.producers]
    if not tried:
        return
    near = [mb for mb in DECADES_MB if min(tried) / 12 < mb < max(tried) * 12]
    for mb in near:
        axes.plot(
            [left, right],
            [mb * 1e6 / left, mb * 1e6 / right],
            color=ink["grid"],
            linestyle=(0, (1, 2)),
            linewidth=1,
            zorder=0,
        )
        x = min(right, mb * 1e6 / low)  # where it leaves the picture, at its right or its foot
        if not (left * 2 < x and mb * 1e6 / x < high):
            continue
        axes.annotate(
            f"{mb:g} MB/s" if mb < 1000 else f"{mb / 1000:g} GB/s",
            (x, mb * 1e6 / x),
            xytext=(-3, 3),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=7.5,
            color=ink["muted"],
            zorder=0,
        )
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


def tick_rates(axes: Axes) -> None:
    """A few round rates on the y axis."""
    low, high = axes.get_ylim()
    inside = [rate for rate in ROUND if low <= rate <= high]
    if len(inside) > TICKS_MOST:
        inside = [rate for rate in inside if f"{rate:.0e}".startswith("1")] or inside
    if len(inside) < 2:
        inside = sorted({float(f"{low * 1.05:.2g}"), float(f"{high * 0.95:.2g}")})
    axes.yaxis.set_major_locator(FixedLocator(inside))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: figures.about(value)))
    axes.grid(axis="y")


def _places(limits: Limits) -> dict[Value, float]:
    """Where each value stands on the x axis, in their order there."""
    values = limits.settings.values
    if limits.settings.axis is Axis.MESSAGE_BYTES:
        return {value: float(value) for value in sorted(values, key=int)}
    if limits.settings.axis is not Axis.COMPRESSION:
        values = tuple(sorted(values, key=int))
    return {value: float(place) for place, value in enumerate(values)}


def _rates(limits: Limits) -> list[float]:
    rates = [trial.point.messages_per_s for trial in limits.trials if trial.point.producers]
    for each in limits.boundaries:
        if each.messages_per_s > 0:
            rates += [each.messages_per_s * limits.settings.safe_share, highest(each)]
    return rates


def highest(boundary: Boundary) -> float:
    """Up to where it is drawn, in messages/s."""
    return max(boundary.messages_per_s, boundary.high or 0.0)


def _seen(limits: Limits) -> list[Verdict]:
    told = {trial.judgement.verdict for trial in limits.trials}
    return [verdict for verdict in MARKERS if verdict in told]


def key_of(verdict: Verdict) -> Key:
    """What its marks look like."""
    _, colour, glyph = MARKERS[verdict]
    return Key(colour, f"{glyph} {VERDICTS[verdict]}")


def _keys(limits: Limits) -> list[Key]:
    keys = [key_of(verdict) for verdict in _seen(limits)]
    if any(each.messages_per_s > 0 for each in limits.boundaries):
        share = figures.share(limits.settings.safe_share)
        keys = [
            Key(BOUNDARY, _boundary_label(limits)),
            Key(_CAP, f"safe cap, {share} of it", dashed=True),
            *keys,
        ]
    return keys


def _boundary_label(limits: Limits) -> str:
    if any(is_open(each) for each in limits.boundaries):
        return "boundary, in MB/s a broker (an arrow: it lies above)"
    return "boundary, in MB/s a broker"


def _title(limits: Limits) -> str:
    what = {
        Axis.MESSAGE_BYTES: "by size of message",
        Axis.CONSUMER_GROUPS: "by consumer groups",
        Axis.PARTITIONS: "by partitions",
        Axis.COMPRESSION: "by compression",
    }[limits.settings.axis]
    return f"What the brokers bear, {what}"


def _tells(limits: Limits) -> str:
    told = [
        f"{value_words(limits.settings.axis, each.value)}: {figures.rate(each.messages_per_s)}"
        for each in limits.boundaries
    ]
    found = f"Messages/s at the boundary: {'; '.join(told)}. " if told else ""
    return (
        f"{found}{figures.counted(len(limits.trials), 'trial')}: {counted_verdicts(limits.trials)}."
    )


def counted_verdicts(trials: Sequence[Trial]) -> str:
    """``7 safe, 6 overloaded``."""
    told = [
        f"{count} {VERDICTS[verdict]}"
        for verdict in MARKERS
        if (count := sum(trial.judgement.verdict is verdict for trial in trials))
    ]
    return ", ".join(told) or "none yet"
