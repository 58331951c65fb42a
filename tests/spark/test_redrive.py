"""Dead letters redriven on Spark: in order, and what was not meant stays."""

from __future__ import annotations

import orjson
import pytest

from core.letters import Sample
from drainer.demo.fill import create_topic
from drainer.errors import EXIT_DEAD_LETTERS
from drainer.message import Message, Origin, SubMessage, Unsplit
from drainer.policy.redrive import NOT_MATCHED
from kafka.sender import sending
from spark.story import Story

LETTERS = 60


def write_letters(story: Story) -> None:
    """Ten of each of the sub-keys k0 to k5, of two sub-messages of each message."""
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


def test_letters_are_redriven_in_order_and_those_left_alone_stay(story: Story) -> None:
    write_letters(story)

    chosen = story.redrive(["k0", "k1", "k2", "k3"], fail="k1")

    messages = chosen.messages
    assert (chosen.exit_code, chosen.cause) == (EXIT_DEAD_LETTERS, None)
    assert (messages.read, messages.done, messages.dead, messages.pending) == (61, 30, 10, 21)
    assert messages.skipped == 0
    assert chosen.ignored_letters == {NOT_MATCHED: 21}
    assert chosen.engine_counts["waves"] > 1
    assert {line["keys"][0] for line in story.lines if line["what"] == "begin"} == {
        *("k0", "k1", "k2", "k3")
    }
    story.ensure_order()

    story.plan_path.unlink()

    rest = story.redrive(tasks=None)

    assert (rest.exit_code, rest.messages.pending) == (EXIT_DEAD_LETTERS, 1), "without its payload"
    assert list((rest.ignored_letters or {}).values()) == [1]
    ended = story.places("end")
    assert len(ended) == len(set(ended)) == LETTERS


@pytest.mark.long
def test_a_message_that_did_not_split_is_split_again(story: Story) -> None:
    create_topic(story.settings, story.topic, 1)
    with sending(story.settings, story.topic) as sender:
        for number in range(12):
            ops = ["a", "|", f"k{number}"] if number % 6 else ["!"]
            unit = Unsplit(orjson.dumps({"ops": ops}), "ValueError", "no", "ValueError: no")
            origin = Origin("orders", "orders-id", 0)
            unit.take_place(Message(origin, number, b"k", unit.payload, 1))
            sender.send(Sample(sub=unit).letter())
        assert set(sender.all_reported()) == {None}

    nothing = story.redrive(["a"])
    assert (nothing.exit_code, nothing.messages.pending) == (0, 12)

    story.plan_path.unlink()

    again = story.redrive()

    assert again.conserved
    assert (again.messages.done, again.messages.dead) == (10, 2)
    assert (again.sub_messages.done, again.sub_messages.unsplit) == (30, 2)
    expected = {(0, number, index) for number in range(12) if number % 6 for index in range(3)}
    assert set(story.places("end")) == expected
    at = {
        (line["what"], tuple(line["place"])): line["at"] for line in story.lines if "place" in line
    }
    for _, number, index in expected:  # what stood between others stays between them
        if index:
            assert at["end", (0, number, index - 1)] <= at["begin", (0, number, index)]
