"""Measures the size of Spark's local folders while a backlog is drained in 50 slices on a local
cluster."""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path
from typing import Any

from drainer.spark.assign.aggregation import OPEN_MOST
from scenarios.spark_scale.drains import Bench, Events, looking, on_spark
from scenarios.spark_scale.slots import Load

MASTER = "local-cluster[2,1,1024]"
MESSAGES, SLICES = 40_000, 50
LOOK_S = 0.05
SPARK_S = 0.5  # Spark removes the chunks of a slice in the background, within this time.
# What Spark sends the executors to run is in its folders, too.
NAMES = ("shuffle_", "temp_shuffle_", "temp_local_")
_QUERY = re.compile(r": slice (\d+)$")


class _Folder:
    """The bytes and files of a folder over time, as (epoch seconds, bytes, files)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seen: list[tuple[float, int, int]] = []

    def look(self) -> None:
        sizes = []
        for folder, _, names in os.walk(self._path):
            for name in names:
                if name.startswith(NAMES):
                    with suppress(FileNotFoundError):
                        sizes.append((Path(folder) / name).stat().st_size)
        self.seen.append((time.time(), sum(sizes), len(sizes)))


def compare(made: Bench) -> dict[str, Any]:
    """Print bytes and files after each slice's end, compared with the chunks of a slice. Return the
    bytes over time.

    Chunks are on disk from the reading of their slice to its end, and several slices are under way
    at once.
    """
    topic = "slices"
    log = made.fill(topic, Load(MESSAGES).records)
    local = made.folder / "local"
    local.mkdir()
    events = Events(made.folder)
    options = [*on_spark(MASTER, str(log // SLICES)), "--spark-conf", f"spark.local.dir={local}"]
    folder = _Folder(local)
    with looking(folder.look, LOOK_S):
        found = made.drain(topic, "Nothing", 1000, [*options, *events.options])
    few = made.drain(topic, "Nothing", 1000, on_spark(MASTER))
    assert found.slices is not None
    assert few.slices is not None
    cost_s = (found.elapsed_s - few.elapsed_s) / (found.slices - few.slices)
    times = [seen[0] for seen in folder.seen]
    slice_bytes = events.shuffled()[0] / found.slices
    print("| slice | bytes after its end | of a slice | files |\n|---|---|---|---|")
    after = 0.0
    for number, end in sorted(_ends(events).items()):
        place = bisect_right(times, end + SPARK_S)
        _, size, files = folder.seen[min(place, len(times) - 1)]
        after = max(after, size / slice_bytes)
        print(f"| {number} | {size:,} | {size / slice_bytes:.2f} | {files} |")
    most = max(size for _, size, _ in folder.seen) / slice_bytes
    met = "met" if most <= OPEN_MOST else "NOT MET"
    print(
        f"\n{found.slices} slices of {log / found.slices:,.0f} bytes, {slice_bytes:,.0f} on disk;"
        f" {most:.2f} slices at any moment, {OPEN_MOST} wanted: {met}; {after:.2f} after a slice's"
        f" end, and {folder.seen[-1][1]:,} bytes at the end\n{found.elapsed_s:.1f} s, and"
        f" {few.elapsed_s:.1f} s in {few.slices} slices: {cost_s:.2f} s a slice",
        flush=True,
    )
    on_disk = [(at - times[0], size / slice_bytes) for at, size, _ in folder.seen]
    figures = {"most": most, "wanted": OPEN_MOST, "slices": found.slices, "slice_s": cost_s}
    return {"on_disk": on_disk, **figures}


def _ends(events: Events) -> dict[int, float]:
    """Return when the query of each slice was over, in epoch seconds."""
    numbers: dict[int, int] = {}
    for event in events.of("SparkListenerJobStart"):
        query = _QUERY.search(event["Properties"].get("spark.job.description") or "")
        if query is not None:
            numbers[event["Job ID"]] = int(query[1])
    ends: dict[int, float] = {}
    for event in events.of("SparkListenerJobEnd"):
        if (number := numbers.get(event["Job ID"])) is not None:
            ends[number] = max(ends.get(number, 0.0), event["Completion Time"] / 1000)
    return ends
