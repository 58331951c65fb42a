"""A fetch thread that is held to a pace takes no more than that allows for, and all in the end."""

from __future__ import annotations

import threading

import pytest

from core.limit_samples import limits
from drainer.kafka.cluster import Cluster
from drainer.kafka.fetch import FetchThread
from drainer.kafka.settings import ClientSettings
from drainer.kafka.stream import read_range
from drainer.message import Origin
from drainer.policy.rate_cap import RateLimiter
from drainer.sandbox import Broker
from kafka.topic import Topic, eventually


class Counted(RateLimiter):
    """Allows for seven at a time, each second time that it is asked."""

    def __init__(self) -> None:
        super().__init__(limits({100: 1_000_000.0}))
        self.asked = 0
        self.came_in: list[tuple[int, int]] = []

    def allowed(self, now_s: float) -> int:
        self.asked += 1
        return 7 * (self.asked % 2)

    def next_s(self, now_s: float, messages: int = 1) -> float:
        return 0.0

    def came(self, now_s: float, messages: int, size: int) -> None:
        self.came_in.append((messages, size))


@pytest.fixture
def settings(broker: Broker) -> ClientSettings:
    return ClientSettings.load(broker.bootstrap_servers)


@pytest.fixture
def topic(broker: Broker, topic_name: str) -> Topic:
    made = Topic(broker.bootstrap_servers, topic_name)
    made.produce(["x" * 90] * 500, key=b"0123456789")
    return made


def origin_of(cluster: Cluster, topic: Topic) -> Origin:
    return Origin(topic.name, cluster.topic(topic.name).topic_id, 0)


def fetch_of(
    settings: ClientSettings, cluster: Cluster, topic: Topic, pace: RateLimiter | None
) -> FetchThread:
    return FetchThread(
        settings,
        "r",
        {0: origin_of(cluster, topic)},
        {0: 0},
        {0: 500},
        queue_bytes=2**24,
        prefetch_bytes=2**26,
        partition_load=lambda _: 0,
        load_bytes=2**24,
        notify=lambda: None,
        pace=pace,
    )


def test_it_takes_no_more_than_is_allowed(
    settings: ClientSettings, cluster: Cluster, topic: Topic
) -> None:
    pace = Counted()
    batches = read_range(settings, origin_of(cluster, topic), 0, 500, reader="r", pace=pace)
    offsets = [message.offset for batch in batches for message in batch.messages]
    assert offsets == list(range(500))
    assert max(messages for messages, _ in pace.came_in) <= 7
    assert sum(messages for messages, _ in pace.came_in) == 500


def test_it_tells_the_bytes_of_keys_and_values(
    settings: ClientSettings, cluster: Cluster, topic: Topic
) -> None:
    pace = Counted()
    list(read_range(settings, origin_of(cluster, topic), 0, 500, reader="r", pace=pace))
    assert {size / messages for messages, size in pace.came_in} == {100}


def test_the_client_reads_not_far_ahead_of_a_slow_pace(
    settings: ClientSettings, cluster: Cluster, topic: Topic
) -> None:
    slow = RateLimiter(limits({100: 1_000.0}), message_bytes=100)
    assert fetch_of(settings, cluster, topic, None)._ahead_bytes() == 2**26
    assert fetch_of(settings, cluster, topic, slow)._ahead_bytes() == 800 * 100 / 2


def test_it_can_be_stopped_while_it_is_held_back(
    settings: ClientSettings, cluster: Cluster, topic: Topic
) -> None:
    pace = RateLimiter(limits({100: 0.001}))
    fetch = fetch_of(settings, cluster, topic, pace)
    fetch.start()
    eventually(lambda: pace.flowed > 0, "the first has come")
    eventually(lambda: pace.binds(0.0) or pace.allowed(0.0) == 0, "it is held back")
    fetch.stop()
    assert "drainer-fetch" not in {thread.name for thread in threading.enumerate()}
    assert fetch.trouble is None
