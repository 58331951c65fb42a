"""The layout of charts in SVG: where lines, axes and labels lie in the picture.

Axes have round labels. An axis of values goes up in steps of 1, 2 or 5 times a power of ten. An
axis of time shows the elapsed time of a short run (0, 30s, 1m), and for a longer one the time of
day at round minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from drainer.view import figures
from drainer.view.page import Plot

VALUE_STEPS_MOST = 4
TIME_STEPS_MOST = 6
DATE_STEPS_MOST = 4
ELAPSED_BELOW_S = 600  # The charts of a run that took longer show the time of day.
# The area in which lines are drawn. The picture has 400 by 215 units, and text is 10.5 units high.
_LEFT, _RIGHT, _TOP, _BOTTOM, _WIDTH = 52, 390, 10, 192, 400
_CHARACTER = 5.8  # The approximate width of a character.

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_TIME_STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 4, 7, 14, 28, 56)),
)
Tick = tuple[float, str]  # A value on an axis, and its label.


def draw(plot: Plot) -> dict[str, object]:
    """Return the coordinates of everything that a plot's picture shows, for the template."""
    begin, end = plot.seconds[0], plot.seconds[-1]
    values = [value for each in plot.series for value in each.values if not math.isnan(value)]
    ticks = value_ticks(max(values, default=0.0), plot.unit)
    top = ticks[-1][0]

    def across(seconds: float) -> float:
        return _LEFT + (seconds - begin) / ((end - begin) or 1.0) * (_RIGHT - _LEFT)

    def up(value: float) -> float:
        return _BOTTOM - value / top * (_BOTTOM - _TOP)

    return {
        **{"left": _LEFT, "right": _RIGHT, "top": _TOP, "bottom": _BOTTOM},
        "ys": [(up(value), text) for value, text in ticks],
        "xs": [
            (across(x), text, _anchor(across(x), text))
            for x, text in time_ticks(plot.begun, begin, end)
        ],
        "troubles": [(across(begins), across(ends)) for begins, ends in plot.troubles],
        "lines": [
            (each.ink, _path(zip(map(across, plot.seconds), map(up, each.values), strict=True)))
            for each in plot.series
        ],
    }


def value_ticks(most: float, unit: str) -> list[Tick]:
    """Return ticks from 0 to ``most``, or to the next tick above it.

    The ``unit`` is "s", or "" for counts.
    """
    step = _value_step(most, unit)
    return [
        (number * step, _label(number * step, unit))
        for number in range(max(1, math.ceil(most / step - 1e-9)) + 1)
    ]


def _value_step(most: float, unit: str) -> float:
    if most <= 0:
        return 1.0
    least = most / VALUE_STEPS_MOST
    if unit == "s" and least > 1:
        return _time_step(most, VALUE_STEPS_MOST)
    power: float = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


def _label(value: float, unit: str) -> str:
    if unit == "s":
        return figures.round_duration(value)
    return figures.about(value) if value >= 1000 else f"{value:g}"


def time_ticks(begun: datetime, begin_s: float, end_s: float) -> list[Tick]:
    """Return the ticks between two times, which are given in seconds since ``begun``.

    ``begun`` has the time zone of the labels.
    """
    length_s = end_s - begin_s
    if length_s < ELAPSED_BELOW_S:
        step = _time_step(length_s, TIME_STEPS_MOST)
        return [(x, figures.round_duration(x)) for x in _multiples(step, begin_s, end_s)]
    step = _time_step(length_s, TIME_STEPS_MOST if length_s < _DAY else DATE_STEPS_MOST)
    form = "%H:%M" if length_s < _DAY else "%d %b %H:%M" if step < _DAY else "%d %b"
    midnight = begun.replace(hour=0, minute=0, second=0, microsecond=0)
    since_s = (begun - midnight).total_seconds()
    return [
        (x - since_s, f"{midnight + timedelta(seconds=x):{form}}")
        for x in _multiples(step, begin_s + since_s, end_s + since_s)
    ]


def _time_step(length_s: float, most: int) -> float:
    """Return the smallest round step that divides a length into at most ``most`` steps."""
    return next((step for step in _TIME_STEPS_S if step * most >= length_s), length_s / most)


def _multiples(step: float, low: float, high: float) -> list[float]:
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _anchor(x: float, text: str) -> str:
    """Return the SVG text anchor that keeps a label inside the picture."""
    return "end" if x + len(text) * _CHARACTER / 2 > _WIDTH else "middle"


def _path(points: Iterable[tuple[float, float]]) -> str:
    """Return the SVG path of a line. It has a gap wherever a value is NaN."""
    words, pen = [], "M"
    for x, y in points:
        if math.isnan(y):
            pen = "M"
        else:
            words.append(f"{pen}{x:.1f} {y:.1f}")
            pen = "L"
    return "".join(words)
