"""What the fetch thread delivers: every record of the backlog once, whatever holes it has."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from confluent_kafka import Producer

from drainer.kafka.backlog import Earliest, freeze
from drainer.kafka.cluster import Cluster
from drainer.kafka.record import beside_value
from drainer.kafka.settings import ClientSettings
from drainer.sandbox import Broker
from kafka.reader import MIB, Bounds, Reader, numbered, read
from kafka.topic import Topic, eventually


@pytest.fixture
def settings(broker: Broker) -> ClientSettings:
    return ClientSettings.load(broker.bootstrap_servers)


@pytest.fixture
def topic(broker: Broker, topic_name: str) -> Topic:
    return Topic(broker.bootstrap_servers, topic_name)


def end_of(cluster: Cluster, topic: Topic) -> int:
    """Where a backlog that is taken now ends."""
    return freeze(cluster, topic.name, "nobody", [0], Earliest()).partitions[0].end


def test_a_message_is_what_was_produced(settings: ClientSettings, topic: Topic) -> None:
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    producer.produce(topic.name, b"v", b"k", headers=[("h", b"1"), ("n", None)], timestamp=1234567)
    producer.produce(topic.name, None, None)
    producer.flush()
    with Reader(settings, topic.name, {0: (0, 2)}) as reader:
        first, second = reader.read().messages
    assert (first.key, first.value, first.offset, first.partition) == (b"k", b"v", 0, 0)
    assert first.timestamp == 1234567
    assert list(first.headers) == [("h", b"1"), ("n", None)]
    assert str(first) == f"{topic.name}/0/0"
    assert (second.key, second.value, list(second.headers)) == (None, None, [])


def test_every_record_comes_once_and_in_order(settings: ClientSettings, topic: Topic) -> None:
    topic.produce(numbered(25_000))
    values, offsets = read(settings, topic.name, 0, 25_000)
    assert offsets == list(range(25_000))
    assert values == list(numbered(25_000))


def test_nothing_at_or_past_the_end_is_delivered(settings: ClientSettings, topic: Topic) -> None:
    topic.produce(numbered(100))
    _, offsets = read(settings, topic.name, 20, 70)
    assert offsets == list(range(20, 70))


def test_an_empty_backlog_is_done_at_once(settings: ClientSettings, topic: Topic) -> None:
    with Reader(settings, topic.name, {0: (0, 0)}) as reader:
        eventually(lambda: reader.fetch.done, "it is done")
        assert reader.fetch.next_batch() is None


def test_a_hole_at_the_start_is_skipped(
    settings: ClientSettings, cluster: Cluster, topic: Topic
) -> None:
    topic.transact("xxx", commit=False)
    topic.produce("abc")
    assert read(settings, topic.name, 0, end_of(cluster, topic)) == (["a", "b", "c"], [4, 5, 6])


def test_a_hole_in_the_middle_is_skipped(
    settings: ClientSettings, cluster: Cluster, topic: Topic
) -> None:
    topic.produce("ab")
    topic.transact("xx", commit=False)
    topic.transact("cd", commit=True)
    topic.produce("e")
    assert read(settings, topic.name, 0, end_of(cluster, topic)) == (
        ["a", "b", "c", "d", "e"],
        [0, 1, 5, 6, 8],
    )


@pytest.mark.parametrize("commit", [True, False])
def test_a_hole_at_the_end_still_completes(
    settings: ClientSettings, cluster: Cluster, topic: Topic, commit: bool
) -> None:
    topic.produce("ab")
    topic.transact("cd", commit=commit)
    end = end_of(cluster, topic)
    assert end == 5
    values, _ = read(settings, topic.name, 0, end)
    assert values == (["a", "b", "c", "d"] if commit else ["a", "b"])


def test_a_hole_at_the_end_is_told_by_what_comes_behind_it_too(
    settings: ClientSettings, cluster: Cluster, topic: Topic
) -> None:
    topic.produce("ab")
    topic.transact("cd", commit=False)
    end = end_of(cluster, topic)
    topic.produce(numbered(500))
    assert read(settings, topic.name, 0, end) == (["a", "b"], [0, 1])


def test_nothing_but_holes_completes(
    settings: ClientSettings, cluster: Cluster, topic: Topic
) -> None:
    topic.transact("abc", commit=False)
    assert read(settings, topic.name, 0, end_of(cluster, topic)) == ([], [])


def test_an_open_transaction_is_not_waited_for(
    settings: ClientSettings, cluster: Cluster, topic: Topic
) -> None:
    topic.produce("ab")
    producer = topic.open_transaction("cd")
    assert read(settings, topic.name, 0, end_of(cluster, topic)) == (["a", "b"], [0, 1])
    producer.abort_transaction()


def test_uncommitted_records_come_when_they_are_wanted(topic: Topic) -> None:
    topic.produce("ab")
    topic.transact("cd", commit=False)
    settings = ClientSettings.load(topic.bootstrap, None, ["isolation.level=read_uncommitted"])
    assert read(settings, topic.name, 0, 5) == (["a", "b", "c", "d"], [0, 1, 2, 3])


def test_a_compacted_topic_completes(cluster: Cluster, broker: Broker, topic_name: str) -> None:
    compact = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
    }
    topic = Topic(broker.bootstrap_servers, topic_name, config=compact)
    for round_ in range(3):
        topic.produce(["old"], key=b"first")
        topic.produce(numbered(50), key=b"hot")
        topic.produce([f"kept-{round_}"], key=b"%d" % round_)
    end = end_of(cluster, topic)

    def compacted() -> bool:
        topic.produce(["roll"], key=b"roll")  # a segment is closed by the next one
        return len(read(cluster.settings, topic_name, 0, end)[1]) <= 60

    eventually(compacted, "the cleaner has been here", 30)
    values, offsets = read(cluster.settings, topic_name, 0, end)
    assert offsets[0] > 0
    assert any(behind - before > 1 for before, behind in pairwise(offsets))
    assert {f"kept-{n}" for n in range(3)} <= set(values)


def test_deleted_records_before_the_start_don_t_matter(
    settings: ClientSettings, topic: Topic
) -> None:
    topic.produce(numbered(20))
    topic.delete_before(10)
    assert read(settings, topic.name, 10, 20)[1] == list(range(10, 20))


def test_several_partitions_are_read_to_their_ends(
    settings: ClientSettings, broker: Broker, topic_name: str
) -> None:
    topic = Topic(broker.bootstrap_servers, topic_name, partitions=4)
    for partition in range(3):
        topic.produce(numbered(3000), partition=partition)
    spans = {0: (0, 3000), 1: (500, 1500), 2: (2999, 3000), 3: (0, 0)}
    with Reader(settings, topic_name, spans) as reader:
        reader.read()
        eventually(lambda: reader.fetch.done, "it is done")
    for partition, (start, end) in spans.items():
        assert reader.offsets(partition) == list(range(start, end))


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
        assert 0 in reader.fetch.paused
        assert len(reader.offsets(0)) < 2000
        reader.loads = {0: 1001, 1: 1001}
        reader.read(lambda: reader.fetch.paused == {0, 1})
        held = len(reader.offsets(0))
        reader.loads = {0: 500, 1: 1001}
        reader.read(lambda: len(reader.offsets(0)) > held + 1000)
        reader.loads = {}
        reader.read()
    # What was read ahead and purged came again, and nothing twice.
    assert reader.offsets(0) == reader.offsets(1) == list(range(4000))


def test_partitions_that_stay_between_half_and_all_of_their_share_are_read_on(
    settings: ClientSettings, broker: Broker, topic_name: str
) -> None:
    """What a drain holds of them may be parked, and then it never gets less."""
    topic = Topic(broker.bootstrap_servers, topic_name, partitions=2)
    for partition in range(2):
        topic.produce(numbered(1000, size=500), partition=partition)
    spans = {0: (0, 1000), 1: (0, 1000)}
    small = Bounds(200_000, 200_000, load_bytes=1500)  # of which the share of one is 1000
    with Reader(settings, topic_name, spans, bounds=small) as reader:
        eventually(lambda: reader.fetch.paused == {0, 1}, "both have queued their share")
        reader.loads = {0: 750, 1: 750}
        reader.read()
    assert reader.offsets(0) == reader.offsets(1) == list(range(1000))


def test_the_last_partition_is_never_paused(settings: ClientSettings, topic: Topic) -> None:
    topic.produce(numbered(3000))
    with Reader(settings, topic.name, {0: (0, 3000)}, loads={0: 10**9}) as reader:
        reader.read()


def test_what_waits_is_bounded(settings: ClientSettings, topic: Topic) -> None:
    topic.produce(numbered(2000, size=10_000))
    with Reader(settings, topic.name, {0: (0, 2000)}, bounds=Bounds(MIB, MIB)) as reader:
        eventually(lambda: reader.fetch.queued_bytes >= MIB, "the queue is full")
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            assert reader.fetch.queued_bytes < 1.5 * MIB
        assert reader.fetch.trouble is None
        reader.read()
    assert reader.offsets() == list(range(2000))


def test_a_message_larger_than_the_queue_still_comes(
    settings: ClientSettings, topic: Topic
) -> None:
    topic.produce([b"x" * 900_000] * 5)
    small = Bounds(1000, 1000)
    with Reader(settings, topic.name, {0: (0, 5)}, bounds=small) as reader:
        reader.read()
    assert [len(message.value or b"") for message in reader.messages] == [900_000] * 5


def test_keys_and_headers_count_as_memory(settings: ClientSettings, topic: Topic) -> None:
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"t" * 5_000), ("none", None)]
    for _ in range(300):
        producer.produce(topic.name, b"v" * 10, b"k" * 1_000, headers=headers)
    producer.flush()
    size = 10 + 1_000 + len("trace") + 5_000 + len("none")

    with Reader(settings, topic.name, {0: (0, 300)}, bounds=Bounds(MIB, MIB)) as reader:
        eventually(lambda: reader.fetch.queued_bytes >= MIB, "the queue is full of them")
        reader.read()

    assert {message.size for message in reader.messages} == {size}
    assert reader.offsets() == list(range(300))


def test_headers_that_only_some_records_have_count_for_those_beside_them(
    settings: ClientSettings, topic: Topic
) -> None:
    """To look at each would take too long; the memory is rather taken for more than for less."""
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    producer.produce(topic.name, b"v")
    producer.produce(topic.name, b"v", b"key")
    producer.produce(topic.name, b"v", headers=[("h", b"1234")])
    producer.flush()
    found = topic.read_all(3)

    assert [beside_value([record]) for record in found] == [0, 3, 5]
    assert beside_value(found) == 5
    assert beside_value([]) == 0


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_queue_of_no_bytes_still_delivers(
    settings: ClientSettings, broker: Broker, topic_name: str, partitions: int
) -> None:
    """As of ``--buffer 3``, of which the queue has a quarter."""
    topic = Topic(broker.bootstrap_servers, topic_name, partitions)
    for partition in range(partitions):
        topic.produce(numbered(5), partition=partition)
    spans = dict.fromkeys(range(partitions), (0, 5))
    with Reader(settings, topic_name, spans, bounds=Bounds(0, 0, 1)) as reader:
        reader.read()
    for partition in range(partitions):
        assert reader.offsets(partition) == list(range(5))


def test_the_group_is_neither_joined_nor_committed(
    settings: ClientSettings, cluster: Cluster, topic: Topic, group: str
) -> None:
    topic.produce(numbered(100))
    with Reader(settings, topic.name, {0: (0, 100)}, group=group) as reader:
        reader.read()
        assert cluster.group(group).state == "dead"
    assert cluster.committed(group, topic.name, [0]) == {0: None}


def test_it_stops_at_once_wherever_it_is(settings: ClientSettings, topic: Topic) -> None:
    topic.produce(numbered(2000, size=1000))
    with Reader(settings, topic.name, {0: (0, 2000)}, bounds=Bounds(50_000)) as reader:
        eventually(lambda: reader.fetch.queued_bytes >= 50_000, "the queue is full")
        begun = time.monotonic()
        reader.fetch.stop()
        assert time.monotonic() - begun < 5
        assert reader.fetch.failure is None
        assert not reader.fetch.done
