"""The meter: measures a running drain and makes the status that drainer shows."""

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
    HOTTEST,
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
from drainer.text.mask import short_key

WINDOW_S = 5.0  # The current rate is the mean over this time.
# The load of the processor is the mean over this many measurements, which are half a second apart.
# If they span less than LOAD_S, the load is not known.
LOAD_LOOKS, LOAD_S = 11, 0.25
# The estimate uses a longer window than the rate, because an estimate that jumps is no help.
ETA_WINDOW_S = 15.0
# There is no estimate before this much work: the first calls that end show little of the pace.
ETA_FROM_S = 2.0
ETA_CALLS = 4  # The window is long enough for each worker to make this many calls.
KEY_SHOWN = 80  # Characters of a sub-key in a status.
MEAN_S = 0.5  # Calls in flight are averaged over the time between two statuses.


class _Moment(NamedTuple):
    at_s: float
    finished: int  # sub-messages
    handled: int  # those of the finished sub-messages that took a call
    read: int  # offsets that were read


class MetricsSampler(ABC):
    """Measures one run about twice a second, and makes its status from what was measured."""

    def __init__(
        self,
        *,
        concurrency: int,
        buffer_bytes: int,
        plan_path: str,
        folds: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Begin to measure.

        A handler that ``folds`` takes several sub-messages of a lane at once.
        """
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
        """Return the counts of messages and of sub-messages."""

    @abstractmethod
    def overall(self) -> Latency | None:
        """Return the handler's latency in this run; None before the first call has ended."""

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
            # The sub-messages of a lane are handled one after the other, so the longest lane may
            # take longer than the rest. By Little's law, a call takes running / pace_now seconds.
            deepest = max((waiting for _, waiting in limits.hottest), default=0)
            lane_s = deepest * limits.in_flight / pace_now
            eta_s = max(eta_s, lane_s)
        elapsed_s = now - self._started
        return Status(
            topic=plan.terms.topic,
            group=plan.terms.group,
            plan=self._plan_path,
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
            engine_status=engine,
        )

    def _measure(self, left: Remainder, running: int) -> None:
        """Note the progress of the run, with ``running`` sub-messages in the handler."""
        moments = self._moments
        if not running and [each.handled for each in moments] == [left.handled]:
            # No call has begun yet, and the time before the first call is no part of the pace.
            moments.clear()
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
        """Return three rates per second, over the ``window_s`` before the last measurement.

        They are the rates of finished sub-messages, of those that took a call, and of offsets read.
        """
        if not self._moments:
            return 0.0, 0.0, 0.0
        now = self._moments[-1]
        since = next(each for each in self._moments if each.at_s >= now.at_s - window_s)
        took_s = max(now.at_s - since.at_s, 1e-9)
        finished, handled, read = (b - a for a, b in zip(since[1:], now[1:], strict=True))
        return finished / took_s, handled / took_s, read / took_s


class LocalSampler(MetricsSampler):
    """Measures a run in this process."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        latencies: Latencies,
        *,
        processor: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0),
        **named: Any,
    ) -> None:
        """Begin to measure.

        ``processor`` returns the processor seconds that the process used, and those that it waited
        for.
        """
        self._dispatcher = dispatcher
        self._latencies = latencies
        super().__init__(**named)
        # Each entry has a time, the number of sub-messages in the handler, and of busy workers.
        self._in_flight: deque[tuple[float, int, int]] = deque()
        self._processor = processor
        self._spent = deque([(self._clock(), *processor())], LOAD_LOOKS)

    def measure(self, running: int) -> None:
        """Take a measurement, with ``running`` sub-messages in the handler.

        Call it twice a second.
        """
        self._latencies.look()
        self._spent.append((self._clock(), *self._processor()))
        self._measure(self._dispatcher.remainder(), running)

    def sample(self, in_flight: int, busy: int) -> None:
        """Note how many sub-messages are in the handler, and how many workers are busy.

        Call this several times between two statuses.
        """
        now = self._clock()
        self._in_flight.append((now, in_flight, busy))
        while self._in_flight[0][0] <= now - MEAN_S:
            self._in_flight.popleft()

    @property
    def in_flight(self) -> int:
        """The mean number of sub-messages in the handler since about the last status.

        A single look may find few, although there are many most of the time: when workers have kept
        the event loop for too long, all of them end their calls before any begins another.
        """
        return self._mean(1)

    @property
    def busy(self) -> int:
        """The mean number of busy workers since about the last status."""
        return self._mean(2)

    def _mean(self, column: int) -> int:
        looks = self._in_flight
        return round(sum(look[column] for look in looks) / max(1, len(looks)))

    @property
    def load(self) -> Load:
        """The load of the processor in the last few seconds."""
        seconds, used_s, waited_s = (
            now - before for before, now in zip(self._spent[0], self._spent[-1], strict=True)
        )
        return Load(used_s / seconds, waited_s / seconds) if seconds > LOAD_S else NO_LOAD

    def status(self, plan: OffsetPlan, running: int) -> Status:
        """Return the status of the drain, with ``running`` sub-messages in the handler."""
        lanes, watermarks = self._dispatcher.lanes, self._dispatcher.watermarks
        parts = plan.account.partitions
        left = self._dispatcher.remainder()
        return self._status(
            plan,
            left,
            starved=left.waiting < self.concurrency,
            limits=LimitStatus(
                in_flight=running,
                busy=self.busy,
                concurrency=self.concurrency,
                lanes=len(lanes),
                lanes_ready=lanes.ready,
                hottest=tuple(
                    (short_key(key, KEY_SHOWN), waiting) for key, waiting in lanes.hottest(HOTTEST)
                ),
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
    """Estimate how many seconds a run still takes; None while nothing moves.

    Args:
        pace: sub-messages that went through the handler, per second.
        reading: offsets that were read, per second.
        starved: whether workers wait for messages to be read. In that case reading limits the
            drain, and perhaps hardly any sub-messages go to the handler.
    """
    if left.offsets_unread and reading and (starved or not pace):
        return left.offsets_unread / reading
    if not pace or left.unread is None:
        return None
    return (left.waiting + left.share * sum(left.unread.values())) / pace
