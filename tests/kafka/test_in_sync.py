"""Replicas that fall out of sync are seen, on a cluster of three brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.topic import create_test_topic, new_topic_name
from drainer.limits.kafka.watch import InSyncWatch
from drainer.limits.search.reading import changing_share
from kafka.topic import eventually
from scenarios.brokers import Brokers

ALL = (0.0, float("inf"))
WAIT_S = 60.0


@pytest.fixture
def brokers(kafka_installed: None, tmp_path: Path) -> Iterator[Brokers]:
    with Brokers(tmp_path, 3, die_with_parent=True) as running:
        yield running


@pytest.mark.long
def test_a_broker_that_goes_is_a_change_for_as_long_as_it_is_away(brokers: Brokers) -> None:
    settings = ClientSettings.load(brokers.bootstrap_servers)
    name = new_topic_name()
    with Cluster.connect(settings, WAIT_S) as cluster:
        create_test_topic(cluster, name, 6, 1000)
        leaders = list(cluster.topic(name).leaders.values())
        assert sorted(leaders.count(address) for address in set(leaders)) == [2, 2, 2]
    watch = InSyncWatch(settings, [name])
    watch.start()
    eventually(lambda: len(watch.within(*ALL)) > 1, "it looks", WAIT_S)
    assert watch.usual == {(name, number): {1, 2, 3} for number in range(6)}
    assert changing_share(watch.within(*ALL), watch.usual) == 0

    brokers.each[2].stop()

    def alone() -> bool:
        looks = watch.within(*ALL)
        return len(looks) > 1 and set(looks[-2][1].values()) == {frozenset({1, 2})} == set(
            looks[-1][1].values()
        )

    eventually(alone, "two replicas are left", WAIT_S)
    last = watch.within(*ALL)[-2:]
    assert changing_share(last, watch.usual) == 1
    watch.halt()


def test_without_other_replicas_there_are_no_samples(settings: ClientSettings) -> None:
    name = new_topic_name()
    with Cluster.connect(settings, WAIT_S) as cluster:
        create_test_topic(cluster, name, 2, 1000)
    watch = InSyncWatch(settings, [name])
    watch.start()

    assert watch.within(*ALL) == []
    watch.halt()
