"""Refusals before anything is touched, with a reason and a way out."""

from __future__ import annotations

import shutil

import pytest

from command.conftest import distinct
from command.process import Command
from kafka.topic import PASSWORD, USER, Topic
from scenarios.brokers import Broker

SASL = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN")


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(distinct(50))


def test_an_empty_backlog_is_done(command: Command, topic: Topic) -> None:
    command.cluster.alter_committed(command.group(topic), topic.name, {0: 50})
    outcome = command.drain(topic, "--from", "committed", "-o", "json")
    assert "Nothing to drain" in outcome.err
    assert (outcome.answer["status"], outcome.answer["exit_code"]) == ("empty", 0)
    assert (outcome.answer["plan"], outcome.answer["messages"]["read"]) == (None, 0)
    assert command.left_behind == []


def test_the_right_password_drains_and_is_kept_nowhere(command: Command, broker: Broker) -> None:
    topic = command.topic(distinct(50))
    config = command.home / "client.properties"
    config.write_text("\n".join([*SASL, f"sasl.username={USER}", f"sasl.password={PASSWORD}"]))
    words = ["-b", broker.sasl_bootstrap_servers, "--client-config", str(config)]
    what = [*command.what(topic), *words, *command.options()]
    outcome = command("--debug", "run", *what, "--from", "earliest", "--yes")
    assert len(command.record.done()) == 50
    plan = command.plan(topic)
    assert PASSWORD not in outcome.err + plan.read_text()
    config.rename(config.with_name("moved"))
    assert "client.properties" in command("plan", "verify", str(plan), code=2).error
    moved = ["--client-config", str(config.with_name("moved"))]
    command("plan", "verify", str(plan), *moved, "--yes")


def test_of_two_drains_at_once_the_second_refuses(command: Command) -> None:
    topic = command.topic(distinct(10))
    short = ("-X", "session.timeout.ms=1500")
    first = command.begin(topic, *short, gate=command.gate)
    command.wait_for(first, "begun", 10)
    second = command.drain(topic, *short, "--plan", "another.json", code=3)
    assert "holds the lock" in second.error
    assert f"or stop it: `drainer stop {command.plan(topic)}`" in second.hint
    assert not (command.folder / "another.json").exists()
    copy = shutil.copy(command.plan(topic), command.folder / "copy.json")
    words = [*command.resume_of(copy), *short, *command.options()]
    of_a_copy = command(*words, code=3)
    assert "to see whether it is alive" in of_a_copy.err
    assert "holds the lock" in of_a_copy.error
    command.gate.touch()
    first.ends(0)
    assert command.record.repeats() == {}
