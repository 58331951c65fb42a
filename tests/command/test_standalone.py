"""A standalone cluster of Spark's: what it does not give is said, and does not hold the command."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from command.conftest import MakeTopic, operations
from command.process import Command
from command.record import every_place
from command.standalone import standalone

pytestmark = pytest.mark.long


def test_an_executor_that_never_comes_is_said_and_ctrl_c_ends_the_wait(
    command: Command, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(operations(20))
    with standalone(tmp_path) as cluster:
        cluster.worker(memory="512m")
        state = ("--state", str(tmp_path / "state"))
        conf = ("--spark-conf", "spark.executor.memory=4g")
        running = command.begin(topic, "--master", cluster.url, *state, *conf)
        running.says("Spark has no executor yet: each is to have 4g of memory")
        running.signal(signal.SIGINT)
        outcome = running.ends(4)

    assert "interrupted while Spark was starting; nothing was handled" in outcome.err
    assert "Traceback" not in outcome.err
    assert command.left_behind == []


def test_executors_come_as_tasks_wait_for_them(
    command: Command, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(operations(400))
    with standalone(tmp_path) as cluster:
        cluster.worker(cores=2, memory="2g")
        conf = ("dynamicAllocation.enabled=true", "executor.cores=1", "executor.memory=512m")
        words = [word for each in conf for word in ("--spark-conf", f"spark.{each}")]
        state = ("--state", str(tmp_path / "state"))
        command.drain(topic, "--master", cluster.url, *state, *words, "--tasks", "2", pause_ms=20)

    assert sorted(command.record.done()) == sorted(every_place(operations(400)))
    assert len({line.pid for line in command.record.lines()}) == 2
