"""The fetch thread: every record of the backlog once, within bounds, and what it ends with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Message as KafkaRecord
from confluent_kafka import Producer

from drainer.errors import Halted, Interrupted, TopicGone
from drainer.kafka import reader as reader_module
from drainer.kafka.cluster import Cluster
from drainer.kafka.fetch import BatchQueue
from drainer.kafka.reader import FetchedBatch
from drainer.kafka.settings import ClientSettings
from drainer.message import Message, Origin
from drainer.split.splitting import Wait
from kafka.reader import MIB, Bounds, Reader, numbered
from kafka.topic import Topic, eventually
from scenarios.brokers import Broker

SMALL = Bounds(30_000, 30_000)  # so that most is yet to be read


@pytest.fixture
def large(topic: Topic) -> Topic:
    """4,000 records of 1 kB."""
    topic.produce(numbered(4000, size=1000))
    return topic


def begin(reader: Reader) -> None:
    reader.read(lambda: len(reader.messages) > 10)
    eventually(lambda: reader.fetch.queue.bytes >= SMALL.queue_bytes, "the queue is full")


# Between two threads.


def batch(partition: int, size: int = 10, records: Sequence[KafkaRecord] = ()) -> FetchedBatch:
    return FetchedBatch(Origin("orders", "id", partition), records, {}, size)


def taken(queue: BatchQueue, *passed_over: int) -> list[int]:
    found = []
    while (one := queue.take(lambda partition: partition in passed_over)) is not None:
        found.append(one.origin.partition)
    return found


def test_partitions_take_turns_and_one_that_is_passed_over_holds_up_no_other() -> None:
    queue = BatchQueue(dict.fromkeys((0, 1, 2), (0, 100)))
    assert [queue.put(batch(partition)) for partition in (0, 0, 0, 1, 2, 2)] == [
        *(True, False, False),
        *(True, True, False),
    ]
    assert (queue.bytes, queue.bytes_of(0)) == (60, 30)
    assert taken(queue, 0) == [1, 2, 2]
    queue.put(batch(2))
    assert taken(queue) == [0, 2, 0, 0]
    assert queue.bytes == 0
    assert queue.put(batch(0)), "it is news again"


def test_partitions_take_turns_by_the_share_that_is_taken() -> None:
    queue = BatchQueue({0: (1_000, 1_100), 1: (0, 20)})
    for start in range(1_000, 1_100, 10):
        queue.put(batch(0, records=[KafkaRecord(offset=start + 9)]))
    for start in range(0, 20, 5):
        queue.put(batch(1, records=[KafkaRecord(offset=start + 4)]))

    assert taken(queue) == [0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0]


def test_small_partitions_take_turns_as_well(
    settings: ClientSettings, broker: Broker, topic_name: str
) -> None:
    topic = Topic(broker.bootstrap_servers, topic_name, partitions=3)
    for partition in range(3):
        topic.produce(numbered(1_000), partition)
    with Reader(settings, topic.name, dict.fromkeys(range(3), (0, 1_000))) as reader:
        eventually(lambda: reader.fetch.done, "all is in the queue")
        taken = dict.fromkeys(range(3), 0)
        while (batch := reader.fetch.next_batch()) is not None:
            taken[batch.origin.partition] += len(batch)
            assert max(taken.values()) - min(taken.values()) <= 100
    assert set(taken.values()) == {1_000}


# Every record once.


def test_every_record_comes_once_and_in_order_and_the_group_is_left_alone(
    settings: ClientSettings, cluster: Cluster, topic: Topic, group: str
) -> None:
    topic.produce(numbered(25_000))
    topic.delete_before(10)
    with Reader(settings, topic.name, {0: (20, 24_990)}, group=group) as reader:
        reader.read()
        assert cluster.group(group).state == "dead"
        eventually(lambda: reader.fetch.done, "it is done")
    assert reader.offsets() == list(range(20, 24_990))
    assert reader.values == list(numbered(25_000))[20:24_990]
    assert cluster.committed(group, topic.name, [0]) == {0: None}


# What splits need is there before messages are.


@dataclass
class Shelf:
    """Shelf of what splits need; it is empty until ``there``."""

    there: bool = False
    most: int = 2000  # messages at a time
    size: int = 0  # bytes of what each needs
    prepared: list[int] = field(default_factory=list)

    def __call__(self, messages: Sequence[Message], wait: Wait) -> int:
        while not self.there:
            if not wait(0.01, "the shelf is empty"):
                return 0
        ready = messages[: self.most]
        self.prepared += [message.offset for message in ready]
        for message in ready:
            message.size += self.size
        return len(ready)


def test_messages_wait_for_what_their_splits_need(settings: ClientSettings, topic: Topic) -> None:
    topic.produce(numbered(100))
    shelf = Shelf()
    with Reader(settings, topic.name, {0: (0, 100)}, prepare=shelf) as reader:
        eventually(
            lambda: "the shelf is empty (since" in (reader.fetch.trouble or ""), "it says why"
        )
        assert reader.fetch.next_batch() is None
        shelf.there = True
        reader.read()
        assert reader.fetch.trouble is None
    assert reader.offsets() == shelf.prepared == list(range(100))


def test_what_splits_need_is_in_memory_for_a_part_of_a_batch_only(
    settings: ClientSettings, topic: Topic
) -> None:
    topic.produce(numbered(100))
    shelf = Shelf(there=True, most=3, size=SMALL.queue_bytes // 2)
    with Reader(settings, topic.name, {0: (0, 100)}, SMALL, prepare=shelf) as reader:
        eventually(lambda: reader.fetch.queue.bytes > SMALL.queue_bytes, "the queue is full")
        assert shelf.prepared == [0, 1, 2]
        assert not reader.fetch.done
        reader.read()
        eventually(lambda: reader.fetch.done, "it is done")
    assert reader.offsets() == shelf.prepared == list(range(100))


def test_an_outage_of_what_splits_need_ends_the_thread_in_time(
    settings: ClientSettings, topic: Topic
) -> None:
    topic.produce(numbered(10))
    with (
        Reader(settings, topic.name, {0: (0, 10)}, prepare=Shelf(), patience_s=0.1) as reader,
        pytest.raises(Halted, match="the shelf is empty, for longer than --tune max-outage"),
    ):
        reader.read()


def test_stop_ends_a_wait_and_nothing_unprepared_is_queued(
    settings: ClientSettings, topic: Topic
) -> None:
    topic.produce(numbered(10))
    with Reader(settings, topic.name, {0: (0, 10)}, prepare=Shelf()) as reader:
        eventually(lambda: reader.fetch.trouble is not None, "it waits")
    assert reader.fetch.next_batch() is None
    assert reader.fetch.failure is None


# Within bounds.


def test_a_partition_over_its_limit_does_not_hold_up_another(
    settings: ClientSettings, broker: Broker, topic_name: str
) -> None:
    topic = Topic(broker.bootstrap_servers, topic_name, partitions=2)
    for partition in range(2):
        topic.produce(numbered(4000, size=500), partition=partition)
    spans = {0: (0, 4000), 1: (0, 4000)}
    small = Bounds(200_000, 200_000, load_bytes=1500)  # of which the share of one is 1000
    with Reader(settings, topic_name, spans, loads={0: 1001}, bounds=small) as reader:
        reader.read(lambda: len(reader.offsets(1)) > 1000)
        assert 0 in reader.fetch.reader.paused
        assert len(reader.offsets(0)) < 2000
        reader.loads = {0: 1001, 1: 1001}
        reader.read(lambda: reader.fetch.reader.paused.keys() == {0, 1})
        before = len(reader.offsets(0))
        reader.loads = {0: 500, 1: 1001}
        reader.read(lambda: len(reader.offsets(0)) > before + 1000)
        # Between half and all of its share; what a drain holds of it may be parked, and then it
        # never gets less.
        reader.loads = {0: 750, 1: 750}
        reader.read()
    # What was read ahead and purged came again, and nothing twice. The last is never paused.
    assert reader.offsets(0) == reader.offsets(1) == list(range(4000))


def test_what_waits_is_bounded(settings: ClientSettings, topic: Topic) -> None:
    topic.produce(numbered(500, size=10_000))
    bounds = Bounds(MIB, MIB)
    with Reader(settings, topic.name, {0: (0, 500)}, bounds, {0: 10**9}) as reader:
        eventually(lambda: reader.fetch.queue.bytes >= MIB, "the queue is full")
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            assert reader.fetch.queue.bytes < 1.5 * MIB
        assert reader.fetch.trouble is None
        reader.read()
    assert reader.offsets() == list(range(500))


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_queue_of_no_bytes_still_delivers_messages_of_any_size(
    settings: ClientSettings, broker: Broker, topic_name: str, partitions: int
) -> None:
    """A quarter of a buffer of 3 is a queue of no bytes."""
    topic = Topic(broker.bootstrap_servers, topic_name, partitions)
    for partition in range(partitions):
        topic.produce([b"x" * 900_000] * 4, partition=partition)
    spans = dict.fromkeys(range(partitions), (0, 4))
    with Reader(settings, topic_name, spans, bounds=Bounds(0, 0, 1)) as reader:
        reader.read()
    for partition in range(partitions):
        assert reader.offsets(partition) == list(range(4))


def test_it_stops_at_once_with_a_full_queue(settings: ClientSettings, large: Topic) -> None:
    with Reader(settings, large.name, {0: (0, 4000)}, bounds=SMALL) as reader:
        begin(reader)
        begun = time.monotonic()
        reader.fetch.stop()
        assert time.monotonic() - begun < 5
        assert reader.fetch.failure is None
        assert not reader.fetch.done


# What it ends with.


@pytest.mark.parametrize("recreated", [False, True])
def test_a_topic_that_is_deleted_or_recreated_meanwhile_ends_it(
    recreated: bool, settings: ClientSettings, large: Topic
) -> None:
    with Reader(settings, large.name, {0: (0, 4000)}, bounds=SMALL) as reader:
        begin(reader)
        large.delete()
        if recreated:
            large.create()
            large.produce(["of another topic"] * 4000)
        text = f"{large.name} was deleted{' and recreated' * recreated}"
        with pytest.raises(TopicGone, match=text):
            reader.read()
    assert reader.offsets() == list(range(len(reader.messages)))
    assert "of another topic" not in reader.values


def test_a_frozen_broker_is_reported_and_waited_for(
    own_broker: Broker, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests on what became of the topic get no answer meanwhile."""
    monkeypatch.setattr(reader_module, "SILENCE_S", 1.5)
    topic = Topic(own_broker.bootstrap_servers, topic_name)
    topic.produce(numbered(3000, size=1000))
    settings = ClientSettings.load(own_broker.bootstrap_servers)
    with Reader(settings, topic_name, {0: (0, 3000)}, bounds=SMALL) as reader:
        begin(reader)
        own_broker.pause()
        try:
            reader.read(lambda: "no answer from" in (reader.fetch.trouble or ""))
        finally:
            own_broker.resume()
        reader.read()
    assert reader.offsets() == list(range(3000))


def test_a_zstd_batch_beyond_a_limit_of_the_client_ends_it_with_the_way_out(
    broker: Broker, topic_name: str
) -> None:
    Topic(broker.bootstrap_servers, topic_name)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": "zstd",
            "message.max.bytes": 10 * MIB,
        }
    )
    producer.produce(topic_name, bytes(8 * MIB))
    assert producer.flush(10) == 0
    small = ClientSettings.load(
        broker.bootstrap_servers, None, [f"receive.message.max.bytes={2 * MIB}"]
    )
    with (
        Reader(small, topic_name, {0: (0, 1)}) as refused,
        pytest.raises(Interrupted, match=r"can't read .* Decompression") as raised,
    ):
        refused.read()
    assert "-X receive.message.max.bytes=" in (raised.value.hint or "")
