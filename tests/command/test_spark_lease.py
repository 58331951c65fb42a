"""A driver that stands still, and a fresh drain of the same group beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from command.conftest import operations
from command.process import ON_THE_LOOP, ON_THREADS, Command
from command.record import every_place
from command.test_spark_chaos import IN_PROCESS, ON_SPARK, PATIENCE_S, spark_at_home
from drainer.errors import EXIT_INTERRUPTED, EXIT_UNRESUMABLE
from kafka.topic import eventually
from scenarios.spark_chaos.processes import jvm_of, program, standing_still
from scenarios.spark_chaos.standalone import standalone

__all__ = ["spark_at_home"]  # for each test here as well
CUT_WITHIN_S = 200.0  # a folder that is mounted has a lease of minutes
SLOW = "a-0"  # the sub-key whose first call never ends


@pytest.fixture(params=["local", "standalone"])
def on_spark(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """Options of a drain, here or on a cluster, whose executors outlive a driver that is frozen."""
    if request.param == "local":
        yield [*ON_SPARK]
        return
    with standalone(tmp_path) as made:
        made.worker(cores=2)
        yield [
            "-c",
            "20",
            "--master",
            made.url,
            "--spark-conf",
            f"drainer.state={tmp_path / 'state'}",
        ]


@pytest.mark.long
@pytest.mark.parametrize("handler", [ON_THE_LOOP, ON_THREADS])
def test_no_call_of_tasks_runs_beside_a_fresh_drain_when_their_driver_stands_still(
    command: Command, on_spark: list[str], handler: str
) -> None:
    messages = operations(3_000, lanes=50)
    topic = command.topic(messages)
    slowly = {"pause_ms": 100, "gate": command.gate, "gated": SLOW}
    first = command.begin(topic, *on_spark, "--timeout", "1h", handler=handler, **slowly)
    command.wait_for(first, "done", 300, PATIENCE_S)
    slow = next(line for line in command.record.lines() if line.keys == (SLOW,))
    with standing_still([first.pid, jvm_of(first.pid)]):
        frozen_s = time.monotonic()
        words = [*command.what(topic, handler), "--from", "earliest", "--yes"]
        second = command.start(
            "run", *words, *command.options(), *IN_PROCESS, "--plan", "other.json"
        )
        eventually(
            lambda: not program(slow.pid), "the call that never ends is cut off", CUT_WITHIN_S
        )
        cut_s = time.monotonic()
        second.ends(0, PATIENCE_S)
    outcome = first.ended(PATIENCE_S)

    lines = command.record.lines()
    began_s = min(line.at_s for line in lines if line.pid == second.pid)
    others_s = [line.at_s for line in lines if line.pid != second.pid]
    assert frozen_s < max(others_s) < began_s, "its tasks went on for a while, and not beside"
    assert frozen_s < cut_s < began_s
    of_second = [line for line in lines if line.pid == second.pid and line.mark == "done"]
    assert {line.place for line in of_second} == every_place(messages)
    assert command.committed(topic) == {0: 3_000}
    assert outcome.code in (EXIT_INTERRUPTED, EXIT_UNRESUMABLE), (
        outcome.err
    )  # whichever it sees first
