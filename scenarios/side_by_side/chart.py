"""The chart: the sub-messages per second of every run, on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure


def draw(rows: Sequence[tuple[str, float]], path: Path) -> None:
    """Write bars of (label, sub-messages per second) as SVG or PNG, by the ending of the path."""
    figure = Figure(figsize=(10, 1.2 + 0.45 * len(rows)), layout="constrained")
    axes = figure.subplots()
    labels = [label for label, _ in reversed(rows)]
    rates = [rate for _, rate in reversed(rows)]
    bars = axes.barh(labels, rates, color="#3566a8")
    axes.bar_label(bars, [f"{rate:,.0f}/s" for rate in rates], padding=4, fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(10, max(rates, default=1) * 8)
    axes.set_xlabel("sub-messages per second, one process, one partition (logarithmic)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
