"""``plan undo``: what it moves, and when it touches nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from builders import changed, counts
from drainer.core.merge import Record
from drainer.errors import OffsetMoved, PlanNotWritten, PlanRefused
from drainer.kafka.lock import GroupLock
from drainer.model.claims import ALL
from drainer.model.plan import OffsetPlan
from drainer.operations.examine import ensure_all, examine
from drainer.operations.plan import already_back, undo, undo_moves
from drainer.view.preview import preview_page
from operations.conftest import MESSAGES, Story, finished
from scenarios.brokers import delete_group
from view.facts import shown


def put_back(story: Story, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Undo as the command does; ``meanwhile`` is what happens until the confirmation."""
    loaded = story.file.load()
    moves = undo_moves(story.cluster, loaded)
    meanwhile()
    undo(story.cluster, story.file, loaded, moves, lambda _: None)


def is_accepted(story: Story) -> bool:
    """Whether a resume would go on from where plan and group are."""
    return all(error is None for _, error in examine(story.cluster, story.file.load()))


def half_way(story: Story) -> OffsetPlan:
    """A drain from offset 5 on that came to 20, and committed that."""
    story.put_group(5)
    plan = story.write_plan(20)
    story.put_group(20)
    return plan


def note_25(story: Story, plan: OffsetPlan) -> None:
    """Write a journal that came to 25."""
    story.file.start_journal(plan.terms.drain_id, plan.account.generation)
    story.file.append(Record({0: finished(25)}))
    story.file.release()


def test_undo_puts_the_group_where_it_was_before_and_a_resume_takes_it_back(story: Story) -> None:
    half_way(story)

    put_back(story)

    assert story.committed == 5
    assert story.file.load().plan.account.watermark(0) == 20
    assert is_accepted(story)
    assert undo_moves(story.cluster, story.file.load()) == []
    prepared = story.prepared_to_resume()
    assert "a resume commits again what is done" in prepared.action.notes[0]
    summary = story.drain(prepared)
    assert (summary.exit_code, story.committed) == (0, MESSAGES)
    put_back(story)
    page = shown(preview_page(story.prepared_to_resume().action))
    assert "nothing to do" not in page


def test_a_group_that_had_no_offset_gets_the_start_of_the_backlog_and_is_told_so(
    story: Story,
) -> None:
    assert story.drain(story.prepared(from_="earliest")).exit_code == 0
    [move] = undo_moves(story.cluster, story.file.load())
    why = "the group had no offset before the drain"
    assert str(move) == f"partition 0: {MESSAGES} -> 0 (the start of the backlog: {why})"
    put_back(story)
    assert story.committed == 0
    assert undo_moves(story.cluster, story.file.load()) == []
    told = already_back(story.file.load().plan)
    assert "it had no offset before the drain on partition 0, so it is at the start" in told


def test_what_only_the_journal_knows_is_folded_in(story: Story) -> None:
    plan = half_way(story)
    note_25(story, plan)
    assert ("the journal adds 1 record", None) in examine(story.cluster, story.file.load())

    put_back(story)

    assert ("the journal has no newer progress", None) in examine(story.cluster, story.file.load())
    assert story.file.load().plan.account.watermark(0) == 25
    assert story.left == ["orders.plan.json"]
    assert is_accepted(story)


def test_a_group_whose_offsets_expired_is_resumed_and_put_back(story: Story) -> None:
    """Brokers drop the offsets of a group that has been empty for a week."""
    half_way(story)
    delete_group(story.cluster.settings, story.group)

    prepared = story.prepared_to_resume()
    assert [text for text in prepared.action.warnings if "has no offset on" in text]
    assert story.drain(prepared).exit_code == 0
    assert story.committed == MESSAGES

    delete_group(story.cluster.settings, story.group)
    put_back(story)
    assert story.committed == 5


def test_undo_puts_a_group_back_that_somebody_else_moved(story: Story) -> None:
    story.put_group(10)
    story.write_plan(20)
    for offset in (5, MESSAGES):
        story.put_group(offset)
        with pytest.raises(PlanRefused, match="something else moved it") as moved:
            ensure_all(examine(story.cluster, story.file.load()))
        hint = moved.value.hint or ""
        assert "If the move was on purpose, or others went on from here, move this plan out" in hint
        assert "resume, which repeats only what others handled since: `drainer plan undo " in hint

        put_back(story)
        assert story.committed == 10
        assert is_accepted(story)


def test_a_plan_whose_account_does_not_add_up_is_not_resumed_and_can_be_undone(
    story: Story,
) -> None:
    story.put_group(10)
    story.write_plan(20)
    plan = story.file.load().plan
    progress = replace(
        plan.account.claims[ALL][0], messages=counts(read=9, done=1, dead=1, skipped=1, pending=1)
    )
    story.file.write(changed(plan, claims={ALL: {0: progress}}))
    story.put_group(20)

    loaded = story.file.load()
    with pytest.raises(PlanRefused, match="does not add up") as refused:
        ensure_all(examine(story.cluster, loaded))
    assert "drainer plan undo" in (refused.value.hint or "")
    put_back(story)
    assert story.committed == 10


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda story: story.put_group(12),
        lambda story: story.file.write(changed(story.file.load().plan, updated="later")),
        lambda story: story.file.path.unlink(),
    ],
    ids=["moved", "plan changed", "plan gone"],
)
def test_what_changed_before_the_yes_is_refused(
    meanwhile: Callable[[Story], object], story: Story
) -> None:
    half_way(story)
    stood: list[int | None] = []

    def change() -> None:
        meanwhile(story)
        stood.append(story.committed)

    with pytest.raises(PlanRefused):
        put_back(story, change)
    assert [story.committed] == stood


def test_a_group_is_moved_under_its_lock(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a drain from another plan of the group would find its commits overwritten."""
    half_way(story)
    events: list[str] = []
    acquire, release, alter = GroupLock.acquire, GroupLock.release, story.cluster.alter_committed

    def noting(event: str, call: Callable[..., object]) -> Callable[..., object]:
        def noted(*args: object, **named: object) -> object:
            events.append(event)
            return call(*args, **named)

        return noted

    monkeypatch.setattr(GroupLock, "acquire", noting("acquire", acquire))
    monkeypatch.setattr(GroupLock, "release", noting("release", release))
    monkeypatch.setattr(story.cluster, "alter_committed", noting("move", alter))
    put_back(story)

    assert events == ["acquire", "move", "release"]


def test_a_crash_after_the_move_leaves_a_plan_that_accepts_it(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = half_way(story)
    note_25(story, plan)
    write, writes = type(story.file).write, []

    def fail_the_second(file: object, plan: object) -> None:
        writes.append(plan)
        if len(writes) == 2:
            raise PlanNotWritten("disk full")
        write(file, plan)  # type: ignore[arg-type]

    with monkeypatch.context() as broken:
        broken.setattr(type(story.file), "write", fail_the_second)
        with pytest.raises(PlanNotWritten):
            put_back(story)

    assert story.committed == 5
    assert is_accepted(story)


def test_another_offset_than_was_written_is_reported(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_way(story)
    alter = story.cluster.alter_committed

    def overtaken(group: str, topic: str, offsets: dict[int, int], **_: object) -> None:
        alter(group, topic, {number: offset - 1 for number, offset in offsets.items()})

    monkeypatch.setattr(story.cluster, "alter_committed", overtaken)
    with pytest.raises(OffsetMoved, match="drainer committed 5, but the group is at 4"):
        put_back(story)
