"""Threads that run until they are halted, and what is sampled four times a second in one: which
replicas of the test topics are in sync."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from drainer.errors import BrokerUnreachable
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.topic import replicas_of

SAMPLE_S = 0.25
KEEP_S = 600.0
PATIENCE_S = 5.0

Seen = TypeVar("Seen")
InSync = Mapping[tuple[str, int], frozenset[int]]  # the ids of brokers, by partition


class Loop:
    """Runs in a thread of its own until it is halted, which waits so long for its last turn, then
    calls the ``ends``; ``failure`` is what it raised."""

    def __init__(
        self, name: str, patience_s: float | None = None, ends: Sequence[Callable[[], None]] = ()
    ) -> None:
        self._patience_s = patience_s
        self._ends = ends
        self._halted = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def ensure_working(self) -> None:
        """Raises what the thread raised."""
        if self.failure is not None:
            raise self.failure

    def halt(self) -> None:
        self._halted.set()
        if self._thread.is_alive():
            self._thread.join(self._patience_s)
        ends, self._ends = self._ends, ()
        for end in ends:
            end()

    def _run(self) -> None:
        try:
            self._go_on()
        except BaseException as error:
            self.failure = error

    def _go_on(self) -> None:
        raise NotImplementedError


class Watch(Loop, Generic[Seen]):
    """Keeps samples with the times of the monotonic clock.

    A sample that raises BrokerUnreachable is left out. Anything else ends the watch.
    """

    def __init__(
        self, name: str, sample: Callable[[], Seen], ends: Sequence[Callable[[], None]] = ()
    ) -> None:
        super().__init__(name, PATIENCE_S, ends)
        self._sample = sample
        self._samples: deque[tuple[float, Seen]] = deque(maxlen=int(KEEP_S / SAMPLE_S))

    def within(self, begin_s: float, end_s: float) -> list[tuple[float, Seen]]:
        """Samples of that time."""
        return [each for each in list(self._samples) if begin_s <= each[0] <= end_s]

    def _go_on(self) -> None:
        while not self._halted.wait(SAMPLE_S):
            begun_s = time.monotonic()
            with suppress(BrokerUnreachable):
                seen = self._sample()
                self._samples.append(((begun_s + time.monotonic()) / 2, seen))


class InSyncWatch(Watch[InSync]):
    """A watch of replicas, with a connection of its own.

    ``usual`` is what was seen first, before there was any traffic. ``failure`` is set when the
    topics are there no more, or not for this client.

    Raises BrokerUnreachable and Refused as ``Cluster`` does.
    """

    def __init__(self, settings: ClientSettings, topics: Sequence[str]) -> None:
        self._cluster = Cluster.connect(settings)
        self._topics = topics
        super().__init__("in-sync", self._in_sync, [self._cluster.close])
        found = replicas_of(self._cluster, topics)
        self._replicated = any(len(one.all) > 1 for one in found.values())
        self.usual = self._in_sync()

    def within(self, begin_s: float, end_s: float) -> list[tuple[float, InSync]]:
        """Samples of that time; none without replicas to lose."""
        return super().within(begin_s, end_s) if self._replicated else []

    def _in_sync(self) -> InSync:
        found = replicas_of(self._cluster, self._topics)
        return {place: frozenset(one.in_sync) for place, one in found.items()}
