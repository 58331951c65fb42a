"""Charts as SVG: drawn by matplotlib, coloured by the page they are in, with a text to be read out.

Colours are named, and the page's style says what they are in the light and in the dark.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, PercentFormatter

from drainer.view import figures

WIDTH, HEIGHT = 400, 215  # in the units of the page, of which text has 10.5
STEPS = [1, 2, 2.5, 5, 10]
_SVG = "http://www.w3.org/2000/svg"

# What matplotlib is told, and what the page's style calls it. No two may be alike.
INKS = {
    "muted": "#010101",
    "grid": "#010102",
    "bad": "#010103",
    "trouble": "#010104",
    "card": "#010105",
    **{f"c{n}": f"#0102{n:02x}" for n in range(1, 10)},
}
_NAMES = {colour: name for name, colour in INKS.items()}
_COLOUR = re.compile(f"(?<=: )({'|'.join(_NAMES)})")
_BOX = re.compile(r'viewBox="[^"]*"')
_LEFT_OUT = re.compile(r'<(metadata|style).*?</\1>|(?<=<g) id="[^"]*"', re.DOTALL)

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a $ in a sub-key is a $
    "font.size": 10.5,
    "axes.edgecolor": INKS["grid"],
    "axes.labelcolor": INKS["muted"],
    "xtick.color": INKS["grid"],
    "ytick.color": INKS["grid"],
    "xtick.labelcolor": INKS["muted"],
    "ytick.labelcolor": INKS["muted"],
    "grid.color": INKS["grid"],
    "grid.linewidth": 0.7,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.7,
    "lines.solid_joinstyle": "round",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One line of a chart's legend; ``ink`` is the name of its colour."""

    ink: str
    label: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart for a page: what it is, what it tells in a sentence, its legend, and the picture."""

    title: str
    tells: str
    keys: tuple[Key, ...]
    svg: Markup


def scale(axes: Axes, unit: str, log: bool) -> None:
    """Ticks of the y axis: of counts when there is no unit; ``s``, ``bytes`` and ``share`` else."""
    match unit:
        case "s":
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))
        case "bytes":
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: figures.size(int(value))))
        case "share":
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        case _:
            axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    if not log:
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS, integer=unit == ""))
    axes.grid(axis="y")


def seconds(value: float) -> str:
    """A duration beside a tick: short."""
    if value == 0:
        return "0"
    if value < 0.1:
        return f"{value * 1000:.3g}ms"
    return f"{value:.3g}s" if value < 60 else figures.plain_duration(value)


class Drawing:
    """A chart that is being drawn: ``axes`` to draw on, and the ``chart`` when that is done."""

    axes: Axes
    chart: Chart


@contextmanager
def drawn(
    name: str, title: str, tells: str, keys: Sequence[Key], height: float = HEIGHT
) -> Iterator[Drawing]:
    """Axes to draw on; ``name`` is the chart's own on its page, ``tells`` is what is read out."""
    # It warns of a cache folder that it can't have, on a drain's own stderr.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with warnings.catch_warnings(), matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        warnings.simplefilter("ignore")  # of glyphs that its font lacks: the browser's has them
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        figure.patch.set_visible(False)
        drawing = Drawing()
        drawing.axes = figure.subplots()
        drawing.axes.patch.set_visible(False)
        drawing.axes.spines[["top", "right", "left"]].set_visible(False)
        drawing.axes.tick_params(axis="y", length=0)
        drawing.axes.set_axisbelow(True)
        yield drawing
        file = io.StringIO()
        figure.savefig(file, format="svg")
    svg = _made_ours(file.getvalue(), name, title, tells)
    drawing.chart = Chart(title, tells, tuple(keys), svg)


def _made_ours(drawn: str, name: str, title: str, tells: str) -> Markup:
    """The SVG with the page's colours and a text to be read out; safe to stand in the page."""
    # Its style would be the whole page's, and no two ids on a page may be alike: the groups' are.
    _, _, inside = _LEFT_OUT.sub("", drawn[drawn.index("<svg") :]).partition(">")
    colours = _COLOUR.sub(lambda match: f"var(--{_NAMES[match[0]]})", inside)
    box = _BOX.search(drawn)
    assert box is not None
    return Markup(
        f'<svg xmlns="{_SVG}" xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} role="img"'
        f' aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(title)}'
        f'</title><desc id="{name}-desc">{escape(tells)}</desc>{colours}'
    )
