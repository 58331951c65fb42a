"""Calls of ``split``, and the errors of a message that it rejects."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from traceback import walk_tb

from drainer.errors import Halted, Refused, SplitFailed
from drainer.handler import Fatal, Retry, Skip
from drainer.host.forks import call_alone
from drainer.message import Message, SubMessage, Unsplit
from drainer.text.mask import ERROR_CHARACTERS, class_name, describe, error_text

# Beginnings of the paths of code that no handler's author wrote.
NOT_OF_HANDLERS = (
    *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")),
    str(Path(__file__).parent),
    "<",
)
# The way past a message that split rejects, for a hint.
PAST = ", or resume with --tune on-split-failure=dead-letter, skip or park to go past it"
SplitFunction = Callable[[Message], Iterable[SubMessage]]
# Waits so many seconds for what does not answer, and shows why; whether to try again then.
Wait = Callable[[float, str], bool]
# Gets what splits of the first of these messages will need, so that they don't block, and returns
# how many those are: as many as memory holds, or none after a wait that was ended. It may block.
Prepare = Callable[[Sequence[Message], Wait], int]


def describe_with_line(error: BaseException) -> str:
    """Describe an exception, with the line of the handler that it came from, not of a library's."""
    places = [
        f" ({Path(file).name}:{line})"
        for frame, line in walk_tb(error.__traceback__)
        if not (file := frame.f_code.co_filename).startswith(NOT_OF_HANDLERS)
    ]
    return describe(error) + "".join(places[-1:])


def split_failed(message: Message, why: str, past: str = "", first: str = "") -> SplitFailed:
    """Make the error for a message that ``split`` rejected.

    ``past`` is a way to go past it, for the hint; the text begins with ``first``.
    """
    return SplitFailed(
        f"{first}split failed at {message}: {why}",
        hint=f"Fix `split`{past}. Nothing of this message was handled.",
    )


def split_or_reject(split: SplitFunction, message: Message) -> list[SubMessage]:
    """Split a message in a drain; if ``split`` raises, the one unit that stands for the message.

    Raises SplitFailed when that halts with any settings: ``Fatal``, ``sys.exit()``, or no memory;
    Halted
    when what it needs can't be had.
    """
    try:
        return call_alone(_split, split, message)
    except Halted:  # of a split within this one, too
        raise
    except BaseException as error:
        why = describe_with_line(error)
        # Without memory the fault is not the message's.
        if isinstance(error, Fatal | MemoryError) or not isinstance(error, Exception):
            raise split_failed(message, why) from error
        name, text = class_name(error), error_text(error, ERROR_CHARACTERS, whole=True)
        if isinstance(error, Retry):
            text, why = (f"{each} (drainer never retries split)".lstrip() for each in (text, why))
        skip = text if isinstance(error, Skip) else None
        return [Unsplit(message.value, name, text, why, skip)]


def split_up(split: SplitFunction | None, message: Message) -> list[SubMessage]:
    """Split a message outside of a drain, None being the default; into nothing if it is skipped.

    Raises SplitFailed, also for a ``split`` that calls ``sys.exit()``; Refused when what it needs
    can't be had.
    """
    if split is None:
        return [SubMessage(message.key, message.value)]
    try:
        return call_alone(_split, split, message)
    except KeyboardInterrupt:
        raise
    except Skip:
        return []
    except Halted as error:
        raise Refused(str(error), hint=error.hint) from error
    except BaseException as error:
        raise split_failed(message, describe_with_line(error)) from error


def _split(split: SplitFunction, message: Message) -> list[SubMessage]:
    return list(split(message))
