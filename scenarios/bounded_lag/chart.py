"""The picture: the age of records by arrival rate, for each course."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from scenarios.bounded_lag.__main__ import Seen

COLOURS = ("#999999", "#3566a8", "#c8553d")


def draw(courses: Mapping[str, Sequence[Seen]], path: Path) -> None:
    """Write the picture as SVG or PNG."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for colour, (name, seen) in zip(COLOURS, courses.items(), strict=True):
        rates, ages = [each.rate for each in seen], [each.p99_s for each in seen]
        axes.plot(rates, ages, color=colour, marker="o", markersize=3, label=f"by {name}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("records per second, all with one message key")
    axes.set_ylabel("p99 of the age when handled, s")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
