"""The page of an estimate: what it claims, and the rows that it needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.insight.bounds import BARRIERS, CONCURRENCY, LANE, RATE, READ_CAP
from drainer.insight.cli.estimate import estimate_page
from drainer.insight.estimate import Question
from drainer.model.order import Order
from drainer.view.page import Field, Line

from .estimates import TEN_MS, by, estimate, measured_costs, of_classes
from .facts import named, row


def test_an_assumed_latency_is_named_and_gives_no_verdict() -> None:
    known = estimate(verdict=by(3_600, 2_600, 28))
    assumed = replace(known, question=Question(TEN_MS, "assumed"))
    for found, mark, words in ((known, "✓ ", ""), (assumed, "", ", assuming 10ms a call")):
        page = estimate_page(found)
        assert page.headline.text == f"takes about 16m 40s{words}"
        verdict = page.sections[0].items[0]
        assert isinstance(verdict, Line)
        assert verdict.marked.startswith(f"{mark}takes about 16m 40s, done at ")
    late = replace(assumed, verdict=by(600, -400, None))
    verdict = estimate_page(late).sections[0].items[0]
    assert isinstance(verdict, Line)
    assert not verdict.mark


def test_what_only_leaves_has_no_time_and_waits_for_a_resume() -> None:
    found = of_classes()
    assert found.first is not None
    table = replace(found.first, only=True).table(found.requested, found.workload)
    ends = [row(table, n)[2] for n in range(len(table.rows))]
    assert ends == ["3.0s", "a resume", "4.0s"]


def test_a_range_is_measured_only_if_the_processor_time_of_the_handler_is_known() -> None:
    for found, grounds in (
        (estimate(), "if `handle` only waits: its processor time is unknown"),
        (measured_costs(), "from measured drains"),
    ):
        (range_,) = (
            each
            for each in estimate_page(found).sections[0].items
            if isinstance(each, Field) and each.label == "range"
        )
        assert (range_.value, range_.note) == ("16m 20s to 19m 50s", grounds)


def test_of_the_concurrencies_that_the_rate_decides_one_is_shown() -> None:
    found = estimate()
    rows = [
        replace(found.requested, concurrency=n, bound=RATE if n > 10 else CONCURRENCY)
        for n in (10, 20, 100, 200)
    ]
    for order, shown in ((rows[2], ["10", "100"]), (rows[0], ["10", "20"])):
        page = estimate_page(replace(found, orders={Order.SUB_KEY: order}, table=tuple(rows)))
        table = named(page)["at once"]
        assert [row(table, n)[0] for n in range(len(table.rows))] == shown


@pytest.mark.parametrize(
    ("bound", "rate", "least", "needs"),
    [
        (LANE, None, 300, "--concurrency 300"),
        (LANE, None, None, "finer sub-keys or `coalesce`; more concurrency is not enough"),
        (CONCURRENCY, None, None, "more than 300 at once"),
        (READ_CAP, None, None, "higher --broker-limits; more concurrency is not enough"),
        (RATE, 50.0, None, "--rate 100/s; more concurrency is not enough"),
        (BARRIERS, None, None, "fewer barriers, and more concurrency"),
    ],
)
def test_a_drain_that_will_be_late_needs_what_lowers_its_largest_bound(
    bound: str, rate: float | None, least: int | None, needs: str
) -> None:
    found = estimate(verdict=by(500, -500, least))
    of = {CONCURRENCY: 600.0 if bound == BARRIERS else 100.0, bound: 1_000.0}
    requested = replace(found.requested, bounds=of, bound=bound)
    fastest = replace(requested, concurrency=300)
    found = replace(
        found,
        setting=replace(found.setting, rate=rate),
        orders={Order.SUB_KEY: requested},
        table=(requested, fastest),
    )
    verdict, _, limit = estimate_page(found).sections[0].items
    assert isinstance(verdict, Line)
    assert verdict.text.endswith(f"; needs {needs}")
    if bound == LANE and least is None:
        by_key = replace(found, table=(replace(fastest, order=Order.KEY),))
        verdict = estimate_page(by_key).sections[0].items[0]
        assert isinstance(verdict, Line)
        assert "needs a finer order, such as --tune order=sub-key; more" in verdict.text
    if bound in (RATE, READ_CAP):
        assert isinstance(limit, Field)
        assert limit.value.endswith("more concurrency does not help")
