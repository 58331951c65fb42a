from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from drainer.core.parked import ParkedLane, ParkedLanes
from drainer.core.plan import ALL
from drainer.core.progress import Counts, Progress
from drainer.errors import Refused
from drainer.policy.failures import AfterDead, FailureSettings, OnFailure
from drainer.policy.redrive import RedriveSettings
from drainer.view.plan import plan_page, show_checks

from . import samples
from .facts import row, shown, tables, told

PATH = Path("orders.plan")


def test_a_plan_shows_how_far_it_came_and_how_to_go_on() -> None:
    page = plan_page(samples.plan(), PATH)
    assert page.told == "orders, for group reindexer: at most 3,949 offsets to go"
    cells = ["0", "[1000, 9000)", "1000", "5000", "5000", "51", "3,949"]
    assert row(tables(page)[0], 0) == cells
    assert told(page)["to resume"] == "drainer resume orders.plan"
    assert told(page)["to undo"] == "drainer plan undo orders.plan"


def test_a_complete_plan_is_not_resumed_nor_one_whose_account_does_not_add_up() -> None:
    page = plan_page(replace(samples.plan(), claims={ALL: {0: Progress(9_000)}}), PATH)
    assert page.told == "orders, for group reindexer: drained"
    assert "to resume" not in told(page)
    wrong = Progress(5_000, messages=Counts(9, 1, 1, 1, 1))
    page = plan_page(replace(samples.plan(), claims={ALL: {0: wrong}}), PATH)
    assert "to resume" not in told(page)
    assert told(page)["to undo"]


def test_two_hundred_partitions_stay_readable() -> None:
    text = shown(plan_page(samples.plan(200)))
    assert "and 188 more" in text
    assert len(text.splitlines()) < 40


def test_each_check_has_its_mark_and_quiet_shows_those_that_failed() -> None:
    checks = [("digest", None), ("topic id", Refused("topic [orders] is new"))]
    loud, out, err = samples.terminal(json=True)
    quiet, _, only = samples.terminal(quiet=True)
    show_checks(loud, checks)
    show_checks(quiet, checks)
    lines = [
        "  ✓ digest",
        "  ✗ topic id: topic [orders] is new",
        "✗ 1 of 2 checks failed",
    ]
    assert err.getvalue().splitlines() == lines
    assert only.getvalue().splitlines() == lines[1:]
    assert out.getvalue() == ""


def test_the_failure_policy_and_what_is_parked_are_shown() -> None:
    policy = FailureSettings(
        retries=5,
        on_failure=OnFailure.DEAD_LETTER,
        after_dead=AfterDead.PARK,
        dead_letter_topic="orders.dead",
    )
    found = told(
        plan_page(
            replace(
                samples.plan(),
                failures=policy,
                parked=tuple(f"'doc-{n}'" for n in range(5)),
                parked_lanes=ParkedLanes(5, (ParkedLane("'doc-0'", "t/0/4[1]", "Error: no"),)),
                redrive=RedriveSettings(max_redrives=1),
            )
        )
    )
    assert found["retries"] == "5, after 0.2s at first, 30s at most (an attempt may take 30s)"
    assert found["on failure"] == "dead letter to orders.dead; its lane is parked behind it"
    assert found["parked lanes"].startswith("5 (behind dead letters: --after-dead continue")
    assert found["parked lanes"].splitlines()[1:] == [
        "'doc-0' at t/0/4[1]: Error: no",
        "and 4 more",
    ]
    assert found["letters"] == "all (but none that was redriven 1 time)"


def test_what_claims_say_above_the_watermark_is_told() -> None:
    plan = samples.plan()
    progress = plan.claims[ALL][0]
    others = {f"{n}/4": {0: Progress(progress.watermark + n)} for n in range(4)}
    page = plan_page(replace(plan, claims={**plan.claims, **others}), PATH)
    assert row(tables(page)[0], 0)[5] == "some"
    assert page.headline.text == "at most 4,000 offsets to go"
