"""Trouble for a drain while it runs, and where the group stood meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from drainer.kafka.cluster import Cluster
from kafka.topic import eventually
from spark.story import Place, Story

LOOK_S = 0.02


@contextmanager
def slots_taken(spark: SparkSession, folder: Path) -> Iterator[Callable[[], object]]:
    """Have another job in both slots of a session, until the block ends or what it gives is called.

    The job's tasks leave files in the folder.
    """
    gate = folder / "gate"

    def occupy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            (folder / f"slot-{batch.column(0)[0]}").touch()
            while not gate.exists():
                threading.Event().wait(0.02)
            yield batch

    def take() -> None:
        with suppress(Exception):  # PySpark cancels it with an interrupted drain
            spark.range(0, 2, 1, 2).mapInArrow(occupy, "id long").collect()

    other = threading.Thread(target=take)
    other.start()
    try:
        eventually(lambda: len(list(folder.glob("slot-*"))) == 2, "both slots are taken")
        yield gate.touch
    finally:
        gate.touch()
        other.join()


@contextmanager
def trouble(
    story: Story, act: Callable[[int], None], *, on: str = "end", after: int = 300
) -> Iterator[list[int]]:
    """Do something to a drain once its handlers have written ``on`` so many times.

    ``act`` is given the process that wrote the last one, which is in the list that this gives. What
    it raises is raised at the end.
    """
    over = threading.Event()
    victims: list[int] = []
    failures: list[BaseException] = []
    commits: list[tuple[int, dict[int, int | None]]] = []  # when read, and the offsets

    def watch() -> None:
        try:
            with Cluster.connect(story.settings) as cluster:
                while not over.wait(LOOK_S):
                    found = cluster.committed(story.group, story.topic, tuple(story.messages))
                    commits.append((time.monotonic_ns(), found))
                    wrote = [line["pid"] for line in story.lines if line["what"] == on]
                    if not victims and len(wrote) >= after:
                        victims.append(wrote[-1])
                        act(victims[0])
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield victims
    finally:
        over.set()
        thread.join()
        for failure in failures:
            raise failure
    assert victims, "the drain was over before anything was done to it"
    _ensure_commits(story, commits)


def _ensure_commits(story: Story, commits: list[tuple[int, dict[int, int | None]]]) -> None:
    """The group never stood past a message that was not finished."""
    ended: dict[Place, int] = {}
    for line in story.lines:
        if line["what"] == "end":
            ended.setdefault(tuple(line["place"]), line["at"])
    for at, offsets in commits:
        for place in story.everything:
            if place[1] < (offsets.get(place[0]) or 0):
                assert ended.get(place, at + 1) <= at, (place, offsets)


def interrupt(times: int) -> Callable[[int], None]:
    """Give this process, which is the driver, SIGTERM so often."""

    def act(_: int) -> None:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)

    return act


def states(folder: Path) -> list[str]:
    """The names of what is left of a state."""
    return [path.name for path in folder.iterdir() if "state" in path.name]
