from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.core.bundles import BatchOf, Bundling
from drainer.engine.preview import EngineChoice, PartitionAction
from drainer.policy.concurrency import Concurrency
from drainer.policy.dead_letter import LetterFilter
from drainer.policy.failures import FailureSettings, Limit, OnFailure
from drainer.policy.redrive import RedriveSettings
from drainer.view.preview import show_preview

from . import samples


def shown(count: int = 1, **changes: object) -> str:
    terminal, out, err = samples.terminal()
    show_preview(terminal, samples.action(count, **changes))
    assert out.getvalue() == ""
    return err.getvalue()


def test_all_that_a_person_should_know_before_saying_yes() -> None:
    text = shown()
    assert text.startswith("Drain orders for group reindexer: 10,000 offsets in 1 partition\n")
    for fact in (
        "[1000, 11000)",
        "kafka-1.prod:9092",
        "(no members)",
        "reindex.py:Reindex",
        "256 MiB",
        "read_committed",
        "✓ group reindexer is empty",
        "drainer plan undo /var/lib/drainer/orders.reindexer.plan",
    ):
        assert fact in text


def test_a_group_that_does_not_exist_is_not_called_dead() -> None:
    text = shown(group_state="dead")
    assert "reindexer  (no such group yet)" in text
    assert "dead" not in text


def test_warnings_come_first() -> None:
    text = shown(warnings=("1,000 offsets of partition [3] are passed over",))
    assert text.startswith("warning: 1,000 offsets of partition [3] are passed over\n\nDrain")


def test_quiet_shows_the_warnings_only() -> None:
    terminal, _, err = samples.terminal(quiet=True)
    show_preview(terminal, samples.action(warnings=("careful",)))
    assert err.getvalue() == "warning: careful\n"


def test_many_partitions_collapse_to_the_largest_and_a_total() -> None:
    text = shown(200)
    rows = [line.split() for line in text.splitlines() if "[1000, " in line]
    assert [row[0] for row in rows] == [str(n) for n in range(199, 187, -1)]
    assert "and 188 more partitions, with " in text
    assert "total" in text
    assert "201,000,000" in text
    assert len(text.splitlines()) < 40


def test_a_resumed_drain_says_what_is_finished_already() -> None:
    part = PartitionAction(0, 1_000, 9_000, 4_000, finished=3_210)
    text = shown(resumes=True, partitions=(part,))
    assert text.startswith("Resume the drain of orders for group reindexer")
    assert "3,210 messages finished already" in text


def test_offsets_passed_over_and_a_group_without_offset_are_told() -> None:
    part = PartitionAction(0, 1_000, 9_000, None, leaps=1_234)
    text = shown(partitions=(part, replace(part, partition=1, start=9_000, leaps=0)))
    assert "passed over" in text
    assert "1,234" in text
    assert "no offset" in text
    assert "nothing to do" in text


def test_no_partitions_is_no_crash() -> None:
    assert "no partitions" in shown(0)


def policy(makes_topic: str | None = None, **changes: object) -> list[str]:
    """The lines on what happens when the handler fails."""
    failures = FailureSettings(**changes)  # type: ignore[arg-type]
    lines = shown(failures=failures, makes_topic=makes_topic).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("  retries"))
    return [line.strip() for line in lines[first : lines.index("", first)]]


def test_the_failure_policy_in_a_few_short_lines() -> None:
    assert policy() == [
        "retries       none  (an attempt may take 30s)",
        "on failure    halt the drain",
        "halts         after an outage of 1h 00m",
    ]
    assert policy(
        "orders.dead",
        retries=3,
        timeout_s=0.0,
        on_failure=OnFailure.DEAD_LETTER,
        dead_letter_topic="orders.dead",
        max_dead=Limit(share=0.01),
        breaker=False,
        rate=5_000.0,
    ) == [
        "retries       3, after 0.2s to 0.8s  (no timeout)",
        "on failure    dead letter to orders.dead, which will be made",
        "halts         above 1% given up",
        "breaker       none  (an outage fails sub-messages like anything else)",
        "rate          5,000/s  (sub-messages started at most)",
    ]


def test_what_is_no_limit_is_not_told_as_one() -> None:
    lines = policy(on_failure=OnFailure.SKIP, max_dead=Limit(), breaker=False)
    assert lines[1:3] == [
        "on failure    skip the sub-message",
        "breaker       none  (an outage fails sub-messages like anything else)",
    ]


@pytest.mark.parametrize(
    ("retries", "delay_s", "most_s", "waits"),
    [
        (1, 0.2, 30.0, "1, after 0.2s"),
        (20, 1.0, 30.0, "20, after 1.0s to 30s"),
        (5, 60.0, 30.0, "5, after 30s"),
        (9_999, 0.01, 1e9, "9,999, after 10ms to 11,574 days"),
    ],
)
def test_waits_are_those_that_there_will_be(
    retries: int, delay_s: float, most_s: float, waits: str
) -> None:
    first = policy(retries=retries, retry_delay_s=delay_s, retry_max_delay_s=most_s)[0]
    assert first.split(maxsplit=1)[1].startswith(f"{waits}  (")


def test_a_slow_rate_is_told_by_the_minute() -> None:
    assert "rate          30/min" in shown(failures=FailureSettings(rate=0.5))


@pytest.mark.parametrize(
    ("bundling", "says"),
    [
        (Bundling(lambda earlier, later: later), "folds neighbours of a sub-key"),
        (Bundling(most=200), "up to 200 sub-keys in a call"),
        (Bundling(most=200, of=BatchOf.LANE), "up to 200 sub-messages of one sub-key in a call"),
    ],
)
def test_what_the_handler_takes_at_once_is_told(bundling: Bundling, says: str) -> None:
    text = shown(bundling=bundling)
    assert says in text
    assert "calls of the handler at once" in text
    assert "calls of the handler" not in shown()


def test_a_redrive_is_not_called_a_drain_and_says_which_letters_it_takes() -> None:
    chosen = LetterFilter(reasons=("timeout",), sub_keys=("a", "b"), errors=("[x]",))
    text = shown(redrive=RedriveSettings(chosen, 5))
    assert text.startswith("Redrive dead letters of orders for group reindexer: 10,000 offsets")
    assert (
        "letters       those with reason timeout and sub-key a or b and error [x]"
        "  (but none that was redriven 5 times)\n"
    ) in text
    going_on = shown(redrive=RedriveSettings(), resumes=True)
    assert going_on.startswith("Go on redriving the dead letters of orders")
    assert "finished already" not in going_on


def test_a_concurrency_that_is_found_says_how_far_it_goes() -> None:
    told = shown(concurrency=Concurrency.auto())
    assert "auto  (begins with 20, grows while throughput does, to 2,000 (200 on threads)" in told
    told = shown(concurrency=Concurrency.auto(500))
    assert "to 500 at most" in told


def test_the_engine_is_told_with_its_reason() -> None:
    assert "engine        this process  (no Spark master is named)" in shown(
        engine=EngineChoice(why="no Spark master is named")
    )
    text = shown(
        engine=EngineChoice(
            "spark",
            "--master names a master",
            master="yarn",
            wave_bytes=2 << 30,
            state="s3://bucket/state",
            conf={"spark.a": "b", "spark.secret": "***"},
            archives=("handlers.zip",),
        )
    )
    for fact in (
        "engine        Spark on yarn  (--master names a master)",
        "waves         2 GiB each  (handled by one task a core)",
        "state         s3://bucket/state",
        "archives      handlers.zip",
        "spark conf    spark.a=b, spark.secret=***",
    ):
        assert fact in text
