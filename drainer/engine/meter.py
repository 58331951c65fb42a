"""The meter: turns a running drain into the status that is shown, with its rates and caps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from time import monotonic

from drainer.core.dispatch import Dispatcher
from drainer.core.latency import Latency
from drainer.core.plan import OffsetPlan
from drainer.core.progress import Counts, Passed
from drainer.engine.latencies import Latencies
from drainer.engine.status import (
    NO_LOAD,
    CapStatus,
    EngineStatus,
    Load,
    PartitionStatus,
    RuleStatus,
    Status,
)
from drainer.policy.rate_cap import Cap, RateLimiter

HOTTEST = 5
WINDOW_S = 5.0  # what "now" means for the rate
ETA_WINDOW_S = 30.0  # calmer: an estimate that jumps is no help
LOAD_LOOKS, LOAD_S = 11, 0.25  # for the load of a processor: half a second apart; at least so long
MEAN_S = 0.5  # what calls in flight are averaged over: the time between two statuses


class Measures(ABC):
    """What an engine measures of one run; it is asked about twice a second."""

    def __init__(
        self,
        finished: int,
        *,
        concurrency: int,
        buffer_bytes: int,
        plan_path: str,
        clock: Callable[[], float],
    ) -> None:
        """``finished`` sub-messages were so before the run."""
        self.concurrency = concurrency
        self._buffer_bytes = buffer_bytes
        self._plan_path = plan_path
        self._clock = clock
        self._finished_before = finished
        self._started = clock()
        self._samples: deque[tuple[float, int, int]] = deque()  # when, sub-messages, passed

    @abstractmethod
    def counts(self) -> tuple[Counts, Counts]:
        """The account of messages and of sub-messages."""

    def passed(self, messages: Counts) -> Passed:
        """How far it is; in messages, where those are all that is known of what comes."""
        return Passed(messages.finished, messages.pending)

    @abstractmethod
    def overall(self) -> Latency | None:
        """The handler's latency in this run."""

    @abstractmethod
    def rules(self) -> RuleStatus: ...

    def _status(
        self,
        plan: OffsetPlan,
        partitions: Iterable[PartitionStatus],
        *,
        running: int,
        lanes: int,
        lanes_ready: int,
        hottest: Iterable[tuple[Hashable, int]],
        buffered_bytes: int,
        latency_recent: Latency | None,
        engine: EngineStatus | None = None,
    ) -> Status:
        parts, deepest = tuple(partitions), tuple(hottest)
        messages, subs = self.counts()
        passed = self.passed(messages)
        now = self._clock()
        elapsed_s = now - self._started
        rate_now = self._rate(now, WINDOW_S, subs.finished, 1)
        pace = self._rate(now, ETA_WINDOW_S, passed.done, 2)
        self._samples.append((now, subs.finished, passed.done))
        while self._samples[0][0] < now - ETA_WINDOW_S:
            self._samples.popleft()
        eta_s: float | None = None
        lane_s: float | None = None
        if pace:
            unread = sum(part.end - part.position for part in parts)  # some may be holes
            longest = max((waiting for _, waiting in deepest), default=0)
            # What waits in one lane goes one by one.
            lane_s = lane_time_s(running, rate_now, longest)
            eta_s = max((unread * passed.each + passed.left) / pace, lane_s or 0.0)
        return Status(
            topic=plan.topic,
            group=plan.group,
            elapsed_s=elapsed_s,
            messages=messages,
            sub_messages=subs,
            rate_now=rate_now,
            rate_average=(subs.finished - self._finished_before) / max(elapsed_s, 1e-9),
            eta_s=eta_s,
            lane_s=lane_s,
            running=running,
            concurrency=self.concurrency,
            lanes=lanes,
            lanes_ready=lanes_ready,
            hottest=deepest,
            buffered_bytes=buffered_bytes,
            buffer_bytes=self._buffer_bytes,
            plan_path=self._plan_path,
            partitions=parts,
            latency=self.overall(),
            latency_recent=latency_recent,
            rules=self.rules(),
            engine=engine,
        )

    def _rate(self, now: float, window_s: float, count: int, column: int) -> float:
        for sample in self._samples:
            if sample[0] >= now - window_s:
                return (count - sample[column]) / max(now - sample[0], 1e-9)
        return 0.0


class Meter(Measures):
    """Measures a run in this process."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        latencies: Latencies,
        *,
        concurrency: int,
        buffer_bytes: int,
        plan_path: str,
        clock: Callable[[], float],
        processor: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0),
    ) -> None:
        """``processor`` gives processor seconds that were used, and that were waited for."""
        self._dispatcher = dispatcher
        self._latencies = latencies
        super().__init__(
            self.counts()[1].finished,
            concurrency=concurrency,
            buffer_bytes=buffer_bytes,
            plan_path=plan_path,
            clock=clock,
        )
        # When, sub-messages in the handler, busy workers.
        self._in_flight: deque[tuple[float, int, int]] = deque()
        self._processor = processor
        self._spent = deque([(clock(), *processor())], LOAD_LOOKS)

    def look(self, in_flight: int, busy: int) -> None:
        """Notes how many sub-messages are in the handler, and how many workers have something to
        do, several times between two statuses."""
        now = self._clock()
        self._in_flight.append((now, in_flight, busy))
        while self._in_flight[0][0] <= now - MEAN_S:
            self._in_flight.popleft()

    @property
    def in_flight(self) -> int:
        """How many sub-messages are in the handler, on average since about the last status.

        At a single moment there may be few, though there are many most of the time: once workers
        have kept the event loop too long, they end what they are at before any takes another.
        """
        return self._mean(1)

    @property
    def busy(self) -> int:
        """How many workers are busy, on average like that."""
        return self._mean(2)

    def _mean(self, column: int) -> int:
        looks = self._in_flight
        return round(sum(look[column] for look in looks) / max(1, len(looks)))

    def load(self) -> Load:
        """That of the last few seconds; asked for with each status."""
        self._spent.append((self._clock(), *self._processor()))
        seconds, used_s, waited_s = (
            now - before for before, now in zip(self._spent[0], self._spent[-1], strict=True)
        )
        return Load(used_s / seconds, waited_s / seconds) if seconds > LOAD_S else NO_LOAD

    def status(self, plan: OffsetPlan, running: int) -> Status:
        """``running`` sub-messages are in the handler."""
        lanes, watermarks = self._dispatcher.lanes, self._dispatcher.watermarks
        parts = plan.partitions
        return self._status(
            plan,
            (
                PartitionStatus(
                    partition=number,
                    start=parts[number].start,
                    end=ledger.end,
                    position=ledger.position,
                    watermark=watermarks[number],
                    committed=parts[number].committed,
                    messages_finished=self._dispatcher.messages_passed(number),
                )
                for number, ledger in self._dispatcher.ledgers.items()
            ),
            running=running,
            lanes=len(lanes),
            lanes_ready=lanes.ready,
            hottest=lanes.hottest(HOTTEST),
            buffered_bytes=self._dispatcher.pending_bytes,
            latency_recent=self._latencies.recent(),
        )

    def overall(self) -> Latency | None:
        return self._latencies.overall()

    def rules(self) -> RuleStatus:
        return RuleStatus.of(self._dispatcher.rule_filter)

    def counts(self) -> tuple[Counts, Counts]:
        return self._dispatcher.tally()

    def passed(self, messages: Counts) -> Passed:
        return self._dispatcher.passed()


def cap_status(
    pace: RateLimiter | None, elapsed_s: float, *, over: bool = False
) -> CapStatus | None:
    """Of a flow of this process, or of all that has flowed once it is ``over``; None when it is not
    capped, or nothing has flowed."""
    if pace is None or not pace.flowed:
        return None
    cap = pace.overall if over else pace.cap
    return capped(cap, pace.flowed, elapsed_s, binds=pace.binds(monotonic()))


def capped(cap: Cap, flowed: float, elapsed_s: float, *, binds: bool) -> CapStatus:
    """Of a flow of which so many messages have come."""
    return CapStatus(
        messages_per_s=cap.messages_per_s,
        bytes_per_s=cap.bytes_per_s,
        message_bytes=cap.message_bytes,
        average_per_s=flowed / elapsed_s if elapsed_s > 0 else 0.0,
        binds=binds,
    )


def lane_time_s(running: int, rate: float, waiting: int) -> float | None:
    """What ``waiting`` sub-messages of one lane take, one after the other, when so many that are in
    the handler make that rate (Little's law); None when nothing moves."""
    return waiting * running / rate if rate > 0 else None
