"""A plan that tasks have left, resumed by one process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from made_up_kafka import OnTheLoop, Rehearsal, log_of, new_plan

from builders import changed, counts, progress_at
from drainer.message import SubMessage
from drainer.model.claims import ALL, key_hash
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Partial, checksum_keys

MESSAGES = 60
MINE, THEIRS = (
    next(f"k{n}" for n in range(99) if key_hash(f"k{n}") % 2 == number) for number in (0, 1)
)
SPLIT = [THEIRS, MINE, THEIRS]
# What the claim of THEIRS has finished: 20 messages, 5 further on, and one sub-message.
FINISHED = {(0, n, i) for n in (*range(20), *range(25, 30)) for i in (0, 2)} | {(0, 20, 0)}
COUNT = len(FINISHED)
ALL_PLACES = {(0, n, i) for n in range(MESSAGES) for i in range(3)}


@pytest.fixture
def rehearsal(tmp_path: Path) -> Rehearsal:
    made = Rehearsal(tmp_path, {0: log_of(*([SPLIT] * MESSAGES))})
    made.finished_ever |= FINISHED
    part = Partial(3, checksum_keys(SPLIT), 0b001)
    theirs = progress_at(
        20, finished=((25, 30),), partial={20: part}, sub_messages=counts(done=COUNT, pending=4)
    )
    plan = new_plan(made.logs)
    made.file.write(
        changed(
            plan, claims={**plan.account.claims, "0/2": {0: progress_at(0)}, "1/2": {0: theirs}}
        )
    )
    return made


def left(rehearsal: Rehearsal) -> OffsetPlan:
    return rehearsal.file.load().plan


def test_claims_stay_in_the_plan_until_one_process_is_past_them(rehearsal: Rehearsal) -> None:
    async def stops_at_10(sub: SubMessage) -> None:
        await asyncio.sleep(0)
        if sub.key == MINE and sub.message.offset == 10:
            raise ValueError

    first, second = OnTheLoop(stops_at_10), OnTheLoop()

    assert rehearsal.drain(first).exit_code == 5

    plan = left(rehearsal)
    assert plan.account.watermark(0) == 10
    assert set(plan.account.claims) == {ALL, "1/2"}
    assert plan.account.claims["1/2"][0].finished == ((25, 30),)
    _, subs = plan.account.counts()
    assert subs.finished == COUNT + len(first.account.finished)

    assert rehearsal.drain(second).exit_code == 0

    handled = first.account.finished + second.account.finished
    assert sorted(handled) == sorted(ALL_PLACES - FINISHED)
    assert first.account.breaches == second.account.breaches == []
    assert set(left(rehearsal).account.claims) == {ALL}
    assert left(rehearsal).account.counts() == (
        counts(done=MESSAGES),
        counts(done=3 * MESSAGES),
    )
