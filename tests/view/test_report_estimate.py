"""The report of an estimate as a page: whether it makes the deadline, why, and what would help."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

from core.messages import message_at
from drainer.core.order import Order
from drainer.insight.estimate import DeadlineVerdict, Estimate, Question
from drainer.insight.forecast.distribution import Distribution
from drainer.insight.forecast.forecast import CONCURRENCY, CPU, LANE, Forecast, Setting
from drainer.insight.forecast.workload import Hottest, Keys, Neighbours, Workload
from drainer.insight.report.estimate import estimate_page
from drainer.insight.retention import Doomed
from drainer.insight.splitting import Skipped
from drainer.message import SubMessage

from .test_report import ENDED, EVIL, Reader

TEN_MS = Distribution.constant(0.01)


def forecast(order: Order, concurrency: int, seconds: float) -> Forecast:
    bounds = {LANE: 900.0, CONCURRENCY: 90_000 / concurrency, CPU: 0.0}
    bound = max(bounds, key=lambda name: bounds[name])
    return Forecast(
        order, concurrency, seconds, bound, bounds, 900.0, Hottest(EVIL, 90_000, 90_000)
    )


def estimate(messages: int = 10, **changes: object) -> Estimate:
    keys = Keys()
    shapes = [keys.shape(message_at(n, 0, b"k"), [SubMessage("a")]) for n in range(messages)]
    found = Estimate(
        topic="orders",
        group="indexer",
        question=Question(TEN_MS, "--latency 10ms", False, Order.SUB_KEY, 100, 1 << 28),
        workload=Workload([Neighbours(0, shapes, messages * 100_000)] if messages else [], keys),
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
        verdict=None,
        notes=("retries are not in it",),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def by(left_s: float, margin_s: float, least: int | None) -> DeadlineVerdict:
    return DeadlineVerdict(ENDED + timedelta(seconds=left_s), left_s, margin_s, least)


def shown(found: Estimate) -> str:
    return Reader(estimate_page(found, ENDED)).text


def test_how_long_and_what_binds_come_first() -> None:
    text = shown(estimate())
    assert "Estimate for draining orders for group indexer Takes about 16m 40s" in text
    assert text.index("Bound by") < text.index("How long, and why")
    assert "Messages ~1,000,000" in text
    assert "Hottest lane alone 15m 00s" in text


def test_a_deadline_that_is_met_tells_what_would_do() -> None:
    text = shown(estimate(verdict=by(3_600, 2_600, 28)))
    assert "✓ It makes the deadline, with 43m 20s to spare; a concurrency of 28 would do." in text
    assert "The deadline is 2026-03-14 20:04:40 CET (2026-03-14 19:04:40 UTC)." in text
    assert text.count("the deadline, in 1h 00m") == 3  # a line in each chart


def test_a_deadline_that_is_missed_tells_what_would_make_it() -> None:
    assert "✗ It misses the deadline, by 1m 40s; a concurrency of 300 would make it." in shown(
        estimate(verdict=by(900, -100, 300))
    )
    assert "by 10m 00s; no concurrency is enough." in shown(estimate(verdict=by(400, -600, None)))


def test_a_deadline_that_is_over_has_no_line_to_be_drawn() -> None:
    text = shown(estimate(verdict=by(-60, -1_060, None)))
    assert "✗ It misses the deadline" in text
    assert "the deadline, in" not in text


def test_every_order_and_concurrency_is_in_a_table() -> None:
    text = shown(estimate())
    assert "10 2h 30m 15m 00s concurrency" in text
    assert "100 (as asked) 16m 40s 15m 00s" in text
    assert "partition 14 days 15m 00s" in text


def test_an_empty_backlog_is_told_and_nothing_is_drawn() -> None:
    page = estimate_page(estimate(0), ENDED)
    assert "Nothing to drain" in Reader(page).text
    assert "svg" not in Reader(page).tags


def test_what_comes_from_messages_is_never_markup() -> None:
    found = estimate(
        topic=EVIL,
        group=EVIL,
        notes=(EVIL,),
        question=replace(estimate().question, latency_source=EVIL),
    )
    read = Reader(estimate_page(found, ENDED))
    assert "script" not in read.tags
    assert read.text.count(EVIL) >= 4


def test_no_two_ids_are_alike_and_every_colour_is_defined() -> None:
    page = estimate_page(estimate(verdict=by(3_600, 2_600, 28)), ENDED)
    ids = re.findall(r' id="([^"]+)"', page)
    assert ids
    assert len(ids) == len(set(ids))
    defined = set(re.findall(r"(--[\w-]+):", page))
    assert set(re.findall(r"var\((--[\w-]+)\)", page)) <= defined


def test_retention_that_is_quicker_and_what_rules_skip_are_on_the_page() -> None:
    skipped = Skipped(1_000, {"e-mails": 400})
    doomed = Doomed(3, 77, 60.0, "retention.ms")
    page = Reader(estimate_page(estimate(skipped=skipped, doomed=doomed), ENDED)).text
    assert "retention may delete the head of the backlog in 1m 00s, and draining it takes" in page
    assert "offset 77 of partition 3" in page
    assert "the rules skip ~400 of ~1,000 sub-messages" in page
    assert "retention" not in Reader(estimate_page(estimate(), ENDED)).text
