from __future__ import annotations

from dataclasses import replace

import orjson

from drainer.core.progress import Counts
from drainer.engine.status import PartitionResult, Summary
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
    assert text.startswith("✓ Drained: 3,000,000 messages, 150,000,000 sub-messages\n")
    assert "1h 02m, at 40,268 sub-messages/s" in text
    assert text.count("✓ adds up") == 2
    assert "resume" not in text
    row = next(line for line in text.splitlines() if "9000" in line)
    assert row.split() == ["0", "9000", "9000", "9000", "✓"]


def test_an_account_that_does_not_add_up_is_loud_even_when_quiet() -> None:
    text = shown(replace(samples.summary(), messages=Counts(10, 8, 0, 0, 1)), quiet=True)
    assert "✗ DOES NOT ADD UP" in text


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
    text = shown(replace(samples.summary(), sub_messages=Counts(10, 7, 3, 0, 0)))
    assert text.startswith("! Drained, with 3 dead letters")


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
