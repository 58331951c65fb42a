"""The engine on the command line: chosen, told, and refused where it can't be."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from command.conftest import operations
from command.process import Command, Outcome
from kafka.topic import Topic

HAS_JAVA = shutil.which("java") is not None
needs_java = pytest.mark.skipif(not HAS_JAVA, reason="Spark needs Java")


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(operations(20))


def dry_run(command: Command, topic: Topic, *more: str, **env: str) -> Outcome:
    what = [*command.what(topic), "--from", "earliest", "--dry-run"]
    return command("run", *what, *more, env=env)


@needs_java
def test_the_plan_of_action_says_what_spark_is_given(command: Command, topic: Topic) -> None:
    outcome = dry_run(
        command,
        topic,
        *("--engine", "spark", "--tasks", "4", "--wave", "64MiB"),
        *("--spark-conf", "spark.executor.memory=2g", "--spark-conf", "spark.a.secret=hidden"),
        "-o",
        "json",
    )

    engine = outcome.answer["engine"]
    assert (engine["title"], engine["why"]) == ("Spark on local[*]", "set by --engine")
    assert engine["settings"] == {
        "waves": "64 MiB each, handled by 4 tasks at once",
        "state": f"{command.plan(topic)}.state",
        "spark conf": "spark.a.secret=***, spark.executor.memory=2g",
    }
    assert "hidden" not in outcome.err + outcome.out
    assert outcome.answer["estimate"]["engine"] == "spark"
    assert command.left_behind == []


def test_what_makes_no_sense_on_spark_is_a_usage_error(command: Command, topic: Topic) -> None:
    for *options, word in (
        ("--master", "yarn", "a place to record what is done"),
        ("--master", "sc://h", "Spark Connect"),
        ("--spark-conf", "spark.speculation=true", "twice"),
        ("--spark-conf", "hidden", "must be NAME=VALUE"),
        ("--wave", "2 pages", "not a size"),
        ("--archive", "none.zip", "does not exist"),
    ):
        outcome = command("run", *command.what(topic), "--engine", "spark", *options, code=2)
        assert word in outcome.error
        assert outcome.hint
        assert "hidden" not in outcome.err


def test_without_java_spark_is_refused_with_what_to_install(
    command: Command, topic: Topic, tmp_path: Path
) -> None:
    env = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    what = [*command.what(topic), "--from", "earliest", "--yes", "--engine", "spark"]
    outcome = command("run", *what, env=env, code=3)

    assert outcome.error == "Spark needs Java, but there is none"
    assert "Install a JDK" in outcome.hint
    assert command.left_behind == []


@needs_java
def test_a_jvm_that_does_not_start_is_refused_with_what_it_said(
    command: Command, topic: Topic
) -> None:
    what = [*command.what(topic), "--from", "earliest", "--engine", "spark", "--yes"]
    outcome = command("run", *what, "--spark-conf", "spark.driver.memory=1xyz", code=3)

    assert "Invalid maximum heap size: -Xmx1xyz" in outcome.err
    assert "error: Spark's JVM did not start" in outcome.err
    assert "hint: Read its output above." in outcome.err


def stopped(command: Command, topic: Topic) -> str:
    """The plan of a drain that failed at its tenth message."""
    command.drain(topic, "--retries", "0", code=5, fail="0/10/0")
    return str(command.plan(topic))


@needs_java
def test_a_resume_may_go_to_spark_and_says_so_before_it_begins(
    command: Command, topic: Topic
) -> None:
    plan = stopped(command, topic)
    done = len(command.record.done())
    words = ["resume", plan, "--yes", "--master", "local[2]", *command.options()]
    running = command.start(*words)
    running.prints("Spark on local[2]  (a master is named)")
    running.kill()

    assert len(command.record.done()) == done


def test_spark_is_not_started_for_nothing(command: Command, topic: Topic) -> None:
    command.drain(topic)
    outcome = command.resume(topic, "--engine", "spark", "-o", "json")
    assert "this process  (nothing is left to handle)" in outcome.err
    assert outcome.answer["engine"] == "process"
