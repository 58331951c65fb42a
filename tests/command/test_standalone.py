"""A standalone cluster of Spark's: a drain reports what it lacks, and begins with what is there."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from random import Random

import pytest

from command.conftest import operations
from command.process import Command
from scenarios.spark_chaos.standalone import standalone

pytestmark = pytest.mark.long


def test_an_executor_that_never_comes_is_reported_and_ctrl_c_ends_the_wait(
    command: Command, tmp_path: Path
) -> None:
    topic = command.topic(operations(20))
    with standalone(tmp_path) as cluster:
        cluster.worker(memory="512m")
        state = ("--spark-conf", f"drainer.state={tmp_path / 'state'}")
        conf = ("--spark-conf", "spark.executor.memory=4g")
        running = command.begin(topic, "--master", cluster.url, *state, *conf)
        running.prints("no executor got the memory and cores that it needs")
        running.signal(signal.SIGINT)
        outcome = running.ends(4)

    assert (
        "interrupted by SIGINT while Spark's tasks were checked; nothing was handled" in outcome.err
    )
    assert "Traceback" not in outcome.err
    assert command.left_behind == []


def test_a_drain_begins_with_one_executor_and_deals_to_those_that_come(
    command: Command, tmp_path: Path
) -> None:
    draw = Random(16)
    values = [json.dumps([draw.randbytes(2_000).hex()]) for _ in range(2_000)]  # worth many tasks
    topic = command.topic(values)
    with standalone(tmp_path) as spark:
        spark.worker(cores=1, memory="1g")
        conf = ("dynamicAllocation.enabled=true", "executor.cores=1", "executor.memory=512m")
        words = [word for each in conf for word in ("--spark-conf", f"spark.{each}")]
        state = ("--spark-conf", f"drainer.state={tmp_path / 'state'}")
        where = ("--master", spark.url, *state, *words)
        options = ("--spark-conf", "drainer.slice=4MiB", "-c", "20")
        running = command.begin(topic, *where, *options, pause_ms=200)
        command.wait_for(running, "done", 1)  # The drain waits for no other executor.
        for _ in range(2):
            spark.worker(cores=1, memory="1g")
        running.ends(0)

    command.ensure_drained(topic, once=True)
    assert command.committed(topic) == {0: len(values)}
    assert len(set(command.record.pids("done"))) >= 3
