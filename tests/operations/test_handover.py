"""A group that someone else left: what its commits tell is taken over, and given back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.core.handover import decode, encode
from drainer.core.plan import ALL
from drainer.core.progress import Partial, Progress
from drainer.errors import PlanRefused
from drainer.handler import Handler
from drainer.message import SubMessage
from drainer.operations.commit import Move, commit_moves, move, undo_moves
from operations.conftest import MESSAGES, Story

# Written by Parallel Consumer 0.5.3.3 for a committed offset with "oxxoxooox" behind it.
PARALLEL_CONSUMER = "bAAJFgEA"
FINISHED = {1, 2, 4, 8}
UNKNOWN = "kept for the night shift"


class Collect(Handler):
    """Remembers the offsets that it handled."""

    def __init__(self) -> None:
        self.handled: list[int] = []

    async def handle(self, sub: SubMessage) -> None:
        self.handled.append(sub.message.offset)


def undo(story: Story) -> list[Move]:
    loaded = story.file.load()
    moves = undo_moves(story.cluster, loaded)
    move(story.cluster, story.file, loaded, moves, undo_moves, lambda _: None)
    return moves


def test_what_parallel_consumer_finished_is_not_handled_again(story: Story) -> None:
    story.put_group(10, PARALLEL_CONSUMER)
    handler = Collect()
    prepared = story.prepared(handler)

    assert prepared.plan.claims[ALL][0] == Progress(10, ((11, 13), (14, 15), (18, 19)))
    said = [check for check in prepared.action.checks if "metadata" in check]
    assert len(said) == 1
    assert "4 offsets above 10 are finished already" in said[0]
    assert "finished only in part" in said[0]
    summary = story.drain(prepared)

    expected = [n for n in range(10, MESSAGES) if n - 10 not in FINISHED]
    assert sorted(handler.handled) == expected
    assert summary.exit_code == 0
    assert (summary.messages.read, summary.messages.done) == (len(expected), len(expected))
    assert summary.messages.conserved
    assert (story.committed, story.metadata) == (MESSAGES, "")
    story.file.load().plan.check()


def test_a_group_with_nothing_left_to_do_is_finished_at_once(story: Story) -> None:
    story.put_group(10, encode(10, [(10, MESSAGES)]))
    handler = Collect()

    summary = story.drain(story.prepared(handler))

    assert handler.handled == []
    assert summary.exit_code == 0
    assert (story.committed, story.metadata) == (MESSAGES, "")


def test_metadata_that_nobody_here_can_read_is_reported_and_stays(story: Story) -> None:
    story.put_group(10, UNKNOWN)
    handler = Collect()
    prepared = story.prepared(handler)

    assert [warning for warning in prepared.action.warnings if "left alone" in warning]
    story.drain(prepared)

    assert sorted(handler.handled) == list(range(10, MESSAGES))
    assert (story.committed, story.metadata) == (MESSAGES, UNKNOWN)


@pytest.mark.parametrize(("from_", "first"), [("10", 10), ("13", 13)])
def test_another_start_handles_all_from_there_and_says_so(
    story: Story, from_: str, first: int
) -> None:
    story.put_group(10, PARALLEL_CONSUMER)
    handler = Collect()
    prepared = story.prepared(handler, from_)

    again = len([n for n in FINISHED if 10 + n >= first])
    said = [warning for warning in prepared.action.warnings if "handled again" in warning]
    assert len(said) == 1
    assert f"{again} offsets are finished already" in said[0]
    story.drain(prepared)

    assert sorted(handler.handled) == list(range(first, MESSAGES))


def test_what_is_finished_behind_the_end_of_the_backlog_is_still_told(story: Story) -> None:
    story.put_group(10, PARALLEL_CONSUMER)
    prepared = story.prepared(until="14")
    story.drain(prepared)

    assert story.committed == 14
    assert decode(14, story.metadata) == ((14, 15), (18, 19))
    handler = Collect()
    story.drain(story.prepared(handler))
    assert sorted(handler.handled) == [n for n in range(14, MESSAGES) if n not in (14, 18)]


def test_what_another_drain_finished_before_the_yes_is_not_handled_again(story: Story) -> None:
    """One message holds the offset where it is; what is finished behind it grows meanwhile."""
    story.put_group(10, encode(10, [(11, 13)]))
    handler = Collect()
    prepared = story.prepared(handler)
    story.put_group(10, encode(10, [(11, 20)]))

    with pytest.raises(PlanRefused, match=r"metadata beside offset 10 .* has changed"):
        story.drain(prepared)

    assert handler.handled == []
    assert story.left == []
    assert story.drain(story.prepared(handler)).exit_code == 0
    assert sorted(handler.handled) == [10, *range(20, MESSAGES)]


def test_undo_gives_the_metadata_back(story: Story) -> None:
    story.put_group(10, PARALLEL_CONSUMER)
    story.drain(story.prepared())
    assert story.committed == MESSAGES

    undo(story)

    assert (story.committed, story.metadata) == (10, PARALLEL_CONSUMER)
    assert undo_moves(story.cluster, story.file.load()) == []


def test_undo_gives_it_back_too_where_the_offset_has_not_moved(story: Story) -> None:
    story.put_group(10, PARALLEL_CONSUMER)
    story.file.write(story.prepared().plan)
    story.put_group(10, encode(10, [(11, 20)]))

    assert undo(story) == [Move(0, 10, 10, PARALLEL_CONSUMER)]

    assert (story.committed, story.metadata) == (10, PARALLEL_CONSUMER)


def test_commit_tells_what_the_plan_has_finished_above_its_watermark(story: Story) -> None:
    """But for what finished behind a message that is finished in part."""
    plan = story.write_plan(20)
    partial = {24: Partial(2, 0, 0b01)}
    progress = replace(plan.claims[ALL][0], finished=((21, 23), (25, 28)), partial=partial)
    story.file.write(replace(plan, claims={ALL: {0: progress}}))
    loaded = story.file.load()

    moves = commit_moves(story.cluster, loaded)
    move(story.cluster, story.file, loaded, moves, commit_moves, lambda _: None)

    assert story.committed == 20
    assert decode(20, story.metadata) == ((21, 23),)


def test_commit_tells_nothing_while_other_claims_say_more(story: Story) -> None:
    plan = story.write_plan(20)
    progress = replace(plan.claims[ALL][0], finished=((21, 23), (25, 28)))
    claims = {ALL: {0: progress}, "1/2": {0: Progress(24)}}
    story.file.write(replace(plan, claims=claims))
    loaded = story.file.load()

    moves = commit_moves(story.cluster, loaded)
    move(story.cluster, story.file, loaded, moves, commit_moves, lambda _: None)

    assert (story.committed, story.metadata) == (20, "")


def test_the_plan_keeps_the_metadata_of_before(story: Story) -> None:
    story.put_group(10, PARALLEL_CONSUMER)
    story.drain(story.prepared())

    assert story.file.load().plan.partitions[0].prior_metadata == PARALLEL_CONSUMER
