from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from builders import AT, changed, counts, progress_at
from drainer.errors import Refused
from drainer.model.account import Event, EventKind, clock
from drainer.model.claims import ALL
from drainer.model.rate_cap import CapCurve, CapPoint
from drainer.view.plan import checks_page, plan_page

from . import samples
from .facts import fields, row, tables, ways

PATH = Path("orders.plan")


def test_a_complete_plan_is_not_resumed_nor_one_whose_account_does_not_add_up() -> None:
    page = plan_page(changed(samples.plan(), claims={ALL: {0: progress_at(9_000)}}), PATH)
    assert page.message == "orders, for group reindexer: drained"
    assert "resume" not in ways(page)
    wrong = progress_at(5_000, messages=counts(read=9, done=1, dead=1, skipped=1, pending=1))
    page = plan_page(changed(samples.plan(), claims={ALL: {0: wrong}}), PATH)
    assert "resume" not in ways(page)
    assert ways(page) == ["undo"]


def test_the_limits_that_the_next_resume_applies_are_shown() -> None:
    two = (CapPoint(1_024, 1_024.0, 2_048.0), CapPoint(4_096, 1_024.0, 1_024.0))
    for limits, words in (
        (CapCurve.bound(2**20), "1 MiB/s"),
        (CapCurve("c1", 0.0, 0.5, two), "1 MiB/s to 2 MiB/s"),
    ):
        page = plan_page(changed(samples.plan(), limits=limits))
        assert fields(page)["limits"] == f"{words} (maximum that drainer reads)"


def test_an_undone_drain_is_resumed_to_commit_again_and_not_undone_again() -> None:
    undone = Event(AT, EventKind.UNDONE, "ana@db1", "ticket 8")
    plan = changed(samples.plan(), history=(undone,), claims={ALL: {0: progress_at(9_000)}})
    page = plan_page(plan, PATH, now=datetime.fromisoformat(AT))
    assert page.headline.text == "undone, with nothing left to handle"
    at = f"{datetime.fromisoformat(AT).astimezone():%H:%M}"
    again = "a resume commits again what is done"
    assert page.details[0].text == f"  its last run was undone at {at} (ticket 8); {again}"
    assert ways(page) == ["resume"]
    begun = changed(plan, history=(undone, replace(undone, what=EventKind.ENDED)))
    assert ways(plan_page(begun, PATH)) == ["undo"]


def test_the_offsets_of_a_killed_drain_say_from_when_they_are() -> None:
    begun = Event(AT, EventKind.BEGUN, "ana@db1")
    killed = changed(samples.plan(), history=(begun,), updated=AT)
    [table, *_] = tables(plan_page(killed, PATH))
    assert table.caption == f"committed: when last saved, at {clock(AT)}"
    ended = changed(killed, history=(begun, replace(begun, what=EventKind.ENDED)))
    assert tables(plan_page(ended, PATH))[0].caption == ""


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "soon"])
def test_an_event_at_a_time_that_no_clock_shows_has_the_time_as_it_is_written(at: str) -> None:
    assert clock(at) == at


def test_each_check_has_its_mark_and_quiet_shows_those_that_failed() -> None:
    checks = [
        ("digest", None),
        ("topic id", Refused("topic [orders] is new", hint="Name another.")),
    ]
    loud, out, err = samples.terminal()
    quiet, found, only = samples.terminal(quiet=True)
    loud.present(checks_page(checks))
    quiet.present(checks_page(checks))
    head, hint = "✗ 1 of 2 checks failed", "hint: Name another."
    digest, topic = "  ✓ digest", "  ✗ topic id: topic [orders] is new"
    assert out.getvalue().splitlines() == [head, "", digest, topic]
    assert found.getvalue().splitlines() == [head, topic]
    assert err.getvalue().splitlines() == only.getvalue().splitlines() == [hint]


def test_what_claims_have_above_the_watermark_is_shown() -> None:
    plan = samples.plan()
    progress = plan.account.claims[ALL][0]
    others = {f"{n}/4": {0: progress_at(progress.watermark + n)} for n in range(4)}
    page = plan_page(changed(plan, claims={**plan.account.claims, **others}), PATH)
    assert row(tables(page)[0], 0)[5] == "some"
    assert page.headline.text == "stopped, at most 4,000 offsets left"
