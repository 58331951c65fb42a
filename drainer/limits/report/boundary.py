"""Pictures of what brokers bear: the boundary over the trials, as PNG or in a page; searches."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from drainer.limits.search.boundary import Boundary, Limits
from drainer.limits.search.point import Trial, Verdict
from drainer.limits.search.settings import Axis, Value
from drainer.limits.view.limits import VERDICTS, at_least, held_fixed, value_words
from drainer.view import figures
from drainer.view.report.chart import INKS, Chart, Key, drawn

HEIGHT, SEARCH_HEIGHT = 300, 190
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
    "text.color": _ON_PAPER["text"],
    **dict.fromkeys(
        ("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), _ON_PAPER["muted"]
    ),
    **dict.fromkeys(
        ("axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), _ON_PAPER["grid"]
    ),
    "grid.linewidth": 0.7,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.9,
}
_TITLES = {
    Axis.MESSAGE_BYTES: "by size of message",
    Axis.CONSUMER_GROUPS: "by consumer groups",
    Axis.PARTITIONS: "by partitions",
    Axis.COMPRESSION: "by compression",
}


def boundary_chart(limits: Limits) -> Chart:
    """The boundary over all trials, for a page."""
    axis = limits.settings.axis
    told = [
        f"{value_words(axis, b.value)}: {figures.rate(b.messages_per_s)}" for b in limits.boundaries
    ]
    found = f"Messages/s at the boundary: {'; '.join(told)}. " if told else ""
    tells = f"{found}{_counted(limits.trials)}."
    with drawn("boundary", _title(limits), tells, _keys(limits), HEIGHT) as drawing:
        _Picture(drawing.axes, limits, INKS).draw()
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
        handles = _Picture(axes, limits, _ON_PAPER).draw()
        labels = [key.label.lstrip(_GLYPHS) for key in _keys(limits)]
        place: Any = "lower left" if limits.settings.axis is Axis.MESSAGE_BYTES else "best"
        axes.legend(handles, labels, loc=place, edgecolor="none", framealpha=0.85)
        brokers = figures.counted(limits.brokers, "broker")
        told = f"{brokers}, {held_fixed(limits.settings)}"
        figure.supxlabel(told, fontsize=8.5, color=_ON_PAPER["muted"], x=0.5)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
    return file.getvalue()


def search_charts(limits: Limits) -> list[Chart]:
    """For each value of the axis its trials, one after the other, for a page."""
    return [
        _search(limits, value, f"search-{number}")
        for number, value in enumerate(limits.settings.values)
        if limits.trials_of(value)
    ]


def _search(limits: Limits, value: Value, name: str) -> Chart:
    trials, boundary = limits.trials_of(value), limits.boundary(value)
    keys = _verdict_keys(trials)
    if boundary is not None and boundary.messages_per_s:
        keys.insert(0, Key(_BOUNDARY, "boundary, and between what it lies"))
    title = f"The search at {value_words(limits.settings.axis, value)}"
    tells = f"{_counted(trials, ', one after the other')}."
    with drawn(name, title, tells, keys, SEARCH_HEIGHT) as drawing:
        axes = drawing.axes
        axes.set_yscale("log")
        for verdict in _seen(trials):
            numbered = [(n, trial) for n, trial in enumerate(trials, 1) if trial.verdict is verdict]
            _scatter(axes, numbered, verdict, INKS, 38)
        rates = [trial.point.messages_per_s for trial in trials if trial.point.producers]
        if boundary is not None and boundary.messages_per_s:
            low, high = _span(boundary)
            axes.axhspan(low, high, color=INKS[_BOUNDARY], alpha=0.16, lw=0)
            axes.axhline(boundary.messages_per_s, color=INKS[_BOUNDARY], zorder=2)
            rates.append(boundary.messages_per_s)
        axes.set_xlim(0.4, len(trials) + 0.6)
        if rates:
            axes.set_ylim(min(rates) / 1.25, max(rates) * 1.25)
        _tick_rates(axes)
        axes.set_xticks(range(1, len(trials) + 1, -(-len(trials) // TICKS_MOST) or 1))
        axes.set_xlabel("trial")
    return drawing.chart


class _Picture:
    """The boundary over the trials, with the colours of a page or of paper."""

    def __init__(self, axes: Axes, limits: Limits, ink: Mapping[str, str]) -> None:
        self._axes = axes
        self._limits = limits
        self._ink = ink
        self._sizes = limits.settings.axis is Axis.MESSAGE_BYTES
        self._places = _places(limits)
        boundaries = map(limits.boundary, self._places)
        self._known = [b for b in boundaries if b is not None and b.messages_per_s > 0]

    def draw(self) -> list[Any]:
        """Draws all of it; gives what the keys are of, in their order."""
        axes, limits = self._axes, self._limits
        axes.set_yscale("log")
        if self._sizes:
            axes.set_xscale("log")
        handles = self._draw_boundary() if self._known else []
        handles += [self._draw_trials(verdict) for verdict in _seen(limits.trials)]
        xs = list(self._places.values())
        if self._sizes:
            axes.set_xlim(min(xs) / REACH**1.3, max(xs) * REACH**2.6)  # room for words
        else:
            axes.set_xlim(-0.5, len(xs) - 0.3)
        rates = [trial.point.messages_per_s for trial in limits.trials if trial.point.producers]
        for each in self._known:
            rates += [limits.safe_per_s(each), _span(each)[1]]
        if rates:
            axes.set_ylim(min(rates) / 1.6, max(rates) * 2)
        if self._sizes:
            self._draw_byte_rates()
        axes.xaxis.set_major_locator(FixedLocator(xs))
        axes.xaxis.set_minor_locator(NullLocator())
        words = {x: value_words(limits.settings.axis, v) for v, x in self._places.items()}
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: words.get(x, "")))
        _tick_rates(axes)
        name = limits.settings.axis.value.replace("-", " ")
        axes.set_xlabel("bytes of a message, logarithmic" if self._sizes else name)
        axes.set_ylabel("messages/s, logarithmic")
        return handles

    def _draw_boundary(self) -> list[Any]:
        axes, known, ink = self._axes, self._known, self._ink[_BOUNDARY]
        xs = [self._places[each.value] for each in known]
        rates = [each.messages_per_s for each in known]
        lows, highs = zip(*map(_span, known), strict=True)
        several = len(known) > 1
        if several:
            axes.fill_between(xs, lows, highs, color=ink, alpha=0.14, lw=0)
        (line,) = axes.plot(
            xs, rates, color=ink, linestyle="solid" if several else "none", zorder=2
        )
        below = [rate - low for rate, low in zip(rates, lows, strict=True)]
        above = [high - rate for rate, high in zip(rates, highs, strict=True)]
        style: dict[str, Any] = {"fmt": "_", "markersize": 16, "capsize": 5, "elinewidth": 1.3}
        bars = axes.errorbar(xs, rates, [below, above], color=ink, zorder=4, **style)
        for x, each in zip(xs, known, strict=True):
            self._name(x, each)
        cap_xs, caps = xs, [self._limits.safe_per_s(each) for each in known]
        if self._sizes:
            cap_xs = [xs[0] / REACH, *xs, xs[-1] * REACH]
            curve = replace(self._limits, boundaries=tuple(known)).curve()
            caps = [curve.cap(x).messages_per_s for x in cap_xs]
        style = {"linestyle": (0, (5, 3)), "markersize": 16, "zorder": 2}
        marker = "" if len(cap_xs) > 1 else "_"
        (cap,) = axes.plot(cap_xs, caps, color=self._ink[_CAP], marker=marker, **style)
        return [line if several else bars, cap]

    def _name(self, x: float, each: Boundary) -> None:
        ink, at = self._ink[_BOUNDARY], (x, each.messages_per_s)
        offset: dict[str, Any] = {"textcoords": "offset points", "zorder": 5}
        if each.is_open:
            arrow = {"arrowstyle": "<-", "color": ink, "lw": 1.8}
            self._axes.annotate("", at, xytext=(0, 30), arrowprops=arrow, **offset)
        told = f"{at_least(each)}{self._limits.mb_per_s_a_broker(each):,.3g} MB/s"
        box = {"facecolor": self._ink["card"], "alpha": 0.75, "linewidth": 0, "pad": 0.6}
        self._axes.annotate(told, at, xytext=(11, 9), fontsize=8.5, color=ink, bbox=box, **offset)

    def _draw_trials(self, verdict: Verdict) -> Any:
        at = []
        for value, place in self._places.items():
            trials = self._limits.trials_of(value)
            for number, trial in enumerate(trials):
                if trial.verdict is verdict:
                    # By its turn, for those of one value not to hide each other.
                    turn = 2 * number / (len(trials) - 1) - 1 if len(trials) > 1 else 0.0
                    x = place * APART**turn if self._sizes else place + 0.12 * turn
                    at.append((x, trial))
        return _scatter(self._axes, at, verdict, self._ink, 34)

    def _draw_byte_rates(self) -> None:
        """Where bytes/s are the same: straight lines down, on such axes."""
        axes = self._axes
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        trials = self._limits.trials
        tried = [trial.point.bytes_per_s / 1e6 for trial in trials if trial.point.producers]
        line: dict[str, Any] = {"linestyle": (0, (1, 2)), "linewidth": 1, "zorder": 0}
        words: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": 7.5, "zorder": 0}
        for mb in DECADES_MB:
            if not tried or not min(tried) / 12 < mb < max(tried) * 12:
                continue
            rates = [mb * 1e6 / left, mb * 1e6 / right]
            axes.plot([left, right], rates, color=self._ink["grid"], **line)
            x = min(right, mb * 1e6 / low)  # where it leaves the picture, at its right or its foot
            if left * 2 < x and mb * 1e6 / x < high:
                told = f"{mb:g} MB/s" if mb < 1000 else f"{mb / 1000:g} GB/s"
                at = (x, mb * 1e6 / x)
                words |= {"xytext": (-3, 3), "textcoords": "offset points"}
                axes.annotate(told, at, color=self._ink["muted"], **words)
        axes.set_xlim(left, right)
        axes.set_ylim(low, high)


def _scatter(
    axes: Axes,
    trials: Sequence[tuple[float, Trial]],
    verdict: Verdict,
    ink: Mapping[str, str],
    size: float,
) -> Any:
    """Marks of the trials of one verdict, each at its x; those of no traffic have no place."""
    marker, colour, _ = MARKERS[verdict]
    shown = [(x, trial.point.messages_per_s) for x, trial in trials if trial.point.producers]
    style: dict[str, Any] = {"edgecolors": ink["card"], "linewidths": 0.6, "zorder": 3}
    xs, ys = [x for x, _ in shown], [y for _, y in shown]
    return axes.scatter(xs, ys, s=size, marker=marker, color=ink[colour], **style)


def _tick_rates(axes: Axes) -> None:
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


def _span(boundary: Boundary) -> tuple[float, float]:
    """Between what it is drawn, in messages/s."""
    rate = boundary.messages_per_s
    return min(boundary.low, rate) or rate, max(rate, boundary.high or 0.0)


def _seen(trials: Sequence[Trial]) -> list[Verdict]:
    told = {trial.verdict for trial in trials}
    return [verdict for verdict in MARKERS if verdict in told]


def _verdict_keys(trials: Sequence[Trial]) -> list[Key]:
    return [Key(MARKERS[each][1], f"{MARKERS[each][2]} {VERDICTS[each]}") for each in _seen(trials)]


def _keys(limits: Limits) -> list[Key]:
    keys = _verdict_keys(limits.trials)
    if any(each.messages_per_s > 0 for each in limits.boundaries):
        label = "boundary, in MB/s a broker"
        if any(each.is_open for each in limits.boundaries):
            label += " (an arrow: it lies above)"
        share = figures.share(limits.settings.safe_share)
        keys = [Key(_BOUNDARY, label), Key(_CAP, f"safe cap, {share} of it", dashed=True), *keys]
    return keys


def _title(limits: Limits) -> str:
    return f"What the brokers bear, {_TITLES[limits.settings.axis]}"


def _counted(trials: Sequence[Trial], order: str = "") -> str:
    """``13 trials: 7 safe, 6 overloaded``."""
    told = [
        f"{sum(trial.verdict is verdict for trial in trials)} {VERDICTS[verdict]}"
        for verdict in _seen(trials)
    ]
    return f"{figures.counted(len(trials), 'trial')}{order}: {', '.join(told) or 'none yet'}"
