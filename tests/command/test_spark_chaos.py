"""A drain on Spark in a bad night, as its user sees it.

``scenarios.spark_chaos``, which ``.ci/weekly`` runs, has the laws: it kills and freezes whatever
takes part in such a drain."""

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
from command.process import ON_THE_LOOP, Command
from command.record import check_repeats
from drainer.spark.state.state import open_objects
from kafka.topic import eventually
from s3 import S3
from scenarios.spark_chaos.processes import below, executor_of, program

ON_SPARK = ("--engine", "spark", "--master", "local[2]", "-c", "20")
IN_PROCESS = ("--engine", "process", "-c", "20")
CONCURRENCY = 20
LONG_KEY = 1_000  # characters: several MiB of chunks are worth several tasks
PATIENCE_S = 200.0  # Spark takes seconds to start, and minutes where many do


@pytest.fixture(autouse=True)
def spark_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing of a killed JVM behind after the test."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    options = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Djava.io.tmpdir={tmp_path}"
    monkeypatch.setenv("JDK_JAVA_OPTIONS", options.strip())


def ensure_all_are_gone(pids: list[int]) -> None:
    eventually(lambda: not any(program(pid) for pid in pids), "no process is left", 30)


@pytest.mark.long
@pytest.mark.parametrize("place", ["object store", "topic"])
def test_a_drain_with_its_plan_elsewhere_is_finished_by_one_process(
    place: str, command: Command, s3: S3
) -> None:
    """Its driver is dead, and so is the first process that goes on."""
    topic = command.topic(operations(2_000, lanes=50))
    plan, short = s3.uri(f"{topic.name}/orders.plan.json"), ["-X", "session.timeout.ms=6000"]
    if place == "topic":
        plans = command.topic(config={"cleanup.policy": "compact"})
        plan, state = f"kafka://{plans.name}/orders", s3.uri(f"{topic.name}/state")
        short += ["-b", command.bootstrap, "--spark-conf", f"drainer.state={state}"]
    running = command.begin(topic, *ON_SPARK, *short, "--plan", plan, pause_ms=5)
    command.wait_for(running, "done", 500, PATIENCE_S)
    processes = below(running.pid)
    running.kill()
    ensure_all_are_gone(processes)

    named = ("--handler", f"{command.handlers}:{ON_THE_LOOP}", "--yes", *short)
    words = ["resume", plan, *named, *command.options(pause_ms=5)]
    running = command.start(*words, *IN_PROCESS)
    command.wait_for(running, "done", 1_000, PATIENCE_S)
    running.kill()
    command(*words, *IN_PROCESS)

    command.ensure_drained(topic)
    left = ["orders.plan.json"] if place == "object store" else []
    assert open_objects(s3.uri(topic.name)).children("") == left
    assert command.left_behind == []


@pytest.mark.long
def test_a_drain_with_its_state_in_hdfs_is_resumed_after_its_driver_was_killed(
    command: Command, hdfs: str
) -> None:
    topic = command.topic(operations(2_000, lanes=50))
    state = f"webhdfs://{hdfs}/drains/{topic.name}"
    short = ("-X", "session.timeout.ms=6000")
    placed = ("--spark-conf", f"drainer.state={state}")
    running = command.begin(topic, *ON_SPARK, *short, *placed, pause_ms=5)
    command.wait_for(running, "done", 500, PATIENCE_S)
    processes = below(running.pid)
    running.kill()
    ensure_all_are_gone(processes)

    words = [*command.resume_of(command.plan(topic)), *short, *command.options(pause_ms=5)]
    command(*words, *ON_SPARK, *placed)

    command.ensure_drained(topic)
    assert open_objects(state).children("") == []


@pytest.mark.long
def test_a_killed_process_is_resumed_on_spark_and_ctrl_c_ends_all_of_it(command: Command) -> None:
    topic = command.topic(operations(800, lanes=50))
    first = command.begin(topic, *IN_PROCESS, pause_ms=5)
    command.wait_for(first, "done", 300)
    first.kill()
    words = [*command.resume_of(command.plan(topic)), *command.options(pause_ms=10)]
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
    command(*command.resume_of(outcome.resume_words[1]), *IN_PROCESS, *command.options())
    command.ensure_drained(topic)
    check_repeats(command.record.lines(), {first.pid}, CONCURRENCY, 1)


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


def events(folder: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Events of a kind, of those that Spark writes down of a drain."""
    for path in sorted(folder.rglob("*")):
        for line in path.read_text().splitlines() if path.is_file() else ():
            if line.startswith(f'{{"Event":"SparkListener{kind}"') and line.endswith("}"):
                yield json.loads(line)


@pytest.mark.long
def test_workers_and_executors_that_are_killed_cost_what_they_had_in_flight(
    command: Command, tmp_path: Path
) -> None:
    """Work of living executors is begun anew, too, for the stage has lost its input."""
    folder = tmp_path / "events"
    folder.mkdir()
    wide = ("--master", "local-cluster[2,2,1024]", "--spark-conf", "drainer.tasks=2")
    conf = ("enabled=true", f"dir={folder.as_uri()}", "compress=false")
    logged = [word for each in conf for word in ("--spark-conf", f"spark.eventLog.{each}")]
    topic = command.topic(bulky(1_500))
    more = ("-c", str(CONCURRENCY), "--tune", "timeout=1h", *wide, *logged)
    running = command.begin(topic, *more, gate=command.gate)
    victims = set[int]()

    def waits(condition: Callable[[], bool], what: str) -> None:
        eventually(lambda: condition() or not running.running, what, PATIENCE_S)
        assert running.running, running.err

    def kill(pid: int | None) -> None:
        assert pid is not None
        victims.update((pid, *below(pid)))
        os.kill(pid, signal.SIGKILL)

    def in_workers(count: int) -> bool:
        return len({line.pid for line in command.record.lines()}) >= count

    waits(lambda: in_workers(2), "calls are in two workers")
    kill(command.record.lines()[-1].pid)
    waits(lambda: in_workers(3), "calls are in another worker")
    kill(executor_of(command.record.lines()[-1].pid))
    victims.update(line.pid for line in command.record.lines())
    # Spark has two slots by its own count even where there is no executor.
    waits(lambda: "Spark lost executors: 2 of 4 slots are left" in running.err, "it is reported")
    waits(
        lambda: (
            sum(
                each["Stage Info"]["Stage Attempt ID"] > 0
                for each in events(folder, "StageSubmitted")
            )
            >= 2
        ),
        "what was shuffled is read again",
    )
    command.gate.touch()
    running.ends(0, PATIENCE_S)

    command.ensure_drained(topic)
    check_repeats(command.record.lines(), victims, CONCURRENCY, 2)
    assert command.left_behind == [command.plan(topic).name]
    reasons = {each["Task End Reason"]["Reason"] for each in events(folder, "TaskEnd")}
    assert {"ExecutorLostFailure", "FetchFailed"} <= reasons
    why = "its Python worker or executor is gone; Spark repeats it"
    gone = rf"(?m)^\d\d:\d\d:\d\d  the task of shard \d+.*: {why}$"
    assert len(re.findall(gone, running.err)) >= 2
    for each in events(folder, "ApplicationStart"):
        # A local-cluster keeps its logs beside Spark's jars.
        rmtree(Path(pyspark.__file__).with_name("work") / each["App ID"], ignore_errors=True)
