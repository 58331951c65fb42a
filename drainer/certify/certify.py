"""All checks of a handler: together for the command, and one by one for a test of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from drainer.certify import laws
from drainer.certify.finding import Certificate, LawBroken, ensure_lawful
from drainer.certify.split import PROBES, split_report
from drainer.certify.subject import HandlerSource, Subject
from drainer.certify.trial import NORMAL, Effort, HandlerTrial, StateOf
from drainer.errors import SplitFailed
from drainer.extensions import ensure_installed
from drainer.message import Message
from drainer.model.finding import Finding, Level

HANDLE_CHECKS = {
    "handle": "handle accepts every sub-message",
    "state": "the same order ends in the same state",
    "commutes": "different sub-keys commute",
    "overlaps": "different sub-keys may be handled at the same time",
    "idempotent": "repeating work after a kill gives the same state",
    "travels": "handle needs only what Spark tasks receive",
}


def certify(
    handler: HandlerSource,
    messages: Sequence[Message],
    state: StateOf | None = None,
    *,
    options: Mapping[str, str] | None = None,
    effort: Effort = NORMAL,
) -> Certificate:
    """Makes every check and lists what was found; raises for no law that is broken.

    Without ``state`` nothing is handled, and the checks that need it are reported as unchecked. The
    messages of one partition have rising offsets.

    Raises:
        Refused: when the handler can't be made or opened.
        UsageError: when it is none.
        ValueError: when the messages' offsets don't rise.
    """
    subject = _subject(handler, options)
    certificate = split_report(subject, messages)
    handled = 0
    if state is None:
        found = _unchecked("handle was not called: add --handle, or state=… in a test")
    elif certificate.broken:
        found = _unchecked("not checked: split breaks a law")
    else:
        trial = HandlerTrial(subject, messages, state, effort)
        found, handled = _handle_findings(trial), trial.handled
    return replace(certificate, findings=certificate.findings + found, handled=handled)


def _handle_findings(trial: HandlerTrial) -> list[Finding]:
    found = laws.baseline(trial)
    if any(finding.level is Level.BAD for finding in found):
        return found + _unchecked("not checked, for this reason", list(HANDLE_CHECKS)[len(found) :])
    found.append(laws.commutes(trial))
    if found[-1].level is Level.BAD:
        found += _unchecked("not checked, because they don't commute", ["overlaps"])
    else:
        found.append(laws.overlaps(trial))
    found += [laws.idempotent(trial), laws.travels(trial)]
    together = laws.together(trial)
    return found if together is None else [*found, together]


def check_split(
    handler: HandlerSource,
    messages: Sequence[Message],
    *,
    options: Mapping[str, str] | None = None,
    processes: int = len(PROBES),
) -> None:
    """Ensure that ``split`` is pure and deterministic, here and in other processes.

    There are ``processes`` fresh ones, each with other hashes of text, the third with another
    clock. ``handle`` is not called.

    Raises:
        LawBroken: with the message and the sub-message where it is not. What is only doubtful is
            warned of, as HandlerDoubt.
    """
    ensure_lawful(split_report(_subject(handler, options), messages, processes=processes).findings)


def check_commutes(
    handler: HandlerSource,
    messages: Sequence[Message],
    state: StateOf,
    *,
    options: Mapping[str, str] | None = None,
    effort: Effort = NORMAL,
) -> None:
    """Ensure that every schedule that a drain may make ends in the state of the serial one.

    Each schedule has a fresh handler, opened and closed, where a class or a function that makes
    one is given; ``state`` is called with it at the end, and what it gives is compared by ``==``.

    Raises:
        LawBroken: with the two sub-messages that don't commute, in the smallest schedule that was
            found. What could not be checked is warned of, as HandlerDoubt.
    """
    with _trial(handler, options, messages, state, effort) as trial:
        ensure_lawful([laws.commutes(trial)])
        # Threads can't be made to take turns: that raises no doubt about this handler.
        if trial.is_async:
            ensure_lawful([laws.overlaps(trial)])


def check_idempotent(
    handler: HandlerSource,
    messages: Sequence[Message],
    state: StateOf,
    *,
    options: Mapping[str, str] | None = None,
    effort: Effort = NORMAL,
) -> None:
    """Ensure that sub-messages may be handled again: at once, and from an earlier point on.

    A kill is played by going on from an earlier point with the same handler: what it keeps in the
    process, and would lose, is kept here.

    Raises:
        LawBroken: with what was repeated, and the state that this left.
    """
    with _trial(handler, options, messages, state, effort) as trial:
        ensure_lawful([laws.idempotent(trial)])


def check_together(
    handler: HandlerSource,
    messages: Sequence[Message],
    state: StateOf,
    *,
    options: Mapping[str, str] | None = None,
) -> None:
    """Ensure that ``coalesce`` and ``handle_batch`` end in the state of one by one.

    Raises:
        LawBroken: with the fewest of the first messages that show it.
    """
    with _trial(handler, options, messages, state) as trial:
        ensure_lawful(filter(None, [laws.together(trial)]))


@contextmanager
def _trial(
    handler: HandlerSource,
    options: Mapping[str, str] | None,
    messages: Sequence[Message],
    state: StateOf,
    effort: Effort = NORMAL,
) -> Iterator[HandlerTrial]:
    """A trial whose baseline is lawful; a split that rejects all messages breaks a law, too."""
    try:
        trial = HandlerTrial(_subject(handler, options), messages, state, effort)
        ensure_lawful(laws.baseline(trial))
        yield trial
    except SplitFailed as error:
        raise LawBroken(Finding("split", Level.BAD, str(error), error.hint)) from error


def _subject(handler: HandlerSource, options: Mapping[str, str] | None) -> Subject:
    ensure_installed("certify", "this check of a handler")
    return Subject(handler, options)


def _unchecked(reason: str, checks: Iterable[str] = HANDLE_CHECKS) -> list[Finding]:
    return [
        Finding(check, Level.UNCHECKED, f"{HANDLE_CHECKS[check]}: {reason}") for check in checks
    ]
