"""Replicas that fall out of sync are seen, on a cluster of two brokers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.topic import create_test_topic, new_topic_name
from drainer.limits.kafka.watch import InSyncWatch
from drainer.limits.search.reading import changing_share
from drainer.sandbox import Broker, BrokerPorts
from drainer.sandbox.ports import HOST
from kafka.topic import Topic, eventually

ALL = (0.0, float("inf"))
WAIT_S = 60.0


@pytest.fixture
def pair(
    kafka_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Broker, Broker]]:
    """Two brokers of one cluster; the first is the controller."""
    one_cluster = uuid.uuid4()
    monkeypatch.setattr("drainer.sandbox.broker.uuid.uuid4", lambda: one_cluster)
    ports = BrokerPorts.free()
    with Broker(tmp_path / "first", die_with_parent=True) as first:
        address = f"PLAIN://{HOST}:{ports.client}"
        joining = {
            "process.roles": "broker",
            "node.id": "2",
            "controller.quorum.voters": f"1@{HOST}:{first.ports.controller}",
            "listeners": address,
            "advertised.listeners": address,
        }
        second = Broker(tmp_path / "second", ports=ports, properties=joining, die_with_parent=True)
        with second:
            yield first, second


@pytest.mark.long
def test_a_broker_that_goes_is_a_change_for_as_long_as_it_is_away(
    pair: tuple[Broker, Broker],
) -> None:
    first, second = pair
    settings = ClientSettings.load(first.bootstrap_servers)
    name = new_topic_name()
    with Cluster.connect(settings, WAIT_S) as cluster:
        create_test_topic(cluster, name, 4, 1000)
        leaders = list(cluster.topic(name).leaders.values())
        assert sorted(leaders.count(address) for address in set(leaders)) == [2, 2]
    watch = InSyncWatch(settings, name)
    watch.start()
    eventually(lambda: len(watch.within(*ALL)) > 1, "it looks", WAIT_S)
    assert watch.usual == {number: {1, 2} for number in range(4)}
    assert changing_share(watch.within(*ALL), watch.usual) == 0

    second.stop()

    def alone() -> bool:
        looks = watch.within(*ALL)
        return len(looks) > 1 and set(looks[-2][1].values()) == {frozenset({1})} == set(
            looks[-1][1].values()
        )

    eventually(alone, "one replica is left", WAIT_S)
    last = watch.within(*ALL)[-2:]
    assert changing_share(last, watch.usual) == 1
    watch.close()


def test_without_other_replicas_nothing_is_said_of_them(settings: ClientSettings) -> None:
    name = new_topic_name()
    with Cluster.connect(settings, WAIT_S) as cluster:
        create_test_topic(cluster, name, 2, 1000)
    watch = InSyncWatch(settings, name)
    watch.start()

    assert watch.partitions == 2
    assert watch.within(*ALL) == []
    watch.close()


def test_a_topic_that_is_deleted_is_gone(settings: ClientSettings, topic: Topic) -> None:
    watch = InSyncWatch(settings, topic.name)
    watch.start()
    assert watch.failure is None

    topic.delete()

    eventually(lambda: watch.failure is not None, "it is seen", WAIT_S)
    assert topic.name in str(watch.failure)
    watch.close()
