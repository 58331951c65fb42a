"""Fixtures for tests that speak to a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.sandbox import Broker
from kafka.topic import Topic, settle
from scenarios.trust import rights

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


@pytest.fixture(scope="session")
def strict_broker(
    kafka_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker where ann may do only what she is granted, and letters would not stay by default."""
    properties = {
        "log.retention.ms": "3600000",
        "log.retention.bytes": "1000000",
        "log.cleanup.policy": "compact",
    }
    with rights.strict_broker(tmp_path_factory.mktemp("strict"), properties) as running:
        yield running


@pytest.fixture
def ann(strict_broker: Broker) -> Iterator[Cluster]:
    with rights.login(strict_broker, rights.LEAST) as connected:
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
