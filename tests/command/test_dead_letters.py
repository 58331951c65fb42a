"""Dead letters of a drain: their topic, their content, and that none is lost."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient

from command.conftest import distinct
from command.process import Command
from command.record import UNWRITTEN_S
from command.test_failure_policy import ONE_BAD_LANE, accounts
from drainer.policy.dead_letter import Letter
from kafka.sender import letters_in
from kafka.topic import Topic

DEAD = ("--retries", "0", "--on-failure", "dead-letter")


def default_name(command: Command, topic: Topic) -> str:
    return f"{topic.name}.{command.group(topic)}.dead"


def letters_of(command: Command, topic: Topic) -> list[Letter]:
    return letters_in(topic.bootstrap, default_name(command, topic))


def topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=15).topics)


@pytest.mark.long
def test_the_topic_is_made_after_a_yes_and_not_before(command: Command) -> None:
    topic = command.topic(ONE_BAD_LANE, partitions=3)
    dead = default_name(command, topic)
    what = [*command.what(topic), "--from", "earliest", *DEAD]
    dry = command("run", *what, "--dry-run", "-o", "json")
    assert dry.answer["makes_topic"] == dead
    command("run", *what, code=3)  # without a terminal there is no confirmation
    assert dead not in topics(topic.bootstrap)

    outcome = command.drain(topic, *DEAD)
    assert dead in topics(topic.bootstrap)
    assert outcome.err.count(f"topic {dead}  (for dead letters)") == 1
    drained = command.drain(
        topic, "--group", "other", "--tune", f"dead-letter-topic={topic.name}", code=3
    )
    assert "is the drained topic" in drained.error


def test_a_dead_letter_is_complete_and_the_drain_goes_on(command: Command) -> None:
    topic = command.topic(ONE_BAD_LANE)
    more = ("--retries", "1", "--tune", "retry-delay=1ms", "--on-failure", "dead-letter")
    outcome = command.drain(topic, *more, "-o", "json", code=6, bad="bad")
    dead = default_name(command, topic)
    answer = outcome.answer
    assert (answer["status"], answer["exit_code"]) == ("done", 6)
    assert (answer["failures"], answer["retries"], answer["dead_letter_topic"]) == (6, 3, dead)
    accounts(answer["sub_messages"], read=7, done=4, dead=3)
    accounts(answer["messages"], read=4, done=1, dead=3)
    assert "! Drained, with 3 dead letters" in outcome.err
    assert command.committed(topic) == {0: 4}
    command.record.check_order()

    letters = letters_of(command, topic)
    ids = {line.place: line.id for line in command.record.lines() if line.keys == ("bad",)}
    places = [(0, 0, 1), (0, 1, 0), (0, 2, 0)]
    assert [letter.id for letter in letters] == [ids[place] for place in places]
    first = letters[0]
    assert (first.attempts, first.reason, first.key) == (2, "failed", "bad")
    assert first.error == "LookupError: the document is locked"
    assert (first.topic, first.message_offset, first.index) == (topic.name, 0, 1)
    assert first.handler.endswith("recorder.py:OnTheLoop")
    plan = command("plan", "show", str(command.plan(topic)), "-o", "json").answer
    assert first.drain_id == plan["drain_id"]


def test_killed_while_it_writes_dead_letters_it_loses_none(command: Command) -> None:
    """One may be there twice, but the account has it once."""
    count, concurrency = 600, 5
    topic = command.topic(distinct(count))
    more = (*DEAD, "--max-failures", "none", "--tune", "breaker=off", "-c", str(concurrency))
    running = command.begin(topic, *more, "--rate", "400/s", up=command.gate)
    command.wait_for(running, "failed", 150)
    running.kill()
    recently = [
        line
        for line in command.record.lines()
        if command.record.lines()[-1].at_s - line.at_s <= UNWRITTEN_S
    ]
    answer = command.resume(topic, "--rate", "9999/s", "-o", "json", code=6, up=command.gate).answer
    accounts(answer["sub_messages"], read=count, dead=count, done=0)
    written = Counter(letter.id for letter in letters_of(command, topic))
    assert len(written) == count
    assert max(written.values()) <= 2
    assert sum(written.values()) - count <= concurrency + len(recently)
    assert command.committed(topic) == {0: count}
