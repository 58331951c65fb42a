"""`drainer certify` splits a sample of the real topic, and leaves no trace there or here."""

from __future__ import annotations

import shutil
from pathlib import Path

from command.conftest import operations
from command.process import Command, Outcome
from drainer.kafka.cluster import Cluster
from kafka.topic import Topic

COUNT = 60  # messages


def certify(command: Command, handler: str, topic: Topic, *more: str, code: int = 0) -> Outcome:
    handlers = shutil.copy(Path(__file__).with_name("certified.py"), command.home)
    calls = command.home / "calls"
    where = ["--topic", topic.name, "-b", command.bootstrap, "--set", f"calls={calls}"]
    outcome = command("certify", f"{handlers}:{handler}", *where, *more, code=code)
    assert command.left_behind == []
    assert not calls.exists()
    return outcome


def test_a_handler_that_keeps_the_law_passes_and_no_group_is_touched(
    command: Command, cluster: Cluster
) -> None:
    topic = command.topic(operations(COUNT))

    outcome = certify(command, "Documents", topic)

    assert f"on {COUNT} messages of" in outcome.err
    for printed in (
        "✓ split gives the same again, here and in another process",
        f"{2 * COUNT} sub-messages",
        "✓ certified on this sample: 2 checks passed",
    ):
        assert printed in outcome.out
    assert cluster.committed("drainer-sample", topic.name, [0]) == {0: None}


def test_one_that_breaks_it_ends_with_7_and_one_that_can_not_be_tried_with_3(
    command: Command,
) -> None:
    topic = command.topic(operations(COUNT))

    outcome = certify(command, "SetOrder", topic, "-o", "json", code=7)

    levels = {found["check"]: found["level"] for found in outcome.answer["findings"]}
    assert levels == {"split": "ok", "deterministic": "bad"}
    assert "in another process" in outcome.answer["findings"][1]["text"]
    assert "split depend on the message alone" in outcome.hint
    assert (outcome.answer["status"], outcome.answer["exit_code"]) == ("broken", 7)
    assert "no index there" in certify(command, "DoesNotOpen", topic, code=3).error
    empty = certify(command, "Documents", command.topic(), code=3)
    assert "has no messages" in empty.error
    assert empty.hint
