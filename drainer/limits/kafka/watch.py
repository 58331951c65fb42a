"""Threads that run until they are halted, such as one that samples the in-sync replicas."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from drainer.errors import BrokerUnreachable, Interrupted, raised_as
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.topic import replicas_of

SAMPLE_S = 0.25
KEEP_S = 600.0  # Samples are kept for this long.
PATIENCE_S = 5.0  # ``halt`` waits this long for a sample that is being taken.

Seen = TypeVar("Seen")
# The ids of the brokers whose replicas are in sync, by topic and partition.
InSync = Mapping[tuple[str, int], frozenset[int]]


class Loop:
    """A thread that runs until it is halted. ``failure`` is the exception that it raised.

    ``halt`` waits at most ``patience_s`` for the thread to end, and then calls each of ``ends``.
    """

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
        """Raise what the thread raised."""
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
    """A thread that calls ``sample`` regularly, and keeps each result with its time.

    Times are by the monotonic clock. If ``sample`` raises BrokerUnreachable, that sample is left
    out. Any other error ends the thread.
    """

    def __init__(
        self, name: str, sample: Callable[[], Seen], ends: Sequence[Callable[[], None]] = ()
    ) -> None:
        super().__init__(name, PATIENCE_S, ends)
        self._sample = sample
        self._samples: deque[tuple[float, Seen]] = deque(maxlen=int(KEEP_S / SAMPLE_S))

    def within(self, begin_s: float, end_s: float) -> list[tuple[float, Seen]]:
        """Return the samples that were taken between two times."""
        return [each for each in list(self._samples) if begin_s <= each[0] <= end_s]

    def _go_on(self) -> None:
        while not self._halted.wait(SAMPLE_S):
            begun_s = time.monotonic()
            with suppress(BrokerUnreachable):
                seen = self._sample()
                self._samples.append(((begun_s + time.monotonic()) / 2, seen))


class InSyncWatch(Watch[InSync]):
    """A thread that samples which replicas of some topics are in sync.

    It has a connection of its own. ``usual`` is the first sample, taken before there is any
    traffic. ``failure`` is set when the topics no longer exist, or when this user may no longer see
    them.

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
        """Return the samples between two times; none if no partition has a second replica."""
        return super().within(begin_s, end_s) if self._replicated else []

    def ensure_answers(self) -> None:
        """Raise Interrupted if no broker answers any more."""
        hint = "Once they answer, repeat the command: it goes on after the trials so far."
        about = "the brokers are gone: "
        with raised_as(Interrupted, BrokerUnreachable, about=about, hint=hint):
            self._in_sync()

    def _in_sync(self) -> InSync:
        found = replicas_of(self._cluster, self._topics)
        return {place: frozenset(one.in_sync) for place, one in found.items()}
