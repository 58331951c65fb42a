"""The history of a running drain: its statuses in bounded memory, thinned out evenly.

A drain that takes two weeks gives two million statuses. What is kept of them are stretches of time.
When there are too many, each two neighbours become one, so that all are of about the same length.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import pairwise

from drainer.engine.status import Status

STRETCHES_MOST = 1_000
PARTITIONS_APART = 7  # the largest backlogs; the others are told as one
TROUBLES_MOST = 100
HOTTEST_MOST = 10
_HOTTEST_KEPT = 200  # before those that never were deep are forgotten
_LEAST_S = 0.45  # statuses come each half second; the last one comes when it comes


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of a drain, from the end of the one before until ``ends_s``.

    Counts are those at its end, over all runs of the drain. ``running``, ``lanes`` and
    ``lanes_ready`` are means over it, ``concurrency`` and ``to_go`` (offsets from the watermark to
    the end, by partition) as they were at its end. ``latency_s`` is None until
    an attempt returned.
    """

    ends_s: float
    samples: int
    finished: int  # sub-messages
    dead: int
    failed: int  # and skipped for that
    skipped: int  # by the handler, not by rules
    failures: int  # attempts, of this run
    retries: int
    timeouts: int
    running: float
    lanes: float
    lanes_ready: float
    concurrency: int
    to_go: tuple[int, ...]
    latency_s: tuple[float, float, float] | None  # p50, p95, p99: each the worst seen

    def joined(self, later: Interval) -> Interval:
        """This stretch and the one that follows it as one."""
        samples = self.samples + later.samples

        def mean(mine: float, its: float) -> float:
            return (mine * self.samples + its * later.samples) / samples

        return replace(
            later,
            samples=samples,
            running=mean(self.running, later.running),
            lanes=mean(self.lanes, later.lanes),
            lanes_ready=mean(self.lanes_ready, later.lanes_ready),
            latency_s=_worst(self.latency_s, later.latency_s),
        )


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a drain waited out, as far as its statuses saw it."""

    begins_s: float
    ends_s: float
    text: str


class History:
    """What happened in one run of a drain; ``add`` each status.

    ``partitions`` has a number for each line of ``to_go``, and None last when there are more
    partitions than are told apart: the sum of ``folded`` others.
    """

    def __init__(self, stretches_most: int = STRETCHES_MOST) -> None:
        self._most = max(4, stretches_most)
        self._each = 1  # statuses in a stretch
        self._stretches: list[Interval] = []
        self._open: Interval | None = None
        self._apart: tuple[int, ...] = ()
        self._deepest: dict[Hashable, int] = {}
        self._troubles: list[Trouble] = []
        self.troubles_more = 0  # that were not kept
        self.folded = 0
        self.last: Status | None = None

    @property
    def partitions(self) -> tuple[int | None, ...]:
        return (*self._apart, None) if self.folded else self._apart

    @property
    def stretches(self) -> tuple[Interval, ...]:
        """In order. The first one is the beginning: what was finished before anything ran."""
        return tuple(self._stretches) if self._open is None else (*self._stretches, self._open)

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        return tuple(self._troubles)

    @property
    def hottest(self) -> list[tuple[Hashable, int]]:
        """The lanes that were the deepest, and how deep each was seen, the deepest first."""
        return nlargest(HOTTEST_MOST, self._deepest.items(), key=lambda item: item[1])

    def add(self, status: Status) -> None:
        if self.last is None:
            self._settle_partitions(status)
        self._add_trouble(status)
        self._add_hottest(status)
        self.last = status
        new = self._stretch(status)
        if not self._stretches:
            self._stretches.append(new)  # the beginning stays as it is: rates count from it
            return
        self._open = new if self._open is None else self._open.joined(new)
        if self._open.samples >= self._each:
            self._stretches.append(self._open)
            self._open = None
            if len(self._stretches) >= self._most:
                self._thin_out()

    def evenly(self, most: int) -> list[Interval]:
        """About ``most`` stretches of one length, or fewer; none that is much shorter."""
        found = self.stretches
        if len(found) < 3:
            return list(found)
        least_s = max((found[-1].ends_s - found[0].ends_s) / most, _LEAST_S)
        even, begins_s, open_ = [found[0]], found[0].ends_s, None
        for stretch in found[1:]:
            open_ = stretch if open_ is None else open_.joined(stretch)
            if open_.ends_s - begins_s >= least_s:
                even.append(open_)
                begins_s, open_ = open_.ends_s, None
        if open_ is not None:
            short = open_.ends_s - begins_s < least_s / 2 and len(even) > 1
            even.append(even.pop().joined(open_) if short else open_)
        return even

    def _thin_out(self) -> None:
        first, *rest = self._stretches
        pairs = [first]
        for at in range(0, len(rest) - 1, 2):
            pairs.append(rest[at].joined(rest[at + 1]))
        self._stretches = pairs
        self._open = rest[-1] if len(rest) % 2 else None
        self._each *= 2

    def _settle_partitions(self, status: Status) -> None:
        parts = status.partitions
        largest = nlargest(PARTITIONS_APART, parts, key=lambda part: part.end - part.start)
        if len(parts) == PARTITIONS_APART + 1:
            largest = list(parts)  # one alone is told as itself
        self._apart = tuple(sorted(part.partition for part in largest))
        self.folded = len(parts) - len(largest)

    def _stretch(self, status: Status) -> Interval:
        left = {part.partition: max(0, part.end - part.watermark) for part in status.partitions}
        to_go = [left.pop(number, 0) for number in self._apart]
        if self.folded:
            to_go.append(sum(left.values()))
        failures, latency = status.failures, status.latency_recent
        return Interval(
            ends_s=status.elapsed_s,
            samples=1,
            finished=status.sub_messages.finished,
            dead=status.sub_messages.dead,
            failed=status.sub_messages.failed,
            skipped=status.sub_messages.skipped - sum(status.rules.skipped_by.values()),
            failures=failures.failures,
            retries=failures.retries,
            timeouts=failures.timeouts,
            running=status.running,
            lanes=status.lanes,
            lanes_ready=status.lanes_ready,
            concurrency=status.concurrency,
            to_go=tuple(to_go),
            latency_s=None if latency is None else (latency.p50_s, latency.p95_s, latency.p99_s),
        )

    def _add_trouble(self, status: Status) -> None:
        before = None if self.last is None else self.last.trouble
        known = self._troubles[-1] if self._troubles else None
        if before is not None and known is not None and known.text == before:
            self._troubles[-1] = replace(known, ends_s=status.elapsed_s)
        if status.trouble is None or status.trouble == before:
            return
        if len(self._troubles) < TROUBLES_MOST:
            now_s = status.elapsed_s
            self._troubles.append(Trouble(now_s, now_s, status.trouble))
        else:
            self.troubles_more += 1

    def _add_hottest(self, status: Status) -> None:
        for key, depth in status.hottest:
            self._deepest[key] = max(depth, self._deepest.get(key, 0))
        if len(self._deepest) > _HOTTEST_KEPT:
            self._deepest = dict(self.hottest)


def _worst(
    one: tuple[float, float, float] | None, other: tuple[float, float, float] | None
) -> tuple[float, float, float] | None:
    if one is None or other is None:
        return one or other
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


def rates(stretches: Sequence[Interval], counts: Iterable[int]) -> list[float]:
    """How fast a count rose in each stretch but the first, per second."""
    return [
        (count - before_count) / max(stretch.ends_s - before.ends_s, 1e-9)
        for (before, stretch), (before_count, count) in zip(
            pairwise(stretches), pairwise(counts), strict=True
        )
    ]
