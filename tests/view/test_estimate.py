"""An estimate as a page: whether it makes the deadline, why, and what would help."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from core.messages import message_at
from drainer.insight.estimate import (
    ClassForecast,
    DeadlineVerdict,
    Estimate,
    FirstForecast,
    Question,
)
from drainer.insight.forecast.distribution import Distribution
from drainer.insight.forecast.forecast import CONCURRENCY, CPU, LANE, Forecast, Setting
from drainer.insight.forecast.on_spark import Cores
from drainer.insight.forecast.simulate import Costs
from drainer.insight.forecast.workload import Hottest, Keys, Neighbours, Workload
from drainer.insight.measurement import Measured
from drainer.insight.retention import Expiry
from drainer.insight.sample_split import Skipped
from drainer.insight.view.estimate import estimate_page
from drainer.loader import load_handler
from drainer.message import SubMessage
from drainer.model.order import Order
from drainer.operations.start import Request
from drainer.view.page import Cell, Line, Tone

from .facts import fields, items, row, tables
from .samples import ENDED, EVIL

TEN_MS = Distribution.constant(0.01)


def forecast(order: Order, concurrency: int, seconds: float) -> Forecast:
    bounds = {LANE: 900.0, CONCURRENCY: 90_000 / concurrency, CPU: 0.0}
    bound = max(bounds, key=lambda name: bounds[name])
    return Forecast(
        order, concurrency, seconds, bound, bounds, 900.0, Hottest(EVIL, 90_000, 90_000)
    )


def estimate(
    messages: int = 10,
    *,
    skipped: Skipped | None = None,
    expiry: Expiry | None = None,
    verdict: DeadlineVerdict | None = None,
) -> Estimate:
    keys = Keys()
    shapes = [keys.shape(message_at(n, 0, b"k"), [SubMessage("a")]) for n in range(messages)]
    workload = Workload([Neighbours(0, shapes, messages * 100_000)] if messages else [], keys)
    return Estimate(
        request=Request("orders", "indexer", load_handler("count")),
        question=Question(TEN_MS, "--latency 10ms"),
        measured=Measured(workload, Costs(), 0.0, skipped, expiry),
        setting=Setting(TEN_MS),
        orders={
            Order.SUB_KEY: forecast(Order.SUB_KEY, 100, 1_000.0),
            Order.PARTITION: forecast(Order.PARTITION, 100, 1_200_000.0),
        },
        table=(
            forecast(Order.SUB_KEY, 10, 9_000.0),
            forecast(Order.SUB_KEY, 100, 1_000.0),
            forecast(Order.SUB_KEY, 300, 900.0),
        ),
        verdict=verdict,
        notes=("retries are not in it",),
    )


def by(left_s: float, margin_s: float, least: int | None) -> DeadlineVerdict:
    return DeadlineVerdict(ENDED + timedelta(seconds=left_s), left_s, margin_s, least)


def test_how_long_and_what_binds_come_first() -> None:
    page = estimate_page(estimate())
    assert page.message.startswith("Draining orders for group indexer: takes about 16m 40s")
    assert fields(page)["limited by"].startswith("the hottest lane: sub-key")


def test_the_processor_time_of_split_and_handle_is_shown_or_that_it_is_unknown() -> None:
    found = replace(estimate(), setting=Setting(TEN_MS, Costs(message_s=0.0003), split_s=0.0002))
    unknown = fields(estimate_page(found))["processor"]
    assert unknown == "300µs per sub-message (measured; split 200µs, handle unknown)"
    known = replace(found.setting, latency=replace(TEN_MS, processor_s=0.004))
    assert "handle 4.0ms" in fields(estimate_page(replace(found, setting=known)))["processor"]


def test_the_engine_is_shown_with_what_the_other_would_take() -> None:
    found = replace(
        estimate(),
        question=Question(TEN_MS, "--latency 10ms", cores=Cores(4, 1)),
        engine="spark",
        by_engine={"process": 3_000.0, "spark": 1_000.0},
    )

    assert fields(estimate_page(found))["runs on"].startswith("Spark on 4 cores")
    assert "this process would take 50m" in fields(estimate_page(found))["runs on"]
    assert "runs on" not in fields(estimate_page(estimate()))


@pytest.mark.parametrize(
    ("found", "tone", "words"),
    [
        (
            (3_600, 2_600, 28),
            Tone.GOOD,
            ", in 1h 00m, with 43m 20s to spare; 28 at once would be enough",
        ),
        ((900, -100, 300), Tone.BAD, ", in 15m 00s: 1m 40s too late; needs --concurrency 300"),
        ((400, -600, None), Tone.BAD, ": 10m 00s too late; 300 at once would not be enough either"),
    ],
)
def test_a_deadline_is_met_or_not_and_what_would_do(
    found: tuple[float, float, int | None], tone: Tone, words: str
) -> None:
    page = estimate_page(estimate(verdict=by(*found)))
    (line,) = (item for item in items(page) if isinstance(item, Line))
    assert line.tone is tone
    assert line.text.endswith(words)
    assert "2026-03-14" in line.text


def test_every_order_and_concurrency_is_in_a_table() -> None:
    orders, concurrency = tables(estimate_page(estimate()))
    assert row(orders, 1) == ["  partition order", "14 days", "15m 00s", "hottest lane"]
    assert row(concurrency, 0) == ["10", "2h 30m", "", "concurrency"]
    requested = concurrency.rows[1][0]
    assert isinstance(requested, Cell)
    assert requested.tone is Tone.STRONG


def test_an_empty_backlog_is_reported_and_nothing_is_drawn() -> None:
    page = estimate_page(estimate(0))
    assert "nothing to drain" in page.message
    assert page.sections == ()


def test_a_class_is_shown_with_what_of_it_waits_for_the_rest() -> None:
    classes = (ClassForecast("k == 1", 3.0, 2_904, 1_236), ClassForecast("k == 2", 4.0, 10, 0))
    found = replace(estimate(), first=FirstForecast(classes, 1_004.0, 4.0))
    first = tables(estimate_page(found))[0]
    assert row(first, 0) == ["  k == 1", "~2,904 of ~4,140 first", "3.0s"]
    assert row(first, 1) == ["    waiting for the rest", "~1,236", "16m 44s"]
    assert row(first, 2) == ["  k == 2", "~10", "4.0s"]


def test_retention_that_is_quicker_and_what_rules_skip_are_shown() -> None:
    skipped = Skipped(1_000, {"e-mails": 300, "tests": 100})
    expiry = Expiry(3, 77, 60.0, "retention.ms")
    page = estimate_page(estimate(skipped=skipped, expiry=expiry))
    assert "in 1m 00s, and draining it takes" in page.warnings[0]
    assert "offset 77 of partition 3" in page.warnings[0]
    assert fields(page)["left out"].splitlines() == [
        "the rules skip ~400 of ~1,000 sub-messages",
        "~300 by e-mails",
        "~100 by tests",
    ]
