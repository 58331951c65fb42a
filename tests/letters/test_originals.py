"""Letters are read with all that they name: originals of which a letter has only the place, and a
topic's records from its beginning to its end, with holes of every kind."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from drainer.errors import BrokerUnreachable, NotADeadLetter, TopicMissing
from drainer.kafka import reader, spans
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import read_spans
from drainer.letters import originals
from drainer.letters.originals import Originals
from drainer.letters.reading import find_letter, read_letters
from drainer.message import HeadersUnreadable, Message
from drainer.policy.dead_letter import Letter, read_letter
from drainer.split.splitting import Wait
from kafka.raw import produce_with_header
from kafka.reader import Reader
from kafka.topic import Topic
from letters.foreign_letters import Record, write
from scenarios.brokers import Broker

ELSEWHERE = "its original is not on this cluster"
GONE = "retention or compaction deleted its original"
NAMED = {name: f"__dlq.errors.{name}" for name in ("topic", "partition", "offset")}
NAMED["timestamp"] = "x-time"
DIED_MS = int((time.time() + 600) * 1000)  # later than all that a test writes


def no_wait(seconds: float, why: str) -> bool:
    raise AssertionError(why)


@pytest.fixture
def source(bootstrap: str, topic_name: str) -> Iterator[Topic]:
    topic = Topic(bootstrap, f"{topic_name}.source")
    yield topic
    topic.discard()


@pytest.fixture
def dead(bootstrap: str, topic_name: str) -> Iterator[Topic]:
    topic = Topic(bootstrap, topic_name)
    yield topic
    topic.discard()


def letter(
    topic: str, offset: int, key: bytes | None = None, died_ms: int = DIED_MS, at_ms: int = 0
) -> Record:
    place = {"topic": topic, "partition": "0", "offset": str(offset)}
    headers = [(NAMED[name], value.encode()) for name, value in place.items()]
    return Record(key, None, died_ms, [*headers, *[("x-time", b"%d" % at_ms)] * bool(at_ms)])


def prepared(reading: Originals, *records: Record) -> list[Letter]:
    messages = [record.message(n) for n, record in enumerate(records)]
    assert reading.prepare(messages, no_wait) == len(messages)
    return [reading.letter(message) for message in messages]


def test_an_outage_of_the_source_is_waited_out_and_named() -> None:
    reasons: list[str] = []

    def wait(seconds: float, why: str) -> bool:
        reasons.append(why)
        return False

    reading = Originals(ClientSettings("127.0.0.1:1"), {})
    assert reading.prepare([letter("orders", 3).message()], wait) == 0
    [reason] = reasons
    assert reason.startswith("can't read originals: ")


@pytest.mark.parametrize("most", [originals.PART_BYTES, 5, 20])
def test_originals_are_read_before_split_however_large_they_are(
    cluster: Cluster, source: Topic, dead: Topic, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(originals, "PART_BYTES", most)
    source.produce([f"value {n}" for n in range(20)])
    offsets = [7, 2, 19, 2, 900, *range(10)]
    write(dead, [letter(source.name, offset) for offset in offsets])
    reading = Originals(cluster.settings, {})
    parts: list[int] = []

    def prepare(messages: Sequence[Message], wait: Wait) -> int:
        parts.append(reading.prepare(messages, no_wait))
        return parts[-1]

    with Reader(cluster.settings, dead.name, {0: (0, len(offsets))}, prepare=prepare) as reader:
        reader.read()
    monkeypatch.setattr(originals, "Cluster", None)  # it reads no more
    found = [reading.letter(message) for message in reader.messages]
    values = [None if offset == 900 else b"value %d" % offset for offset in offsets]
    assert [each.payload for each in found] == values
    assert [each.why_not_redriven for each in found if each.payload is None] == [ELSEWHERE]
    assert max(parts) <= max(1, 2 * most // len(b"value 1"))
    assert sum(message.size for message in reader.messages) >= 14 * len(b"value 1")


def test_a_record_of_another_key_or_time_is_not_the_original(
    cluster: Cluster, source: Topic
) -> None:
    write(source, [Record(b"k", b"v", DIED_MS, [])])
    name, late_ms = source.name, 60_000
    found = prepared(
        Originals(cluster.settings, NAMED),
        letter(name, 0),
        letter(name, 0, b"k", DIED_MS + late_ms),
        letter(name, 0, died_ms=DIED_MS - 1000),  # by a clock that is slow
        letter(name, 0, died_ms=DIED_MS + late_ms, at_ms=DIED_MS),
        letter(name, 0, b"other"),
        letter(name, 0, died_ms=DIED_MS - late_ms),  # the topic was made again
        letter(name, 0, died_ms=DIED_MS + late_ms, at_ms=DIED_MS - 1),
    )
    assert [each.payload for each in found] == [b"v"] * 4 + [None] * 3
    assert {each.why_not_redriven for each in found[4:]} == {ELSEWHERE}


def test_an_original_that_is_deleted_during_the_read_is_gone(
    cluster: Cluster, source: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.produce([f"value {n}" for n in range(20)])
    reasons: list[str] = []

    def late(*given: Any) -> Any:
        source.delete_before(10)
        return read_spans(*given)

    def wait(seconds: float, why: str) -> bool:
        reasons.append(why)
        return True

    monkeypatch.setattr(originals, "read_spans", late)
    messages = [letter(source.name, offset).message(offset) for offset in (5, 15)]
    reading = Originals(cluster.settings, {})
    assert reading.prepare(messages, wait) == 2
    assert [reading.letter(each).why_not_redriven for each in messages] == [GONE, None]
    assert [f"retention deleted offsets 5 to 9 of {source.name}/0" in why for why in reasons] == [
        True
    ]


def test_topics_are_looked_up_together_and_what_is_not_wanted_is_not(
    cluster: Cluster, source: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections, connect = [], Cluster.connect

    def counted(settings: ClientSettings) -> Any:
        connections.append(settings)
        return connect(settings)

    monkeypatch.setattr(Cluster, "connect", counted)
    source.produce(["value"])
    names = [*(f"missing-{n}" for n in range(300)), source.name]
    messages = [letter(name, 0).message(n) for n, name in enumerate(names)]
    wanted = Originals(
        cluster.settings, {}, None, lambda each, _: None if each.topic == source.name else "no"
    )
    assert wanted.prepare(messages, no_wait) == 301
    assert wanted.letter(messages[-1]).payload == b"value"
    assert wanted.letter(messages[0]).lacks_message
    assert len(connections) <= 2, "a reader has its own when the broker is slow"
    again = [letter(name, 0).message(n) for n, name in enumerate(names)]
    reading = Originals(cluster.settings, {})
    assert reading.prepare(again, no_wait) == 301
    assert [reading.letter(each).why_not_redriven for each in again] == [ELSEWHERE] * 300 + [None]
    assert len(connections) <= 2 * 2


@pytest.mark.parametrize("offsets", [(0, 2, 1), (2, 0, 1)])
def test_what_takes_long_is_done_letter_by_letter(
    cluster: Cluster,
    source: Topic,
    dead: Topic,
    monkeypatch: pytest.MonkeyPatch,
    offsets: tuple[int, ...],
) -> None:
    """Each step has the first letter at least, wherever its original lies."""
    monkeypatch.setattr(originals, "LOOK_S", -1.0)
    source.produce(["one", "two", "three"])
    dead.produce(["four"])
    records = [letter(dead.name, 0), *(letter(source.name, offset) for offset in offsets)]
    messages = [record.message(n) for n, record in enumerate(records)]
    reading = Originals(cluster.settings, {})
    steps = [0]
    while steps[-1] < len(messages):
        steps.append(steps[-1] + reading.prepare(messages[steps[-1] :], no_wait))
    assert steps[:2] == [0, 1]
    assert len(steps) > 2
    monkeypatch.setattr(originals, "Cluster", None)  # it reads no more
    values = [b"four", *([b"one", b"two", b"three"][offset] for offset in offsets)]
    assert [reading.letter(each).payload for each in messages] == values


def test_a_topic_whose_originals_are_far_apart_is_not_read_at_once(
    cluster: Cluster, source: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(originals, "LOOK_S", -1.0)
    source.produce(["one", "two"])
    messages = [letter(source.name, offset).message(offset) for offset in range(2)]
    assert Originals(cluster.settings, {}).prepare(messages, no_wait) == 1


def values(cluster: Cluster, topic: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for message in read_letters(cluster, topic):
        assert message.value is not None
        found.setdefault(message.partition, []).append(message.value.decode())
    return found


def test_holes_deleted_records_and_aborted_ones_are_passed_over(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.produce(["gone", "a"])
    topic.delete_before(1)
    topic.transact(["b"], commit=True)
    topic.transact(["aborted"], commit=False)
    assert values(cluster, topic_name) == {0: ["a", "b"]}
    with pytest.raises(NotADeadLetter, match=f"{topic_name}/0/2 is not a dead letter"):
        find_letter(cluster, topic_name, 0, 2)
    for hole in (0, 3, 4, 5, 99):
        with pytest.raises(NotADeadLetter, match=f"no record at {topic_name}/0/{hole}") as raised:
            find_letter(cluster, topic_name, 0, hole)
        assert "from 1 to below 6" in (raised.value.hint or "")


def test_a_topic_or_partition_that_is_not_there_is_reported(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    with pytest.raises(TopicMissing):
        list(read_letters(cluster, topic_name))
    Topic(bootstrap, topic_name)
    assert values(cluster, topic_name) == {}
    with pytest.raises(TopicMissing, match="no partition 7"):
        find_letter(cluster, topic_name, 7, 0)
    with pytest.raises(NotADeadLetter, match="there is no record"):
        find_letter(cluster, topic_name, 0, 0)


@pytest.mark.long
def test_a_broker_that_falls_silent_is_reported(
    own_broker: Broker, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "SPAN_SILENCE_S", 0.5)
    monkeypatch.setattr(reader, "BATCH_MESSAGES", 10)
    monkeypatch.setattr(spans, "PREFETCH_BYTES", 1)
    topic = Topic(own_broker.bootstrap_servers, topic_name)
    topic.produce("x" * 10_000 for _ in range(1000))
    with Cluster.connect(ClientSettings.load(own_broker.bootstrap_servers), 60) as cluster:
        reading = read_letters(cluster, topic_name)
        next(reading)
        own_broker.pause()
        try:
            with pytest.raises(BrokerUnreachable, match=f"can't read {topic_name}/0: no record"):
                list(reading)
        finally:
            own_broker.resume()


def test_a_record_with_a_header_that_no_client_can_read_is_left_alone(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    Topic(bootstrap, topic_name)
    produce_with_header(bootstrap, topic_name, b"value", b"\xff\xfe")
    (message,) = read_letters(cluster, topic_name)
    for _ in range(10):  # the client is another at each look
        with pytest.raises(HeadersUnreadable, match=f"{topic_name}/0/0"):
            _ = message.headers
    with pytest.raises(NotADeadLetter, match="not UTF-8"):
        read_letter(message)
