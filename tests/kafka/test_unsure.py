"""Acknowledgements without an offset: looked into on a real broker before they count."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from confluent_kafka import Producer

from core.letters import Sample
from drainer.errors import DeadLetterFlawed, RecordUnsure
from drainer.kafka import producer
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.kafka.writer import TopicWriter
from drainer.text.raw_json import meaning
from kafka.liar import LyingSettings, Truth
from kafka.sender import letters_in, sending
from kafka.test_rights import may
from kafka.topic import Topic, eventually
from scenarios.brokers import Broker

MIXED: list[Truth] = ["dropped", "written", "known", "dropped", "dropped", "written"]
# After the first 20 records come those that are written again. One of them is dropped twice more.
KNOWN: list[Truth] = ["known"]
DROPPED_AGAIN: list[Truth] = [*KNOWN * 14, "dropped", "known", "known", "dropped"]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count of records that each look at the topic was for."""
    found: list[int] = []
    find = producer.find_marks

    def counted(*given: object) -> object:
        marks = given[-1]
        assert isinstance(marks, dict)
        found.append(sum(map(len, marks.values())))
        return find(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(producer, "find_marks", counted)
    return found


def test_letters_that_were_acknowledged_and_are_not_there_are_written_again(
    settings: ClientSettings, topic: Topic, looks: list[int]
) -> None:
    with sending(LyingSettings.of(settings, *MIXED, *DROPPED_AGAIN), topic.name) as sender:
        for number in range(20):
            sender.send(Sample(f"doc-{number}", payload=number).letter())
        assert set(sender.all_reported()) == {None}
    found = letters_in(topic.bootstrap, topic.name)
    assert sorted(meaning(letter.payload) for letter in found) == list(range(20))
    assert sum(looks) == 5 + 2
    assert len(looks) < sum(looks), "several are looked for in one reading"


def test_of_two_equal_records_each_is_looked_for_by_itself(
    settings: ClientSettings, topic: Topic
) -> None:
    async def write(writer: TopicWriter) -> None:
        calls = [writer.write(b"v", b"k", partition=0, timestamp=7) for _ in range(2)]
        await asyncio.gather(*calls)

    lying = LyingSettings.of(settings, "written", "dropped")
    with closing(TopicWriter(lying, topic.name)) as writer:
        asyncio.run(write(writer))
    assert [record.value() for record in topic.read_all(2)] == [b"v", b"v"]


def test_a_record_of_before_is_not_taken_for_one_that_is_missing(
    settings: ClientSettings, topic: Topic
) -> None:
    for lying in (LyingSettings.of(settings), LyingSettings.of(settings, "dropped")):
        with closing(TopicWriter(lying, topic.name)) as writer:
            asyncio.run(writer.write(b"v", b"k", partition=0, id="topic-id:0:1:0"))
    assert len(topic.read_all(2)) == 2


def test_a_call_that_was_cancelled_is_not_written_behind_what_came_after_it(
    settings: ClientSettings, topic: Topic
) -> None:
    async def write(writer: TopicWriter) -> None:
        await writer.write(b"0", b"k", partition=0)
        call = asyncio.create_task(writer.write(b"1", b"k", partition=0))
        await asyncio.wait([call], timeout=0)  # it has begun
        call.cancel()
        await writer.write(b"2", b"k", partition=0)
        await writer.write(b"3", b"k", partition=0)

    lying = LyingSettings.of(settings, "known", "dropped", "dropped")
    with closing(TopicWriter(lying, topic.name)) as writer:
        asyncio.run(write(writer))
    assert [record.value() for record in topic.read_all(3)] == [b"0", b"2", b"3"]


def test_an_open_transaction_of_somebody_else_does_no_harm(
    settings: ClientSettings, topic: Topic
) -> None:
    other = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name})
    other.init_transactions()
    other.begin_transaction()
    other.produce(topic.name, b"theirs")
    other.flush()
    with sending(LyingSettings.of(settings, "written", "dropped"), topic.name) as sender:
        sender.send(Sample("doc-1", payload=1).letter())
        sender.send(Sample("doc-2", payload=2).letter())
        assert sender.all_reported() == [None, None]
    other.abort_transaction()

    def both_are_there() -> bool:  # once the broker has written that it is aborted
        found = letters_in(topic.bootstrap, topic.name)
        return [meaning(letter.payload) for letter in found] == [1, 2]

    eventually(both_are_there, "letters 1 and 2 are there, once")


@pytest.mark.parametrize(("fate", "there"), [("written", 2), ("dropped", 1)])
def test_without_read_an_unsure_letter_is_written_again_and_reported_as_maybe_doubled(
    fate: Truth, there: int, ann: Cluster, own_broker: Broker, topic_name: str
) -> None:
    Topic(own_broker.bootstrap_servers, topic_name)
    may(own_broker, "WRITE", "topic", topic_name)
    with sending(LyingSettings.of(ann.settings, fate), topic_name) as sender:
        sender.send(Sample().letter())
        sender.send(Sample().letter())
        first, second = sender.all_reported()
    assert isinstance(first, DeadLetterFlawed)
    assert second is None
    assert len(letters_in(own_broker.bootstrap_servers, topic_name)) == there + 1


def test_without_read_an_unsure_record_ends_the_drain_with_the_right_that_is_missing(
    ann: Cluster, own_broker: Broker, topic_name: str
) -> None:
    Topic(own_broker.bootstrap_servers, topic_name)
    may(own_broker, "WRITE", "topic", topic_name)
    lying = LyingSettings.of(ann.settings, "written")
    missing = f"READ on topic {topic_name}"
    with (
        closing(TopicWriter(lying, topic_name)) as writer,
        pytest.raises(RecordUnsure, match=missing) as raised,
    ):
        asyncio.run(writer.write(b"v", b"k", partition=0))
    assert raised.value.exit_code == 4
    assert f"Grant {missing}" in (raised.value.hint or "")
