"""Writing dead letters to a real broker: each is reported once, when it is there or can't be; an
acknowledgement without an offset is looked into before it counts."""

from __future__ import annotations

import asyncio
from contextlib import closing
from random import Random

import pytest

from core.letters import Sample
from drainer.errors import DeadLetterFlawed, DeadLetterNotWritten, DrainerError, RecordUnsure
from drainer.kafka import producer
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.kafka.writer import TopicWriter
from drainer.policy.exact_json import Encoding
from drainer.text.raw_json import meaning
from kafka.liar import LyingSettings, Truth
from kafka.sender import letters_in, sending
from kafka.test_rights import may
from kafka.topic import WAIT_S, Topic, eventually
from scenarios.brokers import Broker

# What a shared properties file may set; none of it may weaken a dead letter's producer.
IN_FLIGHT = ["max.in.flight=1000", "max.in.flight.requests.per.connection=5"]
CARELESS = [
    *IN_FLIGHT,
    "acks=1",
    "request.required.acks=0",
    "enable.idempotence=false",
    "delivery.timeout.ms=1",
    "partitioner=random",
    "transactional.id=theirs",
    "linger.ms=60000",
    "retries=0",
    "isolation.level=read_uncommitted",
    "fetch.wait.max.ms=5",
    "check.crcs=true",
]


@pytest.fixture
def dead(broker: Broker, topic_name: str) -> Topic:
    return Topic(broker.bootstrap_servers, topic_name, partitions=4)


def answers(settings: ClientSettings, topic: str, *samples: Sample) -> list[DrainerError | None]:
    """Send these letters; what is reported of each."""
    with sending(settings, topic) as sender:
        for sample in samples:
            sender.send(sample.letter())
        return sender.all_reported()


def test_a_letter_whose_time_the_broker_refuses_names_the_clock(
    settings: ClientSettings, broker: Broker, topic_name: str
) -> None:
    """A clock a day ahead has the same effect as this topic, which refuses what is older than the
    very millisecond, as one of many is."""
    limits = {"message.timestamp.before.max.ms": "0"}
    strict = Topic(broker.bootstrap_servers, topic_name, 1, limits)
    found = answers(settings, strict.name, *[Sample()] * 50)
    error = next(error for error in found if error is not None)
    assert isinstance(error, DeadLetterNotWritten)
    assert "this machine's clock, 2" in str(error)
    assert "Correct the clock" in (error.hint or "")


def test_letters_of_one_lane_keep_their_order_in_one_partition(
    settings: ClientSettings, dead: Topic
) -> None:
    lanes = ["doc-1", b"doc-2", None, "", 7, ("a", 1)]
    with sending(settings, dead.name) as sender:
        for number in range(600):
            lane = lanes[number % len(lanes)]
            sender.send(Sample(lane, payload=number, headers=[("trace", None)]).letter())
        sender.writer.close(WAIT_S)  # It waits for all of them.
        assert set(sender.reported.values()) == {None}
        assert sender.writer.trouble is None
    found = letters_in(dead.bootstrap, dead.name)
    assert {letter.headers for letter in found} == {(("trace", None),)}
    assert len({letter.partition for letter in found}) > 1
    for lane in lanes:
        of_lane = [letter for letter in found if letter.key == lane]
        assert len({letter.partition for letter in of_lane}) == 1
        payloads = [
            meaning(letter.payload) for letter in sorted(of_lane, key=lambda one: one.offset)
        ]
        assert payloads == sorted(payloads)
        assert len(payloads) == 100


def test_a_letter_that_is_too_large_for_the_topic_comes_without_what_is_too_much(
    settings: ClientSettings, bootstrap: str, topic_name: str
) -> None:
    Topic(bootstrap, topic_name, config={"max.message.bytes": "2000"})
    random = Random(1)  # what can be compressed would fit
    samples = [Sample(payload=random.randbytes(5000 if n == 20 else 500)) for n in range(50)]
    samples += [Sample(payload="p", headers=[("long", random.randbytes(3000))])]
    samples += [Sample(payload="p"), Sample(key="k" + random.randbytes(900).hex(), payload="p")]
    reported = answers(settings, topic_name, *samples)
    flawed = [each for each in reported if isinstance(each, DeadLetterFlawed)]
    assert [each.left_out for each in flawed] == [True] * 3
    assert {each for each in reported if each not in flawed} == {None}
    found = letters_in(bootstrap, topic_name)
    assert len(found) == 53
    less = [letter for letter in found if letter.payload_encoding is Encoding.LEFT_OUT]
    payload, headers, key = sorted(less, key=lambda one: (not one.sub_key_exact, one.sub_key))
    assert {each.error for each in less} == {"ValueError: no such document"}
    assert payload.sub_key_exact
    assert headers.headers == ()
    assert key.sub_key == repr(samples[-1].key)[:200]


def test_a_letter_that_is_too_large_whatever_it_leaves_out_is_an_error(
    settings: ClientSettings, bootstrap: str, topic_name: str
) -> None:
    Topic(bootstrap, topic_name, config={"max.message.bytes": "300"})
    (error,) = answers(settings, topic_name, Sample(payload="p"))
    assert isinstance(error, DeadLetterNotWritten)
    assert "max.message.bytes" in (error.hint or "")


def test_a_letter_that_is_too_large_for_the_client_comes_without_its_payload(
    settings: ClientSettings, dead: Topic
) -> None:
    small = ClientSettings.load(settings.bootstrap_servers, None, ["message.max.bytes=3000"])
    for each in (settings, small):
        (error,) = answers(each, dead.name, Sample(payload=b"x" * 60_000_000))
        assert isinstance(error, DeadLetterFlawed)
    found = letters_in(dead.bootstrap, dead.name)
    assert [letter.payload_encoding for letter in found] == [Encoding.LEFT_OUT] * 2


def test_what_was_compressed_in_its_topic_fits_into_one_of_the_same_limit(
    settings: ClientSettings, dead: Topic
) -> None:
    assert answers(settings, dead.name, Sample(payload=b"x" * 3_000_000)) == [None]


def test_more_than_the_client_s_queue_takes_waits_and_stays_in_order(
    settings: ClientSettings, dead: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "QUEUE_KBYTES", 64)
    samples = [Sample("hot", payload=f"{number}".rjust(2000)) for number in range(300)]
    assert set(answers(settings, dead.name, *samples)) == {None}
    found = letters_in(dead.bootstrap, dead.name)
    assert [int(letter.payload) for letter in found] == list(range(300))


def test_what_waits_when_it_is_closed_or_comes_later_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer, "QUEUE_KBYTES", 64)
    with sending(ClientSettings("localhost:1"), "dead") as sender:
        for number in range(50):
            sender.send(Sample("hot", payload=f"{number}".rjust(10_000)).letter())
        sender.writer.close(0)
        sender.writer.close(0)
        sender.send(Sample().letter())
        reported = sender.all_reported()
    assert {"ended before" in str(error) for error in reported} == {True}


def test_what_a_shared_file_sets_for_clients_does_not_weaken_it(
    settings: ClientSettings, dead: Topic
) -> None:
    careless = LyingSettings.of(ClientSettings.load(settings.bootstrap_servers, None, CARELESS))
    samples = [Sample("one lane", payload=number) for number in range(20)]
    assert set(answers(careless, dead.name, *samples)) == {None}
    found = letters_in(dead.bootstrap, dead.name)
    assert [meaning(letter.payload) for letter in found] == list(range(20))
    writing = LyingSettings.of(ClientSettings.load(settings.bootstrap_servers, None, IN_FLIGHT))
    with closing(TopicWriter(writing, dead.name)):
        pass
    # With more requests in flight, librdkafka loses records.
    for (conf,) in (careless.confs, writing.confs):
        assert conf["max.in.flight.requests.per.connection"] == 1
        assert "max.in.flight" not in conf


def test_a_topic_that_is_not_there_is_an_error(settings: ClientSettings, topic_name: str) -> None:
    soon = ["topic.metadata.propagation.max.ms=300"]
    impatient = ClientSettings.load(settings.bootstrap_servers, None, soon)
    (error,) = answers(impatient, topic_name, Sample())
    assert isinstance(error, DeadLetterNotWritten)
    assert topic_name in str(error)
    assert "deleted" in (error.hint or "")


def test_a_listener_whose_loop_is_gone_does_no_harm(settings: ClientSettings, dead: Topic) -> None:
    def gone(_: DrainerError | None) -> None:
        raise RuntimeError("Event loop is closed")

    with sending(settings, dead.name) as sender:
        sender.writer.send(Sample().letter(), gone)
        sender.send(Sample().letter())
        assert sender.all_reported() == [None]


def test_closing_before_a_frozen_broker_reports_all_in_time(
    own_broker: Broker, topic_name: str
) -> None:
    Topic(own_broker.bootstrap_servers, topic_name)
    with sending(ClientSettings.load(own_broker.bootstrap_servers), topic_name) as sender:
        sender.send(Sample().letter())
        sender.all_reported()
        own_broker.pause()
        try:
            for _ in range(50):
                sender.send(Sample().letter())
            sender.writer.close(0.3)
            first, *rest = sender.all_reported(wait_s=3)
        finally:
            own_broker.resume()
    assert first is None
    assert {type(error) for error in rest} == {DeadLetterNotWritten}
    assert "unknown whether" in str(rest[0])


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
    other = topic.open_transaction(["theirs"])
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
