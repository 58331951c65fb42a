"""Estimates to show: of a plain drain, and of one with everything in it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from core.messages import message_at
from drainer.insight.bounds import CONCURRENCY, CPU, LANE, Costs, Forecast, Setting
from drainer.insight.distribution import Distribution
from drainer.insight.estimate import (
    DeadlineVerdict,
    Estimate,
    Question,
)
from drainer.insight.first import ClassForecast, FirstForecast
from drainer.insight.measurement import Measured
from drainer.insight.retention import Expiry
from drainer.insight.sample_split import Skipped
from drainer.insight.workload import Hottest, Keys, Neighbours, Workload
from drainer.loading.loader import load_handler
from drainer.message import SubMessage
from drainer.model.order import Order
from drainer.operations.start import Request

from .samples import EVIL

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
    at = datetime(2026, 3, 14, 8, tzinfo=UTC)
    return DeadlineVerdict(at, left_s, margin_s, margin_s < 0, least)


def measured_costs() -> Estimate:
    """An estimate that meets its deadline, of a handler whose processor time is known."""
    return replace(
        estimate(verdict=by(3_600, 2_600, 28)),
        setting=Setting(
            replace(TEN_MS, processor_s=0.004), Costs(message_s=0.0003), split_s=0.0002
        ),
    )


def of_classes() -> Estimate:
    """An estimate with priority classes and rules, whose backlog expires before it is drained."""
    skipped = Skipped(1_000, {"e-mails": 300, "tests": 100})
    found = estimate(
        skipped=skipped,
        expiry=Expiry(3, 77, 60.0, "retention.ms"),
        verdict=by(400, -600, None),
    )
    classes = (ClassForecast("k == 1", 3.0, 2_904, 1_236), ClassForecast("k == 2", 4.0, 10, 0))
    return replace(found, first=FirstForecast(classes, 1_004.0, 4.0))
