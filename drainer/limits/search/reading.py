"""Makes the signals of any stretch of time from the reports of all tasks of a trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from statistics import linear_regression, median

from drainer.limits.search.trial import Point, Signals

# The live view shows the signals of the last moments: at least this time and this many messages.
RUNNING_S = 1.0
RUNNING_MESSAGES = 10
# Consumers fetch in bursts, so the live view takes their lag over a longer time.
RUNNING_LAG_S = 4.0

# Brokers count as idle if their round trip is at most AT_REST times the shortest one so far, plus
# AT_REST_MS.
AT_REST = 2.0
AT_REST_MS = 5.0
# Besides, brokers count as idle only if they acknowledge at least this share of the messages.
AT_REST_PACE = 0.5

_acknowledged = attrgetter("acknowledged")


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """A task's report on its traffic. A task sends a few of them per second; counts never fall."""

    at_s: float  # The time of the report, by a clock of the task.
    order: int  # The number of the order that the task carries out.
    ready: bool  # Whether all of its producers and consumers are connected.
    acknowledged: int  # Messages that the brokers have acknowledged.
    errors: int  # Messages that were refused or timed out.
    consumed: tuple[int, ...]  # Messages that were read, by the number of the consumer group.
    busy_s: float  # Processor time of the task's process.
    # The round trip of produce requests in each sample of a client since the last report.
    round_trips_ms: tuple[float, ...] = ()
    # The time that messages waited in the client before they were sent, in each of these samples.
    queued_ms: tuple[float, ...] = ()
    samples: int = 0  # The number of samples since the last report.
    throttled: int = 0  # The number of those samples in which brokers throttled the client.
    # The number of times that the task stopped its traffic because no order came.
    silences: int = 0


class TrafficReading:
    """Keeps the reports of all tasks, and computes the groups' lag and the signals from them.

    All times are by the driver's clock. The signals do not include the brokers' own metrics.
    """

    def __init__(self, tasks: int, groups: int) -> None:
        self.tasks = tasks
        self.groups = groups
        self._latest: dict[int, TrafficReport] = {}
        self._reports: list[tuple[float, int, TrafficReport]] = []
        self._lags: list[tuple[float, tuple[int, ...]]] = []
        self._base = (0,) * groups  # How many messages each group skipped, and will never read.

    def take(self, at_s: float, task: int, report: TrafficReport) -> None:
        """Keep a report that arrived from a task at this time.

        Raises ValueError when the report is not of a known task and of all groups.
        """
        if len(report.consumed) != self.groups or not 0 <= task < self.tasks:
            raise ValueError(f"a report of task {task} with {len(report.consumed)} groups")
        self._latest[task] = report
        self._reports.append((at_s, task, report))
        self._lags.append((at_s, self.lags))

    def forget_before(self, at_s: float) -> None:
        """Drop the reports that arrived before this time."""
        self._reports = [each for each in self._reports if each[0] >= at_s]
        self._lags = [lag for lag in self._lags if lag[0] >= at_s]

    def ready(self, order: int) -> bool:
        """Return whether all tasks carry out the order with this number."""
        return len(self._latest) == self.tasks and all(
            report.order == order and report.ready for report in self._latest.values()
        )

    @property
    def silences(self) -> int:
        """The number of times that a task stopped its traffic because no order came."""
        return sum(report.silences for report in self._latest.values())

    @property
    def lags(self) -> tuple[int, ...]:
        """The number of messages that each group has yet to read."""
        reports = self._latest.values()
        acknowledged = sum(report.acknowledged for report in reports)
        return tuple(
            acknowledged - sum(report.consumed[group] for report in reports) - base
            for group, base in enumerate(self._base)
        )

    def lag_between(self, begin_s: float, end_s: float) -> tuple[int, int] | None:
        """Return the least and the greatest lag of any group; None when nothing was reported.

        The lag can be negative: when a producer is stopped, it does not count messages whose
        acknowledgement is still on its way, but the groups read them.
        """
        lags = [lag for _, of_all in self._lags_within(begin_s, end_s) for lag in of_all]
        return (min(lags), max(lags)) if lags else None

    def set_caught_up(self) -> None:
        """Note that the groups have skipped all messages that they had not read yet."""
        self._base = tuple(base + lag for base, lag in zip(self._base, self.lags, strict=True))
        self._lags.clear()

    def signals(
        self, begin_s: float, end_s: float, lag_for_s: float | None = None
    ) -> Signals | None:
        """Return the signals between two times; None when there are too few reports.

        If ``lag_for_s`` is given, the consumers' lag is taken over only that time before the end.
        If it is 0, the lag is not measured.
        """
        by_task = self._within(begin_s, end_s)
        if len(by_task) < self.tasks:
            return None
        lag_begin_s = begin_s if lag_for_s is None else end_s - lag_for_s
        stretches = [(reports[0], reports[-1]) for reports in by_task]
        # The first report of a task has samples that were taken before the stretch began.
        within = [report for reports in by_task for report in reports[1:]]
        samples = sum(report.samples for report in within)
        return Signals(
            window_s=max(last.at_s - first.at_s for first, last in stretches),
            sent_per_s=_per_s(by_task, _acknowledged),
            round_trip_ms=_median([ms for report in within for ms in report.round_trips_ms]),
            throttled=sum(report.throttled for report in within) / samples if samples else 0.0,
            falling_behind=self._falling_behind(lag_begin_s, end_s),
            handlers_idle=None,
            isr_changing=None,
            clients_busy=max(
                (last.busy_s - first.busy_s) / (last.at_s - first.at_s) for first, last in stretches
            ),
            queue_ms=_median([ms for report in within for ms in report.queued_ms]) or 0.0,
            errors=sum(last.errors - first.errors for first, last in stretches),
            read_per_s=_per_s(by_task, lambda report: sum(report.consumed)),
        )

    def running(self, point: Point, begun_s: float, now_s: float) -> Signals | None:
        """Return the signals of the last moments; None while the traffic has just begun.

        The consumers' lag is taken over a longer time, and is not measured before that has passed.
        """
        for_s = max(RUNNING_S, RUNNING_MESSAGES / point.messages_per_s)
        lag_for_s = max(RUNNING_LAG_S, for_s)
        if now_s - begun_s < for_s:
            return None
        return self.signals(
            now_s - for_s, now_s, lag_for_s if now_s - begun_s >= lag_for_s else 0.0
        )

    def _within(self, begin_s: float, end_s: float) -> list[list[TrafficReport]]:
        """Return the reports of each task within a stretch of time, at least two per task.

        If a task has only one report within it, its last earlier report is added. A task that has
        no earlier report either is left out.
        """
        by_task: dict[int, list[TrafficReport]] = {}
        before: dict[int, TrafficReport] = {}
        for at_s, task, report in self._reports:
            if at_s < begin_s:
                before[task] = report
            elif at_s <= end_s:
                by_task.setdefault(task, []).append(report)
        for task, reports in by_task.items():
            if len(reports) == 1 and task in before:
                reports.insert(0, before[task])
        return [reports for reports in by_task.values() if reports[-1].at_s > reports[0].at_s]

    def _lags_within(self, begin_s: float, end_s: float) -> list[tuple[float, tuple[int, ...]]]:
        return [(at_s, lag) for at_s, lag in self._lags if begin_s <= at_s <= end_s]

    def _falling_behind(self, begin_s: float, end_s: float) -> float | None:
        if begin_s >= end_s:
            return None
        lags = self._lags_within(begin_s, end_s)
        sent_per_s = _per_s(self._within(begin_s, end_s), _acknowledged)
        times = [at_s for at_s, _ in lags]
        if not sent_per_s or len(set(times)) < 2:
            return 0.0
        of_groups = zip(*(lag for _, lag in lags), strict=True)
        grows = (linear_regression(times, lag).slope for lag in of_groups)
        return max(0.0, *grows, 0.0) / sent_per_s


class IdleDetector:
    """Detects that brokers are idle, by how quickly they answer a little traffic.

    ``pace`` is the rate of that traffic in messages/s.
    """

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self._least_ms = float("inf")

    def update(self, seen: Signals) -> bool:
        """Take the next signals, and return whether they are those of idle brokers."""
        # Brokers without enough in-sync replicas answer quickly, too, because they refuse messages.
        if not seen.round_trip_ms or seen.sent_per_s < AT_REST_PACE * self._pace:
            return False
        self._least_ms = min(seen.round_trip_ms, self._least_ms)
        return seen.round_trip_ms <= AT_REST * self._least_ms + AT_REST_MS


def changing_share(states: Sequence[tuple[float, object]], usual: object) -> float | None:
    """Return the share of the time in which a state changed or differed from the ``usual`` one.

    ``states`` are samples, each with its time. With fewer than two of them the result is None.
    """
    total = changed = 0.0
    for (before_s, before), (at_s, state) in pairwise(states):
        total += at_s - before_s
        if state != before or state != usual:
            changed += at_s - before_s
    return changed / total if total else None


def _per_s(
    by_task: Sequence[Sequence[TrafficReport]], count: Callable[[TrafficReport], int]
) -> float:
    return sum(
        (count(last) - count(first)) / (last.at_s - first.at_s) for first, *_, last in by_task
    )


def _median(values: Sequence[float]) -> float | None:
    return float(median(values)) if values else None
