"""The meter: turns a running drain into the status that is shown, with its rates and caps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

from drainer.core.dispatch import Dispatcher
from drainer.core.remainder import Remainder
from drainer.engine.latencies import Latencies
from drainer.model.latency import Latency
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Counts
from drainer.model.status import (
    NO_LOAD,
    AutoStatus,
    EngineStatus,
    LimitStatus,
    Load,
    PartitionStatus,
    ProgressStatus,
    Status,
    TimingStatus,
)
from drainer.model.unhandled import RuleStatus
from drainer.policy.concurrency_limit import ConcurrencyLimit

HOTTEST = 5
WINDOW_S = 5.0  # what "now" means for the rate
LOAD_LOOKS, LOAD_S = 11, 0.25  # for the load of a processor: half a second apart; at least so long
ETA_WINDOW_S = 15.0  # calmer: an estimate that jumps is no help
ETA_FROM_S = 2.0  # of work: the first calls to end show little of the pace
ETA_CALLS = 4  # that one worker makes in that time, at least
MEAN_S = 0.5  # what calls in flight are averaged over: the time between two statuses


class _Moment(NamedTuple):
    at_s: float
    finished: int  # sub-messages
    handled: int  # of these, those that took a call
    read: int  # offsets


class MetricsSampler(ABC):
    """Measurement of one run.

    It measures about twice a second; a status only reads what was measured.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        buffer_bytes: int,
        plan_path: str,
        folds: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Start; a handler that ``folds`` takes several sub-messages of a lane in a call."""
        self.concurrency = concurrency
        self._buffer_bytes = buffer_bytes
        self._plan_path = plan_path
        self._folds = folds
        self._clock = clock
        self._finished_before = self.counts()[1].finished
        self._started = clock()
        self._moments: deque[_Moment] = deque()

    @abstractmethod
    def counts(self) -> tuple[Counts, Counts]:
        """The account of messages and of sub-messages."""

    @abstractmethod
    def overall(self) -> Latency | None:
        """The handler's latency in this run."""

    @abstractmethod
    def rules(self) -> RuleStatus: ...

    def _status(
        self,
        plan: OffsetPlan,
        left: Remainder,
        *,
        starved: bool,
        limits: LimitStatus,
        partitions: tuple[PartitionStatus, ...],
        latency_recent: Latency | None,
        engine: EngineStatus | None = None,
    ) -> Status:
        messages, subs = self.counts()
        now, latency, moments = self._clock(), self.overall(), self._moments
        rate_now, pace_now, _ = self._rates(WINDOW_S)
        _, pace, reading = self._rates(self._window_s)
        eta_s = lane_s = None
        if moments and moments[-1].at_s - moments[0].at_s >= ETA_FROM_S:
            eta_s = time_left(left, pace, reading, starved=starved)
        if eta_s is not None and pace_now and not self._folds:
            # What waits in one lane goes one by one (Little's law).
            deepest = max((waiting for _, waiting in limits.hottest), default=0)
            lane_s = deepest * limits.running / pace_now
            eta_s = max(eta_s, lane_s)
        elapsed_s = now - self._started
        return Status(
            topic=plan.terms.topic,
            group=plan.terms.group,
            plan_path=self._plan_path,
            progress=ProgressStatus(
                messages,
                subs,
                partitions,
                plan.account.class_statuses(),
                rate_now=rate_now,
                rate_average=(subs.finished - self._finished_before) / max(elapsed_s, 1e-9),
                eta_s=eta_s,
                lane_s=lane_s,
            ),
            limits=limits,
            rules=self.rules(),
            timing=TimingStatus(elapsed_s, latency=latency, latency_recent=latency_recent),
            engine=engine,
        )

    def _measure(self, left: Remainder, running: int) -> None:
        """Note how far the run is by now, with so many sub-messages in the handler."""
        moments = self._moments
        if not running and [each.handled for each in moments] == [left.handled]:
            moments.clear()  # Nothing has begun yet: the time before that is not part of the pace.
        now_s, window_s = self._clock(), self._window_s
        finished = self.counts()[1].finished
        moments.append(_Moment(now_s, finished, left.handled, left.offsets_read))
        while moments[0].at_s < now_s - window_s:
            moments.popleft()

    @property
    def _window_s(self) -> float:
        """Seconds over which the pace is averaged: a few calls of each worker at least."""
        latency = self.overall()
        return max(ETA_WINDOW_S, ETA_CALLS * latency.mean_s if latency else 0.0)

    def _rates(self, window_s: float) -> tuple[float, float, float]:
        """Return rates per second of so many seconds before the last measurement: sub-messages that
        finished, those that took a call, and offsets that were read."""
        if not self._moments:
            return 0.0, 0.0, 0.0
        now = self._moments[-1]
        since = next(each for each in self._moments if each.at_s >= now.at_s - window_s)
        took_s = max(now.at_s - since.at_s, 1e-9)
        finished, handled, read = (b - a for a, b in zip(since[1:], now[1:], strict=True))
        return finished / took_s, handled / took_s, read / took_s


class LocalSampler(MetricsSampler):
    """Measurement of a run in this process."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        latencies: Latencies,
        *,
        processor: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0),
        **named: Any,
    ) -> None:
        """``processor`` gives processor seconds that were used, and that were waited for."""
        self._dispatcher = dispatcher
        self._latencies = latencies
        super().__init__(**named)
        # When, sub-messages in the handler, busy workers.
        self._in_flight: deque[tuple[float, int, int]] = deque()
        self._processor = processor
        self._spent = deque([(self._clock(), *processor())], LOAD_LOOKS)

    def measure(self, running: int) -> None:
        """Measure about twice a second, with so many sub-messages in the handler."""
        self._latencies.look()
        self._spent.append((self._clock(), *self._processor()))
        self._measure(self._dispatcher.remainder(), running)

    def sample(self, in_flight: int, busy: int) -> None:
        """Notes how many sub-messages are in the handler, and how many workers have something to
        do, several times between two statuses."""
        now = self._clock()
        self._in_flight.append((now, in_flight, busy))
        while self._in_flight[0][0] <= now - MEAN_S:
            self._in_flight.popleft()

    @property
    def in_flight(self) -> int:
        """Number of sub-messages in the handler, on average since about the last status.

        At a single moment there may be few, though there are many most of the time: once workers
        have kept the event loop too long, they end what they are at before any takes another.
        """
        return self._mean(1)

    @property
    def busy(self) -> int:
        """Number of busy workers, on average since about the last status."""
        return self._mean(2)

    def _mean(self, column: int) -> int:
        looks = self._in_flight
        return round(sum(look[column] for look in looks) / max(1, len(looks)))

    @property
    def load(self) -> Load:
        """Load of the processor in the last few seconds."""
        seconds, used_s, waited_s = (
            now - before for before, now in zip(self._spent[0], self._spent[-1], strict=True)
        )
        return Load(used_s / seconds, waited_s / seconds) if seconds > LOAD_S else NO_LOAD

    def status(self, plan: OffsetPlan, running: int) -> Status:
        """Status with so many sub-messages in the handler."""
        lanes, watermarks = self._dispatcher.lanes, self._dispatcher.watermarks
        parts = plan.account.partitions
        left = self._dispatcher.remainder()
        return self._status(
            plan,
            left,
            starved=left.waiting < self.concurrency,
            limits=LimitStatus(
                running=running,
                busy=self.busy,
                concurrency=self.concurrency,
                lanes=len(lanes),
                lanes_ready=lanes.ready,
                hottest=tuple(lanes.hottest(HOTTEST)),
                buffered_bytes=self._dispatcher.pending_bytes,
                buffer_bytes=self._buffer_bytes,
                processor=self.load,
            ),
            partitions=tuple(
                PartitionStatus(
                    partition=number,
                    start=parts[number].start,
                    end=ledger.end,
                    position=ledger.position,
                    watermark=watermarks[number],
                    committed=parts[number].committed,
                    messages_finished=self._dispatcher.messages_passed(number),
                    sub_messages_finished=self._dispatcher.subs_finished(number),
                    sub_messages_left=left.of_partition(number, ledger.tally()[1].pending),
                )
                for number, ledger in self._dispatcher.ledgers.items()
            ),
            latency_recent=self._latencies.recent(),
        )

    def overall(self) -> Latency | None:
        return self._latencies.overall()

    def rules(self) -> RuleStatus:
        return self._dispatcher.rule_filter.status()

    def counts(self) -> tuple[Counts, Counts]:
        return self._dispatcher.tally()


def auto_status(search: ConcurrencyLimit) -> AutoStatus:
    return AutoStatus(search.limit, search.most, search.found, search.searching, search.why)


def time_left(left: Remainder, pace: float, reading: float, *, starved: bool) -> float | None:
    """Estimate how many seconds a run has to go; None while nothing moves.

    Args:
        pace: sub-messages that went through the handler, per second.
        reading: offsets that were read, per second.
        starved: whether workers wait for what is read. Then reading takes the time, and hardly
            any sub-messages may be for the handler.
    """
    if left.offsets_unread and reading and (starved or not pace):
        return left.offsets_unread / reading
    if not pace or left.unread is None:
        return None
    return (left.waiting + left.share * sum(left.unread.values())) / pace
