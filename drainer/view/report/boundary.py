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

from drainer.core.limits.boundary import Boundary, Limits
from drainer.core.limits.point import Trial, Verdict
from drainer.core.limits.settings import Axis, Value
from drainer.view import figures
from drainer.view.limits import VERDICTS, at_least, value_words
from drainer.view.report.chart import INKS, Chart, Key, drawn

HEIGHT = 300
SEARCH_HEIGHT = 190
APART = 1.22  # the first and the last trial of a size lie so far apart from its place
REACH = 1.6  # times the smallest and the largest size, up to where the cap is drawn
ROUND = tuple(step * 10.0**power for power in range(-1, 9) for step in (1, 2, 5))
DECADES_MB = tuple(10.0**power for power in range(-4, 7))
TICKS_MOST = 7

# Shapes tell as much as colours do.
_MARKERS = {
    Verdict.SAFE: ("o", "c3", "●"),
    Verdict.OVERLOADED: ("X", "bad", "✖"),
    Verdict.CLIENTS: ("^", "c5", "▲"),
    Verdict.UNCLEAR: ("d", "c8", "◆"),
}
_BOUNDARY, _CAP = "c1", "c2"
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


def search_charts(limits: Limits) -> list[Chart]:
    """For each value of the axis its trials, one after the other, for a page."""
    return [
        _search(limits, value, f"search-{number}")
        for number, value in enumerate(limits.settings.values)
        if limits.trials_of(value)
    ]


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
        labels = [key.label.lstrip("●✖▲◆ ") for key in _keys(limits)]
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
            f"{brokers}, {_setting(limits)}", fontsize=8.5, color=_ON_PAPER["muted"], x=0.5
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
    _tick_rates(axes)
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
    highs = [_high(each) for each in known]
    style = "solid" if len(known) > 1 else "none"
    if len(known) > 1:
        axes.fill_between(xs, lows, highs, color=ink[_BOUNDARY], alpha=0.14, lw=0)
    (line,) = axes.plot(xs, rates, color=ink[_BOUNDARY], linestyle=style, zorder=2)
    bars = axes.errorbar(
        xs,
        rates,
        [
            [rate - low for rate, low in zip(rates, lows, strict=True)],
            [high - rate for rate, high in zip(rates, highs, strict=True)],
        ],
        fmt="_",
        markersize=16,
        color=ink[_BOUNDARY],
        capsize=5,
        elinewidth=1.3,
        zorder=4,
    )
    for x, each in zip(xs, known, strict=True):
        if each.is_lower_bound:
            axes.annotate(
                "",
                (x, each.messages_per_s),
                xytext=(0, 30),
                textcoords="offset points",
                arrowprops={"arrowstyle": "<-", "color": ink[_BOUNDARY], "lw": 1.8},
                zorder=5,
            )
        axes.annotate(
            f"{at_least(each)}{limits.bytes_per_s_a_broker(each) / 1e6:,.3g} MB/s",
            (x, each.messages_per_s),
            xytext=(11, 9),
            textcoords="offset points",
            fontsize=8.5,
            color=ink[_BOUNDARY],
            bbox={"facecolor": ink["card"], "alpha": 0.75, "linewidth": 0, "pad": 0.6},
            zorder=5,
        )
    cap_xs, caps = xs, [limits.settings.safe_share * rate for rate in rates]
    if limits.settings.axis is Axis.MESSAGE_BYTES:
        cap_xs = [xs[0] / REACH, *xs, xs[-1] * REACH]
        caps = [limits.cap(x).messages_per_s for x in cap_xs]
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
    marker, colour, _ = _MARKERS[verdict]
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


def _search(limits: Limits, value: Value, name: str) -> Chart:
    trials, boundary = limits.trials_of(value), limits.boundary(value)
    verdicts = [each for each in _MARKERS if any(t.judgement.verdict is each for t in trials)]
    keys = [_key(each) for each in verdicts]
    words = value_words(limits.settings.axis, value)
    if boundary is not None and boundary.messages_per_s:
        keys.insert(0, Key(_BOUNDARY, "boundary, and between what it lies"))
    tells = f"{figures.counted(len(trials), 'trial')}, one after the other: {_counts(trials)}."
    with drawn(name, f"The search at {words}", tells, keys, SEARCH_HEIGHT) as drawing:
        axes = drawing.axes
        axes.set_yscale("log")
        for verdict in verdicts:
            marker, colour, _ = _MARKERS[verdict]
            found = [
                (number, trial.point.messages_per_s)
                for number, trial in enumerate(trials, 1)
                if trial.judgement.verdict is verdict and trial.point.producers
            ]
            axes.scatter(
                [number for number, _ in found],
                [rate for _, rate in found],
                s=38,
                marker=marker,
                color=INKS[colour],
                edgecolors=INKS["card"],
                linewidths=0.6,
                zorder=3,
            )
        rates = [trial.point.messages_per_s for trial in trials if trial.point.producers]
        if boundary is not None and boundary.messages_per_s:
            axes.axhspan(
                min(boundary.low, boundary.messages_per_s) or boundary.messages_per_s,
                _high(boundary),
                color=INKS[_BOUNDARY],
                alpha=0.16,
                lw=0,
            )
            axes.axhline(boundary.messages_per_s, color=INKS[_BOUNDARY], zorder=2)
            rates += [boundary.messages_per_s]
        axes.set_xlim(0.4, len(trials) + 0.6)
        if rates:
            axes.set_ylim(min(rates) / 1.25, max(rates) * 1.25)
        _tick_rates(axes)
        step = -(-len(trials) // TICKS_MOST) or 1
        axes.set_xticks(range(1, len(trials) + 1, step))
        axes.set_xlabel("trial")
    return drawing.chart


def _tick_rates(axes: Axes) -> None:
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
            rates += [each.messages_per_s * limits.settings.safe_share, _high(each)]
    return rates


def _high(boundary: Boundary) -> float:
    return max(boundary.messages_per_s, boundary.high or 0.0)


def _seen(limits: Limits) -> list[Verdict]:
    told = {trial.judgement.verdict for trial in limits.trials}
    return [verdict for verdict in _MARKERS if verdict in told]


def _key(verdict: Verdict) -> Key:
    _, colour, glyph = _MARKERS[verdict]
    return Key(colour, f"{glyph} {VERDICTS[verdict]}")


def _keys(limits: Limits) -> list[Key]:
    keys = [_key(verdict) for verdict in _seen(limits)]
    if any(each.messages_per_s > 0 for each in limits.boundaries):
        share = figures.share(limits.settings.safe_share)
        keys = [
            Key(_BOUNDARY, _boundary_label(limits)),
            Key(_CAP, f"safe cap, {share} of it", dashed=True),
            *keys,
        ]
    return keys


def _boundary_label(limits: Limits) -> str:
    if any(each.is_lower_bound for each in limits.boundaries):
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
    return f"{found}{figures.counted(len(limits.trials), 'trial')}: {_counts(limits.trials)}."


def _counts(trials: Sequence[Trial]) -> str:
    told = [
        f"{count} {VERDICTS[verdict]}"
        for verdict in _MARKERS
        if (count := sum(trial.judgement.verdict is verdict for trial in trials))
    ]
    return ", ".join(told) or "none yet"


def _setting(limits: Limits) -> str:
    settings = limits.settings
    told = []
    if settings.axis is not Axis.CONSUMER_GROUPS:
        told.append(f"{figures.counted(settings.consumer_groups, 'group')} reading")
    if settings.axis is not Axis.PARTITIONS:
        told.append(figures.counted(settings.partitions, "partition"))
    if settings.axis is not Axis.MESSAGE_BYTES:
        told.append(f"messages of {figures.size(settings.message_bytes)}")
    if settings.axis is not Axis.COMPRESSION and settings.compression != "none":
        told.append(settings.compression)
    return ", ".join(told)
