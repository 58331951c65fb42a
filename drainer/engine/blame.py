"""Errors of calls: their kinds, whose fault each is, and the error to report for it."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable

from drainer.errors import DrainerError, HandleFailed, RecordUnsure, ValueNotShipped
from drainer.handler import Fatal, GiveUp, Retry, Skip
from drainer.machine import is_of_machine
from drainer.mask import class_name, describe
from drainer.message import SubMessage, Unsplit
from drainer.policy.fault import Fault, as_retry, causes_of, fault_of
from drainer.splitting import PAST, describe_with_line, split_failed

TEXT_LENGTH = 160  # characters that are kept of an error
KINDS_MOST = 50  # what comes then is counted by its type alone
LENGTH = 500  # characters that are looked at: a pattern may take the square of it
_VARYING = re.compile(
    r"""
    (?P<kept> (?i:\b(?:errno|status|code|http(?:/[\d.]+)?)\W{0,3}\d{1,3}\b)
        | '?\b[1-5]\d\d(?:\s[A-Z][\w\s]*'|(?=\s[A-Z]|,\smessage=))  # of HTTP: '404 Not Found'
        | (?<!\w)(?P<quote>['"])[A-Za-z_.]{1,40}(?P=quote)(?!\w) )  # a field, a type, a table
    | (?<![\w+.-])[A-Za-z][\w+.-]*://[^\s'"<>]*[^\s'"<>.,:;)]       # a URL
    | (?<!\w)'[^']*'(?!\w) | "[^"]*"
    | (?<![\w@:/+.-])[\w@:/+.-]*\d[\w@:/+.-]*\b                     # a word with a digit: an id
    """,
    re.VERBOSE,
)


def kind_of(text: str) -> str:
    """The text of an error with ``…`` for ids, numbers, URLs and quoted values.

    HTTP statuses, error numbers and quoted names stay: they are different kinds.
    """
    return _VARYING.sub(lambda found: found["kept"] or "…", text[:LENGTH])


def summary_of(error: BaseException) -> str:
    """The beginning of an error's description, fit for the plan."""
    return describe(error)[:TEXT_LENGTH]


class MachineFails(Retry):
    """Replaces an error that is neither the message's fault nor the downstream's.

    The call is repeated, and no message is given up for it.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(describe(error))
        self.error = error


class ErrorCounts:
    """Counts of errors, by kind."""

    def __init__(self) -> None:
        self.attempts = 0  # that ended in an error
        self.latest = ""  # the text of the last one
        self._kinds = Counter[str]()
        self._types = Counter[str]()

    def count(self, error: BaseException) -> None:
        """Counts the error of one more attempt."""
        self.attempts += 1
        self.latest = summary_of(error)
        kind, name = kind_of(self.latest), class_name(error)
        self._kinds[kind if kind in self._kinds or len(self._kinds) < KINDS_MOST else name] += 1
        self._types[name if name in self._types or len(self._types) < KINDS_MOST else "other"] += 1

    @property
    def kinds(self) -> tuple[tuple[str, int], ...]:
        """The most frequent kinds of text, and how often each came."""
        return tuple(self._kinds.most_common(KINDS_MOST))

    @property
    def types(self) -> tuple[tuple[str, int], ...]:
        """Classes of errors, and how often each came."""
        return tuple(self._types.items())


def blame(
    error: BaseException, is_outage: Callable[[BaseException], bool | None] | None
) -> tuple[Fault, BaseException]:
    """Return whose fault an error is, and the error to go by."""
    if isinstance(error, Skip | Retry | Fatal | GiveUp) or not is_retryable(error):
        return Fault.OWN, error
    for each in causes_of(error):
        if is_of_machine(each):
            return Fault.UNCLEAR, MachineFails(each)
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
    reason = describe(skip)
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
