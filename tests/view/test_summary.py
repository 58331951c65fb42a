from __future__ import annotations

from dataclasses import replace

import orjson

from drainer.core.latency import Latency
from drainer.core.progress import Counts
from drainer.engine.status import FailureStatus, PartitionResult, Summary
from drainer.errors import Halted, Interrupted
from drainer.view.summary import show_summary

from . import samples


def shown(summary: Summary, *, quiet: bool = False) -> str:
    terminal, out, err = samples.terminal(quiet=quiet, width=80)
    show_summary(terminal, summary)
    assert out.getvalue() == ""
    return err.getvalue()


STOPPED = replace(
    samples.summary(),
    status="interrupted",
    exit_code=4,
    messages=Counts(4_100, 4_051, 0, 0, 49),
    sub_messages=Counts(16_400, 16_206, 0, 0, 194),
    partitions={0: PartitionResult(1_000, 9_000, 5_000, 5_000)},
    plan="my orders.plan",
)


def test_a_drain_that_ended_well_proves_it() -> None:
    text = shown(samples.summary())
    assert text.startswith(
        "✓ Drained: 3,000,000 messages, 150,000,000 sub-messages, 1,000 of them skipped\n"
    )
    assert "1h 02m, at 40,268 sub-messages/s" in text
    assert text.count("✓ adds up") == 2
    assert "resume" not in text
    row = next(line for line in text.splitlines() if "9000" in line)
    assert row.split() == ["0", "9000", "9000", "9000", "✓"]


def test_how_long_the_handler_took_is_told() -> None:
    latency = Latency.of(100, 0.02, [n / 2_000 for n in range(101)])

    assert "p50 25ms, p95 48ms, p99 50ms  (of handle, in this run)" in shown(
        samples.summary(latency=latency)
    )


def test_an_account_that_does_not_add_up_is_loud_even_when_quiet() -> None:
    text = shown(replace(samples.summary(), messages=Counts(10, 8, 0, 0, 1)), quiet=True)
    assert "✗ DOES NOT ADD UP" in text


def test_a_concurrency_that_was_found_is_told() -> None:
    text = shown(replace(samples.summary(), auto=samples.AUTO))
    assert "auto, settled at 290  (19,512 sub-messages/s there)" in text
    text = shown(replace(samples.summary(), auto=replace(samples.AUTO, settled=None)))
    assert "auto, 310 at the end  (trying whether more helps)" in text
    assert "concurrency" not in shown(samples.summary())


def test_an_interrupted_drain_ends_with_the_command_to_resume() -> None:
    text = shown(STOPPED)
    assert text.startswith("■ Interrupted, at most 4,000 offsets to go\n")
    assert "4,000 offsets to go" in text
    assert text.endswith("resume: drainer resume 'my orders.plan'\n")


def test_a_halted_drain_says_why_and_how_to_go_on() -> None:
    text = shown(
        replace(
            STOPPED,
            status="halted",
            cause=Halted("orders/0 offset 7 [x]: ValueError", hint="mend it"),
        )
    )
    assert text.startswith("✗ Halted")
    assert "error: orders/0 offset 7 [x]: ValueError\nhint: mend it\nresume: drainer" in text


def test_quiet_keeps_the_way_on() -> None:
    text = shown(replace(STOPPED, cause=Interrupted("stopped")), quiet=True)
    assert "error: stopped" in text
    assert "resume: drainer resume" in text
    assert "adds up" not in text


def test_quiet_says_nothing_of_a_drain_that_ended_well() -> None:
    assert shown(samples.summary(), quiet=True) == ""


def test_dead_letters_are_in_the_headline() -> None:
    dead = replace(samples.summary(), sub_messages=Counts(10, 7, 3, 0, 0), exit_code=6)
    assert shown(dead).startswith("! Drained, with 3 dead letters")


def test_letters_that_died_in_former_runs_of_a_redrive_are_no_warning() -> None:
    counts = Counts(10, 7, 3, 0, 0)
    redriven = replace(samples.summary(), sub_messages=counts, left_alone={}, exit_code=0)
    assert shown(redriven).startswith("✓ Redriven: ")


def test_a_committed_offset_that_is_not_the_watermark_comes_first() -> None:
    fine = PartitionResult(0, 100, 100, 100)
    results = dict.fromkeys(range(200), fine)
    results[150] = PartitionResult(0, 100, 50, 99)
    results[151] = PartitionResult(0, 100, 50, None)
    results[120] = PartitionResult(0, 100, 50, 50)
    results[199] = PartitionResult(0, 100, 0, None)
    text = shown(replace(samples.summary(), partitions=results))
    rows = text[text.index("partition") :].splitlines()
    assert rows[1].split()[0] == "150"
    assert "✗ committed past the watermark" in rows[1]
    assert "none  ✗ committed is not the watermark" in rows[2]
    assert "50 offsets to go" in rows[3]
    assert "100 offsets to go" in rows[4]
    assert "and 188 more partitions, ✓ all at their end" in text


def test_json_is_alone_on_stdout() -> None:
    terminal, out, err = samples.terminal(json=True)
    show_summary(terminal, STOPPED)
    assert orjson.loads(out.getvalue()) == STOPPED.as_json()
    assert out.getvalue().count("\n") == 1
    assert "Interrupted" in err.getvalue()


def test_an_empty_backlog_is_good_news() -> None:
    empty = replace(
        samples.summary(0),
        status="empty",
        messages=Counts(),
        sub_messages=Counts(),
        plan=None,
        sub_messages_per_s=0.0,
    )
    assert shown(empty) == "✓ Nothing to drain: the backlog is empty\n"


ERRORS = tuple((f"ValueError: no [such] document {n}", 70 - n) for n in range(7))
FAILURES = FailureStatus(failures=410, retries=300, timeouts=2, outages=1, errors=ERRORS)


def test_what_failed_is_told_the_most_frequent_first() -> None:
    lines = shown(replace(samples.summary(), failures=FAILURES)).splitlines()
    at = next(n for n, line in enumerate(lines) if "failures" in line)
    assert lines[at].split(maxsplit=1)[1] == (
        "410 failed attempts, 300 retries, 2 timeouts, 1 outage  (in this run)"
    )
    assert lines[at + 1] == "    70 x ValueError: no [such] document 0"
    assert lines[at + 6] == "    and 2 other errors"
    assert "dead letters" not in "\n".join(lines)


def test_dead_letters_come_with_the_commands_for_them() -> None:
    failures = replace(FAILURES, dead_letter_topic="my-dead")
    text = shown(
        replace(
            samples.summary(),
            exit_code=6,
            failures=failures,
            messages=Counts(9, 7, 2, 0, 0),
            sub_messages=Counts(10, 7, 3, 0, 0),
        )
    )
    assert text.startswith("! Drained, with 3 dead letters: 9 messages, 10 sub-messages\n")
    assert "drainer dead list --dead-letter-topic my-dead\n" in text
    assert "drainer redrive --dead-letter-topic my-dead --handler" in text


def test_lanes_that_are_still_parked_are_told_though_nothing_failed_in_this_run() -> None:
    text = shown(replace(STOPPED, failures=FailureStatus(parked_lanes=2)))
    assert "2 parked lanes  (in this run)" in text


def test_a_redrive_tells_what_it_left_alone_and_why() -> None:
    text = shown(
        replace(
            samples.summary(),
            exit_code=6,
            messages=Counts(9, 5, 1, 0, 3),
            sub_messages=Counts(9, 5, 1, 0, 3),
            left_alone={"its payload can't be written down exactly": 1, "not asked for": 2},
            failures=FailureStatus(1, dead_letter_topic="my-dead"),
        )
    )
    assert text.startswith("! Redriven, with 1 dead letter: 6 messages, 6 sub-messages\n")
    assert (
        "  left alone    3 records  (they stay for another redrive)\n    2 x not asked for\n"
        in text
    )
    assert "1 x its payload can't be written down exactly" in text
    assert "drainer redrive" not in text


def test_a_redrive_that_left_nothing_alone_does_not_speak_of_it() -> None:
    text = shown(replace(samples.summary(), left_alone={}))
    assert text.startswith("✓ Redriven: ")
    assert "left alone" not in text
