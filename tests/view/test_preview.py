"""What is about to happen: the drain, its failure policy and its rules."""

from __future__ import annotations

from dataclasses import replace

from drainer.core.bundles import BatchOf, Bundling
from drainer.engine.preview import EngineChoice, PartitionAction
from drainer.engine.status import RuleStatus
from drainer.policy.concurrency import Concurrency
from drainer.policy.dead_letter import LetterFilter
from drainer.policy.failures import FailureSettings, Limit, OnFailure
from drainer.policy.redrive import RedriveSettings
from drainer.policy.rules.settings import LIMIT, OverLimit, RuleAccount, RuleSettings, SkipRule
from drainer.view.page import SHOWN
from drainer.view.plan import plan_page
from drainer.view.policy import rule_fields, rule_lines
from drainer.view.preview import preview_page

from . import samples
from .facts import row, shown, tables, told


def test_all_that_a_person_should_know_before_saying_yes() -> None:
    text = shown(preview_page(samples.action(warnings=("careful",))))
    assert text.startswith(
        "warning: careful\n\nDrain orders for group reindexer: 10,000 offsets in 1 partition\n"
    )
    for fact in (
        "[1000, 11000)",
        "kafka-1.prod:9092",
        "reindex.py:Reindex",
        "256 MiB",
        "read_committed",
        "✓ group reindexer is empty",
        "drainer plan undo /var/lib/drainer/orders.reindexer.plan",
    ):
        assert fact in text
    assert shown(preview_page(samples.action(warnings=("careful",))), quiet=True) == (
        "warning: careful\n"
    )


def test_many_partitions_collapse_to_the_largest_and_a_total() -> None:
    text = shown(preview_page(samples.action(200)))
    rows = [line.split() for line in text.splitlines() if "[1000, " in line]
    assert [row[0] for row in rows] == [str(n) for n in range(199, 187, -1)]
    assert "and 188 more" in text
    assert "201,000,000" in text


def test_a_resumed_drain_says_what_is_finished_already_and_where_there_is_nothing_to_do() -> None:
    part = PartitionAction(0, 1_000, 9_000, None, finished=3_210)
    done = PartitionAction(1, 9_000, 9_000, 9_000)
    page = preview_page(samples.action(resumes=True, partitions=(part, done)))
    assert page.subject == "Resume the drain of orders for group reindexer"
    assert "3,210 messages finished already" in page.details[0].text
    (table,) = tables(page)
    assert row(table, 0)[3:] == ["no offset", "9000"]
    assert row(table, 1)[3:] == ["9000", "nothing to do"]


def policy(**changes: object) -> dict[str, str]:
    failures = FailureSettings(**changes)  # type: ignore[arg-type]
    found = told(preview_page(samples.action(failures=failures)))
    return {
        label: found[label]
        for label in ("retries", "on failure", "halts", "breaker", "rate")
        if label in found
    }


def test_the_failure_policy_in_a_few_short_lines() -> None:
    assert policy() == {
        "retries": "none (an attempt may take 30s)",
        "on failure": "halt the drain",
        "halts": "after an outage of 1h 00m",
    }
    assert policy(
        retries=3,
        timeout_s=0.0,
        on_failure=OnFailure.DEAD_LETTER,
        dead_letter_topic="orders.dead",
        max_dead=Limit(share=0.01),
        breaker=False,
        rate=0.5,
    ) == {
        "retries": "3, after 0.2s at first, 30s at most (no timeout)",
        "on failure": "dead letter to orders.dead",
        "halts": "above 1% given up",
        "breaker": "none (an outage fails sub-messages like anything else)",
        "rate": "30/min (sub-messages started at most)",
    }
    assert "halts" not in policy(on_failure=OnFailure.SKIP, max_dead=Limit(), breaker=False)


def test_what_the_handler_takes_at_once_and_how_many_calls_there_may_be() -> None:
    for bundling, says in (
        (Bundling(lambda earlier, later: later), "folds neighbours of a sub-key"),
        (Bundling(most=200), "up to 200 sub-keys in a call"),
        (Bundling(most=200, of=BatchOf.LANE), "up to 200 sub-messages of one sub-key in a call"),
    ):
        found = told(preview_page(samples.action(bundling=bundling)))
        assert found["calls"] == says
        assert "calls of the handler at once" in found["concurrency"]
    found = told(preview_page(samples.action(concurrency=Concurrency.auto())))
    assert found["concurrency"] == (
        "auto (begins with 20, grows while throughput does, to 2,000 at most)"
    )


def test_a_redrive_is_not_called_a_drain_and_says_which_letters_it_takes() -> None:
    chosen = LetterFilter(reasons=("timeout",), sub_keys=("a", "b"), errors=("[x]",))
    page = preview_page(samples.action(redrive=RedriveSettings(chosen, 5)))
    assert page.subject == "Redrive dead letters of orders for group reindexer"
    assert told(page)["letters"] == (
        "those with reasons timeout and sub-keys a or b and errors [x]"
        " (but none that was redriven 5 times)"
    )
    going_on = preview_page(samples.action(redrive=RedriveSettings(), resumes=True))
    assert going_on.subject.startswith("Go on redriving the dead letters of orders")


def test_the_engine_is_told_with_its_reason() -> None:
    here = EngineChoice(why="no Spark master is named")
    assert told(preview_page(samples.action(engine=here)))["engine"] == (
        "this process (no Spark master is named)"
    )
    spark = EngineChoice(
        "spark",
        "--master names a master",
        master="yarn",
        wave_bytes=2 << 30,
        state="s3://bucket/state",
        conf={"spark.a": "b", "spark.secret": "***"},
        archives=("handlers.zip",),
    )
    found = told(preview_page(samples.action(engine=spark)))
    assert found["engine"] == "Spark on yarn (--master names a master)"
    assert found["waves"] == "2 GiB each (handled by one task a core)"
    assert found["spark conf"] == "spark.a=b, spark.secret=***"


RULES = RuleSettings(
    (
        SkipRule("mails", when="payload.kind == 'set_email'", keys=("a", "b")),
        SkipRule.typed_key("app-admin"),
        SkipRule.typed("payload.n  > 5"),
    ),
    limit_per_key=1000,
    over_limit=OverLimit.DEAD_LETTER,
)


def test_each_rule_says_what_it_leaves_out_and_where_to() -> None:
    failures = FailureSettings(dead_letter_topic="orders.dead")
    page = preview_page(samples.action(rules=RULES, failures=failures, makes_topic="orders.dead"))
    assert told(page)["skips"].splitlines() == [
        "by 3 rules",
        "mails: sub-key a or b and payload.kind == 'set_email'",
        "sub-key app-admin",
        "payload.n  > 5",
    ]
    assert told(page)["per sub-key"] == (
        "the first 1,000 sub-messages; the rest become dead letters in orders.dead"
    )
    assert told(page)["makes"] == "topic orders.dead (for dead letters)"


def test_a_plan_tells_what_rules_did() -> None:
    ruled = RuleAccount({"mails": 2, "gone": 3}, {LIMIT: 4})
    found = told(plan_page(replace(samples.plan(), rules=RULES, ruled=ruled)))
    assert found["skips"].startswith("by 3 rules\nmails: sub-key a")
    assert found["skipped by"] == "5 sub-messages\n3 by gone\n2 by mails"
    assert found["dead by"] == "4 sub-messages\n4 by limit-per-key"


def test_very_many_rules_are_told_in_a_line() -> None:
    many = {f"rule {n}": 1 for n in range(SHOWN + 5)}
    (after,) = rule_lines(RuleStatus(many))
    (before,) = rule_fields(RuleSettings(tuple(SkipRule(n, when="barrier") for n in many)))
    assert after.lines[-1] == before.lines[-1] == "and 5 more"
