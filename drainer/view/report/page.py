"""A page of facts as HTML: a template filled in, with everything from outside escaped.

Plots are SVG of the page's own, in its colours, with a text to be read out.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from drainer import __version__
from drainer.escape import json_text, printable
from drainer.view import figures
from drainer.view.page import Curves, Item, Page, Plot, Section

SIZES_MOST = 5  # that have room below a picture
# Of a picture of 400 by 215 units, of which text has 10.5: the area that lines are drawn in.
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 390, 10, 192


def html(page: Page, now: datetime, nonce: str | None = None) -> str:
    """A page of facts as HTML; ``now`` has the zone that times are told in.

    All text is escaped, but for the charts. With a ``nonce``, that of the script which its server
    lets run, it is a page that updates by itself.
    """
    return (
        _templates()
        .get_template("page.html")
        .render(
            page=page,
            nonce=nonce,
            version=__version__,
            written=_moment(now),
            times=[_moment(time.astimezone(now.tzinfo)) for time in page.times],
            host=platform.node() or "unknown",
            # In such an element nothing is markup but its own end, and a comment.
            data=Markup(json_text(page.data).replace("<", "\\u003c")),
        )
    )


def _moment(time: datetime) -> dict[str, str]:
    """A time as it is shown: where the command ran, and in UTC."""
    utc = time.astimezone(UTC)
    return {
        "local": f"{time:%Y-%m-%d %H:%M:%S} {time.tzname() or ''}".rstrip(),
        "utc": f"{utc:%Y-%m-%d %H:%M:%S} UTC",
        "iso": utc.isoformat(timespec="seconds"),
    }


def _runs(section: Section) -> list[tuple[str, list[Item]]]:
    """The items, those of one kind that follow each other together."""
    return [(kind, list(items)) for kind, items in groupby(section.items, lambda item: item.kind)]


def _visible(value: object) -> object:
    """What a template puts out: all but the charts as one line of what can be seen."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("drainer.view.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "counted": figures.counted,
        "runs": _runs,
        "draw": draw,
    }
    return made


def draw(plot: Plot | Curves) -> dict[str, object]:
    """Where everything of a plot lies in its picture."""
    frame = {"left": _LEFT, "right": _RIGHT, "top": _TOP, "bottom": _BOTTOM}
    drawn = _draw_curves(plot) if isinstance(plot, Curves) else _draw_plot(plot)
    return frame | {"troubles": [], "dots": []} | drawn


def _draw_plot(plot: Plot) -> dict[str, object]:
    begin, end = plot.seconds[0], plot.seconds[-1]
    values = [value for each in plot.series for value in each.values if not math.isnan(value)]
    top = _round_above(max(values, default=0.0))

    def across(seconds: float) -> float:
        return _LEFT + (seconds - begin) / ((end - begin) or 1.0) * (_RIGHT - _LEFT)

    def up(value: float) -> float:
        return _BOTTOM - value / top * (_BOTTOM - _TOP)

    def text(value: float) -> str:
        if plot.unit == "s":
            return figures.duration(value)
        return figures.about(value) if value >= 1000 else f"{value:g}"

    form = "%H:%M:%S" if end - begin < 24 * 3600 else "%d %b %H:%M"
    xs = zip((begin, (begin + end) / 2, end), ("start", "middle", "end"), strict=True)
    return {
        "ys": [(up(part * top), text(part * top)) for part in (0, 0.5, 1)],
        "xs": [
            (across(x), f"{plot.begun + timedelta(seconds=x):{form}}", anchor) for x, anchor in xs
        ],
        "troubles": [(across(begins), across(ends)) for begins, ends in plot.troubles],
        "lines": [
            (each.ink, _path(zip(map(across, plot.seconds), map(up, each.values), strict=True)))
            for each in plot.series
        ],
    }


def _draw_curves(plot: Curves) -> dict[str, object]:
    points = [point for each in plot.series for point in each.points]
    sizes = sorted({x for x, _ in points})
    values = [y for _, y in points]
    # Powers of ten that hold all values, and where one decade is enough, steps within it.
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1, 2, 5) if high - low < 2 else (1,)
    ticks = [step * 10.0**power for power in range(low, max(high, low + 1)) for step in steps]
    ticks.append(10.0 ** max(high, low + 1))
    bottom, top = ticks[0], ticks[-1]

    def across(x: float) -> float:
        if sizes[0] == sizes[-1]:
            return (_LEFT + _RIGHT) / 2
        return _LEFT + math.log(x / sizes[0]) / math.log(sizes[-1] / sizes[0]) * (_RIGHT - _LEFT)

    def up(y: float) -> float:
        return _BOTTOM - math.log(y / bottom) / math.log(top / bottom) * (_BOTTOM - _TOP)

    named = [sizes[0], sizes[len(sizes) // 2], sizes[-1]] if len(sizes) > SIZES_MOST else sizes
    anchors = {sizes[0]: "start", sizes[-1]: "end"} if len(sizes) > 1 else {}
    return {
        "ys": [(up(y), figures.about(y) if y >= 1 else f"{y:g}") for y in ticks],
        "xs": [(across(x), figures.size(round(x)), anchors.get(x, "middle")) for x in named],
        "lines": [
            (each.ink, _path((across(x), up(y)) for x, y in each.points)) for each in plot.series
        ],
        "dots": [(each.ink, across(x), up(y)) for each in plot.series for x, y in each.points],
    }


def _round_above(most: float) -> float:
    """At or above this, and a round number, as its half is."""
    if most <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= most)


def _path(points: Iterable[tuple[float, float]]) -> str:
    """SVG's words for a line, with gaps where a value is not a number."""
    words, pen = [], "M"
    for x, y in points:
        if math.isnan(y):
            pen = "M"
        else:
            words.append(f"{pen}{x:.1f} {y:.1f}")
            pen = "L"
    return "".join(words)
