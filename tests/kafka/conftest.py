"""Fixtures for tests that speak to a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from kafka.topic import Topic
from scenarios.brokers import Broker
from scenarios.trust import rights

SESSION_TIMEOUT_MS = 1500  # of a lock; brokers allow 6000 at least, unless configured otherwise


@pytest.fixture
def settings(bootstrap: str) -> ClientSettings:
    return ClientSettings.load(bootstrap)


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> Topic:
    """Of one partition."""
    return Topic(bootstrap, topic_name)


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


@pytest.fixture(scope="session")
def ann(strict_broker: Broker) -> Iterator[Cluster]:
    with rights.login(strict_broker, rights.LEAST) as connected:
        yield connected


@pytest.fixture
def own_cluster(own_broker: Broker) -> Iterator[Cluster]:
    with quick(own_broker) as connected:
        yield connected


@pytest.fixture(scope="session")
def quick_cluster(broker: Broker) -> Iterator[Cluster]:
    with quick(broker) as connected:
        yield connected


@contextmanager
def quick(broker: Broker) -> Iterator[Cluster]:
    """A connection whose locks have short sessions."""
    properties = [f"session.timeout.ms={SESSION_TIMEOUT_MS}"]
    settings = ClientSettings.load(broker.bootstrap_servers, None, properties)
    with Cluster.connect(settings) as connected:
        yield connected


@pytest.fixture
def group(topic_name: str) -> str:
    return f"g-{topic_name}"
