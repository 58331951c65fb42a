"""What a scrape gets: the latest status, and of a bounded size."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from drainer.core.latency import Latency
from drainer.engine.status import (
    DeadlineStatus,
    FailureStatus,
    Outlook,
    RuleStatus,
    Status,
)
from drainer.metrics.collector import LANES_MOST, StatusCollector
from drainer.metrics.names import METRICS, STATES
from drainer.spark.status import METRICS as SPARKS
from view.samples import on_spark, status, summary

LATENCY = Latency.of(1_000, 0.02, [n / 1_000 for n in range(101)])
BUSY = status(
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
    rules=RuleStatus({"e-mails": 7}, {"limit-per-key": 3}, {"e-mails": 2}),
    engine=on_spark(8),
    deadline=DeadlineStatus(datetime(2026, 3, 14, 8, tzinfo=UTC), Outlook(3_600.0, -60.0)),
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
    scraped.collector.end(summary())

    found = {family.name: family for family in text_string_to_metric_families(scraped.text)}

    assert {name: family.type for name, family in found.items()} == {
        metric.name.removesuffix("_total"): metric.kind for metric in (*METRICS, *SPARKS)
    }
    for metric in (*METRICS, *SPARKS):
        family = found[metric.name.removesuffix("_total")]
        assert family.samples, metric.name
        for sample in family.samples:
            assert set(sample.labels) - {"quantile"} == {"topic", "group", *metric.labels}


def test_half_a_surrogate_pair_in_a_name_does_not_fail_a_scrape() -> None:
    scraped = Scraped()
    hottest = (("doc-\ud800", 70),)
    scraped.collector.update(replace(BUSY, hottest=hottest, rules=RuleStatus({"r-\udcff": 1})))
    assert 'lane="doc-\\\\ud800"' in scraped.text
    assert 'rule="r-\\\\udcff"' in scraped.text


def test_values_are_those_of_the_status() -> None:
    scraped = Scraped()
    scraped.collector.update(BUSY)
    scraped.clock.now_s += 1.5

    assert scraped.value("drainer_state", state="running") == 1
    assert scraped.value("drainer_status_age_seconds") == 1.5
    for part in BUSY.partitions:
        number = str(part.partition)
        assert scraped.value("drainer_watermark_offset", partition=number) == part.watermark
        assert (
            scraped.value("drainer_backlog_offsets", partition=number) == part.end - part.watermark
        )
    for outcome in ("done", "dead", "skipped"):
        told = getattr(BUSY.sub_messages, outcome)
        assert scraped.value("drainer_sub_messages_total", outcome=outcome) == told
    assert scraped.value("drainer_in_flight") == BUSY.running
    assert scraped.value("drainer_lane_depth", lane="doc-17") == 12_345
    assert scraped.value("drainer_handler_latency_seconds", quantile="0.95") == 0.095
    assert scraped.value("drainer_handler_latency_seconds_count") == 1_000
    assert scraped.value("drainer_handler_latency_seconds_sum") == 20.0
    assert scraped.value("drainer_errors_total", error="ValueError") == 5
    assert scraped.value("drainer_breaker_open") == 1
    name = "drainer_sub_messages_ruled_out_total"
    assert scraped.value(name, rule="e-mails", outcome="skipped") == 7
    assert scraped.value(name, rule="limit-per-key", outcome="dead") == 3
    assert scraped.value("drainer_sub_messages_undecided_total", rule="e-mails") == 2
    assert scraped.value("drainer_deadline_seconds") == 3_600
    assert scraped.value("drainer_deadline_margin_seconds") == -60
    assert scraped.value("drainer_tasks", state="handling") == 5
    assert scraped.value("drainer_stragglers") == 1
    assert scraped.value("drainer_task_quiet_seconds_max") == 7.2


def test_each_state_is_told_and_no_text_of_an_error() -> None:
    scraped = Scraped()

    def state() -> list[str]:
        return [each for each in STATES if scraped.value("drainer_state", state=each)]

    assert state() == ["starting"]
    assert scraped.value("drainer_in_flight") is None
    scraped.collector.update(BUSY)
    assert state() == ["running"]
    scraped.collector.update(replace(BUSY, trouble="secret trouble", stopping="secret reason"))
    assert state() == ["stopping"]
    assert scraped.value("drainer_trouble") == 1
    assert "secret" not in scraped.text
    scraped.collector.end(summary(status="halted", exit_code=5))
    assert state() == ["halted"]
    assert scraped.value("drainer_exit_code") == 5
    assert scraped.value("drainer_in_flight") == BUSY.running


def hot(*lanes: tuple[object, int]) -> Status:
    return replace(BUSY, hottest=lanes, engine=None)


def test_a_lane_that_is_hot_no_more_is_gone() -> None:
    scraped = Scraped()
    scraped.collector.update(hot(("a", 500), ("b", 400)))
    assert scraped.labels("drainer_lane_depth", "lane") == ["a", "b"]

    scraped.collector.update(hot(("b", 300), ("c", 9)))

    assert scraped.labels("drainer_lane_depth", "lane") == ["b"]  # nor is one with hardly any
    assert scraped.value("drainer_lane_depth_max") == 300
    assert scraped.value("drainer_wave") is None


def test_lanes_get_no_more__prometheus_can_bear() -> None:
    scraped = Scraped()
    names: set[str] = set()
    for n in range(500):
        scraped.collector.update(hot((f"doc-{n}", 100 + n), (f"other-{n}", 50)))
        names |= set(scraped.labels("drainer_lane_depth", "lane"))

    assert len(names) == LANES_MOST + 1
    assert "another" in names
    assert scraped.value("drainer_lane_depth", lane="another") == 599


def test_sub_keys_of_any_kind_are_labels() -> None:
    scraped = Scraped()
    keys = (b"\xff\x00k", ("eu", 4), 'say "hi"\n', "x" * 500)
    scraped.collector.update(hot(*((key, 100) for key in keys)))

    families = {f.name: f for f in text_string_to_metric_families(scraped.text)}
    lanes = [sample.labels["lane"] for sample in families["drainer_lane_depth"].samples]

    assert lanes == ["\\xff\x00k", "('eu', 4)", 'say "hi"\n', "x" * 59 + "…"]


def test_what_only_rises_never_falls() -> None:
    scraped = Scraped()
    name = "drainer_handler_latency_seconds"
    for latency in (LATENCY, Latency.of(999, 0.0199, LATENCY.percentiles_s)):
        scraped.collector.update(replace(BUSY, latency=latency))
        assert (scraped.value(f"{name}_count"), scraped.value(f"{name}_sum")) == (1_000, 20.0)


def test_names_are_as_prometheus_wants_them() -> None:
    for metric in (*METRICS, *SPARKS):
        assert metric.name.startswith("drainer_")
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert not metric.name.endswith(("_ms", "_minutes", "_mib", "_percent"))
