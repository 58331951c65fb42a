"""Executors and workers of Spark that vanish, with what they held: blocks, shuffle files, calls."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyspark
import pytest

from command.conftest import operations
from command.process import Command, Running
from command.test_spark_chaos import IN_PROCESS, PATIENCE_S, ensure_few_repeats, spark_at_home
from drainer.kafka.cluster import Cluster
from kafka.topic import Topic, eventually
from scenarios.spark_chaos.processes import below, executor_of, executors_of

__all__ = ["spark_at_home"]  # for each test here as well
pytestmark = pytest.mark.long

CONCURRENCY = 20
CLUSTER = ("--master", "local-cluster[2,1,1024]")
LONG_KEY = 1_000  # characters: several MiB of chunks are worth several tasks


def bulky(count: int) -> list[str]:
    """Values of messages: two operations on a few documents, and three on long names."""
    chance = random.Random(count)
    return [
        json.dumps(
            [f"a-{n % 50}", f"b-{n * 3 % 50}"]
            + [f"{chance.getrandbits(4 * LONG_KEY):x}" for _ in range(3)]
        )
        for n in range(count)
    ]


class Night:
    """A drain on a cluster, what Spark writes down of it, and the laws on what it did."""

    def __init__(self, command: Command, folder: Path) -> None:
        self._command = command
        self._events = folder / "events"
        self._events.mkdir()
        self._victims: set[int] = set()

    def begin(self, topic: Topic, *where: str, **options: Any) -> Running:
        conf = ("enabled=true", f"dir={self._events.as_uri()}", "compress=false")
        events = [word for each in conf for word in ("--spark-conf", f"spark.eventLog.{each}")]
        common = ("-c", str(CONCURRENCY), "--timeout", "1h")
        self.topic = topic
        self.running = self._command.begin(topic, *common, *where, *events, **options)
        return self.running

    def waits(self, condition: Callable[[], bool], what: str) -> None:
        running = self.running
        eventually(lambda: condition() or not running.running, what, PATIENCE_S)
        assert running.running, running.err

    def events(self, kind: str) -> Iterator[dict[str, Any]]:
        for path in sorted(self._events.rglob("*")):
            for line in path.read_text().splitlines() if path.is_file() else ():
                if line.startswith(f'{{"Event":"SparkListener{kind}"') and line.endswith("}"):
                    yield json.loads(line)

    def jobs_done(self, words: str) -> int:
        """Count of ended jobs whose name has these words."""
        meant = {
            each["Job ID"]
            for each in self.events("JobStart")
            if words in each["Properties"].get("spark.job.description", "")
        }
        return sum(each["Job ID"] in meant for each in self.events("JobEnd"))

    @property
    def reasons(self) -> set[str]:
        """Reasons why tasks have ended."""
        return {each["Task End Reason"]["Reason"] for each in self.events("TaskEnd")}

    def at_work(self) -> int:
        """A Python worker that makes calls."""
        return self._command.record.lines()[-1].pid

    def begun(self, pids: int) -> None:
        """Wait until calls are in so many workers."""
        self.waits(
            lambda: len({line.pid for line in self._command.record.lines()}) >= pids, "calls"
        )

    @property
    def stages_begun_again(self) -> int:
        return sum(
            each["Stage Info"]["Stage Attempt ID"] > 0 for each in self.events("StageSubmitted")
        )

    def kill(self, pid: int) -> None:
        self._victims.update((pid, *below(pid)))
        os.kill(pid, signal.SIGKILL)

    def kill_executor(self) -> None:
        """One that makes calls."""
        executor = executor_of(self.at_work())
        assert executor is not None
        self.kill(executor)

    def give_up_stage(self) -> None:
        """Count on repeats of all that is in flight: the stage has lost its input."""
        self._victims.update(line.pid for line in self._command.record.lines())

    def open_gate(self) -> None:
        self._command.gate.touch()

    def ends_well(self) -> None:
        """Ensure that all is drained in order, and only what victims had in flight, or had just
        finished, was repeated."""
        self.running.ends(0, PATIENCE_S)
        self._command.ensure_drained(self.topic)
        ensure_few_repeats(self._command, self._victims, victims=2)
        assert self._command.left_behind == [self._command.plan(self.topic).name]


@pytest.fixture
def night(command: Command, cluster: Cluster, tmp_path: Path) -> Iterator[Night]:
    made = Night(command, tmp_path)
    yield made
    for each in made.events("ApplicationStart"):
        # A local-cluster keeps its logs beside Spark's jars.
        rmtree(Path(pyspark.__file__).with_name("work") / each["App ID"], ignore_errors=True)


def test_a_wave_whose_blocks_are_lost_before_it_is_dispatched_is_read_again(
    command: Command, night: Night
) -> None:
    values = operations(400)
    night.begin(
        command.topic(values), *CLUSTER, "--spark-conf", "drainer.wave=4KiB", gate=command.gate
    )
    night.waits(lambda: night.jobs_done(": read ") >= 2, "the second wave is read")
    for executor in executors_of(night.running.pid):
        night.kill(executor)
    night.open_gate()

    night.ends_well()
    assert "ExecutorLostFailure" in night.reasons


def test_workers_and_executors_that_are_killed_cost_what_they_had_in_flight(
    command: Command, night: Night
) -> None:
    """Work of living executors is begun anew, too, for the stage has lost its input."""
    values = bulky(1_500)
    wide = ("--master", "local-cluster[2,2,1024]", "--spark-conf", "drainer.tasks=2")
    night.begin(command.topic(values), *wide, gate=command.gate)
    night.begun(2)
    night.kill(night.at_work())
    night.begun(3)
    night.kill_executor()
    night.give_up_stage()
    # Spark has two slots by its own count even where there is no executor.
    night.waits(lambda: "Spark lost executors: 2 of 4 slots are left" in night.running.err, "news")
    night.waits(lambda: night.stages_begun_again >= 2, "what was shuffled is read again")
    night.open_gate()

    night.ends_well()
    assert {"ExecutorLostFailure", "FetchFailed"} <= night.reasons
    gone = (
        r"(?m)^\d\d:\d\d:\d\d  a task .*: its Python worker or executor is gone; Spark repeats it$"
    )
    assert len(re.findall(gone, night.running.err)) >= 2


def test_executors_that_are_lost_again_and_again_end_the_drain_and_a_resume_goes_on(
    command: Command, night: Night
) -> None:
    values = operations(400)
    topic = command.topic(values)
    running = night.begin(topic, *CLUSTER, gate=command.gate)
    killed = set[int]()
    while running.running:
        for pid in {line.pid for line in command.record.lines()} - killed:
            killed.add(pid)
            if (executor := executor_of(pid)) is not None:
                os.kill(executor, signal.SIGKILL)
    outcome = running.ends(4, PATIENCE_S)
    night.open_gate()

    assert "lost an executor" in outcome.error, outcome.err
    assert outcome.hint
    command(*outcome.resume_words[:2], "--yes", *IN_PROCESS, *command.options())
    command.ensure_drained(topic)
    assert command.left_behind == [command.plan(topic).name]
