"""The configuration of a topic, as its brokers apply it."""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports without saying so
    ConfigResource,
    ResourceType,
)

from drainer.errors import RightMissing
from drainer.kafka.cluster import Cluster


def topic_config(cluster: Cluster, name: str) -> dict[str, str]:
    """The topic's configuration with the brokers' defaults; empty when this user may not see it."""
    connection = cluster.connection
    resource = ConfigResource(ResourceType.TOPIC, name)

    def attempt(left: float) -> dict[str, str]:
        asked = connection.admin.describe_configs([resource], request_timeout=left)
        found = connection.wait(asked[resource], left)
        return {entry.name: entry.value for entry in found.values() if entry.value is not None}

    try:
        return connection.ask(f"see the configuration of {name}", attempt)
    except RightMissing:  # DESCRIBE_CONFIGS
        return {}


def limit(value: str | None) -> int | None:
    """A limit as a number; None when there is none, which Kafka writes as -1."""
    return None if value is None or int(value) < 0 else int(value)
