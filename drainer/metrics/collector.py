"""The latest status of a drain as Prometheus' metrics, made when they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from time import monotonic

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from drainer import __version__
from drainer.core.progress import Counts, Outcome
from drainer.engine.status import (
    ENDED,
    PartitionStatus,
    RuleStatus,
    Status,
    Summary,
    TaskStatus,
    WaveStatus,
)
from drainer.mask import key_repr, masking
from drainer.metrics import names as n

LANE_LEAST = 10  # waiting: below that no lane is hot, and each scrape would name others
LANES_MOST = 50  # names of lanes in a run, for each is a series that Prometheus keeps
LABEL_LENGTH = 60

_FAMILIES: dict[n.Kind, type[GaugeMetricFamily | CounterMetricFamily | SummaryMetricFamily]] = {
    n.Kind.GAUGE: GaugeMetricFamily,
    n.Kind.COUNTER: CounterMetricFamily,
    n.Kind.SUMMARY: SummaryMetricFamily,
}
_Rows = Iterable[tuple[tuple[str, ...], float]]


class StatusCollector(Collector):
    """Holds the latest status, which the drain hands in; scrapes read it in their own threads.

    Nothing is counted here and nothing of the drain is touched: a status is frozen.
    """

    def __init__(
        self, topic: str, group: str, drain_id: str, clock: Callable[[], float] = monotonic
    ) -> None:
        self._who = (topic, group)
        self._drain_id = drain_id
        self._clock = clock
        self._status: Status | None = None
        self._summary: Summary | None = None
        self._told_s = 0.0
        self._lanes: set[str] = set()
        self._risen: dict[str, float] = {}

    def update(self, status: Status) -> None:
        """Takes a newer status."""
        self._status, self._told_s = status, self._clock()

    def end(self, summary: Summary) -> None:
        """Takes how it ended; the last status stays."""
        self._summary = summary

    def collect(self) -> Iterator[Family]:
        status, summary = self._status, self._summary
        yield self._family(n.INFO, [((self._drain_id, __version__), 1)])
        state = _state(status, summary)
        yield self._family(n.STATE, [((each,), float(each == state)) for each in n.STATES])
        if summary is not None:
            yield self._one(n.EXIT_CODE, summary.exit_code)
        if status is None:
            return
        yield self._one(n.ELAPSED, status.elapsed_s)
        yield self._one(n.STATUS_AGE, 0 if summary else self._clock() - self._told_s)
        yield self._one(n.TROUBLE, status.trouble is not None)
        yield from self._partitions(status.partitions)
        yield from self._account(n.MESSAGES_READ, n.MESSAGES, n.MESSAGES_PENDING, status.messages)
        yield from self._account(n.SUBS_READ, n.SUBS, n.SUBS_PENDING, status.sub_messages)
        yield from self._rules(status.rules)
        yield self._one(n.RATE, status.rate_now)
        if status.eta_s is not None:
            yield self._one(n.ETA, status.eta_s)
        if status.deadline is not None:
            yield self._one(n.DEADLINE, status.deadline.outlook.left_s)
            if status.deadline.outlook.margin_s is not None:
                yield self._one(n.DEADLINE_MARGIN, status.deadline.outlook.margin_s)
        yield from self._work(status)
        yield from self._failures(status)
        if status.wave is not None:
            yield from self._spark(status.wave, status.tasks)
        yield self._one(n.BUFFERED, status.buffered_bytes)
        yield self._one(n.BUFFER, status.buffer_bytes)
        yield self._one(n.PLAN_AGE, status.plan_age_s)

    def _partitions(self, parts: tuple[PartitionStatus, ...]) -> Iterator[Family]:
        values: tuple[tuple[n.Metric, Callable[[PartitionStatus], int | None]], ...] = (
            (n.START, lambda part: part.start),
            (n.END, lambda part: part.end),
            (n.POSITION, lambda part: part.position),
            (n.WATERMARK, lambda part: part.watermark),
            (n.COMMITTED, lambda part: part.committed),
            (n.BACKLOG, lambda part: max(0, part.end - part.watermark)),
        )
        for metric, value_of in values:
            found = ((part.partition, value_of(part)) for part in parts)
            yield self._family(metric, [((str(p),), v) for p, v in found if v is not None])

    def _account(
        self, read: n.Metric, finished: n.Metric, pending: n.Metric, counts: Counts
    ) -> Iterator[Family]:
        yield self._one(read, counts.read)
        by_outcome = ((outcome.value, getattr(counts, outcome.value)) for outcome in Outcome)
        yield self._family(finished, [((name,), value) for name, value in by_outcome])
        yield self._one(pending, counts.pending)

    def _rules(self, rules: RuleStatus) -> Iterator[Family]:
        by_outcome = {"skipped": rules.skipped_by, "dead": rules.dead_by}
        taken = (
            ((label(rule), outcome), count)
            for outcome, counts in by_outcome.items()
            for rule, count in counts.items()
        )
        yield self._family(n.RULED_OUT, taken)
        undecided = (((label(rule),), count) for rule, count in rules.undecided.items())
        yield self._family(n.UNDECIDED, undecided)

    def _work(self, status: Status) -> Iterator[Family]:
        yield self._one(n.IN_FLIGHT, status.running)
        yield self._one(n.CONCURRENCY, status.concurrency)
        yield self._one(n.LANES, status.lanes)
        yield self._one(n.LANES_READY, status.lanes_ready)
        yield self._one(n.LANES_PARKED, status.failures.parked_lanes)
        depths = [depth for _, depth in status.hottest]
        yield self._one(n.LANE_DEPTH_MOST, max(depths, default=0))
        hot: dict[str, int] = {}
        for key, depth in status.hottest:
            if depth >= LANE_LEAST:
                name = self._lane(key)
                hot[name] = max(depth, hot.get(name, 0))
        yield self._family(n.LANE_DEPTH, [((name,), depth) for name, depth in hot.items()])
        yield self._latency(status)

    def _latency(self, status: Status) -> Family:
        family = self._family(n.LATENCY, [])
        who = dict(zip(n.COMMON_LABELS, self._who, strict=True))
        if (recent := status.latency_recent) is not None:
            for quantile in n.QUANTILES:
                value = recent.percentiles_s[round(quantile * 100)]
                family.add_sample(n.LATENCY.name, {**who, "quantile": str(quantile)}, value)
        if (overall := status.latency) is not None:
            # Estimates both: a counter that fell would be taken for one that began anew.
            count = self._rising("count", overall.count)
            total_s = self._rising("sum", overall.count * overall.mean_s)
            family.add_sample(f"{n.LATENCY.name}_count", who, count)
            family.add_sample(f"{n.LATENCY.name}_sum", who, total_s)
        return family

    def _failures(self, status: Status) -> Iterator[Family]:
        failures = status.failures
        yield self._one(n.FAILURES, failures.failures)
        yield self._family(n.ERRORS, [((name,), count) for name, count in failures.error_types])
        yield self._one(n.TIMEOUTS, failures.timeouts)
        yield self._one(n.RETRIES, failures.retries)
        yield self._one(n.RETRIES_WAITING, failures.waiting)
        yield self._one(n.THREADS_LATE, failures.late)
        yield self._one(n.BREAKER_OPEN, failures.in_outage)
        yield self._one(n.OUTAGES, failures.outages)

    def _spark(self, wave: WaveStatus, tasks: tuple[TaskStatus, ...]) -> Iterator[Family]:
        yield self._one(n.WAVE, wave.number)
        if wave.of is not None:
            yield self._one(n.WAVES, wave.of)
        yield self._one(n.WAVE_AGE, wave.seconds)
        states = Counter(task.state for task in tasks)
        yield self._family(n.TASKS, [((state,), number) for state, number in states.items()])
        yield self._one(n.STRAGGLERS, sum(task.straggler for task in tasks))
        quiet = (task.quiet_s for task in tasks if task.state != ENDED)
        yield self._one(n.TASK_QUIET_MOST, max(quiet, default=0.0))

    def _lane(self, key: Hashable) -> str:
        name = key_repr(key) if masking() else label(key)
        if name not in self._lanes:
            if len(self._lanes) >= LANES_MOST:
                return "another"
            self._lanes.add(name)
        return name

    def _rising(self, name: str, value: float) -> float:
        self._risen[name] = max(value, self._risen.get(name, 0.0))
        return self._risen[name]

    def _one(self, metric: n.Metric, value: float) -> Family:
        return self._family(metric, [((), float(value))])

    def _family(self, metric: n.Metric, rows: _Rows) -> Family:
        labels = (*n.COMMON_LABELS, *metric.labels)
        family = _FAMILIES[metric.kind](metric.name, metric.meaning, labels=labels)
        for own, value in rows:
            family.add_metric((*self._who, *own), value)  # type: ignore[call-arg, arg-type]
        return family


def label(key: Hashable) -> str:
    """A sub-key or a rule as a label: text as it is, else as Python tells it; never long."""
    if isinstance(key, bytes):
        key = key.decode(errors="backslashreplace")
    name = key if isinstance(key, str) else repr(key)
    return name if len(name) <= LABEL_LENGTH else name[: LABEL_LENGTH - 1] + "…"


def _state(status: Status | None, summary: Summary | None) -> str:
    if summary is not None:
        return summary.status if summary.status in n.STATES else "failed"
    if status is None:
        return "starting"
    return "stopping" if status.stopping is not None else "running"
