"""Admission: which sub-messages may start now, by the rate limit and by the circuit breaker.

It has the dispatcher's methods for workers, and stands before it all the time. It checks each start
only while there is something to check: also while successes show whether an earlier failure was an
outage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from heapq import heapify, heappop, heappush
from itertools import count

from drainer.core.dispatch import Dispatcher
from drainer.message import SubMessage
from drainer.policy.failures import FailurePolicy

BURST_S = 0.05  # of the rate may start at once: event loops are not on time


class Rate:
    """A token bucket: ``per_s`` starts a second, with a small burst."""

    def __init__(self, per_s: float, now_s: float) -> None:
        self.per_s = per_s
        self._most = max(1.0, per_s * BURST_S)
        self._tokens = 1.0
        self._at_s = now_s

    def change(self, per_s: float, now_s: float) -> None:
        """Change the rate from now on."""
        self._tokens, self._at_s = self._tokens_at(now_s), now_s
        self.per_s = per_s
        self._most = max(1.0, per_s * BURST_S)

    def allowed(self, now_s: float) -> int:
        """Return how many may start now."""
        return int(self._tokens_at(now_s) + 1e-9)

    def start(self, now_s: float) -> None:
        """Take the token of one that starts."""
        self._tokens, self._at_s = self._tokens_at(now_s) - 1, now_s

    def next_at_s(self, now_s: float) -> float:
        """Return when the next one may start."""
        return now_s + max(0.0, 1 - self._tokens_at(now_s)) / self.per_s

    def _tokens_at(self, now_s: float) -> float:
        return min(self._most, self._tokens + (now_s - self._at_s) * self.per_s)


class Retries:
    """Sub-messages that wait for their next attempt by when they are due, and their lanes likewise.

    Of those due at once, the one that came first is the first.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, SubMessage, bool, bool]] = []
        self._ties = count()
        self._waiting: dict[SubMessage, int] = {}  # by the tie of the entry that counts
        self.started = 0  # how many attempts have come of it

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, sub: SubMessage) -> bool:
        return sub in self._waiting

    @property
    def due_s(self) -> float | None:
        """Time at which the first of them is due."""
        while self._heap and self._waiting.get(self._heap[0][2]) != self._heap[0][1]:
            heappop(self._heap)  # removed
        return self._heap[0][0] if self._heap else None

    def push(
        self, sub: SubMessage, at_s: float, *, requested: bool = False, counts: bool = True
    ) -> None:
        """Add one; ``requested``: the handler wants this time; ``counts``: as another attempt."""
        self._waiting[sub] = tie = next(self._ties)
        heappush(self._heap, (at_s, tie, sub, requested, counts))

    def remove(self, sub: SubMessage) -> bool:
        """Remove one that gets no other attempt; return whether it waited."""
        return self._waiting.pop(sub, None) is not None

    def hurry(self, now_s: float) -> None:
        """Makes those due that wait only because they failed."""
        self._heap = [
            (at_s if requested else min(at_s, now_s), tie, sub, requested, counts)
            for at_s, tie, sub, requested, counts in self._heap
        ]
        heapify(self._heap)

    def pop(self, now_s: float | None = None) -> SubMessage | None:
        """The first of them that is due; without a time, the first of all."""
        due_s = self.due_s
        if due_s is None or (now_s is not None and due_s > now_s):
            return None
        _, _, sub, _, counts = heappop(self._heap)
        del self._waiting[sub]
        self.started += counts
        return sub


@dataclass(eq=False)
class Admission:
    """Stands between workers and dispatcher. ``succeeded`` is called with each success while the
    policy wants to know, ``outage_over`` when a probe succeeds."""

    dispatcher: Dispatcher
    retries: Retries
    policy: FailurePolicy
    rate: Rate | None
    clock: Callable[[], float]
    _: KW_ONLY
    succeeded: Callable[[SubMessage], None]
    outage_over: Callable[[], None]

    def __post_init__(self) -> None:
        self.lanes = self.dispatcher.lanes
        self._breaker = self.policy.breaker
        self.paused = self.checks = False
        self.update()

    def update(self) -> None:
        """Check each start from now on, or none, as rate, pause and policy demand."""
        self.checks = self.rate is not None or self.policy.needs_successes or self.paused

    @property
    def ready(self) -> int:
        """Sub-messages that could start now."""
        if not self.checks:
            return self.dispatcher.ready
        now_s, waiting = self.clock(), self._waiting
        if not waiting or (self._breaker.probe_at_s or now_s) > now_s:
            return 0
        return waiting if self.rate is None else min(waiting, self.rate.allowed(now_s))

    @property
    def next_at_s(self) -> float | None:
        """Time of the next check; None when that depends on something else."""
        rate_at_s = None if self.rate is None else self.rate.next_at_s(self.clock())
        times = [at_s for at_s in (self._breaker.probe_at_s, rate_at_s) if at_s is not None]
        return max(times, default=None) if self._waiting else None

    @property
    def _waiting(self) -> int:
        """Sub-messages that could start, if it were time for them."""
        if self.paused:
            return 0
        ready = self.dispatcher.ready
        if not self._breaker.is_open:
            return ready
        none_is_under_way = self._breaker.probe_at_s is not None
        return min(1, ready + len(self.retries)) if none_is_under_way else 0

    def take(self) -> SubMessage | None:
        """Take the dispatcher's next sub-message, when one may start."""
        if not self.checks:
            return self.dispatcher.take()
        if not self.ready:
            return None
        if self._breaker.is_open:
            self._offer_tried()
        sub = self.dispatcher.take()
        if sub is None:
            return None
        sub.started_at = self.policy.suspicion.failed_calls
        if self._breaker.is_open:
            self._breaker.start_probe(sub)
        if self.rate is not None:
            self.rate.start(self.clock())
        return sub

    def _offer_tried(self) -> None:
        # Where lanes have something untried as well, probes take turns.
        if not self.dispatcher.ready or self._breaker.prefers_tried:
            sub = self.retries.pop()
            if sub is not None:
                self.dispatcher.release(sub)

    def take_next_in_lane(self, sub: SubMessage) -> SubMessage | None:
        """Take the next sub-message of a lane, when one more may start."""
        if not self.checks:
            return self.dispatcher.take_next_in_lane(sub)
        if self._breaker.is_open or self.paused:
            return None
        if self.rate is not None:
            now_s = self.clock()
            if not self.rate.allowed(now_s):
                return None
            self.rate.start(now_s)
        follower = self.dispatcher.take_next_in_lane(sub)
        follower.started_at = self.policy.suspicion.failed_calls
        return follower

    def finish(self, sub: SubMessage) -> None:
        self.dispatcher.finish(sub)
        if not self.checks:
            return
        if self._breaker.close_if_probe(sub):
            self.outage_over()
        elif self.policy.needs_successes:
            self.succeeded(sub)

    def finish_and_take(self, sub: SubMessage) -> SubMessage | None:
        if self.checks or self.dispatcher.barrier_queues:
            self.finish(sub)
            return self.take()
        message = sub.message  # as the dispatcher does, without another call
        message.ledger.finish(message, sub.index)
        return self.lanes.finish_and_take(sub)
