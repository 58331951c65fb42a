"""Measures the size of Spark's local folders while a backlog is drained in 50 waves on a local
cluster."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from scenarios.spark_scale.drains import Bench, Events, looking, on_spark
from scenarios.spark_scale.slots import Load

MASTER = "local-cluster[2,1,1024]"
MESSAGES, WAVES = 40_000, 50
LOOK_S = 0.05


class _Folder:
    """The bytes and files of a folder over time, as (epoch seconds, bytes, files)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seen: list[tuple[float, int, int]] = []

    def look(self) -> None:
        sizes = []
        for folder, _, names in os.walk(self._path):
            for name in names:
                # What Spark sends the executors to run is in this folder, too.
                if name.startswith(("rdd_", "shuffle_", "temp_shuffle_")):
                    with suppress(FileNotFoundError):
                        sizes.append((Path(folder) / name).stat().st_size)
        self.seen.append((time.time(), sum(sizes), len(sizes)))


def compare(made: Bench) -> dict[str, Any]:
    """Print bytes and files at each wave's end, compared with what Spark writes for a wave. Return
    the bytes over time.

    Spark writes blocks of what was read, and as much for the shuffle. The table also shows how
    often those blocks are scanned: once for the manifests, and once by each dispatch of the wave.
    """
    topic = "waves"
    log = made.fill(topic, Load(MESSAGES).records)
    local = made.folder / "local"
    local.mkdir()
    events = Events(made.folder)
    options = [*on_spark(MASTER, str(log // WAVES)), "--spark-conf", f"spark.local.dir={local}"]
    folder = _Folder(local)
    with looking(folder.look, LOOK_S):
        found = made.drain(topic, "Nothing", 1000, [*options, *events.options])
    few = made.drain(topic, "Nothing", 1000, on_spark(MASTER))
    assert found.waves is not None
    assert few.waves is not None
    cost_s = (found.elapsed_s - few.elapsed_s) / (found.waves - few.waves)
    times = [seen[0] for seen in folder.seen]
    print("| wave | scans | bytes at its end | of a wave | files |\n|---|---|---|---|---|")
    most, scans = 0.0, _scans(events)
    wave_bytes = 2 * events.shuffled()[0] / found.waves
    for wave, end in sorted(_ends(events).items()):
        _, size, files = folder.seen[min(bisect_right(times, end), len(times) - 1)]
        most = max(most, size / wave_bytes)
        print(f"| {wave} | {scans[wave]} | {size:,} | {size / wave_bytes:.2f} | {files} |")
    met = "met" if most <= 2 else "NOT MET"
    moment = max(size for _, size, _ in folder.seen) / wave_bytes
    print(
        f"\n{found.waves} waves of {log / found.waves:,.0f} bytes, {wave_bytes:,.0f} on disk; at a"
        f" wave's end {most:.2f} waves at most, 2 wanted: {met}; {moment:.2f} at any moment, and"
        f" {folder.seen[-1][1]:,} bytes at the end\n{found.elapsed_s:.1f} s, and"
        f" {few.elapsed_s:.1f} s in {few.waves} waves: {cost_s:.2f} s a wave\n"
        f"{scans.total() / len(scans):.1f} scans of a wave's blocks, {max(scans.values())} at most;"
        f" {events.read_from_blocks() / (wave_bytes / 2 * found.waves):.1f} times their bytes",
        flush=True,
    )
    on_disk = [(at - times[0], size / wave_bytes) for at, size, _ in folder.seen]
    return {"on_disk": on_disk, "most": most, "waves": found.waves, "wave_s": cost_s}


def _waves_by_job(events: Events) -> dict[int, list[int]]:
    """Return, for each job, the waves of which it handles something."""
    waves: dict[int, list[int]] = {}
    for event in events.of("SparkListenerJobStart"):
        name = event["Properties"].get("spark.job.description", "")
        _, _, dealt = name.partition(" of wave ")
        waves[event["Job ID"]] = [int(number) for number in dealt.split(", ") if number]
    return waves


def _scans(events: Events) -> Counter[int]:
    """Return how often the blocks of each wave were scanned."""
    dealt = Counter(wave for waves in _waves_by_job(events).values() for wave in waves)
    return dealt + Counter(dealt.keys())  # A wave's manifests are scanned before that.


def _ends(events: Events) -> dict[int, float]:
    """Return when the last dispatch of each wave was over, in epoch seconds."""
    waves = _waves_by_job(events)
    ends: dict[int, float] = {}
    for event in events.of("SparkListenerJobEnd"):
        for wave in waves[event["Job ID"]]:
            ends[wave] = event["Completion Time"] / 1000
    return ends
