"""The sub-keys and barriers that options give to sub-messages, whatever split yielded them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from msgspec import Raw, ValidationError, defstruct
from msgspec.json import Decoder

from drainer.errors import UsageError
from drainer.message import Barrier, Message, SubMessage
from drainer.model.facts import Facts, Missing, Undecided, View, named, shown, text_of
from drainer.model.option import ValueType
from drainer.model.predicate import Predicate
from drainer.model.terms import PayloadSettings, Unkeyed
from drainer.text.raw_json import decode_json, raw_json

_FIELD = re.compile(r"payload((?:\.[^\W\d]\w*)+)")
_EXACT = {float: 2**53, Decimal: 10**28}  # Below these, no digit of a whole number is lost.


class KeyFinder:
    """Gives sub-messages their sub-keys, and finds the barriers among them.

    The sub-keys of ``--key`` replace those that ``split`` gives. If all of them are missing, the
    sub-message has no sub-key. A tombstone is the exception, because it says nothing but its key:
    it takes the message's key in place of what is missing. Barriers that ``split`` yields stay.

    Raises UsageError if an expression can't be understood, if the elements of ``--split`` have no
    key, or if the handler writes records, and there may be several sub-keys or barriers.
    """

    def __init__(self, payloads: PayloadSettings, *, one_key: bool = False) -> None:
        if payloads.split is not None and not payloads.keys:
            raise UsageError(
                f"--split {payloads.split!r} needs the key of an element",
                hint="Add --key, such as --key payload.id.",
            )
        if one_key and (payloads.barrier is not None or len(payloads.keys) > 1):
            raise UsageError(
                "the handler writes records, which have one key each and can't be barriers",
                hint="Give one --key, and no --barrier.",
            )
        self._keys = [Key(text) for text in payloads.keys]
        self._barrier = payloads.barrier
        self._is_barrier = None if payloads.barrier is None else _Computed(payloads.barrier)
        self._evaluates = payloads.barrier is not None or not all(key.path for key in self._keys)
        self._one_lane = payloads.unkeyed is Unkeyed.ONE_LANE

    def split(
        self, split: Callable[[Message], Iterable[SubMessage]], message: Message
    ) -> list[SubMessage]:
        """Split a message. Raises an error if an expression fails, unless a field is missing."""
        subs = list(split(message))
        together = self._together(subs) if self._keys and not self._evaluates else None
        if together is not None:
            for sub, keys in zip(subs, together, strict=True):
                if len(keys) > 1 or keys[0] is None:
                    self._give(sub, keys, message)
                else:
                    sub.key, sub.keys = keys[0], None
            return subs
        for index, sub in enumerate(subs):
            if not isinstance(sub, SubMessage) or isinstance(sub, Barrier):
                continue
            facts = _facts(sub, message, index) if self._evaluates else None
            if facts is not None and self._stops(sub, facts):
                subs[index] = Barrier(sub.content)
            else:
                found = [key.of(sub.content, facts, message.key) for key in self._keys]
                self._give(sub, found, message)
        return subs

    def _together(self, subs: Sequence[SubMessage]) -> list[tuple[str | None, ...]] | None:
        """Return the sub-keys of all sub-messages, if their payloads are JSON that has them.

        That takes less than half as long as to look at each payload.
        """
        contents = [sub.content for sub in subs if type(sub) is SubMessage]
        if not len(subs) == len(contents) > 1 or {*map(type, contents)} != {Raw}:
            return None
        try:
            return list(zip(*[key.of_each(contents) for key in self._keys], strict=True))
        except ValueError:  # A look at each payload finds the value, or the reason.
            return None

    def _give(self, sub: SubMessage, found: Sequence[Any], message: Message) -> None:
        if self._keys:
            if None in found:
                text = text_of(message.key) if message.value is None else None
                found = [key for key in (*found, text) if key is not None]
            keys = tuple(dict.fromkeys(found))
            sub.key, sub.keys = (keys[0], None) if len(keys) == 1 else (None, keys or None)
        if self._one_lane and sub.key is None and sub.keys is None:
            sub.keys = (None,)

    def _stops(self, sub: SubMessage, facts: Facts) -> bool:
        found = None if self._is_barrier is None else self._is_barrier.value(sub.content, facts)
        if found is None or type(found) is bool:
            return found is True
        gave = f"it gave {named(found)}, neither true nor false"
        raise ValueError(f"--barrier {self._barrier}: {gave}")


def _facts(sub: SubMessage, message: Message, index: int) -> Facts:
    # The account sets these fields of the sub-message itself, and only once.
    seen = SubMessage(sub.key, sub.content, keys=sub.keys)
    seen.message, seen.index = message, index
    return Facts(seen)


class _Computed:
    """What an expression computes for sub-messages. A field that is absent is null."""

    def __init__(self, text: str, *, option: str = "--barrier") -> None:
        from drainer.model.expression import Expression  # noqa: PLC0415 - its import is slow

        is_barrier = option == "--barrier"
        self._named = f"{option} {text}"
        self._exact = Expression(text, gives_truth=is_barrier)
        self._with_nulls = Expression(text, gives_truth=is_barrier, absent_is_null=True)

    def value(self, content: Any, facts: Facts) -> Any:
        """Return the value; None if it needs a field that is missing. Raises ValueError."""
        try:
            return self._exact.evaluate(facts)
        except Missing:
            with suppress(Undecided):  # A comparison with null may have no value, either.
                return self._with_nulls.evaluate(facts)
        except Undecided as error:
            if content is not None or "payload" not in self._exact.names:
                raise ValueError(f"{self._named}: {error}") from None
        return None  # A tombstone has no fields.


class Key:
    """The sub-key that an expression gives to a sub-message.

    A key is text. Whole numbers are written out, so that 17, 17.0 and "17" are one key: messages of
    one topic write an id in several ways, and only one lane for all of them keeps their order.
    Bytes that are not UTF-8 stay bytes. The values of a field of the payload, as in
    ``payload.order.id``, are found without rule-engine, which would take ten times as long.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        match = _FIELD.fullmatch(text)
        self.path = match[1].split(".")[1:] if match else []  # Empty for any other expression.
        if match:
            of: Any = str | int | None
            for name in reversed(self.path):
                of = defstruct("Fields", [("at", of, None)], rename={"at": name}) | None
            self._decode = Decoder(of).decode
            self._decode_each = Decoder(list[of]).decode
        else:
            self._computed = _Computed(text, option="--key")

    def of(
        self, content: Any, facts: Facts | None, message_key: bytes | None
    ) -> str | bytes | None:
        """Return the sub-key of a sub-message with this payload; None if it is missing.

        The message's own key may be of any type, such as a JSON object. Then its text is the
        sub-key, as without ``--key``. Only a path needs no ``facts``. Raises ValueError if the
        expression has no value, or one that can't be a key.
        """
        if self.path or facts is None:
            try:
                found = self._at_path(content)
            except (ValueError, TypeError, Undecided) as error:
                raise ValueError(f"--key {self._text}: {error}") from error
        else:
            found = self._computed.value(content, facts)
        # The bound keeps a number as large as 1e9999 from being written out.
        if type(found) in _EXACT and abs(found) < _EXACT[type(found)] and found == int(found):
            found = int(found)
        if type(found) is int:
            return str(found)
        if type(found) is str or type(found) is bytes or found is None:
            return found
        if facts is not None and not self.path and found == facts["message"]["key"]:
            return text_of(message_key)
        raise ValueError(
            f"--key {self._text}: it is {named(found)}, but a key must be text or a whole number"
        )

    def is_in(self, sub: SubMessage) -> bool:
        """Return whether a sub-message has this sub-key, or may have it for all that is known."""
        with suppress(ValueError, TypeError):
            return self.of(sub.content, Facts(sub), sub.message.key) is not None
        return True

    def of_each(self, contents: Sequence[Raw]) -> list[str | None]:
        """Return the sub-keys that a path has in JSON. Raises ValueError for values of others."""
        found = self._decode_each(b"[%b]" % b",".join(contents))
        if len(found) != len(contents):
            raise ValueError("a payload is not one value")
        for _ in self.path:
            found = [None if each is None else each.at for each in found]
        return [None if each is None else str(each) for each in found]

    def _at_path(self, content: Any) -> Any:
        if type(content) in (bytes, Raw):
            with suppress(ValidationError):  # The value is of another type.
                found = decode_json(bytes(content), self._decode)
                for _ in self.path:
                    found = None if found is None else found.at
                return found
            content = raw_json(bytes(content))
        found = shown(content)
        for name in self.path:
            if found is None or (isinstance(found, View) and name not in found):
                return None
            if not isinstance(found, View):
                raise TypeError(f"{named(found)} has no field {name!r}")
            found = found[name]
        return found


def _parse_keys(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the expressions of ``--key`` without duplicates. Raises BadExpression."""
    found = tuple(dict.fromkeys(text.strip() for text in texts))
    for text in found:
        Key(text)
    return found


def _parse_barrier(text: str) -> str:
    Predicate(text)
    return text.strip()


KEYS = ValueType("EXPRESSION", _parse_keys, repeats=True)
BARRIER = ValueType("EXPRESSION", _parse_barrier)
