"""Handlers that fold neighbours of a lane, or take many sub-messages in a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_kafka import Accounting, Rehearsal, in_lanes

from drainer.message import SubMessage
from drainer.model.settings import FailureSettings, OnFailure

HOT = in_lanes(300, 1)
QUICK = FailureSettings(retries=2, retry_delay_s=0.001, retry_max_delay_s=0.004)

Step = Callable[[Sequence[SubMessage]], None]


class Together(Accounting):
    """Keeps account of each sub-message that a call stands for."""

    max_batch = 8

    def __init__(self, step: Step = lambda subs: None) -> None:
        super().__init__()
        self.calls: list[list[SubMessage]] = []
        self.step = step

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


kinds = pytest.mark.parametrize("kind", [BatchesOnTheLoop, BatchesOnThreads])


def poison(*offsets: int) -> Step:
    def step(subs: Sequence[SubMessage]) -> None:
        for sub in subs:
            if sub.message.offset in offsets:
                raise ValueError(f"no good: {sub.message.offset}")

    return step


def test_a_hot_row_takes_a_few_calls_when_it_is_folded(tmp_path: Path) -> None:
    handler = Folding()
    summary = Rehearsal(tmp_path, HOT).drain(handler)

    assert summary.exit_code == 0
    assert summary.sub_messages.done == 300
    assert len(handler.calls) < 30
    assert not handler.account.breaches


@kinds
def test_the_bad_ones_of_a_batch_are_found_and_the_others_are_done(
    kind: type[Together], tmp_path: Path
) -> None:
    handler = kind(poison(3, 55))
    failures = replace(QUICK, on_failure=OnFailure.DEAD_LETTER, dead_letter_topic="dead")
    rehearsal = Rehearsal(tmp_path, in_lanes(100, 10), failures=failures)
    summary = rehearsal.drain(handler)

    assert summary.exit_code == 6
    assert sorted(rehearsal.letters.written) == [(0, 3, 0), (0, 55, 0)]
    assert summary.sub_messages.done == 98
    assert not handler.account.breaches
