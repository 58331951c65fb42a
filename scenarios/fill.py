"""Creates and fills topics, for tests and the scenarios."""

from __future__ import annotations

from collections.abc import Iterable

from drainer.errors import DrainerError
from drainer.kafka.cluster import Cluster
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings

TIMEOUT_S = 30.0
QUEUE_MESSAGES = 100_000


def create_topic(settings: ClientSettings, topic: str, partitions: int = 1) -> None:
    """Create a topic. Raises the same errors as ``Cluster.create_topic``."""
    with Cluster.connect(settings) as cluster:
        cluster.create_topic(topic, partitions)


def fill(
    settings: ClientSettings, topic: str, records: Iterable[tuple[bytes | None, bytes, int]]
) -> int:
    """Write records (key, value, partition) to a topic, and return their number.

    All in-sync replicas have them afterwards. Raises DrainerError when one was not written.
    """
    conf = settings.produce_conf(
        ClientLog(), linger_ms=20, queue_buffering_max_messages=QUEUE_MESSAGES
    )
    producer = settings.producer(conf)
    failures: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    count = 0
    for key, value, partition in records:
        while True:
            try:
                producer.produce(topic, value, key, partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    left = producer.flush(TIMEOUT_S)
    if failures or left:
        reason = failures[0] if failures else f"{left} still unsent after {TIMEOUT_S} s"
        raise DrainerError(f"can't fill topic {topic}: {reason}")
    return count
