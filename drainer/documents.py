"""The built-in split ``--split`` and ``--split-key``: elements of a list, under a key of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any

from drainer.decoding import read_json
from drainer.errors import UsageError
from drainer.message import Message, SubMessage
from drainer.model.facts import Facts, View

_PATH = re.compile(r"[\w-]+(\.[\w-]+)*")
_Find = Callable[[Message, Any], Any]  # of a message and what a path begins in


class Documents:
    """Splits a message into the elements of a list in its value, or gives it another key.

    ``split`` is the path of the list, such as ``order.lines``, or an expression of the rule
    language with the message's fields; None stands for the message itself. ``key`` is a path in an
    element, or an expression where ``payload`` is the element. Bytes are read as JSON. Keys are
    text or whole numbers. A tombstone is one sub-message with the message's own key.
    Raises UsageError.
    """

    def __init__(self, split: str | None, key: str | None) -> None:
        if key is None:
            raise UsageError(
                f"--split {split!r} needs the key of an element",
                hint="Add --split-key, such as --split-key id.",
            )
        self._list, self._list_name = None if split is None else _finder(split), split
        self._key, self._key_name = _finder(key), key

    def __call__(self, message: Message) -> Iterator[SubMessage]:
        if message.value is None:
            yield SubMessage(_text_of(message.key), None)  # the lane of what it deletes
            return
        found = message.decoded
        body = read_json(found) if isinstance(found, bytes) else found
        if self._list is None:
            yield SubMessage(self._key_of(message, body), message.decoded)
            return
        found = self._list(message, body)
        if not isinstance(found, list | tuple):
            raise TypeError(f"{self._list_name!r} is not a list")
        for element in found:
            yield SubMessage(self._key_of(message, element), element)

    def _key_of(self, message: Message, element: Any) -> str:
        found = self._key(message, element)
        if isinstance(found, float | Decimal) and -(2**53) < found == int(found) < 2**53:
            found = int(found)  # of an expression that computes
        if isinstance(found, bool) or not isinstance(found, str | int):
            raise TypeError(
                f"{self._key_name!r} is {found!r}, but a key must be text or an integer"
            )
        return str(found)


def _text_of(key: bytes | None) -> str | bytes | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return key


def _finder(text: str) -> _Find:
    if _PATH.fullmatch(text):
        return partial(_at, tuple(text.split(".")))
    from drainer.model.expression import Expression  # noqa: PLC0415 - it takes its time to load

    return partial(_computed, Expression(text, gives_truth=False))


def _at(path: tuple[str, ...], message: Message, value: Any) -> Any:
    for name in path:
        if not isinstance(value, dict) or name not in value:
            meant = f"; did you mean {'.'.join(path[1:])!r}?" if path[0] == "payload" else ""
            raise ValueError(f"there is nothing at the path {'.'.join(path)!r}{meant}")
        value = value[name]
    return value


def _computed(expression: Any, message: Message, value: Any) -> Any:
    sub = SubMessage(message.key, value)
    sub.message, sub.index = message, 0
    return _plain(expression.evaluate(Facts(sub)))


def _plain(found: Any) -> Any:
    if isinstance(found, View):
        return found.fields
    return [_plain(each) for each in found] if isinstance(found, list | tuple) else found
