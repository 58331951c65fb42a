"""The picture: throughput by concurrency, and the concurrency of auto over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

BLUE, RED, GREY = "#3566a8", "#b8433a", "#999999"


def draw(
    fixed: Mapping[str, Sequence[tuple[int, float]]],
    chosen: Mapping[str, tuple[int, float]],
    traces: Mapping[str, Sequence[tuple[float, int]]],
    slots: int,
    path: Path,
) -> None:
    """Write the picture as SVG or PNG. It has two charts for each downstream.

    The upper one shows (concurrency, sub-messages/s) of the fixed values, and the point at which
    auto settled. The lower one shows (seconds, sub-messages in the handler) of auto.
    """
    figure = Figure(figsize=(4.2 * len(fixed), 6), layout="constrained")
    axes = figure.subplots(2, len(fixed), squeeze=False)
    for column, (name, points) in enumerate(fixed.items()):
        top, below = axes[0][column], axes[1][column]
        top.plot(*zip(*points, strict=True), "o-", color=BLUE, label="fixed")
        if name in chosen:
            top.plot(*chosen[name], "D", color=RED, markersize=9, label="auto, settled")
        top.set_title(name)
        top.set_ylim(bottom=0)
        top.set_xlabel("concurrency")
        top.legend(frameon=False, loc="lower right")
        below.axhspan(0.8 * slots, 1.2 * slots, color=GREY, alpha=0.25, lw=0)
        if traces.get(name):
            below.plot(*zip(*traces[name], strict=True), color=RED, linewidth=1)
        below.set_ylim(bottom=0)
        below.set_xlabel(f"seconds (grey: {slots}, 20% either way)")
        for each in (top, below):
            each.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("sub-messages per second")
    axes[1][0].set_ylabel("in the handler, auto")
    figure.savefig(path)
