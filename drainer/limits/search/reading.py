"""Reports of the tasks of a trial, and the signals in them: counts and samples of many, as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from statistics import linear_regression, median

from drainer.limits.search.trial import Point, Signals

# What the last moments are, so that overload is seen while it begins.
RUNNING_S = 1.0
RUNNING_MESSAGES = 10  # or until so many are sent
RUNNING_LAG_S = 4.0  # for consumers

AT_REST = 2.0  # times the round trip of an idle cluster
AT_REST_MS = 5.0  # above it, which is not load either
AT_REST_PACE = 0.5  # of the pace that is at least reached, in a stretch so short

_acknowledged, _old_bytes = attrgetter("acknowledged"), attrgetter("old_bytes")


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """A task's report of its traffic, a few times a second. Its counts never fall."""

    at_s: float  # when, by a clock of the task
    order: int  # the number of the order that it carries out
    ready: bool  # whether all of its producers and consumers are connected
    acknowledged: int  # messages that the brokers have taken
    errors: int
    consumed: tuple[int, ...]  # messages by group, in the order of the groups
    busy_s: float  # processor time of the process
    # Of produce requests, one for each sample of a client since the last report.
    round_trips_ms: tuple[float, ...] = ()
    queued_ms: tuple[float, ...] = ()  # how long messages waited in a client, likewise
    samples: int = 0  # of clients since the last report
    throttled: int = 0  # in how many of these brokers throttled the client
    silences: int = 0  # how often it stopped because no order came
    old_bytes: int = 0


class TrafficReading:
    """Reports of all tasks: the lag of the groups, and signals over any stretch of time.

    Times are of one clock, the driver's. Metrics of the brokers are not in the signals.
    """

    def __init__(self, tasks: int, groups: int) -> None:
        self.tasks = tasks
        self._groups = groups
        self._latest: dict[int, TrafficReport] = {}
        self._reports: list[tuple[float, int, TrafficReport]] = []
        self._lags: list[tuple[float, tuple[int, ...]]] = []
        self._base = (0,) * groups  # what a group that began later never reads

    def take(self, at_s: float, task: int, report: TrafficReport) -> None:
        """Raises ValueError when it has other groups than it should."""
        if len(report.consumed) != self._groups or not 0 <= task < self.tasks:
            raise ValueError(f"a report of task {task} with {len(report.consumed)} groups")
        self._latest[task] = report
        self._reports.append((at_s, task, report))
        self._lags.append((at_s, self.lags))

    def forget_before(self, at_s: float) -> None:
        """Drops reports before that time."""
        self._reports = [each for each in self._reports if each[0] >= at_s]
        self._lags = [lag for lag in self._lags if lag[0] >= at_s]

    def ready(self, order: int) -> bool:
        """Whether all tasks carry the order out."""
        return len(self._latest) == self.tasks and all(
            report.order == order and report.ready for report in self._latest.values()
        )

    @property
    def silences(self) -> int:
        """Number of times that tasks stopped because no order came."""
        return sum(report.silences for report in self._latest.values())

    @property
    def lags(self) -> tuple[int, ...]:
        """Messages that each group has yet to read."""
        reports = self._latest.values()
        acknowledged = sum(report.acknowledged for report in reports)
        return tuple(
            acknowledged - sum(report.consumed[group] for report in reports) - base
            for group, base in enumerate(self._base)
        )

    def lag_between(self, begin_s: float, end_s: float) -> tuple[int, int] | None:
        """The least and the most lag of a group; None when nothing was reported.

        It is below zero by what brokers took of a producer that was stopped before it knew.
        """
        lags = [lag for _, of_all in self._lags_within(begin_s, end_s) for lag in of_all]
        return (min(lags), max(lags)) if lags else None

    def set_caught_up(self) -> None:
        """Groups have skipped what they had yet to read."""
        self._base = tuple(base + lag for base, lag in zip(self._base, self.lags, strict=True))
        self._lags.clear()

    def signals(
        self, begin_s: float, end_s: float, lag_for_s: float | None = None
    ) -> Signals | None:
        """Signals in between; None when that was too short to measure.

        With ``lag_for_s`` only that long before the end counts for consumers; 0: nothing counts.
        """
        by_task = self._within(begin_s, end_s)
        if len(by_task) < self.tasks:
            return None
        lag_begin_s = begin_s if lag_for_s is None else end_s - lag_for_s
        stretches = [(reports[0], reports[-1]) for reports in by_task]
        # The samples of a first report are of the time before it.
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
            old_bytes_per_s=_per_s(self._within(lag_begin_s, end_s), _old_bytes)
            if lag_begin_s < end_s
            else None,
            read_per_s=_per_s(by_task, lambda report: sum(report.consumed)),
        )

    def running(self, point: Point, begun_s: float, now_s: float) -> Signals | None:
        """Signals of the last moments of this traffic; None while those are too short to measure.

        Consumers are measured for longer, since they fetch in bursts, and not at all until then.
        """
        for_s = max(RUNNING_S, RUNNING_MESSAGES / point.messages_per_s)
        lag_for_s = max(RUNNING_LAG_S, for_s)
        if now_s - begun_s < for_s:
            return None
        return self.signals(
            now_s - for_s, now_s, lag_for_s if now_s - begun_s >= lag_for_s else 0.0
        )

    def _within(self, begin_s: float, end_s: float) -> list[list[TrafficReport]]:
        """Two reports or more of each task; of one with a single one, the one before it, too."""
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
    """Detects that brokers answer a little traffic, of this pace, as they do when they are idle."""

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self._least_ms = float("inf")

    def update(self, seen: Signals) -> bool:
        """Whether they are idle by these signals; those before them are known."""
        # Brokers that refuse messages, which replicas in sync are too few for, are quick about it.
        if not seen.round_trip_ms or seen.sent_per_s < AT_REST_PACE * self._pace:
            return False
        self._least_ms = min(seen.round_trip_ms, self._least_ms)
        return seen.round_trip_ms <= AT_REST * self._least_ms + AT_REST_MS


def changing_share(states: Sequence[tuple[float, object]], usual: object) -> float | None:
    """Share of the time between samples in which something changed, or was not as usual.

    ``states`` are times with what was seen then; None when that is fewer than two.
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
