"""A drain's end: how to continue, the account, and the group's committed offsets."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders import a_cap, a_plan, a_summary, changed, counts
from drainer.engine.outcome import final_outcome
from drainer.errors import (
    EXIT_FOUND,
    DrainerError,
    Interrupted,
    OffsetMoved,
    RecordsDeleted,
    Signalled,
    TopicGone,
)
from drainer.model.account import Event, EventKind, ParkedLane, ParkedLanes
from drainer.model.deadline import DeadlineStatus
from drainer.model.hand_over import HandOver, Look, PartitionHandOver
from drainer.model.merging import merge
from drainer.model.priority import ClassStatus
from drainer.model.resuming import Resuming
from drainer.model.status import CLASS_DONE, FailureStatus, PartitionResult
from drainer.model.terms import PayloadSettings
from drainer.policy.redrive import NOT_MATCHED
from drainer.text.mask import VARIABLE, mask_text
from drainer.view.page import Tone
from drainer.view.summary import summary_page

from .facts import fields, row, shown, tables
from .samples import ENDED

HALF = {0: PartitionResult(1_000, 9_000, 5_000, 5_000)}
STOPPED = a_summary(
    status="interrupted",
    exit_code=4,
    messages=counts(done=4_051, pending=49),
    sub_messages=counts(done=16_206, pending=194),
    partitions=HALF,
    plan="my orders.plan",
)
RESUME = "drainer resume 'my orders.plan'"


def headline(**changes: object) -> str:
    return shown(summary_page(a_summary(1, **changes))).splitlines()[0]


def facts(**changes: object) -> dict[str, str]:
    return fields(summary_page(a_summary(1, **changes)))


def test_a_barrier_that_matched_nothing_is_a_warning_once_all_was_seen() -> None:
    warning = "--barrier kind == 'inbx' matched none of "
    resumed = (Event("2026-11-24T17:00:00+00:00", EventKind.RESUMED, "ana@db1"),)
    page = a_summary(1, barrier="kind == 'inbx'")
    assert warning in shown(summary_page(page))
    left_out = replace(page.last.rules, skipped_by={"barrier": 3})
    for unknown in (
        replace(page, history=resumed),
        replace(page, status="interrupted"),
        replace(page, last=replace(page.last, rules=left_out)),
    ):
        assert fields(summary_page(unknown))["barriers"] == "none (in this run)"
    rules = replace(page.last.rules, barriers=2)
    some = replace(page, last=replace(page.last, rules=rules))
    assert fields(summary_page(some))["barriers"].startswith("2 sub-messages (each waited")
    assert "barrier" not in shown(summary_page(a_summary(1)))


def test_a_cap_limited_the_run_only_if_it_did_not_read_far_ahead() -> None:
    limited = {"read_cap": a_cap(), "elapsed_s": 10.0}
    seen = "990 messages/s read, of 1,000 messages/s, 98 KiB/s"

    assert facts(**limited)["limits"] == f"{seen} (this limited the run)"
    assert facts(**limited, messages=counts(done=200, pending=9_700))["limits"] == seen


def test_a_drain_that_ended_well_is_silent_when_quiet() -> None:
    assert shown(summary_page(a_summary()), quiet=True) == ""


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"status": "empty"}, "✓ Nothing to drain: the backlog is empty"),
        (
            {"exit_code": 6, "sub_messages": counts(done=7, dead=2)},
            "! Drained, with 2 dead letters",
        ),
        ({"exit_code": 6, "left_alone": {}, "messages": counts(done=9)}, "! Redriven, "),
        (
            {"left_alone": {}, "sub_messages": counts(done=7, dead=2)},
            "✓ Redriven: ",
        ),
        (
            {"left_alone": {NOT_MATCHED: 17}, "messages": counts(), "sub_messages": counts()},
            "! No letter matched the filter: 0 messages, 0 sub-messages",
        ),  # of former runs
        ({"status": "interrupted", "exit_code": 4}, "■ Interrupted; no data lost"),
        (
            {"status": "interrupted", "exit_code": 4, "cause": Signalled("by SIGINT")},
            "■ Stopped on request; no data lost",
        ),
        ({"status": "halted", "exit_code": 5}, "✗ Halted"),
    ],
)
def test_the_headline_is_how_it_ended(changes: dict[str, object], line: str) -> None:
    assert headline(**changes).startswith(line)


def test_what_is_left_of_a_class_is_paired_with_its_own_time() -> None:
    """The time of a class is not that of all messages, which are counted in a later pass."""
    turn = ClassStatus("customer == 42", counts(done=1_820, pending=55), eta_s=92.0, left=55)
    summary = changed(
        STOPPED,
        classes=(turn,),
        eta_s=92.0,
        messages=counts(),
        sub_messages=counts(done=1_820, pending=55),
    )
    page = summary_page(summary)
    text = shown(page)
    assert (
        "~55 sub-messages of the class left (about 1m 32s). At most 4,000 messages left\n" in text
    )
    [account] = (each for each in tables(page) if "pending" in str(each.headings))
    assert [row(account, n)[0].strip() for n in range(len(account.rows))] == ["sub-messages"]
    assert fields(page)["messages"] == "counted when the rest is drained"


def test_a_class_without_a_sub_message_is_no_success() -> None:
    nothing = ClassStatus("customer == 999", counts(), ended=ENDED.isoformat())
    progress = replace(a_summary().last.progress, classes=(nothing,))
    last = replace(a_summary().last, progress=progress)
    page = summary_page(replace(a_summary(), last=last, status=CLASS_DONE))
    assert (page.headline.text, page.headline.tone) == ("No sub-message is selected", Tone.WARN)


def test_a_hand_over_is_as_good_as_its_worst_partition() -> None:
    look = Look(1.0, 9_001, "indexer-7 on 10.0.0.7\x1b[2J", 0, 9_002, 9_002)
    seen = PartitionHandOver(9_000).after(look)
    good, none = HandOver({0: seen}), HandOver({0: seen, 1: PartitionHandOver(9_001)}, "after 5m")
    text = shown(summary_page(a_summary(hand_over=good)))
    handed = "handed over: offsets show no gap, no overlap in 1 partition  (indexer-7 on 10.0.0.7"
    assert handed in text
    assert "\x1b[2J" not in text
    assert "Start the consumers" not in text
    text = shown(summary_page(a_summary(hand_over=none, exit_code=EXIT_FOUND)))
    assert "Drained, but not handed over" in text
    assert "not handed over: 1 partition (after 5m)" in text
    assert "1: no-reader" in text
    assert "resume:" not in text


@pytest.mark.parametrize(("margin_s", "words"), [(47.0, "before"), (-47.0, "after")])
def test_a_deadline_was_met_or_missed(margin_s: float, words: str) -> None:
    at = ENDED - timedelta(seconds=margin_s)
    history = (Event(at.isoformat(), EventKind.ENDED, "ana@db1"),)
    page = summary_page(a_summary(deadline=DeadlineStatus(ENDED, 50.0, 50.0), history=history))
    [run] = page.details
    ends, deadline = (f"{each.astimezone():%H:%M}" for each in (at, ENDED))
    assert run.text.startswith(f"  this run: 1h 02m, done at {ends}, 47s {words} {deadline}; ")


@pytest.mark.parametrize(
    ("cause", "way"),
    [
        (Interrupted("stopped", hint="fix it"), f"\nhint: fix it\nresume: {RESUME}"),
        (Signalled("interrupted by SIGINT"), f"\n■ interrupted by SIGINT\nresume: {RESUME}"),
        (RecordsDeleted("5 to 9 are gone"), f"\nresume: {RESUME} --accept-gap"),
        (OffsetMoved("the group is at 7"), "\nundo: drainer plan undo 'my orders.plan'"),
        (TopicGone("topic orders was deleted"), ""),
    ],
)
def test_the_end_has_its_reason_and_the_way_on_even_when_quiet(
    cause: DrainerError, way: str
) -> None:
    summary = changed(STOPPED, status="failed", exit_code=cause.exit_code, cause=cause)
    for quiet in (False, True):
        text = shown(summary_page(summary), quiet=quiet)
        assert str(cause) in text
        above, table, _ = text.partition("\npartition ")
        assert f"{way}\n" in above
        assert bool(table) is not quiet
        assert (RESUME in text, "undo:" in text) == (RESUME in way, "undo:" in way)
        assert ("error:" in text) is not isinstance(cause, Signalled)


def test_a_finished_drain_offers_to_verify_and_to_undo_once() -> None:
    done = a_summary(plan="my orders.plan")
    text = shown(summary_page(done))
    undo, verify = (f"drainer plan {what} 'my orders.plan'" for what in ("undo", "verify"))
    assert text.startswith("✓ Drained: ")
    assert text.count(undo) == text.count(verify) == 1
    assert done.as_json()["undo"] == undo
    assert changed(done, commits=False).as_json()["undo"] is None
    gone = changed(done, cause=TopicGone("topic orders was deleted"))
    assert gone.as_json()["undo"] is None
    assert undo not in shown(summary_page(STOPPED))


def test_an_account_that_does_not_add_up_is_loud_not_resumed_and_can_be_undone() -> None:
    status, code, cause = final_outcome(
        None, counts(read=9, done=1, dead=1, skipped=1, pending=1), counts(), gave_up=0, lost=False
    )
    wrong = changed(STOPPED, status=status, exit_code=code, cause=cause, messages=counts(read=9))
    assert code == 8
    text = shown(summary_page(wrong), quiet=True)
    assert "✗ DOES NOT ADD UP" in text
    assert "resume:" not in text
    assert "undo: drainer plan undo" in text
    assert wrong.as_json()["resume"] is None


def test_a_committed_offset_that_is_not_the_watermark_comes_first() -> None:
    results = dict.fromkeys(range(200), PartitionResult(0, 100, 100, 100))
    results[150] = PartitionResult(0, 100, 50, 99)
    results[151] = PartitionResult(0, 100, 50, None)
    results[120] = PartitionResult(0, 100, 50, 50)
    text = shown(summary_page(a_summary(partitions=results)))
    lines = text.splitlines()
    rows = lines[next(n for n, line in enumerate(lines) if line.split()[:1] == ["partition"]) :]
    assert rows[1].split()[0] == "150"
    assert "✗ committed past the watermark" in rows[1]
    assert "none  ✗ committed is not the watermark" in rows[2]
    assert "50 offsets left" in rows[3]
    assert "and 188 more" in text
    stopped = shown(summary_page(changed(STOPPED, partitions=results)))
    assert "✗ committed past the watermark\n" in stopped
    assert "✗ committed is not the watermark: a resume commits it" in stopped
    assert "resume: drainer resume" in stopped
    letters = {0: PartitionResult(24, 25, 25, 24)}  # The last record is a receipt.
    assert "✗" not in shown(summary_page(a_summary(partitions=letters, status="empty")))


def test_dead_letters_of_a_redrive_are_not_offered_to_be_redriven() -> None:
    dead = {
        "failures": FailureStatus(3, dead_letter_topic="d"),
        "sub_messages": counts(done=7, dead=3),
    }
    payloads = PayloadSettings("docs", ("payload.id",), value_format="avro", registry="http://r:1")
    options: dict[str, Any] = {"handler": "/my apps/shop.py:Reindex", "options": {"batch": "9"}}
    terms = a_plan(1, payloads=payloads, **options).terms
    assert facts(**dead, handler=terms.handler_words)["redrive"] == (
        "drainer redrive --dead-letter-topic d --handler '/my apps/shop.py:Reindex' --split docs"
        " --key payload.id --value-format avro --registry http://r:1 --set batch=9"
    )
    other = a_plan(1, bootstrap_servers="b1:9092,b2:9092", client_config="/my apps/c").terms
    for name in ("dead letters", "redrive"):
        words = facts(**dead, connection=other.connection_words)[name]
        there = "--bootstrap-server b1:9092,b2:9092 --client-config '/my apps/c'"
        assert f"--dead-letter-topic d {there}" in words
    local = a_plan(1, payloads=payloads, handler="__main__:Bad").terms.handler_words
    needs = Resuming(("--concurrency", "5", "--set", "ms=1 4"), ("--set a=…",))
    assert facts(**dead, handler=local, resuming=needs)["redrive"] == (
        "drainer redrive --dead-letter-topic d --handler FILE.py:Bad --split docs"
        " --key payload.id --value-format avro --registry http://r:1 --set 'ms=1 4'"
        " (put the class Bad into a file and add --set a=… as before)"
    )
    assert "redrive" not in facts(**dead, left_alone={})
    assert "dead letters" not in facts(failures=dead["failures"])


def test_letters_that_may_be_there_twice_are_added_up() -> None:
    places = tuple(f"orders/0/{number}[0]" for number in range(20))
    failures = FailureStatus(70, doubled_letters=70, doubled_first=places)
    total = merge(FailureStatus(), [failures], [failures])
    assert (total.doubled_letters, total.doubled_first) == (140, places)


def test_parked_lanes_are_masked_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = ParkedLane("'ann'", "t/0/0[0]", "ValueError: ann")
    monkeypatch.setenv(VARIABLE, "a secret of this test")
    summary = a_summary(parked=ParkedLanes(1, (lane,)))
    text = fields(summary_page(summary))["parked lanes"]
    assert f"{mask_text(lane.key)} at t/0/0[0]: ValueError" in text
    assert "ann" not in text + repr(summary.as_json()["parked_first"])
