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


@pytest.fixture
def handlers(command: Command) -> Path:
    return Path(shutil.copy(Path(__file__).with_name("certified.py"), command.home))


class Certify:
    def __init__(self, command: Command, handlers: Path) -> None:
        self.command = command
        self.handlers = handlers
        self.calls = command.home / "calls"

    def __call__(self, handler: str, topic: str | Topic, *more: str, code: int = 0) -> Outcome:
        name = topic if isinstance(topic, str) else topic.name
        where = ["--topic", name, "-b", self.command.bootstrap, "--set", f"calls={self.calls}"]
        words = ["certify", f"{self.handlers}:{handler}", *where, *more]
        outcome = self.command(*words, code=code)
        assert self.command.left_behind == []
        return outcome


@pytest.fixture
def certify(command: Command, handlers: Path) -> Certify:
    return Certify(command, handlers)


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
    assert (
        "✓ split gives the same again, here, in other processes and at other times" in outcome.out
    )
    assert (
        "- different sub-keys commute: handle was not called: add --handle, or state=… in a test"
        in outcome.out
    )
    assert f"{2 * COUNT} sub-messages" in outcome.out
    assert "✓ certified on this sample: 6 checks passed, 6 not checked" in outcome.out
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


def test_handle_is_not_called_without_a_yes(certify: Certify, topic: Topic) -> None:
    outcome = certify("Documents", topic, "--handle", code=3)

    assert "drainer will call handle for real" in outcome.err
    assert "--yes" in outcome.hint
    assert not certify.calls.exists()


@pytest.mark.long
def test_with_a_yes_all_is_checked(certify: Certify, topic: Topic) -> None:
    outcome = certify("Documents", topic, "--handle", "--yes", "-o", "json", "--sample", "4")

    assert set(levels(outcome.answer).values()) == {"ok"}
    assert outcome.answer["handled"] > 100
    assert certify.calls.exists()


def test_an_effect_outside_the_sub_key_is_found(certify: Certify, topic: Topic) -> None:
    outcome = certify("Newest", topic, "--handle", "--sample", "4", "--yes", "-o", "json", code=7)

    found = next(f for f in outcome.answer["findings"] if f["check"] == "commutes")
    assert found["level"] == "bad"
    assert "and then" in found["text"]
    assert "state['newest']" in found["text"]
    assert levels(outcome.answer)["idempotent"] == "ok"


@pytest.mark.parametrize(
    ("handler", "more", "code", "printed"),
    [
        ("WithoutState", ("--handle",), 2, "no method `state`"),
        ("DoesNotOpen", (), 3, "ConnectionError: no index there"),
    ],
)
def test_what_can_not_be_begun_is_refused(
    certify: Certify, topic: Topic, handler: str, more: tuple[str, ...], code: int, printed: str
) -> None:
    outcome = certify(handler, topic, *more, code=code)

    assert printed in outcome.error
    assert outcome.hint


def test_an_empty_topic_certifies_nothing(certify: Certify, command: Command) -> None:
    assert "has no messages" in certify("Documents", command.topic(), code=3).error
