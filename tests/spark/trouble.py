"""Makes trouble for a drain that runs, and checks the commits of its group meanwhile."""

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

from command.record import Place
from drainer.kafka.cluster import Cluster
from kafka.topic import eventually
from spark.story import Story

LOOK_S = 0.02


@contextmanager
def slots_taken(spark: SparkSession, folder: Path) -> Iterator[Callable[[], object]]:
    """Let another job take both slots of a session until the block ends.

    The block gets a function that ends the job earlier. The job's tasks leave files in the folder.
    """
    gate = folder / "gate"

    def occupy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            (folder / f"slot-{batch.column(0)[0]}").touch()
            while not gate.exists():
                threading.Event().wait(0.02)
            yield batch

    def take() -> None:
        with suppress(Exception):  # An interrupt of the drain cancels this job, too.
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
    story: Story, act: Callable[[int], None], *, on: str = "done", after: int = 300
) -> Iterator[list[int]]:
    """Call ``act`` once the handlers of a drain have written so many lines of the kind ``on``.

    It gets the process that wrote the last of these lines, and the block gets a list with that
    process. An error of ``act`` is raised at the end of the block.
    """
    over = threading.Event()
    victims: list[int] = []
    failures: list[BaseException] = []
    commits: list[tuple[float, dict[int, int | None]]] = []  # The time, and the offsets then.

    def watch() -> None:
        try:
            with Cluster.connect(story.settings) as cluster:
                while not over.wait(LOOK_S):
                    found = cluster.committed(story.group, story.topic, tuple(story.messages))
                    commits.append((time.monotonic(), found))
                    wrote = story.record.pids(on)
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


def _ensure_commits(story: Story, commits: list[tuple[float, dict[int, int | None]]]) -> None:
    """Ensure that the group's offset never was behind a message that was unfinished."""
    ended: dict[Place, float] = {}
    for line in story.record.lines():
        if line.mark == "done":
            ended.setdefault(line.place, line.at_s)
    for at, offsets in commits:
        for place in story.everything:
            if place[1] < (offsets.get(place[0]) or 0):
                assert ended.get(place, at + 1) <= at, (place, offsets)


def interrupt(times: int) -> Callable[[int], None]:
    """Return a function that sends SIGTERM to this process, the driver, so many times."""

    def act(_: int) -> None:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)

    return act


def states(folder: Path) -> list[str]:
    """Return the names of all files of a state that are left."""
    return [path.name for path in folder.iterdir() if "state" in path.name]
