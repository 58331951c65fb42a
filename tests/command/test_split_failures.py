"""Messages that ``split`` rejects: what becomes of them, and that the drain goes on."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from command.conftest import same
from command.process import Command
from command.test_dead_letters import default_name, letters_of
from command.test_failure_policy import accounts
from command.test_redrive import redrive
from kafka.topic import Topic

MALFORMED = "!ValueError"
DEAD = ("--tune", "on-split-failure=dead-letter")
AT = 5  # where the malformed message is


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic([*same(AT), MALFORMED, *same(4)])


def done(command: Command) -> list[tuple[int, int]]:
    """Offsets and indexes, in the order in which they were done."""
    return [(offset, index) for _, offset, index in command.record.done()]


WITHOUT = [(offset, 0) for offset in range(10) if offset != AT]


def test_a_drain_halts_by_default_and_names_the_option_that_goes_on(
    command: Command, topic: Topic
) -> None:
    halted = command.drain(topic, "-o", "json", code=5)
    assert f"split failed at {topic.name}/0/{AT}: ValueError: malformed" in halted.error
    assert "recorder.py:" in halted.error
    assert "--tune on-split-failure=dead-letter or skip to go past it" in halted.hint
    accounts(halted.answer["messages"], dead=0, failed=0, skipped=0)
    assert (AT, 0) not in done(command)
    skipped = command.resume(topic, "--tune", "on-split-failure=skip", "-o", "json", code=6)
    accounts(skipped.answer["messages"], read=10, done=9, failed=1)
    assert skipped.answer["sub_messages"]["unsplit"] == 1
    assert done(command) == WITHOUT
    assert command.committed(topic) == {0: 10}


def test_a_dead_letter_has_the_message_as_it_was_and_a_redrive_splits_it(command: Command) -> None:
    topic = command.topic()
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"t-1"), ("none", None)]
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    for value in [*same(AT), MALFORMED, *same(4)]:
        producer.produce(topic.name, value.encode(), b"k-1", headers=headers)
    producer.flush()
    drained = command.drain(topic, *DEAD, "-o", "json", code=6)
    accounts(drained.answer["sub_messages"], read=10, done=9, dead=1)
    assert done(command) == WITHOUT
    (letter,) = letters_of(command, topic)
    assert (letter.message_offset, letter.message_key) == (AT, b"k-1")
    assert (letter.payload, list(letter.headers)) == (MALFORMED.encode(), headers)
    name = default_name(command, topic)
    where = ("-b", topic.bootstrap, "--dead-letter-topic", name)
    shown = command("dead", "show", "0:0", *where).out
    for text in ("ValueError: malformed", "k-1", "trace: t-1", MALFORMED, "message"):
        assert text in shown, shown

    again = redrive(command, name, "-o", "json", code=6)
    accounts(again.answer["messages"], read=1, dead=1)
    fixed = redrive(command, name, "-o", "json", fixed=1)
    accounts(fixed.answer["messages"], read=1, done=1)
    accounts(fixed.answer["sub_messages"], read=2, done=2)
    assert done(command) == [*WITHOUT, (AT, 0), (AT, 1)]
    lines = [line for line in command.record.lines() if line.place[1] == AT]
    assert {line.attempt for line in lines} == {1}
    assert {line.id.rpartition(":")[0] for line in lines} == {letter.id.rpartition(":")[0]}
    assert redrive(command, name, "-o", "json", fixed=1).answer["status"] == "empty"


@pytest.mark.long
def test_parking_stops_the_partition_there_and_a_resume_splits_again(
    command: Command, topic: Topic
) -> None:
    parked = command.drain(topic, "--tune", "on-split-failure=park", "-o", "json", code=5)
    assert done(command) == WITHOUT[:AT]
    (lane,) = parked.answer["parked_first"]
    assert (lane["key"], lane["place"]) == ("partition 0", f"{topic.name}/0/{AT}[0]")
    assert "split failed, so its lanes are unknown" in lane["error"]
    stopped = f"nothing of partition 0 after {topic.name}/0/{AT}[0] is handled"
    assert stopped in parked.error
    assert "add --tune on-split-failure=dead-letter" in parked.hint
    assert command.committed(topic) == {0: AT}
    accounts(command.resume(topic, "-o", "json", code=5).answer["messages"], read=10, done=AT)
    assert done(command) == WITHOUT[:AT], "parked again"
    accounts(command.resume(topic, "-o", "json", fixed=1).answer["messages"], read=10, done=10)
    command.record.check_order()
    assert sorted(done(command)) == sorted([*WITHOUT, (AT, 0), (AT, 1)])
    assert command.committed(topic) == {0: 10}


@pytest.mark.long
def test_what_a_handler_raises_in_split_means_what_it_does_in_handle(command: Command) -> None:
    topic = command.topic(["!Skip", "!GiveUp", "!Retry", *same(2)])
    outcome = command.drain(topic, "--on-failure", "skip", "-o", "json", code=6)
    accounts(outcome.answer["messages"], read=5, done=2, skipped=1, failed=2)
    assert outcome.answer["sub_messages"]["unsplit"] == 2
    never = "Retry: malformed: Retry (drainer never retries split)"
    for printed in ("malformed: Skip", "GiveUp: malformed: GiveUp", never):
        assert printed in outcome.out + outcome.err
    topic = command.topic(["!Fatal", *same(2)])
    fatal = command.drain(topic, "--on-failure", "skip", code=5)
    assert "Fatal: malformed: Fatal" in fatal.error
