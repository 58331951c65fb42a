"""Priority classes in words: what is drained before the rest, how far it is, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator

from drainer.model.account import Account, clock
from drainer.model.priority import ClassStatus
from drainer.model.status import ProgressStatus
from drainer.text.escape import shorten
from drainer.view import figures
from drainer.view.page import Field
from drainer.view.verdict import ending

WHERE_SHOWN, WHERE_SHOWN_LIVE = 60, 40  # At most this many characters of an expression are shown.


def fields_before(account: Account) -> Iterator[Field]:
    """Yield a field for each class that goes first, for the preview and the plan."""
    classes = account.classes
    for number, each in enumerate(classes.each):
        drained = "" if each.ended is None else f"drained at {clock(each.ended)}"
        if drained and each.deferred:
            drained += (
                f", except for {figures.count(each.deferred)}, which are queued behind the rest"
            )
        yield _field(number, each.where, drained)
    if classes.each:
        yield Field("then", "nothing: a resume drains the rest" if classes.only else "the rest")


def fields_now(progress: ProgressStatus) -> Iterator[Field]:
    """Yield the progress of each class, and the time at which everything will be drained.

    What waits for the rest is drained at that time, too.
    """
    for number, each in enumerate(progress.classes):
        words = _words(each, progress.complete)
        if each.deferred and progress.eta_s is not None and not progress.only_classes:
            words += f" and end {_time_in(progress.eta_s)}"
        yield _field(number, each.where, words, WHERE_SHOWN_LIVE)
    if progress.classes and progress.eta_s is not None:
        yield Field("selected" if progress.only_classes else "all", _time_in(progress.eta_s))


def fields_after(progress: ProgressStatus, *, whole: bool) -> Iterator[Field]:
    """Yield a field for each class that was drained before the rest.

    ``whole`` says whether the rest was drained, too.
    """
    for number, each in enumerate(progress.classes):
        done = f"{figures.count(each.sub_messages.finished)} done"
        done += "" if each.ended is None else f" by {clock(each.ended)}"
        if each.deferred:
            done += f"{_deferred(each, whole)}, queued behind it"
        if each.cut:
            done += "; stopped before all of it was searched"
        yield _field(number, each.where, done)


def pending_after(progress: ProgressStatus) -> Iterator[Field]:
    """Yield why the account of a drain with --only has fewer pending than wait of all classes.

    Each pass counts what is pending anew, because a sub-message may wait in several classes.
    """
    if progress.only_classes:
        waiting = sum(each.deferred for each in progress.classes)
        if waiting > progress.sub_messages.pending:
            yield Field(
                "pending", "of the last class alone", "what waits is counted class by class"
            )


def time_left(progress: ProgressStatus) -> str:
    """Return ``5m 10s left for the class, except 34 that wait``.

    It is empty if no class is drained, or if the time is not known.
    """
    turn = progress.turn
    if turn is None or turn.eta_s is None:
        return ""
    waiting = f", except {figures.count(turn.deferred)} that wait" if turn.deferred else ""
    return f"{figures.duration(turn.eta_s)} left for the class{waiting}"


def to_go(turn: ClassStatus) -> str:
    """Return ``. ~1,820 sub-messages of the class left (about 1m 32s)``, or nothing if unknown."""
    if not turn.left:
        return ""
    about = "" if turn.eta_s is None else f" (about {figures.duration(turn.eta_s)})"
    return f". ~{figures.counted(turn.left, 'sub-message')} of the class left{about}"


def of_what(progress: ProgressStatus) -> str:
    """Return `` of the selected`` to follow a share if that is not one of the whole backlog."""
    return " of the selected" if progress.only_classes else ""


def messages_words(progress: ProgressStatus, passed: str) -> str:
    """Say that messages are done, or that they were searched, in a pass for a priority class.

    ``passed`` is their number, such as ``5 of ~9``.
    """
    searched = f"looking for priority messages: {passed}"
    return f"{passed} done" if progress.turn is None else searched


def finished(progress: ProgressStatus) -> int:
    """Return how many sub-messages of all classes are finished."""
    return sum(each.sub_messages.finished for each in progress.classes)


def _field(number: int, where: str, words: str, most: int = WHERE_SHOWN) -> Field:
    return Field("then" if number else "first", shorten(where, most), words)


def _deferred(each: ClassStatus, whole: bool) -> str:
    return f"; {figures.count(each.deferred)} {'came with' if whole else 'wait for'} the rest"


def _words(each: ClassStatus, whole: bool) -> str:
    """Return the progress of a class, and when it was or will be done."""
    done = figures.count(each.sub_messages.finished)
    if each.left is not None:
        done += f" of ~{figures.count(each.sub_messages.finished + each.left)}"
    done += " done"
    if each.ended is not None:
        done += f" by {clock(each.ended)}"
    elif each.eta_s is not None:
        done = f"{_time_in(each.eta_s)}, {done}"
    return done + (_deferred(each, whole) if each.deferred else "")


def _time_in(seconds: float) -> str:
    return ending("", seconds, end="by")
