"""The end of a drain, and its outcome: its cause, its exit code, and its account, which must be
conserved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from drainer.core.dispatch import Dispatcher
from drainer.engine.ports import DrainContext
from drainer.errors import (
    EXIT_DEAD_LETTERS,
    EXIT_DONE,
    EXIT_HALTED,
    EXIT_INTERRUPTED,
    DrainerError,
    Halted,
    HandleFailed,
    Interrupted,
    LanesParked,
    RecordUnsure,
    ThreadsOverdue,
    ValueNotShipped,
    account_wrong,
)
from drainer.message import SubMessage, Unsplit
from drainer.model.listed import counted
from drainer.model.progress import Counts
from drainer.split.splitting import PAST, describe_with_line, split_failed
from drainer.text.mask import describe

STUCK_HINT = "Find out why they block, then resume: drainer handles them again."
AT_ONCE_S = 0.5  # A second Ctrl-C leaves so much time to each step of the end.

_STATUS_OF = {
    EXIT_DONE: "done",
    EXIT_DEAD_LETTERS: "done",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_HALTED: "halted",
}


class Ending:
    """The end of a drain: by the first cause that is reported, on its event loop.

    Attributes:
        has_come: whether it is ending.
        cause: what it ends by; None when all is done.
        forced: set when a person wants to wait no longer.
        takes_signals: whether signals come as requests to stop; before that, Ctrl-C is a
            KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.has_come = False
        self.cause: BaseException | None = None
        self.forced = asyncio.Event()
        self.takes_signals = False
        self._come = asyncio.Event()
        self._at_once: list[Callable[[], None]] = []

    def call_at_once(self, stop: Callable[[], None]) -> None:
        """Have ``stop`` called before anything else when a cause comes: no call begins after it."""
        self._at_once.append(stop)

    def end(self, cause: BaseException | None) -> None:
        """Report a cause; None when all is done."""
        if self.has_come:
            return
        self.has_come, self.cause = True, cause
        self._come.set()
        for stop in self._at_once if cause is not None else ():
            stop()

    async def wait(self) -> BaseException | None:
        """Return the cause once there is one, or all is done."""
        await self._come.wait()
        return self.cause

    async def within(self, work: Awaitable[object], most_s: float | None = None) -> bool:
        """Wait for ``work`` that long at most, and no longer than a moment once ``forced`` is set.

        Return whether it has ended; if it has not, it is cancelled. Raises what it raised.
        """
        task = asyncio.ensure_future(work)
        forced = asyncio.ensure_future(self.forced.wait())
        await asyncio.wait((task, forced), timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
        if forced.done():
            await asyncio.wait((task,), timeout=AT_ONCE_S)
        forced.cancel()
        if not task.done():
            task.cancel()
            return False
        task.result()
        return True


def final_outcome(
    cause: BaseException | None, messages: Counts, subs: Counts, *, gave_up: int, lost: bool
) -> tuple[str, int, DrainerError | None]:
    """Return the status, the exit code and the cause to report of a drain that ``cause`` ended.

    Raises what is not a DrainerError. An account that does not add up comes before any cause.
    """
    if cause is not None and not isinstance(cause, DrainerError):
        raise cause
    if not (messages.conserved and subs.conserved):
        cause = account_wrong(f"messages {messages}, sub-messages {subs}")
    ended = EXIT_DEAD_LETTERS if gave_up or lost else EXIT_DONE
    code = ended if cause is None else cause.exit_code
    return _STATUS_OF.get(code, "failed"), code, cause


def may_continue(cause: BaseException | None) -> bool:
    """Whether the next pass may begin after one that ended so: parked lanes block no others."""
    return cause is None or isinstance(cause, LanesParked)


def given_up_before(context: DrainContext) -> int:
    """Count the sub-messages that the failure policy starts from.

    What died in former runs of a redrive is in the topic again, unless it went to another one, but
    not what died in former passes of this one.
    """
    account, terms = context.plan.account, context.plan.terms
    if terms.redrive is not None and terms.failures.dead_letter_topic in (None, terms.topic):
        return context.this_pass.given_up
    return account.counts()[1].given_up - account.unhandled.dead_by_request


def halted_at(sub: SubMessage, error: BaseException, why: str | None) -> DrainerError:
    """Make the cause of a drain that halts at a sub-message. ``why`` is the reason for that, if the
    error alone is none."""
    if isinstance(error, RecordUnsure):
        return error
    if isinstance(sub, Unsplit):
        past = PAST if why is None else ", or resume with a higher --max-failures"
        return split_failed(sub.message, sub.why, past, f"{why}; last, " if why else "")
    attempts = f" after {sub.attempt} attempts" if sub.attempt > 1 else ""
    reason, cause = "" if why is None else f"{why}; last, ", describe_with_line(error)
    return HandleFailed(
        f"{reason}handle failed for sub-message {sub} ({sub!r}){attempts}: {cause}",
        hint=error.hint
        if isinstance(error, ValueNotShipped)
        else "Fix the handler or its downstream, then resume. Its lane is still pending.",
        cause=error,
    )


def left_over(dispatcher: Dispatcher, late: int) -> DrainerError | None:
    """Return why a drain ends that has nothing left to do, though not all is done; None if no more
    was wanted. ``late`` sub-messages are overdue, and still in their threads."""
    lanes = dispatcher.lanes
    if late:
        return ThreadsOverdue(
            f"{counted(late, 'sub-message')} did not return from the handler's threads in time;"
            " their lanes are pending",
            hint=STUCK_HINT,
        )
    read = dispatcher.delivered or dispatcher.deferred > 0  # The next pass reads what is deferred.
    if lanes.parked:
        return lanes_parked(lanes.parked, read=read, behind_letters=bool(dispatcher.parked))
    return None if read else too_many_ignored(dispatcher.left_pending)


def lanes_parked(lanes: int, *, read: bool, behind_letters: bool) -> Halted:
    """The cause of a drain that ends with lanes parked; ``read`` is set when all was read."""
    more = (
        "everything else is done"
        if read
        else "too much is pending behind them to read more of the backlog"
    )
    subject = "1 lane is" if lanes == 1 else f"{lanes:,} lanes are"
    return (LanesParked if read else Halted)(
        f"{subject} parked behind failed sub-messages; {more}",
        hint="Fix the cause, then resume."
        + (
            " To continue lanes behind a dead letter, add --tune after-dead=continue."
            if behind_letters
            else ""
        ),
    )


def too_many_ignored(messages: int) -> Halted:
    """The cause of a drain that stops because it ignores too many letters."""
    return Halted(
        f"drainer leaves {messages:,} messages alone, which fill the memory; it read no more",
        hint="Select more letters, or delete those that you don't need with kafka-delete-records.",
    )


def not_closed(reason: str, cause: BaseException | None = None) -> Halted:
    """The cause of a drain whose handler's ``close`` raised."""
    return Halted(
        f"the handler's close() failed: {reason}",
        hint="Check the handler: if it buffers effects until close(), some may be missing.",
        cause=cause,
    )


def not_stopped(error: Exception) -> DrainerError:
    """The cause of a drain of which a part, such as the reading, raised when it was to stop."""
    if isinstance(error, DrainerError):
        return error
    return Interrupted(
        f"a part of the drain failed to stop: {describe(error)}",
        hint="This is a bug in drainer: report it. What is done is in the plan: resume it.",
        cause=error,
    )
