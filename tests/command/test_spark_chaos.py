"""The driver of a drain on Spark in a bad night. Workers', in one session, are in tests/spark; real
chaos, and for longer, is in scenarios/spark_chaos."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from command.conftest import operations
from command.process import Command
from kafka.topic import eventually
from scenarios.spark_chaos.processes import below, program

ON_SPARK = ("--engine", "spark", "--master", "local[2]", "-c", "20")
IN_PROCESS = ("--engine", "process", "-c", "20")
CONCURRENCY = 20
PATIENCE_S = 200.0  # Spark takes seconds to start, and minutes where many do
UNWRITTEN_S = 0.15  # as in test_kill.py


@pytest.fixture(autouse=True)
def spark_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing of a killed JVM behind after the test."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    options = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Djava.io.tmpdir={tmp_path}"
    monkeypatch.setenv("JDK_JAVA_OPTIONS", options.strip())


def ensure_all_are_gone(pids: list[int]) -> None:
    eventually(lambda: not any(program(pid) for pid in pids), "no process is left", 30)


def ensure_few_repeats(command: Command, killed: set[int], victims: int = 1) -> None:
    """Ensure that only what was in flight in a killed process, or had just finished, began again.

    Of those that were killed so many were at work, one after the other.
    """
    lines = command.record.lines()
    last_words_s = {line.pid: line.at_s for line in lines}
    done: dict[object, tuple[int, float]] = {}
    begun: dict[object, int] = {}
    in_flight = 0
    for line in lines:
        if line.mark == "done":
            done[line.place] = (line.pid, line.at_s)
            continue
        if line.place in done:
            pid, at_s = done[line.place]
            unwritten_s = last_words_s[pid] - at_s
            assert pid in killed
            assert unwritten_s <= UNWRITTEN_S, f"{line.place} was done {unwritten_s:.3f} s before"
        elif line.place in begun:
            assert begun[line.place] in killed
            in_flight += 1
        begun[line.place] = line.pid
    assert in_flight <= victims * CONCURRENCY


@pytest.mark.long
def test_a_driver_that_is_killed_is_resumed_with_another_number_of_tasks(command: Command) -> None:
    topic = command.topic(operations(800, lanes=50))
    running = command.begin(topic, *ON_SPARK, pause_ms=5)
    command.wait_for(running, "done", 500, PATIENCE_S)
    processes = below(running.pid)
    running.kill()
    ensure_all_are_gone(processes)

    words = ["resume", str(command.plan(topic)), "--yes", *command.options()]
    resumed = command.start(*words, *ON_SPARK, "--spark-conf", "drainer.tasks=3")
    eventually(lambda: bool(below(resumed.pid)), "Spark starts", PATIENCE_S)
    outcome = resumed.ends(0, PATIENCE_S)

    assert "adds" in outcome.out
    command.ensure_drained(topic)
    ensure_few_repeats(command, set(processes))
    assert command.committed(topic) == {0: 800}
    assert command.left_behind == [command.plan(topic).name]


@pytest.mark.long
def test_a_killed_process_is_resumed_on_spark_and_ctrl_c_ends_all_of_it(command: Command) -> None:
    topic = command.topic(operations(800, lanes=50))
    first = command.begin(topic, *IN_PROCESS, pause_ms=5)
    command.wait_for(first, "done", 300)
    first.kill()
    words = ["resume", str(command.plan(topic)), "--yes", *command.options(pause_ms=10)]
    running = command.start(*words, *ON_SPARK)
    command.wait_for(running, "done", 600, PATIENCE_S)
    processes = below(running.pid)
    group = os.getpgid(running.pid)
    for pid in (*processes, running.pid):  # as a terminal does
        try:
            if os.getpgid(pid) == group:
                os.kill(pid, signal.SIGINT)
        except ProcessLookupError:
            continue

    outcome = running.ends(4, PATIENCE_S)

    assert "■ interrupted by SIGINT" in outcome.err
    assert "Traceback" not in outcome.err
    assert "\tat " not in outcome.err
    ensure_all_are_gone(processes)
    assert command.left_behind == [command.plan(topic).name]
    command(*outcome.resume_words[:2], "--yes", *IN_PROCESS, *command.options())
    command.ensure_drained(topic)
    ensure_few_repeats(command, {first.pid})
