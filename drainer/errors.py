"""The errors that drainer raises on purpose. Each class has an exit code, and may have a hint.

The exit codes below are part of the interface, as are the classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from drainer.text.escape import foreign, printable

EXIT_DONE = 0  # Everything in the backlog is finished.
EXIT_UNEXPECTED = 1  # There was a bug, or something unforeseen.
EXIT_USAGE = 2  # The command line or the handler reference is wrong.
EXIT_REFUSED = 3  # It is not safe to start, and nothing was touched.
EXIT_INTERRUPTED = 4  # The drain was stopped part-way. Resume with the plan.
EXIT_HALTED = 5  # The handler failed. Resume with the plan once it is fixed.
EXIT_DEAD_LETTERS = 6  # The drain is finished, but some sub-messages are dead, failed or lost.
EXIT_FOUND = 7  # A check found something that is wrong.
EXIT_UNRESUMABLE = 8  # The drain ended part-way, and can't be resumed as things are.
EXIT_CLASS_WAITS = 9  # --only is done, except for sub-messages that wait for others.


class DrainerError(Exception):
    """Base of all errors meant for a person.

    The text says what happened, and where (topic/partition/offset). ``hint`` is the way out. Both
    may quote text from elsewhere, so control characters are escaped in both. In the text, secrets
    are also replaced, and whatever would not fit on a screen is cut off.
    """

    exit_code = EXIT_UNEXPECTED
    resume_with: tuple[str, ...] = ()  # The options that a resume needs after this error.
    # The ``Summary`` of the drain that ended with this error. Functions of the API set it.
    summary: Any = None

    def __init__(
        self, message: str, *, hint: str | None = None, cause: BaseException | None = None
    ) -> None:
        super().__init__(foreign(message))
        self.hint = None if hint is None else printable(hint)
        if cause is not None:  # The error may be reported without being raised from its cause.
            self.__cause__ = cause


class UsageError(DrainerError):
    """Raised when an option or a handler reference can't be understood."""

    exit_code = EXIT_USAGE


class BadExpression(UsageError):
    """Raised when a rule's expression can't be understood; the text names the place."""


class WrongValue(UsageError, ValueError):
    """Raised when a program gives a value that makes no sense, or is of another type.

    It is a ValueError, too, so that a record in JSON with such a value is as wrong as any other.
    """


class Refused(DrainerError):
    """Raised before anything was touched, when a drain would be unsafe or impossible."""

    exit_code = EXIT_REFUSED


class Passing(Refused):
    """Raised when what is in the way may end by itself, so that the same command may work later.

    With ``--or-resume``, the exit code is that of Interrupted, so that a scheduler tries again.
    """


class BrokerUnreachable(Passing):
    """Raised when no broker answers, or none accepts the credentials."""


class OffsetsPending(BrokerUnreachable):
    """Raised when an open transaction has newer offsets of the group, which are not known yet.

    ``offsets`` has the offsets that count until the transaction ends, by partition; None where the
    group has none.
    """

    offsets: Mapping[int, int | None] = {}


class RightMissing(Refused):
    """Raised when Kafka does not let this user do something; the hint names the missing right."""


class TopicMissing(Refused):
    """Raised when the topic or a partition of it does not exist."""


class OffsetMissing(Refused):
    """Raised when the group has no committed offset to start from, and none was given."""


class GroupActive(Passing):
    """Raised when the group has live members, which would compete with the drain."""


class LockHeld(Passing):
    """Raised when another drain holds the lock on the group.

    ``drains`` has the ids of the holders that run on this machine.
    """

    drains: Sequence[str] = ()


class PlanRefused(Refused):
    """Raised when an offset plan is damaged, or does not fit the cluster any more."""


class PlanUnready(PlanRefused, Passing):
    """Raised when another process has or has changed a plan, or when its place does not answer."""


class StateRefused(Refused):
    """Raised when the place where Spark tasks record their progress can't be used."""


class NotADeadLetter(Refused):
    """Raised when a record is not a dead letter that drainer can read, or is a damaged one."""


class TopicNotNamed(NotADeadLetter):
    """Raised when a dead letter of another tool does not name the topic of its message."""


class OtherFormat(NotADeadLetter):
    """Raised when a dead letter has the format of a different version of drainer."""


class LimitsRefused(Refused):
    """Raised when a limits file is damaged, is something else, or lacks what is needed."""


class SandboxRefused(Refused):
    """Raised when the sandbox can't start, for example because Java is missing."""


class Interrupted(DrainerError):
    """Raised when something outside stopped a running drain. The plan is up to date."""

    exit_code = EXIT_INTERRUPTED


class Signalled(Interrupted):
    """Raised when a person or a supervisor requested a stop."""


class StopSignal(KeyboardInterrupt):
    """Raised when a signal comes that stops a process.

    If a plain KeyboardInterrupt comes up in code that ``exec`` runs, as ``dataclass`` does, Python
    ends the process by SIGINT later on, whatever the exit code, and even if somebody caught it.
    """


@contextmanager
def handling_nothing(meanwhile: str) -> Iterator[None]:
    """Turn Ctrl-C into Signalled while a block runs that handles no sub-messages.

    The error says "interrupted while" and then ``meanwhile``, which describes the block.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Signalled(f"interrupted while {meanwhile}; nothing was handled") from None


@contextmanager
def raised_as(
    wanted: type[DrainerError], *kinds: type[Exception], about: str = "", hint: str | None = None
) -> Iterator[None]:
    """Replace errors of these ``kinds`` that a block raises by errors of the class ``wanted``.

    Without ``kinds``, errors of the class ``wanted`` are raised again with a different text or
    hint. The new text is ``about`` followed by the error's own text. The hint is the error's own
    unless one is given.
    """
    kinds = kinds or (wanted,)
    try:
        yield
    except kinds as error:
        way_out = hint or getattr(error, "hint", None)
        raise wanted(f"{about}{error}", hint=way_out) from error.__cause__ or error


class CommitDelayed(Interrupted):
    """Raised when the answer to a commit did not come in time. The next commit tries again."""


class GroupJoined(Interrupted):
    """Raised when a consumer joined the group while the drain was running."""


class GroupJoinedToo(GroupJoined):
    """Raised when a consumer joined the group, and the drain has another error beside that."""


class LockLost(Interrupted):
    """Raised when another drain took this one's lock."""


class RecordsDeleted(Interrupted):
    """Raised when retention deleted records of the backlog before they were read."""

    resume_with = ("--accept-gap",)


class PlanNotWritten(Interrupted):
    """Raised when the plan or its journal can't be written (disk full, folder gone)."""


class LimitsNotWritten(Interrupted):
    """Raised when the limits file can't be written (disk full, folder gone)."""


class StateLost(Interrupted):
    """Raised when the progress that Spark tasks recorded can't be reached, or is damaged."""


class DeadLetterNotWritten(Interrupted):
    """Reported when it is not certain that a dead letter is in its topic.

    Its sub-message stays pending.
    """


class DeadLetterFlawed(DrainerError):
    """Reported when a dead letter is in its topic, but is not perfect. This is not a failure.

    ``doubled`` means that it may be in the topic twice, and ``left_out`` that it has no payload.
    """

    def __init__(self, topic: str, *, doubled: bool = False, left_out: bool = False) -> None:
        super().__init__(topic)
        self.doubled = doubled
        self.left_out = left_out


class RecordUnsure(Interrupted):
    """Raised in a handler when this user may not check whether its record is in the topic."""


class ClassWaits(DrainerError):
    """Raised when some sub-messages of --only wait for others that --only left out."""

    exit_code = EXIT_CLASS_WAITS


class Unresumable(DrainerError):
    """Raised when a running drain ended, and its plan can't be resumed as things are.

    If ``undo`` is set, the way out is to reset the group with ``drainer plan undo``.
    """

    exit_code = EXIT_UNRESUMABLE
    undo = True


class OffsetMoved(Unresumable):
    """Raised when the group's committed offset is not the one that this drain wrote.

    If the drain noticed that right after a commit, ``left`` has the offsets of that commit, by
    partition.
    """

    left: Mapping[int, int] = {}


class TopicGone(Unresumable):
    """Raised when the topic was deleted, or recreated, while draining."""

    undo = False  # The group's offsets were deleted with the topic.


class PlanGone(Unresumable):
    """Raised when the plan's folder or topic was removed, or moved, while draining."""

    undo = False  # Without a plan, there is nothing to undo by.


class LogCut(Unresumable):
    """Raised when a log lost records of the backlog, for example in an unclean leader election."""

    undo = False  # The offsets from before the drain may belong to other records now.


class AccountWrong(Unresumable):
    """Raised when the drain's account does not add up, which is a bug of drainer."""


class Halted(DrainerError):
    """Raised when the failure policy stopped the drain. The plan is up to date."""

    exit_code = EXIT_HALTED


class LanesParked(Halted):
    """Raised when all that is left waits in parked lanes, behind a sub-message that failed."""


class SplitFailed(Halted):
    """Raised when ``split`` raised, or yielded something that is not a sub-message."""


class HandleFailed(Halted):
    """Raised when ``handle`` raised."""


class ValueNotShipped(HandleFailed, AttributeError):
    """Raised in a handler when it reads a message's value, which was not shipped to this task."""


class RecordNotWritten(Halted):
    """Raised in a handler when a topic did not accept its record, or may not have accepted it."""


class RecordTooLarge(RecordNotWritten):
    """Raised in a handler when a record is larger than its topic accepts."""


class ThreadsOverdue(Halted):
    """Raised when all that is left are calls on threads that did not return within the timeout."""


def account_wrong(account: str) -> AccountWrong:
    """Return the error for an account that does not add up."""
    return AccountWrong(
        f"the account does not add up: {account}",
        hint="This is a bug in drainer: report it, and keep the plan. To let the group's consumers"
        " read all of it again, put the group back.",
    )


def chain_errors(cause: BaseException | None, later: DrainerError) -> BaseException:
    """Return one error for the reason why a drain stopped and for an error that came later."""
    if not isinstance(cause, DrainerError):
        return cause or later
    if isinstance(later, Unresumable) and not isinstance(cause, Unresumable):
        made: type[DrainerError] = type(later)
    else:  # A stop, parked lanes or consumers are no longer the only reason.
        instead = {Signalled: Interrupted, LanesParked: Halted, GroupJoined: GroupJoinedToo}
        made = instead.get(type(cause), type(cause))
    return made(
        str(cause) if str(cause) == str(later) else f"{cause}. Then: {later}",
        hint=later.hint or cause.hint,
        cause=cause.__cause__ or later.__cause__,
    )
