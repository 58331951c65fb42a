"""`drainer certify` tries a handler on the real topic, and leaves no trace there or here."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from command.conftest import operations
from command.process import Command, Outcome
from drainer.kafka.cluster import Cluster
from kafka.topic import Topic

COUNT = 60  # messages


class Certify:
    def __init__(self, command: Command) -> None:
        self.command = command
        self.handlers = shutil.copy(Path(__file__).with_name("certified.py"), command.home)
        self.calls = command.home / "calls"

    def __call__(self, handler: str, topic: str | Topic, *more: str, code: int = 0) -> Outcome:
        name = topic if isinstance(topic, str) else topic.name
        where = ["--topic", name, "-b", self.command.bootstrap, "--set", f"calls={self.calls}"]
        words = ["certify", f"{self.handlers}:{handler}", *where, *more]
        outcome = self.command(*words, code=code)
        assert self.command.left_behind == []
        return outcome


@pytest.fixture
def certify(command: Command) -> Certify:
    return Certify(command)


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(operations(COUNT))


def levels(answer: dict[str, Any]) -> dict[str, str]:
    return {found["check"]: found["level"] for found in answer["findings"]}


def test_the_checks_of_split_call_no_handle_and_touch_no_group(
    certify: Certify, topic: Topic, cluster: Cluster
) -> None:
    outcome = certify("Documents", topic)

    assert f"on {COUNT} messages of" in outcome.err
    for printed in (
        "✓ split gives the same again, here, in other processes and at other times",
        "- different sub-keys commute: handle was not called: add --handle, or state=… in a test",
        f"{2 * COUNT} sub-messages",
        "✓ certified on this sample: 6 checks passed, 6 not checked",
    ):
        assert printed in outcome.out
    assert not certify.calls.exists()
    assert cluster.committed("drainer-sample", topic.name, [0]) == {0: None}


def test_a_split_that_breaks_a_law_ends_with_7_and_a_hint(certify: Certify, topic: Topic) -> None:
    outcome = certify("SetOrder", topic, "-o", "json", code=7)

    text = next(f["text"] for f in outcome.answer["findings"] if f["check"] == "deterministic")
    assert "in another process" in text
    assert "split depend on the message alone" in outcome.hint
    assert outcome.answer["status"] == "broken"
    assert outcome.answer["exit_code"] == 7
    assert levels(outcome.answer)["deterministic"] == "bad"


@pytest.mark.long
def test_handle_is_called_after_a_yes_and_an_effect_outside_the_sub_key_is_found(
    certify: Certify, topic: Topic
) -> None:
    refused = certify("Newest", topic, "--handle", code=3)
    assert "drainer will call handle for real" in refused.err
    assert "--yes" in refused.hint
    assert not certify.calls.exists()

    outcome = certify("Newest", topic, "--handle", "--sample", "4", "--yes", "-o", "json", code=7)

    found = next(f for f in outcome.answer["findings"] if f["check"] == "commutes")
    assert found["level"] == "bad"
    assert "and then" in found["text"]
    assert "state['newest']" in found["text"]
    assert certify.calls.exists()
    assert levels(outcome.answer)["idempotent"] == "ok"


def test_what_can_not_be_begun_is_refused(certify: Certify, command: Command, topic: Topic) -> None:
    for outcome, printed in (
        (certify("WithoutState", topic, "--handle", code=2), "no method `state`"),
        (certify("DoesNotOpen", topic, code=3), "ConnectionError: no index there"),
        (certify("Documents", command.topic(), code=3), "has no messages"),
    ):
        assert printed in outcome.error
        assert outcome.hint
