from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from drainer.core.parked import ParkedLane, ParkedLanes
from drainer.core.plan import ALL
from drainer.core.progress import Progress
from drainer.policy.failures import AfterDead, FailureSettings, OnFailure
from drainer.policy.redrive import RedriveSettings
from drainer.view.plan import show_checks, show_plan

from . import samples


def test_a_plan_shows_how_far_it_came_and_how_to_go_on() -> None:
    terminal, out, err = samples.terminal()
    show_plan(terminal, samples.plan(), Path("orders.plan"))
    text = err.getvalue()
    assert text.startswith("orders, for group reindexer: at most 3,949 offsets to go\n")
    row = next(line for line in text.splitlines() if "[1000, 9000)" in line)
    assert " ".join(row.split()) == "0 [1000, 9000) 1000 5000 5000 51 + 1 part 3,949"
    assert text.count("✓ adds up") == 2
    assert "drainer resume orders.plan" in text
    assert "drainer plan undo orders.plan" in text
    assert out.getvalue() == ""


def test_a_complete_plan_is_not_resumed() -> None:
    plan = samples.plan()
    plan = replace(plan, claims={ALL: {0: Progress(9_000)}})
    terminal, _, err = samples.terminal()
    show_plan(terminal, plan, Path("orders.plan"))
    assert err.getvalue().startswith("orders, for group reindexer: ✓ drained\n")
    assert "resume" not in err.getvalue()


def test_two_hundred_partitions_stay_readable() -> None:
    terminal, _, err = samples.terminal()
    show_plan(terminal, samples.plan(200))
    assert "and 188 more partitions, 759,990 offsets to go" in err.getvalue()
    assert len(err.getvalue().splitlines()) < 40


def test_no_partitions_is_no_crash() -> None:
    terminal, _, err = samples.terminal()
    show_plan(terminal, samples.plan(0))
    assert "no partitions" in err.getvalue()


def test_stdout_is_left_to_the_command() -> None:
    terminal, out, _ = samples.terminal(json=True)
    show_plan(terminal, samples.plan())
    show_checks(terminal, CHECKS)
    assert out.getvalue() == ""


CHECKS = [("digest", True, "it is what was written"), ("topic id", False, "topic [orders] is new")]


def test_each_check_has_its_mark() -> None:
    terminal, _, err = samples.terminal()
    show_checks(terminal, CHECKS)
    assert err.getvalue().splitlines() == [
        "  ✓ digest: it is what was written",
        "  ✗ topic id: topic [orders] is new",
        "✗ 1 of 2 checks failed",
    ]


def test_quiet_shows_the_checks_that_failed() -> None:
    terminal, _, err = samples.terminal(quiet=True)
    show_checks(terminal, CHECKS)
    assert "digest" not in err.getvalue()
    assert "✗ topic id" in err.getvalue()


def test_checks_that_all_hold() -> None:
    terminal, _, err = samples.terminal()
    show_checks(terminal, [("the digest is right", True, "")])
    assert err.getvalue() == "  ✓ the digest is right\n✓ 1 check passed\n"


def test_the_failure_policy_and_what_is_parked_are_shown() -> None:
    policy = FailureSettings(
        retries=5,
        on_failure=OnFailure.DEAD_LETTER,
        after_dead=AfterDead.PARK,
        dead_letter_topic="orders.dead",
    )
    parked = tuple(f"'doc-{n}'" for n in range(5))
    named = ParkedLanes(5, (ParkedLane("'doc-0'", "orders/0/4[1]", "ValueError: no"),))
    terminal, _, err = samples.terminal()
    plan = replace(samples.plan(), failures=policy, parked=parked, parked_lanes=named)
    show_plan(terminal, plan)
    lines = err.getvalue().splitlines()
    assert "  retries       5, after 0.2s to 3.2s  (an attempt may take 30s)" in lines
    assert "  on failure    dead letter to orders.dead; its lane is parked behind it" in lines
    (shown,) = [line for line in lines if line.startswith("  parked  ")]
    assert "5 lanes: 'doc-0', 'doc-1', 'doc-2', …" in shown
    assert "--after-dead continue" in shown
    place = lines.index("    'doc-0' at orders/0/4[1]: ValueError: no")
    assert lines[place + 1] == "    and 4 more"


def test_the_plan_of_a_redrive_says_which_letters_it_is_about() -> None:
    terminal, _, err = samples.terminal()
    show_plan(terminal, replace(samples.plan(), redrive=RedriveSettings(max_redrives=1)))
    assert "  letters       all  (but none that was redriven 1 time)" in err.getvalue()


def test_what_claims_say_above_the_watermark_is_told() -> None:
    plan = samples.plan()
    progress = plan.claims[ALL][0]
    others = {f"{n}/4": {0: Progress(progress.watermark + n)} for n in range(4)}
    plan = replace(plan, claims={**plan.claims, **others})
    terminal, _, err = samples.terminal()
    show_plan(terminal, plan, Path("orders.plan"))
    assert "51 + 1 part + what 4 claims say" in err.getvalue()
    assert "at most 4,000 offsets to go" in err.getvalue()
