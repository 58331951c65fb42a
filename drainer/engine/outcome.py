"""The end of a drain: its cause, its exit code, and whether its account adds up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from drainer.core.dispatch import Dispatcher
from drainer.engine.ports import DrainContext
from drainer.errors import (
    EXIT_DEAD_LETTERS,
    EXIT_DONE,
    EXIT_HALTED,
    EXIT_INTERRUPTED,
    EXIT_UNEXPECTED,
    DrainerError,
    Halted,
    HandleFailed,
    Interrupted,
    LanesParked,
    RecordUnsure,
    Signalled,
    ThreadsOverdue,
    ValueNotShipped,
    account_wrong,
)
from drainer.handler import Fatal
from drainer.message import SubMessage, Unsplit, keys_repr
from drainer.model.account import ParkedLane
from drainer.model.listed import counted
from drainer.model.progress import Counts
from drainer.policy.failures import NOTHING_SUCCEEDED
from drainer.split.splitting import PAST, describe_with_line, split_failed
from drainer.text.mask import describe

STUCK_HINT = "Find out why they block, then resume: drainer handles them again."
AT_ONCE_S = 0.5  # After a second Ctrl-C, each step of the end may take this long.

_STATUS_OF = {
    EXIT_DONE: "done",
    EXIT_DEAD_LETTERS: "done",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_HALTED: "halted",
}


class Ending:
    """The end of a drain. The first cause that is reported counts.

    Attributes:
        has_come: whether the drain is ending.
        cause: why it ends; None if everything is done.
        at_once: what to call as soon as a cause is reported, so that no call begins after it.
        forced: set once a person does not want to wait any longer.
        on_signal: takes the name of a signal as a request to stop. While it is None, the handler is
            being opened, and Ctrl-C raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.has_come = False
        self.cause: BaseException | None = None
        self.forced = asyncio.Event()
        self.on_signal: Callable[[str], None] | None = None
        self._come = asyncio.Event()
        self.at_once: list[Callable[[], None]] = []

    def end(self, cause: BaseException | None) -> None:
        """Report a cause, or None if everything is done."""
        if self.has_come:
            return
        self.has_come, self.cause = True, cause
        self._come.set()
        for stop in self.at_once if cause is not None else ():
            stop()

    async def wait(self) -> BaseException | None:
        """Wait for the end, and return its cause."""
        await self._come.wait()
        return self.cause

    async def within(self, work: Awaitable[object], most_s: float | None = None) -> bool:
        """Wait for ``work`` up to ``most_s``, and only a moment longer once ``forced`` is set.

        Return whether the work has ended. If it has not, it is cancelled. Raises what it raised.
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
    """Return the status, the exit code and the cause to report of a drain that ended by ``cause``.

    An account that does not add up replaces any cause. A cause that is no DrainerError is raised.
    """
    if cause is not None and not isinstance(cause, DrainerError):
        raise cause
    if not (messages.conserved and subs.conserved):
        cause = account_wrong(f"messages {messages}, sub-messages {subs}")
    ended = EXIT_DEAD_LETTERS if gave_up or lost else EXIT_DONE
    code = ended if cause is None else cause.exit_code
    return _STATUS_OF.get(code, "failed"), code, cause


def ended_by(cause: BaseException) -> str:
    """Return how a drain ended by a cause, for its history: ``halted: 3 lanes are parked``."""
    if isinstance(cause, Signalled):  # Its text says that the drain was stopped or interrupted.
        return str(cause)
    code = cause.exit_code if isinstance(cause, DrainerError) else EXIT_UNEXPECTED
    return f"{_STATUS_OF.get(code, 'failed')}: {cause}"


def may_continue(cause: BaseException | None) -> bool:
    """Return whether the next pass may begin after a pass that ended by this cause.

    It may if only lanes were parked, because the other lanes can go on.
    """
    return cause is None or isinstance(cause, LanesParked)


def given_up_before(context: DrainContext) -> int:
    """Return how many sub-messages were given up before this run or pass, for the policy.

    A redrive may write its letters to the topic that it drains. What died in former runs is then
    drained again, so only what died in former passes of this run counts.
    """
    account, terms = context.plan.account, context.plan.terms
    if terms.redrive is not None and terms.failures.dead_letter_topic in (None, terms.topic):
        return context.this_pass.given_up
    return account.gave_up


def halted_at(sub: SubMessage, error: BaseException, why: str | None) -> DrainerError:
    """Return the cause of a drain that halts at a sub-message.

    ``why`` is the reason to halt, if the error alone is not.
    """
    if isinstance(error, RecordUnsure):
        return error
    if isinstance(sub, Unsplit):
        past = PAST if why is None else ", or resume with a higher --max-failures"
        return split_failed(sub.message, sub.why, past, f"{why}; last, " if why else "")
    attempts = f" after {sub.attempt} attempts" if sub.attempt > 1 else ""
    reason, cause = "" if why is None else f"{why}; last, ", describe_with_line(error)
    hint = "Fix the handler or its downstream, then resume. Its lane is still pending."
    if isinstance(error, ValueNotShipped):
        hint = error.hint or hint
    elif why in (None, NOTHING_SUCCEEDED) and not isinstance(error, Fatal):
        hint += " To go past it, resume with --on-failure park or dead-letter."
    return HandleFailed(
        f"{reason}handle failed for sub-message {sub} ({keys_repr(sub)}){attempts}: {cause}",
        hint=hint,
        cause=error,
    )


def left_over(dispatcher: Dispatcher, late: int) -> DrainerError | None:
    """Return why a drain ends that can do nothing more, although something is left.

    Returns None if everything that is left was not for this run to do. ``late`` is how many
    sub-messages are overdue, and still in their threads.
    """
    lanes = dispatcher.lanes
    if late:
        return ThreadsOverdue(
            f"{counted(late, 'sub-message')} did not return from the handler's threads in time;"
            " their lanes are pending",
            hint=STUCK_HINT,
        )
    # The next pass reads what is deferred.
    read = dispatcher.delivered or dispatcher.deferred > 0
    if lanes.parked:
        behind_letters = bool(dispatcher.parked)
        return lanes_parked(lanes.parked, dispatcher.shut, read=read, behind_letters=behind_letters)
    return None if read else too_many_ignored(dispatcher.load.left_pending)


def lanes_parked(
    lanes: int, shut: Sequence[ParkedLane] = (), *, read: bool, behind_letters: bool
) -> Halted:
    """Return the cause of the end of a drain with parked lanes.

    ``shut`` are those that are whole partitions. ``read`` tells whether everything was read.
    ``behind_letters`` tells whether there are lanes that were parked behind a dead letter.
    """
    more, hint = "everything else is done", "Fix the cause, then resume."
    if shut:
        first = shut[0]
        more = f"nothing of {first.key} after {first.place} is handled, as it is stopped there"
        hint += " To go past messages that split rejects, add --tune on-split-failure=dead-letter."
    if not read:
        more = "too much is pending behind them to read more of the backlog"
    if behind_letters:
        hint += " To continue lanes behind a dead letter, add --tune after-dead=continue."
    subject = "1 lane is" if lanes == 1 else f"{lanes:,} lanes are"
    return (LanesParked if read else Halted)(
        f"{subject} parked behind failed sub-messages; {more}", hint=hint
    )


def too_many_ignored(messages: int) -> Halted:
    """Return the cause of a drain that stops because it leaves too many letters alone."""
    return Halted(
        f"the {messages:,} messages that drainer leaves alone fill its memory, so it reads no more",
        hint="Select more letters, or delete those that you don't need with kafka-delete-records.",
    )


def not_closed(reason: str, cause: BaseException | None = None) -> Halted:
    """Return the cause of a drain whose handler's ``close`` raised an error."""
    return Halted(
        f"the handler's close() failed: {reason}",
        hint="Check the handler: if it buffers effects until close(), some may be missing.",
        cause=cause,
    )


def not_stopped(error: Exception) -> DrainerError:
    """Return the cause of the end of a drain in which a part raised an error while it stopped."""
    if isinstance(error, DrainerError):
        return error
    return Interrupted(
        f"a part of the drain failed to stop: {describe(error)}",
        hint="This is a bug in drainer: report it. What is done is in the plan: resume it.",
        cause=error,
    )
