"""A backlog is inspected on a real broker: exactly when read whole, and nothing is touched."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import Producer

from drainer.errors import Refused
from drainer.handler import Handler
from drainer.insight.cli.inspect import hot_key_sentence, inspection_warnings
from drainer.insight.inspection import Inspection, InspectRequest, inspect_backlog
from drainer.kafka.cluster import Cluster, TopicInfo
from drainer.loading.loader import LoadedHandler
from drainer.message import Message, SubMessage
from drainer.model.terms import PayloadSettings
from kafka.topic import Topic

HOUR_MS = 3_600_000


class Documents(Handler):
    def split(self, message: Message) -> list[SubMessage]:
        return [SubMessage(d, {"kind": "update"}) for d in json.loads(message.value or b"[]")]

    def open(self, context: object) -> None:
        raise AssertionError("it is not opened")

    def handle(self, sub: SubMessage) -> None:
        raise AssertionError("nothing is handled")


class Whole(Handler):
    def handle(self, sub: SubMessage) -> None:
        raise AssertionError("nothing is handled")


DOCUMENTS = LoadedHandler("documents", Documents)


def values(count: int) -> list[str]:
    """Of each message's four operations one is on the hot document."""
    return [json.dumps(["hot", f"a{n}", f"b{n % 50}", f"c{n % 7}"]) for n in range(count)]


@dataclass(frozen=True)
class Backlog:
    """A topic of one test, once it is made."""

    cluster: Cluster
    bootstrap: str
    name: str

    def made(self, partitions: int = 1, **config: str) -> Topic:
        """Make it; of names in its configuration, ``_`` stands for a dot."""
        dotted = {name.replace("_", "."): value for name, value in config.items()}
        return Topic(self.bootstrap, self.name, partitions, dotted)

    def group_at(self, offsets: dict[int, int], group: str = "g") -> None:
        self.cluster.alter_committed(group, self.name, offsets)

    def inspected(self, group: str = "g", handler: Any = None, **chosen: Any) -> Inspection:
        return inspect_backlog(self.cluster, InspectRequest(self.name, group, handler, **chosen))


@pytest.fixture
def backlog(cluster: Cluster, bootstrap: str, topic_name: str) -> Backlog:
    return Backlog(cluster, bootstrap, topic_name)


def dated(topic: Topic, timestamps_ms: list[int], value: str = "v", partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    for timestamp_ms in timestamps_ms:
        producer.produce(topic.name, value, b"k", partition, timestamp=timestamp_ms)
    assert producer.flush(15) == 0


def test_a_whole_reading_is_exact(backlog: Backlog) -> None:
    topic = backlog.made(partitions=2)
    for partition in (0, 1):
        topic.produce(values(700), partition=partition, key=b"customer")
    topic.transact(["[]"] * 3, commit=False)
    backlog.group_at({0: 100, 1: 0})
    seen: list[tuple[int, int]] = []

    found = inspect_backlog(
        backlog.cluster,
        InspectRequest(backlog.name, "g", DOCUMENTS, messages=None),
        lambda done, total: seen.append((done, total)),
    )

    read = [*values(700), *values(700)[100:]]
    exact = Counter(repr(d) for value in read for d in json.loads(value))
    assert found.reading.full
    assert (found.messages, found.offsets) == (1300, 1304)
    assert found.bytes == sum(len(value) for value in read) + 1300 * len("customer")
    assert found.skew is not None
    assert found.skew.sub_messages == 5200
    assert found.skew.hottest[0].count == exact["'hot'"] == 1300
    assert [s.count for s in found.skew.hottest] == [n for _, n in exact.most_common(10)]
    assert [(s.name, s.count) for s in found.contents.hottest_keys] == [("customer", 1300)]
    assert seen[-1] == (1304, 1304)
    assert hot_key_sentence(found) == (
        "one sub-key has 25% of the work: 1.3k updates to 'hot'. However many workers,"
        " at most 4.0× faster than one"
    )


def test_a_sample_stands_for_the_whole(backlog: Backlog) -> None:
    topic = backlog.made()
    topic.produce(values(4000), key=b"customer")

    found = backlog.inspected("g", DOCUMENTS, from_="earliest", messages=400)

    assert not found.reading.full
    assert found.contents.messages == 400
    assert found.messages == 4000
    assert found.skew is not None
    assert found.hot is not None
    assert found.hot.name == "'hot'"
    assert found.hot.share == 0.25
    assert found.bytes == pytest.approx(sum(map(len, values(4000))) + 4000 * 8, rel=0.05)
    assert found.sub_messages == 16_000


def test_an_active_group_is_inspected_and_its_members_are_named(backlog: Backlog) -> None:
    topic = backlog.made()
    topic.produce(values(10))
    group = f"g-{backlog.name}"
    backlog.group_at({0: 4}, group)
    member = topic.live_member(group, client_id="indexer-7")
    try:
        found = backlog.inspected(group)
        assert found.group.active
        assert [m.client_id for m in found.group.members] == ["indexer-7"]
        assert found.messages == 6
        assert found.skew is None
        assert backlog.cluster.group(group).members == found.group.members
    finally:
        member.close()


def test_ages_leave_out_what_the_group_has_handled(backlog: Backlog) -> None:
    topic = backlog.made(partitions=2)
    now_ms = round(time.time() * 1000)
    dated(topic, [now_ms - 11 * HOUR_MS // 2] * 30, partition=0)
    dated(topic, [now_ms - 7 * HOUR_MS // 2] * 50 + [now_ms - HOUR_MS // 2] * 10, partition=1)
    backlog.group_at({0: 0, 1: 50})

    found = backlog.inspected()

    assert [round(b.share * 40) for b in found.ages] == [10, *[0] * 8, 30]
    assert found.ages[-1].high == pytest.approx(5.5 * 3600, abs=60)


def test_size_takes_the_head_when_enough_follows_it(backlog: Backlog) -> None:
    topic = backlog.made(retention_ms="-1", retention_bytes="20000")
    now_ms = round(time.time() * 1000)
    dated(topic, [now_ms - HOUR_MS] * 4 + [now_ms - 1000] * 6, "x" * 999)

    found = backlog.inspected(from_="earliest")

    # 10,000 of 20,000 bytes are there, and 6,000 came in 300 s.
    assert found.retention_s == pytest.approx(500)
    assert found.expiry is not None
    assert found.expiry.by == "retention.bytes"


def test_what_retention_took_already_is_reported_and_the_rest_inspected(backlog: Backlog) -> None:
    topic = backlog.made(retention_ms="-1")
    topic.produce(values(10))
    backlog.group_at({0: 2})
    topic.delete_before(7)

    found = backlog.inspected()

    assert (found.lost, found.messages) == (5, 3)
    assert inspection_warnings(found)[0].startswith(
        "retention deleted up to 5 records that group g"
    )


def test_a_partition_without_a_leader_is_reported_and_the_others_inspected(
    backlog: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = backlog.made(partitions=2, retention_ms="-1")
    topic.produce(values(10), partition=1)
    look_at = Cluster.topic

    def half_down(self: Cluster, name: str) -> TopicInfo:
        found = look_at(self, name)
        return replace(found, leaders={**found.leaders, 0: ""})

    monkeypatch.setattr(Cluster, "topic", half_down)

    found = backlog.inspected(from_="earliest")

    assert found.offline == [0]
    assert found.messages == 10
    assert "partition 0: no leader, so drainer did not count it" in inspection_warnings(found)


def test_holes_are_not_counted_as_messages(backlog: Backlog) -> None:
    topic = backlog.made()
    for part in range(10):
        topic.produce([f"{part}-{n}" for n in range(10)])
        topic.transact(["gone"] * 9, commit=False)
    exact = backlog.inspected(from_="earliest", messages=None)
    sampled = backlog.inspected(from_="earliest", messages=40, seed=1)

    assert (exact.offsets, exact.messages) == (200, 100)
    assert not sampled.reading.full
    assert sampled.messages == pytest.approx(100, abs=35)


def test_an_empty_backlog_is_none(backlog: Backlog) -> None:
    topic = backlog.made()
    topic.produce(["[]"])
    backlog.group_at({0: 1})

    for messages in (None, 100):
        found = backlog.inspected("g", DOCUMENTS, messages=messages)
        assert (found.messages, found.offsets, found.age_s, found.retention_s) == (0, 0, None, None)
        assert found.hot is None


def test_a_barrier_that_matches_nothing_is_a_warning_and_a_key_that_none_has_is_refused(
    backlog: Backlog,
) -> None:
    backlog.made().produce([json.dumps({"thread": n % 9, "kind": "mail"}) for n in range(90)])

    def warned(key: str, barrier: str) -> list[str]:
        payloads = PayloadSettings(keys=(key,), barrier=barrier)
        handler = LoadedHandler("whole", Whole, payloads=payloads)
        found = inspection_warnings(backlog.inspected("g", handler, from_="earliest"))
        return [each for each in found if "none of" in each]

    with pytest.raises(Refused, match="none of 80"):
        warned("payload.threadid", "payload.thread == 1")
    assert warned("payload.thread", "payload.kind == 'inbx'") == [
        "--barrier payload.kind == 'inbx' matches none of 90 sub-messages that drainer tried: it is"
        " rare or misspelt"
    ]
    assert warned("payload.thread", "payload.kind == 'mail'") == []


def test_from_until_and_partition_choose_as_for_a_drain(backlog: Backlog) -> None:
    topic = backlog.made(partitions=3)
    for partition in range(3):
        topic.produce(values(20), partition=partition)

    found = backlog.inspected(partitions=(1,), from_="5", until="15")

    (part,) = found.partitions
    assert (part.partition, part.start, part.end, found.messages) == (1, 5, 15, 10)
