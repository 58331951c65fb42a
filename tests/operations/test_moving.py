"""``plan commit`` and ``plan undo``: what they move, and when they touch nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from drainer.core.plan import ALL
from drainer.core.progress import Counts
from drainer.errors import (
    OffsetMoved,
    PlanNotWritten,
    PlanRefused,
)
from drainer.kafka.lock import GroupLock
from drainer.operations.examine import examine, insist
from drainer.operations.plan import FindMoves, commit_moves, move, undo_moves
from operations.conftest import MESSAGES, Story, finished

both = pytest.mark.parametrize("find_moves", [commit_moves, undo_moves])


def do(story: Story, find_moves: FindMoves, meanwhile: Callable[[], object] = lambda: None) -> None:
    """As the command does it; ``meanwhile`` is what happens until a person says yes."""
    loaded = story.file.load()
    moves = find_moves(story.cluster, loaded)
    meanwhile()
    move(story.cluster, story.file, loaded, moves, find_moves, lambda _: None)


def is_accepted(story: Story) -> bool:
    """Whether a resume would go on from where plan and group are."""
    return all(check.ok for check in examine(story.cluster, story.file.load()))


def has_moves(story: Story, find_moves: FindMoves) -> None:
    """Puts the group where both commands have something to do."""
    story.write_plan(20)
    story.put_group(10)
    assert find_moves(story.cluster, story.file.load())


def test_commit_moves_the_group_to_the_watermark_and_notes_it(story: Story) -> None:
    story.write_plan(20)

    do(story, commit_moves)

    assert story.committed == 20
    plan = story.file.load().plan
    assert (plan.partitions[0].committed, plan.watermark(0)) == (20, 20)
    assert is_accepted(story)
    assert commit_moves(story.cluster, story.file.load()) == []


def test_undo_puts_the_group_where_it_was_before_and_commit_takes_it_back(story: Story) -> None:
    story.put_group(5)
    story.write_plan(20)
    assert story.file.load().plan.partitions[0].prior == 5
    do(story, commit_moves)

    do(story, undo_moves)

    assert story.committed == 5
    assert story.file.load().plan.watermark(0) == 20
    assert is_accepted(story)
    do(story, commit_moves)
    assert story.committed == 20


def test_what_only_the_journal_knows_is_committed_and_folded_in(story: Story) -> None:
    plan = story.write_plan(20)
    story.file.start_journal(plan.drain_id, plan.generation)
    story.file.append({0: finished(25)})
    story.file.release()

    do(story, commit_moves)

    assert story.committed == 25
    assert story.left == ["orders.plan.json"]
    assert is_accepted(story)


def test_commit_never_moves_the_group_back(story: Story) -> None:
    """Not even to where the plan says that the drain came to."""
    story.write_plan(20)
    story.put_group(20)
    assert commit_moves(story.cluster, story.file.load()) == []

    story.put_group(MESSAGES)
    with pytest.raises(PlanRefused, match="somebody else moved it"):
        commit_moves(story.cluster, story.file.load())
    assert story.committed == MESSAGES


def test_a_group_whose_offsets_expired_is_resumed_and_put_back(story: Story) -> None:
    """Brokers drop the offsets of a group that has been empty for a week."""
    story.put_group(10)
    story.write_plan(20)
    do(story, commit_moves)
    story.cluster.delete_group(story.group)

    prepared = story.prepared_to_resume()
    assert [text for text in prepared.action.warnings if "has no offset on" in text]
    do(story, commit_moves)
    assert story.committed == 20

    story.cluster.delete_group(story.group)
    assert story.drain(story.prepared_to_resume()).exit_code == 0
    assert story.committed == MESSAGES

    story.cluster.delete_group(story.group)
    do(story, undo_moves)
    assert story.committed == 10


@pytest.mark.parametrize("offset", [5, MESSAGES])
def test_undo_puts_a_group_back_that_somebody_else_moved(story: Story, offset: int) -> None:
    story.put_group(10)
    story.write_plan(20)
    story.put_group(offset)
    with pytest.raises(PlanRefused, match="somebody else moved it"):
        insist(examine(story.cluster, story.file.load()))

    loaded = story.file.load()
    moves = undo_moves(story.cluster, loaded)
    move(story.cluster, story.file, loaded, moves, undo_moves, print)
    assert story.committed == 10
    assert is_accepted(story)


def test_a_plan_whose_account_does_not_add_up_is_not_resumed_and_can_be_undone(
    story: Story,
) -> None:
    story.put_group(10)
    story.write_plan(20)
    plan = story.file.load().plan
    progress = replace(plan.claims[ALL][0], messages=Counts(9, 1, 1, 1, 1))
    story.file.write(replace(plan, claims={ALL: {0: progress}}))
    story.put_group(20)

    loaded = story.file.load()
    with pytest.raises(PlanRefused, match="does not add up") as refused:
        insist(examine(story.cluster, loaded))
    assert "drainer plan undo" in (refused.value.hint or "")
    moves = undo_moves(story.cluster, loaded)
    move(story.cluster, story.file, loaded, moves, undo_moves, print)
    assert story.committed == 10


@both
@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda story: story.put_group(12),
        lambda story: story.file.write(replace(story.file.load().plan, updated="later")),
        lambda story: story.file.path.unlink(),
    ],
    ids=["moved", "plan changed", "plan gone"],
)
def test_what_changed_before_the_yes_is_refused(
    meanwhile: Callable[[Story], object], find_moves: FindMoves, story: Story
) -> None:
    has_moves(story, find_moves)
    stood: list[int | None] = []

    def change() -> None:
        meanwhile(story)
        stood.append(story.committed)

    with pytest.raises(PlanRefused):
        do(story, find_moves, change)
    assert [story.committed] == stood


@both
def test_the_groups_lock_is_held_while_it_is_moved(
    find_moves: FindMoves, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a drain from another plan of the group would find its commits overwritten."""
    has_moves(story, find_moves)
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
    do(story, find_moves)

    assert events == ["acquire", "move", "release"]


@both
def test_a_crash_after_the_move_leaves_a_plan_that_accepts_it(
    find_moves: FindMoves, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = story.write_plan(20)
    story.put_group(10)
    story.file.start_journal(plan.drain_id, plan.generation)
    story.file.append({0: finished(25)})
    story.file.release()
    write, writes = type(story.file).write, []

    def fail_the_second(file: object, plan: object) -> None:
        writes.append(plan)
        if len(writes) == 2:
            raise PlanNotWritten("disk full")
        write(file, plan)  # type: ignore[arg-type]

    with monkeypatch.context() as broken:
        broken.setattr(type(story.file), "write", fail_the_second)
        with pytest.raises(PlanNotWritten):
            do(story, find_moves)

    assert story.committed == (25 if find_moves is commit_moves else 0)
    assert is_accepted(story)


def test_another_offset_than_was_written_is_told(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_moves(story, commit_moves)
    alter = story.cluster.alter_committed

    def overtaken(group: str, topic: str, offsets: dict[int, int], **_: object) -> None:
        alter(group, topic, {number: offset - 1 for number, offset in offsets.items()})

    monkeypatch.setattr(story.cluster, "alter_committed", overtaken)
    with pytest.raises(OffsetMoved, match="is at 19 after it was put to 20"):
        do(story, commit_moves)
