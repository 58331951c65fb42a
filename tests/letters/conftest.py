"""Fixtures of dead letters on a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster.connect(ClientSettings.load(bootstrap), 60) as connected:
        connected.group("any")  # waits for the coordinator
        yield connected
