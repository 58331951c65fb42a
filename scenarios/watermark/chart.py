"""The picture: for each backlog, the watermark by the share of the work that is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

BLUE, GREY = "#3566a8", "#999999"
Path_ = Sequence[tuple[float, float]]


def draw(paths: Mapping[str, tuple[str, Path_, Path_]], path: Path) -> None:
    """Write the picture as SVG or PNG. Each backlog has a caption, and the path of the watermark
    in drainer's order and with the longest lane first."""
    columns = 3
    rows = -(-len(paths) // columns)
    figure = Figure(figsize=(3.6 * columns, 3.4 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for place, each in enumerate(axes.flat):
        each.set_visible(place < len(paths))
    for each, (name, (caption, now, former)) in zip(axes.flat, paths.items(), strict=False):
        each.plot((0, 1), (0, 1), color=GREY, linewidth=0.7, linestyle=":")
        each.plot(*zip(*former, strict=True), color=GREY, label="longest lane first")
        each.plot(*zip(*now, strict=True), color=BLUE, label="drainer")
        each.set_title(f"{name}\n{caption}", fontsize=9)
        each.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(frameon=False, loc="upper left", fontsize=8)
    axes[-1][0].set_xlabel("share of the work that is done")
    axes[-1][0].set_ylabel("share below the watermark")
    figure.savefig(path)
