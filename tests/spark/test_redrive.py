"""Dead letters are redriven on Spark in order, and others are left alone."""

from __future__ import annotations

import pytest

from core.letters import Sample
from drainer.demo.fill import create_topic
from drainer.errors import EXIT_DEAD_LETTERS
from drainer.message import Message, Origin, SubMessage
from drainer.policy.redrive import NOT_MATCHED
from kafka.sender import sending
from spark.story import Story

LETTERS = 60


def write_letters(story: Story) -> None:
    """Write ten letters for each of the sub-keys k0 to k5. Each message has two sub-messages."""
    create_topic(story.settings, story.topic, 2)
    with sending(story.settings, story.topic) as sender:
        for number in range(LETTERS):
            key = f"k{number % 6}"
            sub = SubMessage(key, key)
            sub.message = Message(Origin("orders", "orders-id", 0), number // 2, b"k", b"v", 1)
            sub.index = number % 2
            sender.send(Sample(sub=sub).letter())
        sender.send(Sample(sub=SubMessage("k9", "too large")).letter().without_payload())
        *others, last = sender.all_reported()
        assert set(others) == {None}
        assert last is not None, "it has no payload"


@pytest.mark.long
def test_letters_are_redriven_in_order_and_those_left_alone_stay(story: Story) -> None:
    write_letters(story)

    chosen = story.redrive(["k0", "k1", "k2", "k3"], fail="k1")

    messages = chosen.messages
    assert (chosen.exit_code, chosen.cause) == (EXIT_DEAD_LETTERS, None)
    assert (messages.read, messages.done, messages.dead, messages.pending) == (61, 30, 10, 21)
    assert messages.skipped == 0
    assert chosen.left_alone == {NOT_MATCHED: 21}
    assert chosen.engine_counts["waves"] > 1
    assert {line["keys"][0] for line in story.lines if line["what"] == "begin"} == {
        *("k0", "k1", "k2", "k3")
    }
    story.ensure_order()

    story.plan_path.unlink()

    rest = story.redrive(tasks=None)

    assert (rest.exit_code, rest.messages.pending) == (EXIT_DEAD_LETTERS, 1), "without its payload"
    assert list((rest.left_alone or {}).values()) == [1]
    ended = story.places("end")
    assert len(ended) == len(set(ended)) == LETTERS
