"""A drain that only reads: takes what the fetch thread hands over, and remembers it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

from drainer.kafka.cluster import Cluster
from drainer.kafka.fetch import FetchThread
from drainer.kafka.reader import KafkaMessage
from drainer.kafka.settings import ClientSettings
from drainer.split.splitting import Prepare
from kafka.topic import WAIT_S

MIB = 1024 * 1024


@dataclass(frozen=True)
class Bounds:
    """Bounds of what a reader keeps, in bytes."""

    queue_bytes: int = 4 * MIB
    prefetch_bytes: int = 4 * MIB
    load_bytes: int = 96 * MIB


@dataclass
class Reader:
    """Reads ``[start, end)`` per partition; ``loads`` are the bytes that it claims to hold."""

    settings: ClientSettings
    topic: str
    spans: dict[int, tuple[int, int]]
    bounds: Bounds = Bounds()
    loads: dict[int, int] = field(default_factory=dict)
    group: str = "readers"
    messages: list[KafkaMessage] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    topic_id: str = ""
    prepare: Prepare | None = None
    patience_s: float = inf

    def __post_init__(self) -> None:
        self._news = threading.Event()
        if not self.topic_id:
            with Cluster.connect(self.settings) as cluster:
                self.topic_id = cluster.topic(self.topic).topic_id
        self.fetch = FetchThread(
            self.settings,
            self.group,
            self.topic,
            self.topic_id,
            self.spans,
            queue_bytes=self.bounds.queue_bytes,
            prefetch_bytes=self.bounds.prefetch_bytes,
            partition_load=lambda partition: self.loads.get(partition, 0),
            load_bytes=self.bounds.load_bytes,
            notify=self._news.set,
            prepare=self.prepare,
            patience_s=self.patience_s,
        )

    def __enter__(self) -> Reader:
        self.fetch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.fetch.stop()

    @property
    def values(self) -> list[str]:
        return [message.value.decode() for message in self.messages if message.value]

    def offsets(self, partition: int = 0) -> list[int]:
        return [m.offset for m in self.messages if m.partition == partition]

    @property
    def complete(self) -> bool:
        """Whether every partition is known to be read to its end."""
        return all(
            self.positions.get(partition, start) >= end
            for partition, (start, end) in self.spans.items()
        )

    def take(self) -> None:
        """Take what waits, without waiting."""
        while (batch := self.fetch.next_batch()) is not None:
            self.messages.extend(batch.messages)
            self.positions.update(batch.reached)

    def read(self, until: Callable[[], bool] | None = None, wait_s: float = WAIT_S) -> Reader:
        """Read until the end, or until it holds; only the thread's own notices wake it.

        Raises the thread's failure.
        """
        deadline = time.monotonic() + wait_s
        while not (until() if until else self.complete):
            self._news.wait(0.05 if until else max(0.0, deadline - time.monotonic()))
            self._news.clear()
            self.take()
            if self.fetch.failure is not None:
                raise self.fetch.failure
            assert time.monotonic() < deadline, f"read {len(self.messages)}, {self.positions}"
        return self


def numbered(count: int, size: int = 0) -> Iterable[str]:
    """The numbers from 0 as values, filled up to a size in bytes."""
    return (str(number).rjust(size, "0") for number in range(count))
