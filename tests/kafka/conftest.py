"""Fixtures for tests that speak to a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.sandbox import Broker
from kafka.topic import Topic, settle

SESSION_TIMEOUT_MS = 1500  # of a lock on the own broker; others allow 6000 at least


@pytest.fixture(scope="session")
def settled_broker(broker: Broker) -> Broker:
    """The session's broker once its coordinators work: a fresh one takes a moment for that."""
    with Cluster.connect(ClientSettings.load(broker.bootstrap_servers), 60) as cluster:
        Topic(broker.bootstrap_servers, "settling")
        settle(cluster)
    return broker


@pytest.fixture
def cluster(settled_broker: Broker) -> Iterator[Cluster]:
    with Cluster.connect(ClientSettings.load(settled_broker.bootstrap_servers)) as connected:
        yield connected


@pytest.fixture
def own_cluster(own_broker: Broker) -> Iterator[Cluster]:
    properties = [f"session.timeout.ms={SESSION_TIMEOUT_MS}"]
    settings = ClientSettings.load(own_broker.bootstrap_servers, None, properties)
    with Cluster.connect(settings) as connected:
        yield connected


@pytest.fixture
def group(topic_name: str) -> str:
    return f"g-{topic_name}"
