"""The meter: measures a running drain and makes the status that drainer shows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from heapq import nlargest
from itertools import accumulate
from math import exp, log, sqrt
from random import Random
from time import monotonic
from typing import Any, NamedTuple

from drainer.core.dispatch import Dispatcher
from drainer.core.lanes import HOT_WAITING
from drainer.core.remainder import CHANCE, Remainder, sure_share
from drainer.model.claims import Stream
from drainer.model.latency import PERCENTILES, Latency
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Counts
from drainer.model.status import (
    HELD_BACK_MOST,
    HOTTEST,
    NO_LOAD,
    AutoStatus,
    EngineStatus,
    HeldBack,
    LimitStatus,
    Load,
    PartitionStatus,
    ProgressStatus,
    Status,
    TimingStatus,
)
from drainer.policy.concurrency_limit import ConcurrencyLimit
from drainer.text.mask import short_key

WINDOW_S = 5.0  # The current rate is the mean over this time.
# The load of the processor is the mean over this many measurements, which are half a second apart.
# If they span less than LOAD_S, the load is not known.
LOAD_LOOKS, LOAD_S = 11, 0.25
# The estimate uses a longer window than the rate, because an estimate that jumps does not help.
ETA_WINDOW_S, MINUTE_S = 15.0, 60.0
BUSY_LANE = 0.2  # A lane is busy if it does this share of the calls that there is time for.
QUICKER_MOST = 2.0  # After an outage, the last minute says little of how long the rest takes.
# There is no estimate before this many seconds of work, because the first calls that end show
# little of the pace.
ETA_FROM_S = 2.0
ETA_CALLS = 4  # The window is long enough for each worker to make this many calls.
# A watermark stands if it has not moved for this long while others finish.
STANDS_S = 5.0
KEY_SHOWN = 80  # Characters of a sub-key in a status.
MEAN_S = 0.5  # Calls in flight are averaged over the time between two statuses.

# Once EACH_MOST attempts were measured since the last look, only one of SPARSE attempts is measured
# on average until the next look.
EACH_MOST, SPARSE = 500, 32
START_CALLS = 20  # The latency at the start is that of this many calls, and of RECENT_S, or more.
RECENT_S = 10.0  # The recent latency is that of this many seconds.
LEAST_S = 1e-6  # A shorter latency counts as this one.
BUCKET = log(1.01)  # The step from one bucket to the next.

Buckets = Counter[int]  # By number, attempts that took about exp(BUCKET * number) seconds.


class Latencies:
    """The latencies of the handler in one run, measured on a sample of the attempts that return.

    Each worker measures an attempt, and ``record`` tells it which one to measure next. While there
    are few attempts, each is measured. If there are many, the gap between two of them is random, so
    that no rhythm of the backlog decides which attempts are seen. An attempt that is measured also
    stands for those that were passed over before it.

    A latency is the time for which a worker is busy: from the call of ``handle`` until the worker
    has its result. An attempt that fails, or is cancelled because it takes too long, has none.
    Latencies are counted in buckets whose bounds grow by 1%, so they are right within 0.5%.

    Any thread may call ``record``. All other methods are called from one thread. What was recorded
    counts from the next ``look`` on, which is called about twice a second.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._draw = Random(SPARSE).random  # With a seed, so that a run can be repeated.
        self._new: list[tuple[float, float, int]] = []  # What was recorded since the last look.
        self._spent_s = 0.0  # Processor seconds of all attempts that ``_all`` stands for.
        self._all = Buckets()
        self._recent: deque[tuple[float, Buckets]] = deque()
        self._in_recent = Buckets()  # The sum of ``_recent``.

    def record(self, took_s: float, gap: int, spent_s: float = 0.0) -> int:
        """Count what a worker has measured, ``gap`` attempts after the one that it measured before.

        Return the gap to the attempt that it measures next. 0 stands for the very next one, too,
        and for a worker's first.
        """
        self._new.append((took_s, spent_s, gap or 1))
        return 0 if len(self._new) < EACH_MOST else 1 + int(self._draw() * (2 * SPARSE - 1))

    def overall(self) -> Latency | None:
        """Return the latency of the whole run up to now; None until an attempt returned."""
        found, count = _latency(self._all), max(1, self._all.total())
        return None if found is None else replace(found, processor_s=self._spent_s / count)

    def recent(self) -> Latency | None:
        """Return the latency of the last ten seconds or so; None if no attempt returned in them."""
        return _latency(+self._in_recent)

    def look(self) -> None:
        """Count what was recorded since the last look."""
        now_s, found = self._clock(), Buckets()
        measured = self._new[: len(self._new)]  # Threads append to it meanwhile.
        del self._new[: len(measured)]
        for took_s, spent_s, weight in measured:
            self._spent_s += weight * spent_s
            found[round(log(max(LEAST_S, took_s)) / BUCKET)] += weight
        if found:
            self._all.update(found)
            self._recent.append((now_s, found))
            self._in_recent.update(found)
        while self._recent and self._recent[0][0] < now_s - RECENT_S:
            self._in_recent.subtract(self._recent.popleft()[1])


def _latency(buckets: Buckets) -> Latency | None:
    if not buckets:
        return None
    numbers, count = sorted(buckets), buckets.total()
    reached = list(accumulate(buckets[number] for number in numbers))
    values_s = [exp(BUCKET * number) for number in numbers]
    mean_s = sum(exp(BUCKET * number) * buckets[number] for number in numbers) / count
    ranks = (bisect_left(reached, n * count / (PERCENTILES - 1)) for n in range(PERCENTILES))
    return Latency.of(count, mean_s, [values_s[rank] for rank in ranks])


class _Moment(NamedTuple):
    at_s: float
    finished: int  # The number of finished sub-messages.
    handled: int  # The number of finished sub-messages that took a call.
    read: int  # The number of offsets that were read.
    longest: int  # The sub-messages of the longest lane that were read.
    to_come: float  # An estimate of those that were not read yet.


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
        self._p50_at_start_s: float | None = None
        # By partition or stream, the watermark and the time since which it has not moved.
        self._marks: dict[int, tuple[int, float]] = {}

    @abstractmethod
    def counts(self) -> tuple[Counts, Counts]:
        """Return the counts of messages and of sub-messages."""

    @abstractmethod
    def overall(self) -> Latency | None:
        """Return the handler's latency in this run; None before the first call has ended."""

    def _status(
        self,
        plan: OffsetPlan,
        left: Remainder,
        *,
        starved: bool,
        limits: LimitStatus,
        partitions: tuple[PartitionStatus, ...],
        timing: TimingStatus,
        engine: EngineStatus | None = None,
    ) -> Status:
        messages, subs = self.counts()
        now, moments = self._clock(), self._moments
        rate_now = self._rates(WINDOW_S)[0]
        _, pace, reading = self._rates(self._window_s)
        if (rate := plan.terms.failures.rate) is not None and not self._folds:
            pace = min(pace, rate)  # Before the limit was lowered, the drain may have been faster.
        of_minute, eta_s, lane_s = self._rates(MINUTE_S)[1], None, None
        if moments and moments[-1].at_s - moments[0].at_s >= ETA_FROM_S:
            eta_s = time_left(left, pace, reading, starved=starved)
        latency = timing.latency_recent or timing.latency
        if eta_s is not None and latency is not None:
            if pace and not self._folds:
                in_lane = moments[-1].longest + moments[-1].to_come
                lane_s = self._lane_latency_s(latency) * in_lane
            # Of n calls, the last one takes about as long as n of n + 1 calls at most.
            calls = limits.workers_busy
            last_s = latency.percentiles_s[min(99, 100 * calls // (calls + 1))]
            eta_s = max(eta_s, lane_s or 0.0, last_s if calls else 0.0)
        elapsed_s = now - self._started
        return Status(
            topic=plan.terms.topic,
            group=plan.terms.group,
            plan=self._plan_path,
            progress=ProgressStatus(
                messages,
                subs,
                partitions,
                plan.account.classes.statuses(plan.account.claims),
                rate_now=rate_now,
                rate_average=(subs.finished - self._finished_before) / max(elapsed_s, 1e-9),
                eta_s=eta_s,
                quicker=max(1.0, min(QUICKER_MOST, pace / (of_minute or 1.0))),
                lane_s=lane_s,
            ),
            limits=limits,
            timing=replace(timing, elapsed_s=elapsed_s, p50_at_start_s=self._p50_at_start_s),
            engine_status=engine,
        )

    def _measure(
        self, left: Remainder, running: int, marks: Mapping[int, int], longest: int, to_come: float
    ) -> None:
        """Note the progress of the run, with ``running`` sub-messages in the handler.

        ``marks`` are the watermarks by partition or stream. Those that nothing holds back may be
        left out. ``longest`` and ``to_come`` are as in a moment.
        """
        moments, before, now_s = self._moments, self._marks, self._clock()
        self._marks = {
            number: before[number] if before.get(number, (-1,))[0] == mark else (mark, now_s)
            for number, mark in marks.items()
        }
        if not running and [each.handled for each in moments] == [left.handled]:
            # No call has begun yet, and the time before the first call does not count for the pace.
            moments.clear()
        window_s = self._window_s
        finished = self.counts()[1].finished
        moments.append(_Moment(now_s, finished, left.handled, left.offsets_read, longest, to_come))
        while moments[0].at_s < now_s - max(window_s, MINUTE_S):
            moments.popleft()
        if self._p50_at_start_s is None and now_s - self._started >= RECENT_S:
            latency = self.overall()
            if latency is not None and latency.count >= START_CALLS:
                self._p50_at_start_s = latency.p50_s

    def _lane_latency_s(self, latency: Latency) -> float:
        """Return the latency of calls in the longest lane, from how fast this lane becomes shorter.

        It is that of all calls if the difference may be chance, or if it is not known: while
        something is read, the lane may grow, and a lane that was mostly idle shows nothing.
        """
        mean_s, now = latency.mean_s, self._moments[-1]
        since = next(each for each in self._moments if each.read == now.read)
        took_s, steps = now.at_s - since.at_s, since.longest - now.longest
        if steps <= BUSY_LANE * took_s / mean_s:
            return mean_s
        # In this time there may be so many calls that only by chance no more than ``steps`` ended,
        # and one more is under way.
        variance = sum((each - mean_s) ** 2 for each in latency.percentiles_s) / PERCENTILES
        chance = CHANCE * sqrt(variance) / mean_s / 2
        return max(mean_s, took_s / (chance + sqrt(steps + 1 + chance**2)) ** 2)

    @property
    def _standing(self) -> dict[int, float]:
        """How long each watermark has stood that stands, if others finish meanwhile."""
        if not self._rates(WINDOW_S)[0]:
            return {}
        now_s = self._clock()
        for_s = {number: now_s - since_s for number, (_, since_s) in self._marks.items()}
        return {number: seconds for number, seconds in for_s.items() if seconds >= STANDS_S}

    @property
    def _window_s(self) -> float:
        """Seconds over which the pace is averaged. Each worker can make a few calls in them."""
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
        finished, handled, read = (b - a for a, b in zip(since[1:4], now[1:4], strict=True))
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
        # Each entry is a time, the number of sub-messages in the handler, and that of busy workers.
        self._in_flight: deque[tuple[float, int, int]] = deque()
        self._processor = processor
        self._spent = deque([(self._clock(), *processor())], LOAD_LOOKS)

    def measure(self, running: int, *, is_held_up: bool = False) -> None:
        """Take a measurement, with ``running`` sub-messages in the handler.

        Call it twice a second. ``is_held_up`` is whether nothing may begin, as in an outage. Such a
        time says nothing about how fast the drain will go on, so it does not count for the pace.
        """
        if is_held_up and not running:
            self._moments.clear()
        self._latencies.look()
        self._spent.append((self._clock(), *self._processor()))
        dispatcher, to_come = self._dispatcher, 0.0
        left = dispatcher.remainder()
        # All lanes are looked at only while few sub-messages wait. While many do, a lane that is
        # too short to count as hot takes no longer than the rest of the drain.
        few = left.waiting <= HOT_WAITING * self.concurrency
        longest, first = dispatcher.lanes.longest(among_all=few)
        if first is not None:
            ledger = dispatcher.ledgers[first.message.origin.stream]
            others = (left.waiting - longest) / max(1, len(dispatcher.lanes) - 1)
            beyond = (ledger.end - ledger.position) / (ledger.position - first.message.offset)
            to_come = sure_share(longest, others) * longest * beyond
        self._measure(left, running, dispatcher.holders, longest, to_come)

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

    def status(self, plan: OffsetPlan, running: int, busy: int) -> Status:
        """Return the status of the drain, with ``running`` sub-messages in the handler.

        ``busy`` is the number of busy workers.
        """
        lanes, watermarks = self._dispatcher.lanes, self._dispatcher.watermarks
        parts = plan.account.partitions
        left = self._dispatcher.remainder()
        return self._status(
            plan,
            left,
            starved=left.waiting < self.concurrency,
            limits=LimitStatus(
                in_flight=running,
                busy=busy,
                concurrency=self.concurrency,
                lanes=len(lanes),
                lanes_ready=lanes.ready,
                behind_barriers=self._dispatcher.behind_barriers,
                hottest=tuple(
                    (short_key(key, KEY_SHOWN), waiting) for key, waiting in lanes.hottest(HOTTEST)
                ),
                longest=self._moments[-1].longest if self._moments else 0,
                held_back=self._held_back(),
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
            timing=TimingStatus(latency=self.overall(), latency_recent=self._latencies.recent()),
        )

    def _held_back(self) -> tuple[HeldBack, ...]:
        standing, found = self._standing, []
        # Of several streams of a partition, the one that is least far holds the watermark back.
        by_offset = sorted(standing, key=self._marks.__getitem__, reverse=True)
        last = {Stream(number).partition: number for number in by_offset}
        longest = nlargest(HELD_BACK_MOST, last.items(), key=lambda each: standing[each[1]])
        for partition, number in longest:
            held = HeldBack(partition, self._marks[number][0], None, 0, standing[number])
            if (place := self._dispatcher.held_back(number)) is not None:
                key = short_key(place.key, KEY_SHOWN)
                held = replace(held, key=key, before=place.before, is_ready=place.is_ready)
            found.append(held)
        return tuple(sorted(found, key=lambda each: each.is_ready))

    def overall(self) -> Latency | None:
        return self._latencies.overall()

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
