"""What the fetch thread survives, and what it ends with when it can't."""

from __future__ import annotations

import pytest

from drainer.errors import Interrupted, LogCut, RecordsDeleted, TopicGone
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.sandbox import Broker
from kafka.reader import Bounds, Reader, numbered
from kafka.topic import PASSWORD, USER, Topic, eventually

SMALL = Bounds(30_000, 30_000)  # so that most is yet to be read


@pytest.fixture
def settings(broker: Broker) -> ClientSettings:
    return ClientSettings.load(broker.bootstrap_servers)


@pytest.fixture
def topic(broker: Broker, topic_name: str) -> Topic:
    made = Topic(broker.bootstrap_servers, topic_name)
    made.produce(numbered(4000, size=1000))
    return made


def begin(reader: Reader) -> None:
    reader.read(lambda: len(reader.messages) > 10)
    eventually(lambda: reader.fetch.queued_bytes >= SMALL.queue_bytes, "the queue is full")


def test_a_topic_that_is_deleted_meanwhile_ends_it(settings: ClientSettings, topic: Topic) -> None:
    with Reader(settings, topic.name, {0: (0, 4000)}, bounds=SMALL) as reader:
        begin(reader)
        topic.delete()
        with pytest.raises(TopicGone, match=f"{topic.name} was deleted"):
            reader.read()


@pytest.mark.parametrize("records", [0, 4000])
def test_a_topic_that_is_made_again_meanwhile_ends_it(
    settings: ClientSettings, topic: Topic, records: int
) -> None:
    with Reader(settings, topic.name, {0: (0, 4000)}, bounds=SMALL) as reader:
        begin(reader)
        topic.delete()
        topic.create()
        topic.produce(["of another topic"] * records)
        with pytest.raises(TopicGone, match=f"{topic.name} was deleted and recreated"):
            reader.read()
    assert reader.offsets() == list(range(len(reader.messages)))
    assert "of another topic" not in reader.values


def test_records_that_retention_takes_meanwhile_end_it(
    settings: ClientSettings, topic: Topic
) -> None:
    with Reader(settings, topic.name, {0: (0, 4000)}, bounds=SMALL) as reader:
        begin(reader)
        topic.delete_before(3500)
        with pytest.raises(RecordsDeleted, match=f"{topic.name}/0") as raised:
            reader.read()
    assert f"offsets {len(reader.messages)} to 3499 are gone" in str(raised.value)
    assert "starts at 3500" in str(raised.value)


def test_records_that_were_gone_before_it_began_end_it(
    settings: ClientSettings, topic: Topic
) -> None:
    topic.delete_before(10)
    with (
        Reader(settings, topic.name, {0: (5, 4000)}) as reader,
        pytest.raises(RecordsDeleted, match="offsets 5 to 9"),
    ):
        reader.read()


def test_a_log_that_ends_before_the_position_ends_it(
    settings: ClientSettings, topic: Topic
) -> None:
    with (
        Reader(settings, topic.name, {0: (4005, 4010)}) as reader,
        pytest.raises(LogCut, match="its log was cut"),
    ):
        reader.read()


def test_a_frozen_broker_is_told_and_waited_for(own_broker: Broker, topic_name: str) -> None:
    topic = Topic(own_broker.bootstrap_servers, topic_name)
    topic.produce(numbered(3000, size=1000))
    settings = ClientSettings.load(own_broker.bootstrap_servers)
    with Reader(settings, topic_name, {0: (0, 3000)}, bounds=SMALL) as reader:
        begin(reader)
        own_broker.pause()
        try:
            reader.read(lambda: "does not answer" in (reader.fetch.trouble or ""))
        finally:
            own_broker.resume()
        reader.read()
    assert reader.offsets() == list(range(3000))


def test_a_login_that_is_not_accepted_ends_it(broker: Broker, topic_name: str) -> None:
    Topic(broker.bootstrap_servers, topic_name).produce(numbered(10))
    login = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.username={USER}"]
    servers = broker.sasl_bootstrap_servers
    right = ClientSettings.load(servers, None, [*login, f"sasl.password={PASSWORD}"])
    with Reader(right, topic_name, {0: (0, 10)}) as reader:
        reader.read()
    with Cluster.connect(right):
        reader = Reader(right, topic_name, {0: (0, 10)})
    wrong = ClientSettings.load(servers, None, [*login, "sasl.password=wrong-hush"])
    reader.fetch._settings = wrong
    with reader, pytest.raises(Interrupted, match="can't read") as raised:
        reader.read()
    assert "hush" not in str(raised.value)
    assert "sasl" in (raised.value.hint or "")
