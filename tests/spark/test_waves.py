"""Many waves, one after the other: a lane keeps its order, and nothing grows with them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest
from pyspark.sql import SparkSession

from drainer.spark.assign.status import SparkStatus
from scenarios.spark_scale.drains import Stat, family
from spark.story import Story

LOOK_S = 0.2
OF_A_WAVE = 4  # messages
GROWTH_MOST = 1.2  # of memory: Java's heap grows before it is collected


@dataclass(frozen=True, slots=True)
class Sample:
    """Size of a drain at a moment: files of Spark, bytes of the state, MiB of all processes."""

    wave: int
    blocks: int
    state_bytes: int
    mib: float


@contextmanager
def sampled(story: Story, local: Path) -> Iterator[list[Sample]]:
    """Samples of a drain on a session whose blocks are in ``local``, until the block ends."""
    over = threading.Event()
    samples: list[Sample] = []

    def look() -> None:
        while not over.wait(LOOK_S):
            status = story.statuses[-1].engine if story.statuses else None
            wave = status.wave if isinstance(status, SparkStatus) else 0
            names = (name for _, _, names in os.walk(local) for name in names)
            blocks = sum(name.startswith(("rdd_", "shuffle_")) for name in names)
            samples.append(Sample(wave, blocks, size_of(story.state), resident_mib()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def size_of(folder: str) -> int:
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # files go meanwhile
                size += (Path(path) / name).stat().st_size
    return size


def resident_mib() -> float:
    """Memory of this process and all that it began: Spark's JVM, Python workers, a broker."""
    found = 0.0
    for pid in family(os.getpid()):
        with suppress(OSError):
            found += Stat.of(pid).mib
    return found


@pytest.mark.long
@pytest.mark.parametrize("waves", [10, 200])
def test_a_lane_keeps_its_order_across_many_waves_and_nothing_grows(
    story: Story, spark: SparkSession, waves: int
) -> None:
    story.fill([[f"k{n % 7}", f"j{n % 11}"] for n in range(OF_A_WAVE * waves)])
    log_bytes = sum(len(b"one") + len(f'{{"ops":["{a}","{b}"]}}') for a, b in story.messages[0])

    with sampled(story, Path(str(spark.conf.get("spark.local.dir")))) as samples:
        summary = story.run(wave_bytes=log_bytes // waves)

    story.ensure_done(summary)
    assert summary.engine_counts["waves"] >= 0.9 * waves
    early = [each for each in samples if waves // 10 <= each.wave <= waves // 2]
    late = [each for each in samples if each.wave > waves // 2]
    figures = [
        (
            max(e.blocks for e in each),
            max(e.state_bytes for e in each),
            median(e.mib for e in each),  # a JVM that starts a process is there twice for a moment
        )
        for each in (early, late)
    ]
    print(summary.engine_counts, figures)
    (blocks, state_bytes, mib), (blocks_late, state_late, mib_late) = figures
    assert blocks_late <= 2 * blocks
    assert state_late <= 2 * state_bytes
    assert mib_late <= GROWTH_MOST * mib
