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
def ann(own_broker: Broker) -> Iterator[Cluster]:
    """A user of the own broker, who may do only what a test grants."""
    with rights.login(own_broker, rights.LEAST) as connected:
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
