"""The engine on the command line: chosen, shown, and refused where there is none."""

from __future__ import annotations

import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from command.conftest import operations
from command.process import Command
from kafka.topic import Topic, eventually

HAS_JAVA = shutil.which("java") is not None
needs_java = pytest.mark.skipif(not HAS_JAVA, reason="Spark needs Java")


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(operations(20))


@pytest.mark.long
@needs_java
def test_the_plan_of_action_shows_the_settings_of_spark(command: Command, topic: Topic) -> None:
    what = [*command.what(topic), "--from", "earliest", "--dry-run", "-o", "json"]
    how = ("--engine", "spark", "--spark-conf", "drainer.tasks=4")
    conf = ("--spark-conf", "spark.executor.memory=2g", "--spark-conf", "spark.a.secret=hidden")
    outcome = command("run", *what, *how, *conf)

    engine = outcome.answer["engine"]
    assert engine["title"] == "Spark on local[*,4]"
    assert engine["settings"] == {
        "state": f"{command.plan(topic)}.state",
        "spark conf": "drainer.tasks=4, spark.a.secret=***, spark.executor.memory=2g",
    }
    assert "hidden" not in outcome.err + outcome.out
    assert "the times below are for one process" in outcome.err
    assert command.left_behind == []


@needs_java
def test_a_jvm_that_does_not_start_is_refused_with_its_output(
    command: Command, topic: Topic
) -> None:
    what = [*command.what(topic), "--from", "earliest", "--engine", "spark", "--yes"]
    outcome = command("run", *what, "--spark-conf", "spark.driver.memory=1xyz", code=3)

    assert "Invalid maximum heap size: -Xmx1xyz" in outcome.err
    assert "error: Spark's JVM did not start" in outcome.err
    assert "hint: Read its output above." in outcome.err


@needs_java
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_spark_starts_while_a_drain_waits_for_its_lock_and_ends_if_that_does(
    command: Command, topic: Topic
) -> None:
    mark = f"spark.mark={topic.name}"

    def machines() -> list[Path]:
        found = []
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # It has ended meanwhile.
                words = process.read_bytes().split(b"\0")
                found += [process] if words[0].endswith(b"java") and mark.encode() in words else []
        return found

    first = command.begin(topic, "-X", "session.timeout.ms=30000", gate=command.gate)
    command.wait_for(first, "begun", 1)
    first.kill()
    copy = shutil.copy(command.plan(topic), command.folder / "copy.json")
    spark = ("--engine", "spark", "--master", "local[1]", "--spark-conf", mark)
    waiting = command.start(*command.resume_of(copy), *command.options(), *spark)
    waiting.prints("to see whether it is alive")
    eventually(machines, "Spark starts")

    waiting.signal(signal.SIGINT)

    assert waiting.ended().code == 4
    assert machines() == []


def test_spark_is_not_started_for_nothing(command: Command, topic: Topic) -> None:
    command.drain(topic)
    outcome = command.resume(topic, "--engine", "spark", "-o", "json")
    assert "this process, since nothing is left to handle" in outcome.err
    assert outcome.answer["engine"] == "process"
