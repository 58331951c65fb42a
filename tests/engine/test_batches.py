"""Handlers that fold neighbours of a lane, or take many sub-messages in a call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest

from builders import counts
from drainer.handler import GiveUp, Results, Retry, Skip
from drainer.message import SubMessage
from drainer.model.settings import FailureSettings, OnFailure
from engine.made_up_kafka import Accounting, Step, VirtualDrains, in_lanes

HOT = in_lanes(300, 1)
QUICK = FailureSettings(retries=2, retry_delay_s=0.001, retry_max_delay_s=0.004)


class Together(Accounting):
    """Keeps account of each sub-message that a call stands for."""

    max_batch = 8

    def __init__(self, step: Step = lambda subs: None) -> None:
        super().__init__(step)
        self.calls: list[list[SubMessage]] = []

    def note(self, subs: Sequence[SubMessage]) -> None:
        members = [member for sub in subs for member in sub.folded]
        self.calls.append(members)
        if len(members) > 1:  # then those of a lane are in the handler at once
            self.step(members)
        for sub in members:
            with self.account.handling(sub):
                if len(members) == 1:
                    self.step(members)


class BatchesOnTheLoop(Together):
    async def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        await asyncio.sleep(0)
        self.note(subs)


class BatchesOnThreads(Together):
    def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        self.note(subs)


class Folding(Together):
    async def handle(self, sub: SubMessage) -> None:
        await asyncio.sleep(0)
        self.note([sub])

    def coalesce(self, earlier: SubMessage, later: SubMessage) -> SubMessage:
        return later


in_batches = pytest.mark.parametrize("kind", [BatchesOnTheLoop, BatchesOnThreads])


def poison(*offsets: int) -> Step:
    def step(subs: Sequence[SubMessage]) -> None:
        for sub in subs:
            if sub.message.offset in offsets:
                raise ValueError(f"no good: {sub.message.offset}")

    return step


def test_a_hot_row_takes_a_few_calls_when_it_is_folded(virtual: VirtualDrains) -> None:
    handler = Folding()
    summary = virtual.rehearsal(HOT).drain(handler)

    assert summary.exit_code == 0
    assert summary.sub_messages.done == 300
    assert len(handler.calls) < 30
    assert not handler.account.breaches


@in_batches
def test_the_bad_ones_of_a_batch_are_found_and_the_others_are_done(
    kind: type[Together], virtual: VirtualDrains
) -> None:
    handler = kind(poison(3, 55))
    failures = replace(QUICK, on_failure=OnFailure.DEAD_LETTER, dead_letter_topic="dead")
    rehearsal = virtual.rehearsal(in_lanes(100, 10), failures=failures)
    summary = rehearsal.drain(handler)

    assert summary.exit_code == 6
    assert sorted(rehearsal.letters.written) == [(0, 3, 0), (0, 55, 0)]
    assert summary.sub_messages.done == 98
    assert not handler.account.breaches


class InPart(Together):
    """Gives a result for each: raised alone it would be the same."""

    def results(self, subs: Sequence[SubMessage]) -> Results:
        self.calls.append([member for sub in subs for member in sub.folded])
        return [self.result(sub) for sub in subs]

    def result(self, sub: SubMessage) -> BaseException | None:
        try:
            with self.account.handling(sub):
                if (error := self.answer(sub)) is not None:
                    raise error
        except Exception as raised:
            return raised
        return None

    def answer(self, sub: SubMessage) -> BaseException | None:
        """Offset 3 is bad, 4 is skipped, 5 comes later, 6 fails once."""
        match sub.message.offset:
            case 3:
                return GiveUp("bad")
            case 4:
                return Skip("old")
            case 5 if sub.attempt < 3:
                return Retry("busy", after=0.01)
            case 6 if sub.attempt < 2:
                return ConnectionError("away")
        return None


class InPartOnTheLoop(InPart):
    async def handle_batch(self, subs: Sequence[SubMessage]) -> Results:
        await asyncio.sleep(0)
        return self.results(subs)


class InPartOnThreads(InPart):
    def handle_batch(self, subs: Sequence[SubMessage]) -> Results:
        return self.results(subs)


@pytest.mark.parametrize("kind", [InPartOnTheLoop, InPartOnThreads])
@pytest.mark.parametrize("batch_of", ["lanes", "lane"])
def test_each_sub_message_of_a_call_ends_by_its_own_result(
    kind: type[InPart], batch_of: Literal["lanes", "lane"], virtual: VirtualDrains
) -> None:
    handler = kind()
    handler.batch_of = batch_of
    failures = replace(QUICK, on_failure=OnFailure.DEAD_LETTER, dead_letter_topic="dead")
    rehearsal = virtual.rehearsal(in_lanes(100, 10), failures=failures)
    summary = rehearsal.drain(handler)

    assert summary.exit_code == 6
    assert rehearsal.letters.written == [(0, 3, 0)]
    assert summary.sub_messages == counts(done=98, dead=1, skipped=1)
    assert handler.account.failed.count((0, 5, 0)) == 2
    if batch_of == "lanes":  # no others are handled again
        assert sorted(handler.account.finished) == [
            (0, n, 0) for n in range(100) if n not in (3, 4)
        ]
        assert not handler.account.breaches


@in_batches
@pytest.mark.parametrize("batch_of", ["lanes", "lane"])
def test_what_is_diverted_out_of_a_call_has_no_other_handled_again(
    kind: type[Together], batch_of: Literal["lanes", "lane"], virtual: VirtualDrains
) -> None:
    handler = kind(poison(56))
    handler.batch_of = batch_of
    failures = replace(
        QUICK,
        divert=("message.offset % 7 == 3",),
        on_failure=OnFailure.DEAD_LETTER,
        dead_letter_topic="dead",
    )
    rehearsal = virtual.rehearsal(in_lanes(100, 10), failures=failures)
    summary = rehearsal.drain(handler)

    gone = {*range(3, 100, 7), 56}
    assert {offset for _, offset, _ in rehearsal.letters.written} == gone
    assert summary.sub_messages == counts(done=100 - len(gone), dead=len(gone))
    assert sorted(handler.account.finished) == [(0, n, 0) for n in range(100) if n not in gone]
    assert not handler.account.breaches


def test_one_that_is_retried_delays_only_its_own_lane(virtual: VirtualDrains) -> None:
    seen: list[int] = []

    class Later(InPartOnTheLoop):
        def answer(self, sub: SubMessage) -> BaseException | None:
            seen.append(sub.message.offset)
            waits = sub.message.offset == 0 and sub.attempt == 1
            return Retry("later", after=0.2) if waits else None

    assert virtual.rehearsal(in_lanes(200, 10)).drain(Later()).exit_code == 0
    assert seen.index(0, 1) > 180 - 1
    assert [offset for offset in seen[seen.index(0, 1) :] if offset % 10] == []


@pytest.mark.parametrize(
    "results", [[None], [None, None, None], [None, "done"], "done", {"errors": False}]
)
def test_what_is_no_list_of_results_finishes_nothing(results: Any, virtual: VirtualDrains) -> None:
    class Wrong(Together):
        async def handle_batch(self, subs: Sequence[SubMessage]) -> Results:
            await asyncio.sleep(0)
            found: Results = results if len(subs) == 2 else [ValueError("no")] * len(subs)
            return found

    summary = virtual.rehearsal(in_lanes(2)).drain(Wrong())
    assert summary.exit_code == 5
    assert summary.sub_messages.done == 0
