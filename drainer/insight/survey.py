"""A survey of messages as they are read: what they are like, and what they split into."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from drainer.errors import SplitFailed
from drainer.insight.inspection import SplitFailures
from drainer.insight.splitting import split_one
from drainer.insight.statistics.contents import Contents, ContentsMeter
from drainer.insight.statistics.skew import Rule, Skew, SkewMeter
from drainer.loader import LoadedHandler
from drainer.message import Message


class Surveyed(Protocol):
    """What came of reading a backlog, whoever read it."""

    @property
    def tasks(self) -> int | None:
        """How many read it on Spark; None for this process."""

    @property
    def windows(self) -> int:
        """In how many places."""

    @property
    def offsets(self) -> int:
        """How many offsets were read."""

    @property
    def bytes(self) -> int:
        """Keys and values of what was taken."""

    @property
    def split_s(self) -> float:
        """How long splitting took, added up over all that did it."""

    @property
    def failures(self) -> SplitFailures | None:
        """None when there were none."""

    def density(self, partition: int) -> float:
        """Messages per offset, of the partition if anything of it was read, else of all."""

    def mean_bytes(self, partition: int) -> float:
        """Of a message, likewise."""

    def contents(self, fraction: float, now_ms: int) -> Contents:
        """Of all that was taken, when that is such a part of the backlog."""

    def skew(self, fraction: float) -> Skew | None:
        """The same; None without a handler."""


class Survey:
    """Takes messages in windows; ``end_window`` after each of them.

    The handler's ``split`` is called, and nothing else of it. What it raises is counted and told.
    """

    def __init__(self, handler: LoadedHandler | None, rule: Rule | None) -> None:
        self._split = handler.split if handler is not None else None
        self._contents = ContentsMeter()
        self._skew = SkewMeter(rule) if handler is not None else None
        self._messages, self._offsets, self._bytes = Counter[int](), Counter[int](), Counter[int]()
        self._failed = 0
        self._first: SplitFailed | None = None
        self.tasks: int | None = None
        self.windows = 0
        self.split_s = 0.0

    @property
    def offsets(self) -> int:
        """How many offsets were read."""
        return self._offsets.total()

    @property
    def bytes(self) -> int:
        """Keys and values of what was taken."""
        return self._bytes.total()

    def take(self, partition: int, messages: Sequence[Message], offsets: int) -> None:
        """Messages of a partition, which are all that these many offsets hold."""
        self._offsets[partition] += offsets
        self._messages[partition] += len(messages)
        self._bytes[partition] += sum(message.size for message in messages)
        self._contents.take(messages)
        if self._skew is not None:
            begun_s = time.perf_counter()
            for message in messages:
                try:
                    self._skew.take(message, split_one(self._split, message))
                except SplitFailed as error:
                    self._failed += 1
                    self._first = self._first or error
            self.split_s += time.perf_counter() - begun_s

    def end_window(self) -> None:
        """What comes from now on lies somewhere else."""
        self.windows += 1
        self._contents.end_cluster()
        if self._skew is not None:
            self._skew.end_cluster()

    def density(self, partition: int) -> float:
        """Messages per offset, of the partition if anything of it was read, else of all."""
        return _per(self._messages, self._offsets, partition, 1.0)

    def mean_bytes(self, partition: int) -> float:
        """Of a message, likewise."""
        return _per(self._bytes, self._messages, partition, 0.0)

    def contents(self, fraction: float, now_ms: int) -> Contents:
        """Of all that was taken, when that is such a part of the backlog."""
        return self._contents.contents(fraction, now_ms)

    def skew(self, fraction: float) -> Skew | None:
        """The same; None without a handler."""
        return None if self._skew is None else self._skew.skew(fraction)

    @property
    def failures(self) -> SplitFailures | None:
        """None when there were none."""
        if self._first is None:
            return None
        return SplitFailures(self._failed, str(self._first), self._first.hint)


def _per(parts: Counter[int], wholes: Counter[int], number: int, otherwise: float) -> float:
    if wholes[number]:
        return parts[number] / wholes[number]
    whole = wholes.total()
    return parts.total() / whole if whole else otherwise
