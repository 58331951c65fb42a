"""How a drain ended: its exit code, the account that has to add up, and what is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from drainer.blocking import BlockingCall
from drainer.core.plan import OffsetPlan
from drainer.core.progress import Counts
from drainer.engine.status import PartitionResult
from drainer.errors import (
    EXIT_DEAD_LETTERS,
    EXIT_DONE,
    EXIT_HALTED,
    EXIT_INTERRUPTED,
    DrainerError,
    Halted,
    LanesParked,
    account_wrong,
)
from drainer.loader import describe

_STATUS_OF = {
    EXIT_DONE: "done",
    EXIT_DEAD_LETTERS: "done",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_HALTED: "halted",
}


def concluded(
    cause: BaseException | None, messages: Counts, subs: Counts, *, gave_up: int, lost: bool
) -> tuple[str, int, DrainerError | None]:
    """The status, the exit code and the reason to tell of a drain that ``cause`` ended.

    Raises what is no DrainerError. An account that doesn't add up is told whatever the cause was.
    """
    if cause is not None and not isinstance(cause, DrainerError):
        raise cause
    if not (messages.conserved and subs.conserved):
        cause = account_wrong(f"messages {messages}, sub-messages {subs}")
    ended = EXIT_DEAD_LETTERS if gave_up or lost else EXIT_DONE
    code = ended if cause is None else cause.exit_code
    return _STATUS_OF.get(code, "failed"), code, cause


def judged_before(plan: OffsetPlan) -> Counts:
    """The account of sub-messages that the failure policy goes on from.

    Rules are none of its business. What died in former runs of a redrive is in the topic again.
    """
    if plan.redrive is not None:
        return Counts()
    _, subs = plan.counts()
    return replace(subs, dead=subs.dead - sum(plan.ruled.dead_by.values()))


def partition_results(
    plan: OffsetPlan, watermarks: Mapping[int, int], committed: Mapping[int, int | None]
) -> dict[int, PartitionResult]:
    """How each partition ended, by the plan as it was written last and the group as it stands."""
    return {
        number: PartitionResult(
            part.start,
            part.end,
            watermarks[number],
            committed.get(number),
            part.lost,
            plan.finished_above(number),
        )
        for number, part in plan.partitions.items()
    }


def reason_told(ended: asyncio.Future[BaseException | None]) -> str | None:
    """Why a drain is stopping; None while it isn't, or when all is done."""
    cause = ended.result() if ended.done() else None
    if cause is None:
        return None
    return str(cause) if isinstance(cause, DrainerError) else describe(cause)


async def last_offsets(
    plan: OffsetPlan,
    read_committed: Callable[[], Mapping[int, int | None]],
    in_thread: BlockingCall,
    *,
    ask: bool,
) -> Mapping[int, int | None]:
    """The group's offsets at the end; those that the plan knows when nobody is to be asked, or
    nobody answers."""
    if ask:
        with suppress(DrainerError):
            return await in_thread(read_committed)
    return {number: part.committed for number, part in plan.partitions.items()}


def lanes_parked(lanes: int, *, read: bool, behind_letters: bool) -> Halted:
    """What to tell of a drain that ends with lanes parked; ``read`` says that all was read."""
    more = (
        "all that could be drained without them is"
        if read
        else "so much is pending behind them that no more of the backlog was read"
    )
    subject = "1 lane is" if lanes == 1 else f"{lanes:,} lanes are"
    return (LanesParked if read else Halted)(
        f"{subject} parked behind sub-messages that failed; {more}",
        hint="mend the cause, then resume"
        + (
            "; lanes behind a dead letter stay parked until --after-dead continue"
            if behind_letters
            else ""
        ),
    )


def not_closed(said: str, cause: BaseException | None = None) -> Halted:
    """What to tell of a handler whose ``close`` raised; ``said`` describes what."""
    return Halted(
        f"the handler's close() failed: {said}",
        hint="all that the plan calls done was handled; whether the handler held something"
        " of it back until close(), only it knows",
        cause=cause,
    )
