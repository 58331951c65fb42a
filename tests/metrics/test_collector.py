"""A scrape gets the latest status, and of a bounded size."""

from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from builders import a_status, a_summary, changed
from drainer.metrics.names import METRICS, STATES
from drainer.metrics.server import StatusCollector
from drainer.model.deadline import DeadlineStatus
from drainer.model.latency import Latency
from drainer.model.status import (
    FailureStatus,
    HeldBack,
    LagStatus,
)
from drainer.model.unhandled import RuleStatus
from drainer.spark.assign.status import METRICS as SPARKS
from view.samples import on_spark

LATENCY = Latency.of(1_000, 0.02, [n / 1_000 for n in range(101)])
BUSY = a_status(
    partitions=2,
    latency=LATENCY,
    latency_recent=LATENCY,
    failures=FailureStatus(
        failures=7,
        timeouts=2,
        errors=(("ValueError: secret of doc-17", 5), ("TimedOut: late", 2)),
        error_types=(("ValueError", 5), ("TimedOut", 2)),
        in_outage=True,
    ),
    rules=RuleStatus({"e-mails": 7}, undecided={"e-mails": 2}),
    engine_status=on_spark(8),
    held_back=(HeldBack(1, 470, "'d-root'", 423, 20.0),),
    deadline=DeadlineStatus(datetime(2026, 3, 14, 8, tzinfo=UTC), 3_600.0, -60.0),
    lag=LagStatus(7, 3.0),
)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Scraped:
    """A collector in a registry of its own."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.collector = StatusCollector("orders", "reindexer", "d-1", self.clock)
        self.registry = CollectorRegistry()
        self.registry.register(self.collector)

    @property
    def text(self) -> str:
        return generate_latest(self.registry).decode()

    def value(self, name: str, **labels: str) -> float | None:
        labels = {"topic": "orders", "group": "reindexer", **labels}
        return self.registry.get_sample_value(name, labels)

    def labels(self, name: str, label: str) -> list[str]:
        return [
            sample.labels[label]
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == name
        ]


def test_a_scrape_has_every_metric_that_is_named_and_no_other() -> None:
    scraped = Scraped()
    scraped.collector.update(BUSY)
    scraped.collector.end(a_summary())

    found = {family.name: family for family in text_string_to_metric_families(scraped.text)}

    assert {name: family.type for name, family in found.items()} == {
        metric.name.removesuffix("_total"): metric.kind for metric in (*METRICS, *SPARKS)
    }
    for metric in (*METRICS, *SPARKS):
        family = found[metric.name.removesuffix("_total")]
        assert family.samples, metric.name
        for sample in family.samples:
            assert set(sample.labels) - {"quantile"} == {"topic", "group", *metric.labels}


def test_each_rule_has_a_series_of_its_own_whatever_its_name() -> None:
    scraped = Scraped()
    rules = ["r-\\udcff", "x" * 100 + "1", "x" * 100 + "2"]
    scraped.collector.update(changed(BUSY, rules=RuleStatus(dict.fromkeys(rules, 1))))
    assert 'rule="r-\\\\udcff"' in scraped.text
    assert len(set(scraped.labels("drainer_sub_messages_ruled_out_total", "rule"))) == 3


def test_values_are_those_of_the_status() -> None:
    scraped = Scraped()
    scraped.collector.update(BUSY)
    scraped.clock.now_s += 1.5

    assert scraped.value("drainer_state", state="running") == 1
    assert scraped.value("drainer_status_age_seconds") == 1.5
    held_back = [
        scraped.value("drainer_watermark_held_back_seconds", partition=n) for n in ("0", "1")
    ]
    assert held_back == [None, 20.0]
    assert "d-root" not in scraped.text, "sub-keys are not for metrics"
    for part in BUSY.progress.partitions:
        number = str(part.partition)
        assert scraped.value("drainer_watermark_offset", partition=number) == part.watermark
        assert (
            scraped.value("drainer_backlog_offsets", partition=number) == part.end - part.watermark
        )
    for outcome in ("done", "dead", "skipped"):
        reported = getattr(BUSY.progress.sub_messages, outcome)
        assert scraped.value("drainer_sub_messages_total", outcome=outcome) == reported
    assert scraped.value("drainer_in_flight") == BUSY.limits.in_flight
    assert scraped.value("drainer_lane_depth_max") == 12_345
    assert scraped.value("drainer_handler_latency_seconds", quantile="0.95") == 0.095
    assert scraped.value("drainer_handler_latency_seconds_count") == 1_000
    assert scraped.value("drainer_handler_latency_seconds_sum") == 20.0
    assert scraped.value("drainer_errors_total", error="ValueError") == 5
    assert scraped.value("drainer_breaker_open") == 1
    name = "drainer_sub_messages_ruled_out_total"
    assert scraped.value(name, rule="e-mails") == 7
    assert scraped.value("drainer_sub_messages_undecided_total", rule="e-mails") == 2
    assert scraped.value("drainer_deadline_seconds") == 3_600
    assert scraped.value("drainer_deadline_margin_seconds") == -60
    assert scraped.value("drainer_tasks", state="handling") == 5
    assert scraped.value("drainer_stragglers") == 1
    assert scraped.value("drainer_task_quiet_seconds_max") == 7.2


def test_each_state_is_served_and_no_text_of_an_error() -> None:
    scraped = Scraped()

    def state() -> list[str]:
        return [each for each in STATES if scraped.value("drainer_state", state=each)]

    assert state() == ["starting"]
    assert scraped.value("drainer_in_flight") is None
    scraped.collector.update(BUSY)
    assert state() == ["running"]
    scraped.collector.update(changed(BUSY, trouble="secret trouble", stopping="secret reason"))
    assert state() == ["stopping"]
    assert scraped.value("drainer_trouble") == 1
    assert "secret" not in scraped.text
    scraped.collector.end(a_summary(status="halted", exit_code=5))
    assert state() == ["halted"]
    assert scraped.value("drainer_exit_code") == 5
    assert scraped.value("drainer_in_flight") == BUSY.limits.in_flight


def test_what_only_rises_never_falls() -> None:
    scraped = Scraped()
    name = "drainer_handler_latency_seconds"
    for latency in (LATENCY, Latency.of(999, 0.0199, LATENCY.percentiles_s)):
        scraped.collector.update(changed(BUSY, latency=latency))
        assert (scraped.value(f"{name}_count"), scraped.value(f"{name}_sum")) == (1_000, 20.0)
