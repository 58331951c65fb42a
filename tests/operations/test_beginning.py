"""Up to the first message: what is refused leaves the folder and the group as they were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

import pytest

from builders import changed, counts, progress_at
from drainer.control import client
from drainer.control.place import link_to, make_folder
from drainer.control.wire import DrainReport
from drainer.engine import checkpointer
from drainer.engine.control import Pause, Stop
from drainer.engine.preview import SPARK, ShownEngine
from drainer.errors import (
    CommitDelayed,
    LockHeld,
    PlanNotWritten,
    PlanRefused,
    PlanUnready,
    Refused,
    Signalled,
    TopicMissing,
)
from drainer.handler import Handler
from drainer.handlers import Count
from drainer.kafka.committer import GroupCommitter
from drainer.kafka.lock import GroupLock
from drainer.loading.loader import LoadedHandler
from drainer.model.account import Event, EventKind
from drainer.model.claims import ALL
from drainer.model.progress import Partial, Progress
from drainer.model.rate_cap import CapCurve
from drainer.model.resuming import Resuming
from drainer.model.settings import FailureSettings, LocalSettings, OnFailure
from drainer.operations.plan import undo, undo_moves
from drainer.operations.resume import ResumeRequest, prepare_resume, resuming_by
from drainer.operations.start import Prepared, Request, prepare
from drainer.store.plan_file import PlanFile
from operations.conftest import MESSAGES, REFERENCE, Story
from operations.handlers import Fails, Remembers, Signals, WillNotOpen


def no_lock(self: GroupLock) -> None:
    raise LockHeld("another drain holds the lock")


def test_a_handler_that_does_not_open_leaves_no_plan(story: Story) -> None:
    with pytest.raises(Refused, match="no index"):
        story.drain(story.prepared(WillNotOpen()))
    assert (story.left, story.committed) == ([], None)


@pytest.mark.parametrize("handler", [WillNotOpen(), Signals(SIGINT)], ids=["refused", "SIGINT"])
@pytest.mark.parametrize(
    ("last", "has_journal"),
    [
        pytest.param(None, True, id="killed"),
        pytest.param(None, False, id="killed, and its journal is lost"),
        pytest.param(EventKind.ENDED, False, id="halted"),
        pytest.param(EventKind.UNDONE, False, id="undone"),
    ],
)
def test_a_resume_that_handles_nothing_leaves_the_plan_as_it_was(
    story: Story, last: EventKind | None, has_journal: bool, handler: Handler
) -> None:
    plan = changed(story.write_plan(20), resuming=Resuming(needs=("--set url=…",)))
    if last is not None:
        event = Event("2026-11-21T17:00:00+00:00", last, "ana@db1", None, ("halted: no index",))
        plan = changed(plan, history=(*plan.account.history, event))
    story.file.write(plan)
    if has_journal:
        story.file.start_journal(plan.terms.drain_id, plan.account.generation)
        story.file.release()
    before = story.file.load()
    assert before.torn == (last is None and not has_journal)

    for _ in range(2):
        with pytest.raises((Refused, KeyboardInterrupt)):
            story.drain(story.prepared_to_resume(handler, asks=True))

    after = story.file.load()
    assert changed(after.plan, generation=plan.account.generation) == before.plan
    assert after.warnings == before.warnings
    assert story.drain(story.prepared_to_resume(asks=True)).messages.done == MESSAGES


@pytest.mark.parametrize("number", [SIGINT, SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_while_the_handler_is_opened_leaves_no_plan(story: Story, number: int) -> None:
    with pytest.raises(KeyboardInterrupt, match="interrupted by SIG"):
        story.drain(story.prepared(Signals(number)))
    assert (story.left, story.committed) == ([], None)
    assert story.drain(story.prepared()).messages.done == MESSAGES


def test_a_drain_that_waits_for_its_lock_is_found_by_other_processes(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire = GroupLock.acquire

    def request_first(self: GroupLock) -> None:
        with pytest.raises(Refused, match="still starting"):
            client.request(story.file.path, Pause())
        acquire(self)

    monkeypatch.setattr(GroupLock, "acquire", request_first)

    assert story.drain(story.prepared()).exit_code == 0


def test_a_drain_that_is_stopped_while_it_waits_for_its_lock_begins_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_first(self: GroupLock) -> None:
        ends.append(client.watch(story.file.path))
        next(ends[0])
        assert "as soon as it can" in client.request(story.file.path, Stop())[0]
        self.ensure_wanted()
        pytest.fail("it goes on to wait")

    ends: list[Iterator[DrainReport]] = []
    handler, before = Remembers(), story.write_plan(20)
    with monkeypatch.context() as waiting:
        waiting.setattr(GroupLock, "acquire", stop_first)
        with pytest.raises(Signalled, match=r"stopped by .*@.* before it began; nothing was"):
            story.drain(story.prepared_to_resume(handler))
    *_, last = ends[0]
    assert last.ended is not None
    assert "before it began; nothing was handled" in last.ended["error"]
    assert last.ended["hint"] == "Start it again in the same way."
    assert story.file.load().plan == before
    assert handler.handled == []
    assert story.drain(story.prepared_to_resume()).exit_code == 0


def test_a_resume_is_the_way_out_for_a_drain_that_was_never_committed(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(self: GroupCommitter, *_: object) -> None:
        raise CommitDelayed("no answer")

    handler = Remembers()
    with monkeypatch.context() as broken:
        broken.setattr(GroupCommitter, "commit", no_answer)
        broken.setattr(checkpointer, "COMMIT_PAUSE_S", 0.001)
        summary = story.drain(story.prepared(handler))
    assert (summary.exit_code, summary.messages.done, story.committed) == (4, MESSAGES, None)

    with pytest.raises(PlanRefused) as caught:
        story.drain(story.prepared(handler))

    assert f"drainer resume {story.file.path}" in (caught.value.hint or "")
    assert story.drain(story.prepared_to_resume(handler)).exit_code == 0
    assert story.committed == MESSAGES
    story.topic.produce(["more"] * 5)
    assert story.drain(story.prepared(handler)).exit_code == 0
    assert handler.handled == list(range(MESSAGES + 5)), "handled twice, or not at all"


def test_a_resume_without_handler_options_of_the_last_run_names_them(story: Story) -> None:
    options = ("--concurrency", "5", "--set", "ms=200", "--set", "kept=1")
    before = Resuming(options, ("--set url=…", "--tune on-end=…"), "process", "5")
    story.file.write(changed(story.write_plan(20), resuming=before, options={"kept": "1"}))

    lacks = "the last run had --set ms=200, --set url=…, which this run lacks"
    warnings = story.prepared_to_resume(asks=True).action.warnings
    assert lacks in warnings
    with pytest.raises(PlanRefused, match=lacks) as caught:  # Nobody is asked, as with --yes.
        story.prepared_to_resume()
    assert (caught.value.hint or "").endswith("drops an option: --set ms=")
    dropped = LocalSettings(options={"ms": "", "url": "http://new"})
    loaded = story.file.load()
    prepared = prepare_resume(story.cluster, story.file, loaded, dropped)
    assert not any("which this run lacks" in each for each in prepared.action.warnings)
    assert prepared.plan.terms.options_with(dropped.options) == {"url": "http://new"}


def test_all_that_a_resume_changes_is_shown_and_kept_and_more_calls_at_once_are_a_warning(
    story: Story,
) -> None:
    options = ("--concurrency", "5", "--tune", "grace=30s", "--deadline", "2026-11-30T08:00+00:00")
    terms = {
        "limits": CapCurve.bound(2**20),
        "failures": FailureSettings(rate=20, skip=("index == 7",)),
    }
    before = Resuming(options, (), "process", "5")
    story.file.write(changed(story.write_plan(20), resuming=before, **terms))
    same = LocalSettings(concurrency=5, grace_s=30, deadline="2026-11-30T08:00+00:00")

    def prepared(running: LocalSettings, **wanted: Any) -> Prepared:
        loaded, request = story.file.load(), ResumeRequest(**wanted)
        return prepare_resume(story.cluster, story.file, loaded, running, request)

    def notes(of: Prepared) -> list[str]:
        return [text for text in of.action.notes if "differs" in text]

    assert notes(prepared(same)) == []
    (note,) = notes(prepared(replace(same, concurrency=4), engine=SPARK))
    differs = "engine process → spark, concurrency 5 → 4"
    assert note == f"this run differs from the last one: {differs}"
    fewer = prepared(replace(same, concurrency=4))
    for each in (prepared(same), fewer):
        assert not [text for text in each.action.warnings if "at once" in text]
    others = prepared(
        LocalSettings(), limits=CapCurve.bound(2**21), failures=FailureSettings(rate=50)
    )
    seconds = replace(same, deadline="2026-11-30T08:00:30.5+00:00")
    assert notes(prepared(seconds)) == []
    (note,) = notes(prepared(same, limits=CapCurve.bound(2**20 + 1)))
    assert note.endswith(": limits 1 MiB/s → another curve of 1 MiB/s")
    more = "up to 100 calls at once, where the last run had up to 5; to keep that, add"
    assert f"{more} --concurrency 5" in others.action.warnings
    assert story.drain(others).exit_code == 0
    (event,) = [e for e in story.file.load().plan.account.history if e.what == "resumed"]
    eight = f"{datetime(2026, 11, 30, 8, tzinfo=UTC).astimezone():%d %b %H:%M}"
    assert event.details == (
        "limits 1 MiB/s → 2 MiB/s",
        "concurrency 5 → 100",
        "grace 30s → 10s",
        f"deadline {eight} → none",
        "skip index == 7 → none",
        "rate 20/s → 50/s",
    )


@pytest.mark.parametrize(
    "words",
    [
        *[("--tune", f"grace={text}") for text in ("infms", "nan", "1.0005e+06ms", "soon")],
        *[("--deadline", f"{year}T23:59-05:00") for year in ("0000-12-31", "9999-12-31")],
    ],
)
def test_settings_that_a_plan_can_not_give_again_stop_no_resume(
    story: Story, words: tuple[str, ...]
) -> None:
    """A program may have had such settings, and a plan may be a stranger's."""
    before = Resuming(words, (), "process", "5")
    story.file.write(changed(story.write_plan(20), resuming=before))
    prepared = story.prepared_to_resume()
    unread = "this run differs from the last one: settings that can't be read again →"
    assert f"{unread} those of this run" in prepared.action.notes
    assert story.drain(prepared).exit_code == 0


@pytest.mark.parametrize("grace_s", [1000.5, 1 / 3, 0.1 + 0.2])
def test_a_program_s_settings_are_read_again(story: Story, grace_s: float) -> None:
    by = datetime(2099, 1, 2, 8, 0, 30, tzinfo=UTC)
    running = LocalSettings(grace_s=grace_s, concurrency=5, deadline=by)
    found = resuming_by(running, story.prepared())
    plan = story.write_plan(20)
    for before in (replace(found, engine="process", concurrency="5"), Resuming()):
        story.file.write(changed(plan, resuming=before))
        prepared = prepare_resume(story.cluster, story.file, story.file.load(), running)
        assert not [text for text in prepared.action.notes if "differs" in text]


def test_a_class_that_a_resume_brings_and_that_matches_nothing_is_a_warning(story: Story) -> None:
    story.write_plan(20)
    loaded = story.file.load()

    def warned(*classes: str) -> list[str]:
        wanted = ResumeRequest(classes=loaded.plan.account.classes.requested(classes, only=False))
        found = prepare_resume(story.cluster, story.file, loaded, LocalSettings(), wanted)
        return [each for each in found.action.warnings if "matches none" in each]

    assert len(warned("key == 'nobody'")) == 1
    assert warned("message.offset > 3") == warned() == []


def test_a_program_s_drain_on_spark_is_resumed_on_spark(story: Story) -> None:
    prepared = story.prepared()
    on_spark = replace(prepared.action, engine=ShownEngine(SPARK, "Spark on yarn"))
    found = resuming_by(LocalSettings(concurrency=40), replace(prepared, action=on_spark))
    assert found == Resuming(("--engine", "spark", "--concurrency", "40"))
    mine = ("--handler", "__main__:Mine")
    of_a_notebook = replace(on_spark, plan=changed(on_spark.plan, handler=mine[1]))
    found = resuming_by(LocalSettings(), replace(prepared, action=of_a_notebook))
    assert found == Resuming((*mine, "--engine", "spark"))


def test_a_finished_plan_is_archived_only_for_a_new_drain_that_begins(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert story.drain(story.prepared()).exit_code == 0
    empty = story.prepared().action
    assert (empty.offsets, empty.warnings) == (0, ()), "nothing is archived for nothing"
    first = story.file.load().plan.terms.drain_id
    story.topic.produce(["more"] * 5)
    prepared = story.prepared()
    assert any(f"the finished drain {first} aside" in each for each in prepared.action.warnings)

    with monkeypatch.context() as refused:
        refused.setattr(GroupLock, "acquire", no_lock)
        with pytest.raises(LockHeld):
            story.drain(prepared)
    with pytest.raises(Refused, match="no index"):
        story.drain(story.prepared(WillNotOpen()))
    assert story.left == ["orders.plan.json"]
    assert story.file.load().plan.terms.drain_id == first

    lines: list[str] = []
    assert story.drain(story.prepared(), lines.append).messages.done == 5
    assert story.left == [f"orders.plan.{first}.json", "orders.plan.json"]
    assert f"orders.plan.{first}.json" in lines[0]
    assert story.file.load().plan.terms.drain_id != first


def test_a_plan_of_which_nothing_was_handled_makes_room_for_another_drain(story: Story) -> None:
    assert story.drain(story.prepared(Fails())).exit_code == 5
    first = story.file.load().plan.terms.drain_id

    prepared = story.prepared()

    expected = f"sets the plan of the drain {first} aside, because nothing of it was handled"
    assert any(expected in each for each in prepared.action.warnings)
    assert story.drain(prepared).messages.done == MESSAGES
    assert story.file.load().plan.terms.drain_id != first


def test_a_plan_that_moved_the_group_is_kept_until_that_is_undone(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain from the committed offset would leave out what ``--from`` skipped."""
    story.put_group(0)
    assert story.drain(story.prepared(Fails(), from_="10")).exit_code == 5
    assert story.committed == 10

    with pytest.raises(PlanRefused, match="unfinished") as caught:
        story.prepared()
    assert f"`drainer plan undo {story.file.path}`, and run again" in (caught.value.hint or "")

    loaded = story.file.load()
    moves = undo_moves(story.cluster, loaded)
    undo(story.cluster, story.file, loaded, moves, lambda _: None)
    monkeypatch.chdir(story.file.path.parent)
    request = Request(story.topic.name, story.group, LoadedHandler(REFERENCE, Count()))
    assert prepare(story.cluster, request, LocalSettings()), "nothing of the plan is repeated"
    assert story.drain(story.prepared()).messages.done == MESSAGES


def test_a_plan_of_which_something_was_handled_is_kept_even_after_an_undo(story: Story) -> None:
    story.write_plan(1)

    with pytest.raises(PlanRefused, match="unfinished") as caught:
        story.prepared()

    hint = caught.value.hint or ""
    assert "To begin again" in hint
    assert "name another file with --plan" in hint
    assert hint.endswith(f"`drainer resume {story.file.path}`")


def test_a_plan_that_a_drain_works_with_is_kept_even_if_nothing_was_handled(story: Story) -> None:
    story.write_plan(0)
    other = PlanFile(story.file.path)
    other.acquire()
    try:
        with pytest.raises(PlanUnready, match="another drainer process"):
            story.prepared()
    finally:
        other.release()


def test_a_new_group_is_a_warning_and_no_check_that_passed(story: Story) -> None:
    story.cluster.alter_committed(f"{story.group}-2", story.topic.name, {0: 1})

    new = story.prepared(from_="earliest").action

    assert new.new_group
    warning = f"group {story.group} does not exist; did you mean {story.group}-2"
    assert any(each.startswith(warning) for each in new.warnings)
    assert not any(story.group in each for each in new.checks)
    story.put_group(3)
    known = story.prepared().action
    assert not known.new_group
    assert any(story.group in each for each in known.checks)


def test_a_disk_without_room_for_the_first_plan_is_refused(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to resume from yet."""

    def full(self: PlanFile, plan: object) -> None:
        raise PlanNotWritten("disk full", hint="make room, then resume")

    with monkeypatch.context() as broken:
        broken.setattr(PlanFile, "write", full)
        with pytest.raises(PlanUnready, match="disk full") as caught:
            story.drain(story.prepared())

    assert "resume" not in (caught.value.hint or "")
    assert story.left == []


def test_a_plan_that_went_on_before_the_yes_is_not_resumed_from_what_was_shown(
    story: Story,
) -> None:
    story.write_plan(20)
    prepared = story.prepared_to_resume()
    assert story.drain(story.prepared_to_resume()).exit_code == 0

    with pytest.raises(PlanUnready, match="has changed"):
        story.drain(prepared)

    assert story.committed == MESSAGES


def test_a_resume_that_writes_no_dead_letters_does_not_forget_where_they_lie(
    story: Story,
) -> None:
    dead = FailureSettings(on_failure=OnFailure.DEAD_LETTER, dead_letter_topic="named-before")
    story.file.write(changed(story.write_plan(20), failures=dead))
    loaded = story.file.load()
    parks = replace(loaded.plan.terms.failures, on_failure=OnFailure.PARK)
    prepared = prepare_resume(
        story.cluster, story.file, loaded, LocalSettings(), ResumeRequest(parks)
    )

    assert story.drain(prepared).exit_code == 0

    assert story.file.load().plan.terms.failures.dead_letter_topic == "named-before"
    with pytest.raises(TopicMissing):
        story.cluster.topic("named-before")


def test_a_resume_goes_past_every_journal_that_a_full_disk_left(story: Story) -> None:
    plan = story.write_plan(20)
    for generation in range(plan.account.generation, plan.account.generation + 3):
        story.file.start_journal(plan.terms.drain_id, generation)
    story.file.release()

    prepared = story.prepared_to_resume()

    assert prepared.plan.account.generation > plan.account.generation + 2
    assert story.drain(prepared).exit_code == 0
    assert story.left == ["orders.plan.json"]


@pytest.mark.parametrize(
    ("known", "done"),
    [
        (
            Progress(10, partial={12: Partial(40, 0, 0b111), 13: Partial(9, 0, 1)}),
            "4 sub-messages done above the offset",
        ),
        (
            progress_at(20, partial={22: Partial(2, 0, 1)}, messages=counts(done=20)),
            "10 messages and 1 sub-message done above the offset",
        ),
    ],
)
def test_a_run_from_another_folder_repeats_nothing_of_an_unfinished_plan_by_yes_alone(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: Progress, done: str
) -> None:
    story.file.write(changed(story.prepared().plan, claims={ALL: {0: known}}))
    link = link_to(story.file.path)
    make_folder(link.parent)
    link.symlink_to(story.file.path)
    story.put_group(10)
    monkeypatch.chdir(tmp_path)
    request = Request(story.topic.name, story.group, LoadedHandler(REFERENCE, Count()))

    with pytest.raises(PlanRefused) as caught:
        prepare(story.cluster, request, LocalSettings())

    assert (
        str(caught.value) == f"{story.file.path} has an unfinished drain of this group with {done}"
    )
    hint = caught.value.hint or ""
    assert "name the new plan with --plan" in hint
    assert f"drainer resume {story.file.path}" in hint
    if known.watermark == 10:
        begun = prepare(story.cluster, replace(request, until="12"), LocalSettings())
        assert not begun.action.warnings, "nothing of these offsets is done"
    named = replace(request, plan_path=tmp_path / "again.plan.json")
    (warning,) = prepare(story.cluster, named, LocalSettings()).action.warnings
    assert done in warning
    link.unlink()
