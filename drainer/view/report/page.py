"""A page of facts as HTML: a template filled in, with everything from outside escaped.

Plots are SVG: drawn by matplotlib, coloured by the page they are in, with a text to be read out.
Colours are named, and the page's style says what they are in the light and in the dark.
"""

from __future__ import annotations

import io
import logging
import platform
import re
import warnings
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import groupby
from typing import Any

import matplotlib
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from drainer import __version__
from drainer.escape import json_text, printable
from drainer.view import figures
from drainer.view.page import Item, Page, Plot, Section

WIDTH, HEIGHT = 400, 215  # in the units of the page, of which text has 10.5
_STEPS = [1, 2, 2.5, 5, 10]

# What matplotlib is given, and what the page's style calls it. No two may be alike.
_INKS = {
    "muted": "#010101",
    "grid": "#010102",
    "bad": "#010103",
    "trouble": "#010104",
    **{f"c{n}": f"#0102{n:02x}" for n in range(1, 7)},
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


def html(page: Page, now: datetime) -> str:
    """A page of facts as HTML; ``now`` has the zone that times are told in.

    All text is escaped, but for the charts.
    """
    return (
        _templates()
        .get_template("page.html")
        .render(
            page=page,
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


def draw(plot: Plot) -> Markup:
    """The plot as a picture for a page."""
    # It warns of a cache folder that it can't have, on a drain's own stderr.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with warnings.catch_warnings(), matplotlib.rc_context({**_STYLE, "svg.hashsalt": plot.name}):
        warnings.simplefilter("ignore")  # of glyphs that its font lacks: the browser's has them
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), layout="constrained")
        _plot(figure.subplots(), plot)
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


def _plot(axes: Axes, plot: Plot) -> None:
    def at(seconds: float) -> Any:
        return plot.begun + timedelta(seconds=seconds)

    for begins, ends in plot.troubles:
        axes.axvspan(at(begins), at(ends), color=_INKS["trouble"], lw=0, alpha=0.25)
    x = [at(seconds) for seconds in plot.seconds]
    for each in plot.series:
        axes.plot(x, each.values, color=_INKS[each.ink])
    if len(plot.series) == 1:
        axes.fill_between(x, plot.series[0].values, color=_INKS[plot.series[0].ink], alpha=0.16)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(bottom=0)
    if plot.unit == "" and axes.get_ylim()[1] < 1:
        axes.set_ylim(top=1)
    form: Any = EngFormatter(sep="")
    if plot.unit == "s":
        form = FuncFormatter(lambda value, _: figures.duration(value))
    axes.yaxis.set_major_formatter(form)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_STEPS, integer=plot.unit == ""))
    axes.grid(axis="y")
    tz = plot.begun.tzinfo
    when: Any = AutoDateLocator(minticks=3, maxticks=6, tz=tz)  # type: ignore[no-untyped-call]
    clock: Any = ConciseDateFormatter(when, tz=tz)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(when)
    axes.xaxis.set_major_formatter(clock)
    axes.set_xlabel(f"time, {plot.begun:%Z}")
