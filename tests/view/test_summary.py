from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from drainer.core.latency import Latency
from drainer.core.parked import ParkedLane, ParkedLanes
from drainer.core.progress import Counts
from drainer.core.transaction import HeldBack
from drainer.engine.outcome import concluded
from drainer.engine.status import FailureStatus, PartitionResult, Resuming, Summary
from drainer.errors import (
    Halted,
    Interrupted,
    OffsetMoved,
    RecordsDeleted,
    Signalled,
    TopicGone,
)
from drainer.mask import VARIABLE, mask_text
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
    assert row.split() == ["0", "1000", "9000", "9000", "9000", "✓"]


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


def test_a_stop_that_was_asked_for_is_no_error() -> None:
    text = shown(replace(STOPPED, cause=Signalled("interrupted by SIGINT")))
    assert "error" not in text
    assert text.endswith("■ interrupted by SIGINT\nresume: drainer resume 'my orders.plan'\n")


def test_the_command_to_resume_has_what_was_given_and_names_what_may_be_secret() -> None:
    resuming = Resuming(("--set", "index=my orders", "-c", "500"), ("--set api_token=…",))
    text = shown(replace(STOPPED, resuming=resuming))
    assert text.endswith(
        "resume: drainer resume 'my orders.plan' --set 'index=my orders' -c 500\n"
        "  with --set api_token=… as before: what may be secret is not shown\n"
    )


def test_an_end_that_no_resume_gets_over_tells_the_way_out() -> None:
    ended = replace(STOPPED, status="failed", exit_code=8)
    text = shown(replace(ended, cause=OffsetMoved("the group is at 7")))
    assert "resume:" not in text
    assert text.endswith("undo: drainer plan undo 'my orders.plan'\n")
    text = shown(replace(ended, cause=TopicGone("topic orders was deleted")))
    assert "resume:" not in text
    assert "undo:" not in text


def test_an_account_that_does_not_add_up_is_not_resumed_and_can_be_undone() -> None:
    status, code, cause = concluded(None, Counts(9, 1, 1, 1, 1), Counts(), gave_up=0, lost=False)
    wrong = replace(STOPPED, status=status, exit_code=code, cause=cause, messages=Counts(9))
    assert code == 8
    text = shown(wrong)
    assert "DOES NOT ADD UP" in text
    assert "resume:" not in text
    assert "undo: drainer plan undo" in text
    assert wrong.as_json()["resume"] is None


def test_what_is_finished_above_the_watermark_is_not_to_go() -> None:
    part = PartitionResult(1_000, 9_000, 5_000, 5_000, above=2_796)
    text = shown(replace(STOPPED, partitions={0: part}))
    assert text.startswith("■ Interrupted, at most 1,204 offsets to go\n")
    assert text.count("1,204 offsets to go") == 2


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


def test_what_retention_took_unread_is_named_beside_the_account() -> None:
    parts = {0: PartitionResult(0, 900, 900, 900, ((100, 200), (205, 206)))}
    summary = replace(samples.summary(), exit_code=6, partitions=parts)

    assert "offsets 100-199 205 of partition 0, at most 101 records" in shown(summary)
    assert shown(summary, quiet=True).startswith("! Drained, at most 101 records lost:")
    assert summary.as_json()["partitions"]["0"]["lost"] == ((100, 200), (205, 206))


def test_a_drain_that_ends_at_an_open_transaction_says_so() -> None:
    held = (HeldBack("orders", 3, 700, 50, 1_772_366_400_000), HeldBack("orders", 4, 9, 1, None))
    text = shown(replace(samples.summary(), held=held))

    assert "51 offsets behind an open transaction" in text
    assert "orders/3 from offset 700 on (50, open since 2026-03-01T12:00:00+00:00)" in text
    assert "orders/4 from offset 9 on (1)" in text


def test_records_that_were_deleted_meanwhile_need_a_word_to_resume() -> None:
    text = shown(replace(STOPPED, cause=RecordsDeleted("offsets 5 to 9 are gone")))
    assert text.endswith("resume: drainer resume 'my orders.plan' --accept-gap\n")


def test_json_is_alone_on_stdout() -> None:
    terminal, out, err = samples.terminal(json=True)
    show_summary(terminal, STOPPED)
    assert orjson.loads(out.getvalue()) == orjson.loads(orjson.dumps(STOPPED.as_json()))
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


def test_parked_lanes_are_named_and_the_rest_are_counted() -> None:
    lanes = tuple(ParkedLane(f"'k{n}'", f"t/0/{n}[0]", "ValueError: no") for n in range(30))
    text = shown(replace(STOPPED, parked=ParkedLanes(1_030, lanes)))
    assert "  parked lanes  1,030 " in text
    assert "    'k0' at t/0/0[0]: ValueError: no\n" in text
    assert "'k19'" in text
    assert "'k20'" not in text
    assert "    and 1,010 more\n" in text


def test_parked_lanes_are_masked_with_their_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "secret")
    lane = ParkedLane("'ann@example.com'", "t/0/4[0]", "ValueError: ann")
    summary = replace(STOPPED, parked=ParkedLanes(1, (lane,)))
    text = shown(summary)
    assert f"    {mask_text(lane.key)} at t/0/4[0]: ValueError\n" in text
    assert "ann" not in text + repr(summary.as_json()["parked_first"])


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
