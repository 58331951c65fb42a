"""The latest status of a drain as Prometheus' metrics, made when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from drainer import __version__
from drainer.metrics import names as n
from drainer.model.status import Status, Summary

_FAMILIES: dict[str, Any] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "summary": SummaryMetricFamily,
}


@dataclass(eq=False)
class StatusCollector(Collector):
    """Holds the latest status, which the drain hands in; scrapes read it in their own threads.

    Nothing is counted here and nothing of the drain is touched: a status is frozen.
    """

    topic: str
    group: str
    drain_id: str
    clock: Callable[[], float] = monotonic

    def __post_init__(self) -> None:
        self._who = (self.topic, self.group)
        self._status: Status | None = None
        self._summary: Summary | None = None
        self._updated_s = 0.0
        self._risen: dict[str, float] = {}

    def update(self, status: Status) -> None:
        """Takes a newer status."""
        self._status, self._updated_s = status, self.clock()

    def end(self, summary: Summary) -> None:
        """Takes how it ended; the last status stays."""
        self._summary = summary

    def collect(self) -> Iterator[Family]:
        status, summary = self._status, self._summary
        yield self._family(n.INFO, [((self.drain_id, __version__), 1)])
        state = _state(status, summary)
        yield self._family(n.STATE, [((each,), each == state) for each in n.STATES])
        if summary is not None:
            yield self._family(n.EXIT_CODE, [((), summary.exit_code)])
        if status is None:
            return
        age_s = 0 if summary else self.clock() - self._updated_s
        yield self._family(n.STATUS_AGE, [((), age_s)])
        for metric in n.OF_STATUS:
            yield self._family(metric, metric.rows(status))
        yield self._latency(status)
        if isinstance(engine := status.engine, n.HasMetrics):
            for metric in engine.metrics:
                yield self._family(metric, metric.rows(engine))

    def _latency(self, status: Status) -> Family:
        family = self._family(n.LATENCY, [])
        who = dict(zip(n.COMMON_LABELS, self._who, strict=True))
        if (recent := status.timing.latency_recent) is not None:
            for quantile in n.QUANTILES:
                value = recent.percentiles_s[round(quantile * 100)]
                family.add_sample(n.LATENCY.name, {**who, "quantile": str(quantile)}, value)
        if (overall := status.timing.latency) is not None:
            # Estimates both: a counter that fell would be taken for one that began anew.
            for name, found in (("count", overall.count), ("sum", overall.count * overall.mean_s)):
                self._risen[name] = max(found, self._risen.get(name, 0.0))
                family.add_sample(f"{n.LATENCY.name}_{name}", who, self._risen[name])
        return family

    def _family(self, metric: n.Metric[Any], rows: Iterable[n.MetricRow]) -> Family:
        labels = (*n.COMMON_LABELS, *metric.labels)
        family = _FAMILIES[metric.kind](metric.name, metric.meaning, labels=labels)
        for own, value in rows:
            if value is not None:
                family.add_metric((*self._who, *own), float(value))
        return cast(Family, family)


def _state(status: Status | None, summary: Summary | None) -> str:
    if summary is not None:
        return summary.status if summary.status in n.STATES else "failed"
    if status is None:
        return "starting"
    return "stopping" if status.control.stopping is not None else "running"
