"""The page of an estimate: what it claims, and the rows that it needs."""

from __future__ import annotations

from dataclasses import replace

from drainer.insight.bounds import CONCURRENCY, RATE
from drainer.insight.cli.estimate import estimate_page
from drainer.insight.estimate import Question
from drainer.model.order import Order
from drainer.view.page import Line

from .estimates import TEN_MS, by, estimate
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
