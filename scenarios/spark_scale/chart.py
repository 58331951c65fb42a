"""The chart of the chapters that were run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, RED, GREY = "#3566a8", "#b8433a", "#999999"


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """Write the chart as SVG or PNG, by the ending of the path."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    panels = {"against": _against, "slots": _slots, "slices": _slices, "model": _model}
    for axes, (name, panel) in zip(figure.subplots(2, 2).flat, panels.items(), strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        if figures.get(name):
            panel(axes, figures[name])
        else:
            axes.set_axis_off()
    figure.savefig(path)


def _against(axes: Axes, cases: Mapping[str, Any]) -> None:
    bars = axes.bar(list(cases), [case["ratio"] for case in cases.values()], color=BLUE)
    axes.bar_label(bars, fmt="%.2f")
    for place, case in enumerate(cases.values()):
        axes.plot([place - 0.4, place + 0.4], [case["least"]] * 2, color=RED)
    axes.set_title("Spark against one process, two cores (red: wanted)")
    axes.set_ylabel("times as many sub-messages per second")


def _slots(axes: Axes, rows: Mapping[str, Any]) -> None:
    for load in dict.fromkeys(row["load"] for row in rows.values()):
        own = sorted(
            (row["slots"], row["net_s_ratio"], row["shuffled_ratio"])
            for row in rows.values()
            if row["load"] == load
        )
        slots, times, sizes = zip(*own, strict=True)
        (line,) = axes.plot(slots, times, "o-", label=load)
        axes.plot(slots, sizes, ":", color=line.get_color())
        axes.set_xticks(slots)
    axes.set_ylim(bottom=0)
    axes.set_title("by slots of two cores: processor time, bytes (dotted)")
    axes.set_xlabel("slots")
    axes.set_ylabel("times that of two slots")
    axes.legend(frameon=False)


def _slices(axes: Axes, found: Mapping[str, Any]) -> None:
    axes.plot(*zip(*found["on_disk"], strict=True), color=BLUE, linewidth=1)
    axes.axhline(found["wanted"], color=RED)
    axes.set_title(f"{found['slices']} slices on a local cluster")
    axes.set_xlabel("seconds")
    axes.set_ylabel("slices that Spark's folders hold")


def _model(axes: Axes, found: Mapping[str, Any]) -> None:
    for name, limit in found["limits"].items():
        axes.plot(found["cores"], limit, "o-", label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title("what bounds a cluster, by the model")
    axes.set_xlabel("cores")
    axes.set_ylabel("sub-messages per second")
    axes.legend(frameon=False)
