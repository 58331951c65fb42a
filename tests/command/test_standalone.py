"""A standalone cluster of Spark's: what it does not give is said, and does not hold the command."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from command.conftest import MakeTopic, operations
from command.process import Command
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
