"""Makes screens of a terminal into one animated SVG, which plays wherever a picture is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from pyte.screens import Char, Screen

# The sizes of a character, of a line and of the margin, in pixels.
WIDTH, HEIGHT, MARGIN = 8.4, 17.0, 14.0
LAST_S = 4.0  # The last screen stays for this long.
INK, PAPER = "#d7dae0", "#16191f"
COLOURS = {
    "black": "#5c6370", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b",
    "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2", "white": INK,
    "brightblack": "#7f848e", "brightred": "#e06c75", "brightgreen": "#98c379",
    "brightbrown": "#e5c07b", "brightblue": "#61afef", "brightcyan": "#56b6c2",
}  # fmt: skip

Rows = tuple[str, ...]  # Each row is a line as SVG.


@dataclass(frozen=True, slots=True)
class Shot:
    """A screen, and the second at which it came."""

    at_s: float
    rows: Rows


def rows_of(screen: Screen) -> Rows:
    """Return the lines that a screen shows."""
    lines = (screen.buffer[y] for y in range(screen.lines))
    return tuple("".join(_runs([line[x] for x in range(screen.columns)])) for line in lines)


def rule(columns: int) -> str:
    """Return a row that is a line, to put between two screens."""
    grey = COLOURS["brightblack"]
    return f'<path d="M0 {-HEIGHT / 3:g}h{columns * WIDTH:g}" stroke="{grey}"/>'


def _runs(line: Sequence[Char]) -> Iterator[str]:
    x = 0
    for (colour, bold), group in groupby(line, key=lambda char: (char.fg, char.bold)):
        text = "".join(char.data for char in group)
        shown = text.rstrip()
        if shown:
            fill = "" if colour == "default" else f' fill="{COLOURS.get(colour, f"#{colour}")}"'
            weight = ' font-weight="bold"' if bold else ""
            yield (
                f'<text x="{x * WIDTH:g}" textLength="{len(shown) * WIDTH:g}"{fill}{weight}>'
                f"{escape(shown, quote=False)}</text>"
            )
        x += len(text)


def svg(shots: Sequence[Shot], columns: int, title: str) -> str:
    """Make an SVG that shows the shots one after the other, for ever. People who want no motion see
    the last one."""
    lines = len(shots[0].rows)
    wide, high = columns * WIDTH + 2 * MARGIN, lines * HEIGHT + 2 * MARGIN
    whole_s = shots[-1].at_s + LAST_S
    known: dict[str, str] = {}
    frames, moves = [], []
    for number, shot in enumerate(shots):
        used = "".join(
            f'<use href="#{known.setdefault(row, f"r{len(known)}")}" y="{y * HEIGHT:g}"/>'
            for y, row in enumerate(shot.rows)
            if row
        )
        frames.append(f'<g transform="translate({number * wide:g} 0)">{used}</g>')
        at = 100 * shot.at_s / whole_s
        moves.append(f"{at:.2f}%{{transform:translateX({-number * wide:g}px)}}")
    drawn = "".join(f'<g id="{name}">{row}</g>' for row, name in known.items())
    last = -(len(shots) - 1) * wide
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" width="{wide:g}" role="img">
<title>{escape(title)}</title>
<style>
text{{font:14px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}}
.film{{animation:play {whole_s:.2f}s steps(1,end) infinite}}
@keyframes play{{{"".join(moves)}}}
@media (prefers-reduced-motion:reduce){{.film{{animation:none;transform:translateX({last:g}px)}}}}
</style>
<defs>{drawn}</defs>
<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>
<svg x="{MARGIN:g}" y="{MARGIN + HEIGHT * 0.75:g}" width="{columns * WIDTH:g}" overflow="visible">
<g class="film" fill="{INK}">{"".join(frames)}</g>
</svg>
</svg>
"""
