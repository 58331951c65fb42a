"""Calls of ``split``, the built-in split, and the errors of a message that ``split`` rejects."""

from __future__ import annotations

import re
import site
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from operator import attrgetter
from pathlib import Path
from time import monotonic
from traceback import walk_tb
from typing import Any

from msgspec import Raw, ValidationError, defstruct
from msgspec.json import Decoder

from drainer.errors import Halted, Refused, SplitFailed
from drainer.handler import Fatal, Retry, Skip
from drainer.host.forks import call_alone
from drainer.message import Message, SubMessage, Unsplit
from drainer.model.facts import Facts, Undecided, View, named
from drainer.model.listed import clock_time, round_duration
from drainer.text.mask import ERROR_CHARACTERS, class_name, describe, error_text
from drainer.text.plain_json import plain_json
from drainer.text.raw_json import decode_json, meaning, raw_json

# If the path of code begins with one of these, no handler's author wrote that code.
NOT_OF_HANDLERS = (
    *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")),
    *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),  # Of ``pip --user``.
    str(Path(__file__).parents[1]),
    "<",
)
# A hint ends with this if a resume can go past the message that ``split`` rejects.
PAST = ", or resume with --tune on-split-failure=dead-letter or skip to go past it"
SplitFunction = Callable[[Message], Iterable[SubMessage]]
# Waits for a number of seconds because something does not answer, and shows the reason. It returns
# whether to try again after that.
Wait = Callable[[float, str], bool]
# Fetches what ``split`` will need for the first of these messages, so that ``split`` does not
# block. It returns for how many messages it has done so: for as many as memory holds, or for none
# if somebody ended the wait. The call may block.
Prepare = Callable[[Sequence[Message], Wait], int]
_PATH = re.compile(r"[\w-]+(\.[\w-]+)*")
# The errors of options that split messages or find their keys: ``ValueError: --key payload.id: …``.
_OF_OPTION = re.compile(r": (--(?:split|key|barrier) .+?): ")
# A function that finds something in a message: its second argument is where a path begins.
_Find = Callable[[Message, Any], Any]


@dataclass(eq=False, slots=True)
class Outage:
    """An outage of something that a split needs, such as a schema registry. It is a ``Wait``.

    Attributes:
        most_s: the drain halts once the outage has lasted longer than this.
        pause: waits a number of seconds, and returns whether to try again then.
        since_s: when the first answer of this outage did not come; None while all is well.
        trouble: the reason of an outage that lasts, with its times on the clock.
    """

    most_s: float
    pause: Callable[[float], bool]
    clock: Callable[[], float] = monotonic
    since_s: float | None = None
    trouble: str | None = None
    _times: str = ""

    def __call__(self, seconds: float, why: str) -> bool:
        """Wait some seconds, and return whether to try again. Raises Halted after ``most_s``."""
        now_s = self.clock()
        if self.since_s is None:
            self.since_s = now_s
            now = datetime.now()
            self._times = f"since {now:%H:%M:%S}; drainer keeps trying"
            with suppress(OverflowError):  # The limit may be infinite.
                halts = now + timedelta(seconds=self.most_s)
                self._times += f", and halts at {clock_time(halts, now, '%H:%M:%S')}"
        if now_s - self.since_s > self.most_s:
            raise Halted(
                f"{why}, for longer than --tune max-outage ({round_duration(self.most_s)})",
                hint="Once it answers, resume with the plan.",
            )
        self.trouble = f"{why} ({self._times})"
        return self.pause(seconds)

    def end(self) -> None:
        """Note that an answer came."""
        self.since_s = self.trouble = None


def describe_with_line(error: BaseException) -> str:
    """Describe an exception, with the last line of a handler's code that it came through."""
    places = [
        f" ({Path(file).name}:{line})"
        for frame, line in walk_tb(error.__traceback__)
        if not (file := frame.f_code.co_filename).startswith(NOT_OF_HANDLERS)
    ]
    return describe(error) + "".join(places[-1:])


def split_failed(message: Message, why: str, past: str = "", first: str = "") -> SplitFailed:
    """Make the error for a message that ``split`` rejected.

    The text begins with ``first``, and ``past`` tells in the hint how to go past the message.
    """
    return SplitFailed(
        f"{first}split failed at {message}: {why}",
        hint=f"{way_out(why)}{past}. Nothing of this message was handled.",
    )


def way_out(error: str) -> str:
    """Return what to do about an error of ``split``: the option to correct, or to fix ``split``."""
    of_option = _OF_OPTION.search(error)
    return f"Correct {of_option[1]}" if of_option else "Fix `split`"


def split_or_reject(split: SplitFunction, message: Message) -> list[SubMessage]:
    """Split a message in a drain. If ``split`` raises, return one unit that stands for the message.

    Raises SplitFailed for what halts a drain whatever its settings are: ``Fatal``, ``sys.exit()``,
    and a lack of memory. Raises Halted when a service that ``split`` needs does not answer.
    """
    try:
        return call_alone(_split, split, message)
    except Halted:  # The split of another handler, which this one calls, may also raise it.
        raise
    except BaseException as error:
        why = describe_with_line(error)
        # If there is no memory, the message is not to blame.
        if isinstance(error, Fatal | MemoryError) or not isinstance(error, Exception):
            raise split_failed(message, why) from error
        name, text = class_name(error), error_text(error, ERROR_CHARACTERS, whole=True)
        if isinstance(error, Retry):
            text, why = (f"{each} (drainer never retries split)".lstrip() for each in (text, why))
        skip = text if isinstance(error, Skip) else None
        return [Unsplit(message.value, name, text, why, skip)]


def split_up(split: SplitFunction | None, message: Message) -> list[SubMessage]:
    """Split a message outside of a drain. None stands for the default split.

    A message that ``split`` skips has no sub-messages. Raises SplitFailed when ``split`` raises or
    calls ``sys.exit()``, and Refused when a service that it needs does not answer.
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


class Elements:
    """Splits a message into the elements of a list in its value.

    ``path`` is the path of the list, such as ``order.lines``, or an expression of the rule language
    with the message's fields. An element has the message's key until ``--key`` gives it another. A
    tombstone becomes one sub-message.

    Bytes are read as JSON. An element of JSON is a slice of the message's bytes (raw_json.py), but
    what an expression computes is encoded again. Raises UsageError if a path or an expression makes
    no sense.
    """

    def __init__(self, path: str) -> None:
        self._path, self._find = path, _finder(path)

    def __call__(self, message: Message) -> list[SubMessage]:
        if message.value is None:
            return [SubMessage(message.key, None)]
        body = message.meaning
        if isinstance(body, bytes):
            body = Raw(body)  # The finder checks that it is JSON.
        try:
            found = self._find(message, body)
            if not isinstance(found, list | tuple):
                raise TypeError(f"it is {named(found)}, and not a list")
            if type(body) is Raw:
                found = [each if type(each) is Raw else Raw(_written(each)) for each in found]
        except (ValueError, TypeError, Undecided) as error:
            raise ValueError(f"--split {self._path}: {error}") from error
        return [SubMessage(message.key, each) for each in found]


class _Path:
    """Finds the list at a path. In JSON it decodes only this list, and skips the rest."""

    def __init__(self, text: str) -> None:
        self._path = text.split(".")
        of: Any = list[Raw]
        for name in reversed(self._path):
            of = defstruct("Fields", [("at", of)], rename={"at": name})
        self._get = attrgetter(".".join("at" for _ in self._path))
        self._decode = Decoder(of).decode

    def __call__(self, message: Message, value: Any) -> Any:
        if type(value) is Raw:
            with suppress(ValidationError):
                return self._get(decode_json(bytes(value), self._decode))
        found, path = meaning(value), self._path
        for name in path:
            if not isinstance(found, dict) or name not in found:
                raise ValueError(f"there is no field {name!r}")
            found = found[name]
        return found


def _finder(text: str) -> _Find:
    if _PATH.fullmatch(text):
        return _Path(text)
    from drainer.model.expression import Expression  # noqa: PLC0415 - its import is slow

    return partial(_computed, Expression(text, gives_truth=False))


def _computed(expression: Any, message: Message, value: Any) -> Any:
    sub = SubMessage(message.key, raw_json(bytes(value)) if type(value) is Raw else value)
    sub.message, sub.index = message, 0
    return _plain(expression.evaluate(Facts(sub)))


def _plain(found: Any) -> Any:
    if isinstance(found, View):
        return found.fields if found.text is None else Raw(found.text)
    return [_plain(each) for each in found] if isinstance(found, list | tuple) else found


def _written(found: Any) -> bytes:
    """Return the result of an expression as JSON. Objects that it selected are unchanged."""
    if isinstance(found, list):
        return b"[%b]" % b",".join(map(_written, found))
    return str(found).encode() if isinstance(found, Decimal) else plain_json(found)
