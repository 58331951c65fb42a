"""Blame: whose fault the error of a call is, and the error to report for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from drainer.engine.kinds import TEXT_LENGTH
from drainer.errors import DrainerError, HandleFailed, RecordUnsure, ValueNotShipped
from drainer.escape import printable
from drainer.handler import Fatal, GiveUp, Retry, Skip
from drainer.mask import describe
from drainer.message import SubMessage, Unsplit
from drainer.policy.fault import Fault, as_retry, fault_of
from drainer.splitting import PAST, describe_with_line, split_failed


def blame(
    error: BaseException, is_outage: Callable[[BaseException], bool | None] | None
) -> tuple[Fault, BaseException]:
    """Return whose fault an error is, and the error to go by."""
    if isinstance(error, Skip | Retry | Fatal | GiveUp) or not is_retryable(error):
        return Fault.OWN, error
    try:
        answer = None if is_outage is None else is_outage(error)
    except Exception as failure:
        return Fault.OWN, Fatal(f"is_outage() failed: {describe_with_line(failure)}")
    if answer is not None:
        return (Fault.DOWNSTREAM if answer else Fault.OWN), error
    try:
        return fault_of(error), as_retry(error) or error
    except Exception:  # of an attribute that is not what it is in other libraries
        return Fault.UNCLEAR, error


def is_retryable(error: BaseException) -> bool:
    """Whether another attempt may end otherwise; errors of drainer's own would come in each."""
    in_each = isinstance(error, ValueNotShipped | RecordUnsure)
    return not in_each and isinstance(error, Exception | asyncio.CancelledError)


def reason_to_skip(skip: Skip) -> str:
    """The handler's reason, as it is counted."""
    reason = printable(describe(skip))  # it goes into the plan, and JSON has no half characters
    return reason.removeprefix("Skip").removeprefix(": ")[:TEXT_LENGTH] or "no reason"


def halted_at(sub: SubMessage, error: BaseException, why: str | None) -> DrainerError:
    """The error with which a drain halts at a sub-message; ``why`` it does, where it may not."""
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
