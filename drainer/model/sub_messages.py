"""What ``split`` returns: checks of it, the identity of sub-messages, and their memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice
from sys import getsizeof
from typing import Any, cast

from msgspec import Raw

from drainer.errors import SplitFailed
from drainer.message import AnyKeys, Barrier, KeySums, Message, SubMessage, Unsplit
from drainer.text.mask import key_repr
from drainer.text.raw_json import meaning

SHOWN = 80  # An error quotes this many characters of a key.
# Python refuses to print ints that are much longer than this, and a plan has keys as text.
INT_BITS_MOST = 2_000

# These numbers are about the estimate of memory.
#
# The next message is measured after this many sub-messages. In addition to its sub-messages, each
# message counts as MESSAGE_WEIGHT of them.
LOOK_EVERY = 512
MESSAGE_WEIGHT = 8
# A message of at least this size is always measured: that takes less time than it took to parse it.
LARGE_BYTES = 16 * 1024
LOOKED_AT = 4  # This many payloads of a message are measured, besides the first.
WIDE, DEEP = 8, 8  # This many entries of a container are measured, on this many levels.
LANE_BYTES = 250  # The memory of each further sub-key that a sub-message has.
ROUND = 4  # The typical size is a moving average over about this many messages.
SURPRISE = 2  # If a size is this many times the typical one, the next message is measured, too.
SMALL_BYTES = 256  # It is not worth finding out whether a smaller object is shared.

_FLAT = frozenset({str, bytes, int, float, bool, type(None), bytearray, Raw})
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_KINDS = {SubMessage, Barrier}
_ATOMS = {str, bytes, type(None)}


class SubKeys(tuple[Hashable, ...]):
    """The sub-keys of a sub-message that has several. A sub-key may be a tuple itself."""

    __slots__ = ()


def is_sub_key(key: object) -> bool:
    """Return whether a key can be a sub-key.

    Equal sub-keys must have the same text, different ones must have different texts, and that in
    every process. This holds for str, bytes, int, None, and tuples of them. It does not hold for
    bool and float, which may equal an int with another text, nor for subclasses, which may equal or
    print anything.
    """
    kind = type(key)
    if kind is tuple or kind is SubKeys:
        return all(map(is_sub_key, cast("tuple[object, ...]", key)))
    return kind in _ATOMS or (kind is int and cast(int, key).bit_length() <= INT_BITS_MOST)


def identify_or_reject(
    message: Message, subs: Iterable[SubMessage]
) -> tuple[Sequence[SubMessage], AnyKeys]:
    """Give each sub-message its identity, and return the sub-messages and their sub-keys.

    If they would break the account, the whole message becomes one unit, as if ``split`` had raised.
    """
    sequence = subs if type(subs) is list else list(subs)
    try:
        return sequence, identify(message, sequence)
    except SplitFailed as error:
        unit = Unsplit(message.value, SplitFailed.__name__, str(error), str(error))
        return [unit], unit.take_place(message)


def identify(message: Message, subs: Sequence[SubMessage]) -> tuple[Hashable, ...] | KeySums:
    """Give each sub-message its identity, and return their sub-keys.

    Raises SplitFailed if they would break the account later.
    """
    if not _KINDS.issuperset(map(type, subs)):
        # A unit that stands for the whole message takes its place.
        take_place = getattr(subs[0], "take_place", None)
        if take_place is not None:
            unit: KeySums = take_place(message)
            return unit
        for sub in subs:
            if not isinstance(sub, SubMessage):
                kind = f"the type {sub.__name__}" if isinstance(sub, type) else type(sub).__name__
                raise SplitFailed(
                    f"split gave {kind} instead of SubMessage at {message}",
                    hint="Yield drainer.SubMessage(key=..., payload=...).",
                )
    try:
        for index, sub in enumerate(subs):
            if sub.message is not None:
                raise SplitFailed(
                    f"split gave the same SubMessage object at {message} and at {sub.message}",
                    hint="Make a new SubMessage for each operation.",
                )
            sub.message = message
            sub.index = index
        keys = tuple([sub.key if sub.keys is None else SubKeys(sub.keys) for sub in subs])
    except AttributeError as error:
        raise SplitFailed(
            f"split gave an incomplete {type(error.obj).__name__} at {message}: {error}",
            hint="Call super().__init__(key, payload) in subclasses of SubMessage.",
        ) from None
    if not _ATOMS.issuperset(map(type, keys)):
        for sub, key in zip(subs, keys, strict=True):
            if not is_sub_key(key):
                raise SplitFailed(
                    f"split gave the sub-key {key_repr(key)[:SHOWN]} at {sub}, of an unstable type:"
                    f" {_odd_type(key)}",
                    hint="Use str, bytes, int, None or tuples of them as sub-keys.",
                )
    return keys


def _odd_type(key: object) -> str:
    if isinstance(key, SubKeys) or type(key) is tuple:
        return _odd_type(next(each for each in key if not is_sub_key(each)))
    return "an int that is too long" if type(key) is int else type(key).__name__


class Payloads:
    """Estimates how many bytes sub-messages take in memory, in addition to their message.

    ``split`` may decompress or parse, so that payloads take far more memory than the message's
    bytes. To measure every payload would take longer than to handle it, so only some payloads of
    some messages are measured. What several sub-messages of a message share is counted once.

    Payloads may be parts of the decoded value, so the larger of the two sizes counts. Without
    ``decoded``, only payloads count. If a decoder counts the memory of its values, that count is
    used for every message. Otherwise, a stranger could write messages of a few bytes that become a
    million values and are not measured.
    """

    def __init__(self, *, decoded: bool = True) -> None:
        self._decoded = decoded
        self._due = 0
        self._typical: int | None = None  # The typical size of a sub-message.

    def bytes_of(self, message: Message, subs: Sequence[SubMessage]) -> int:
        """Estimate the memory of a message's payloads and sub-keys, without the message itself."""
        count = len(subs)
        known = getattr(message, "decoded_bytes", 0) if self._decoded else 0
        self._due -= MESSAGE_WEIGHT + count
        if self._due > 0 and message.size < LARGE_BYTES and self._typical is not None:
            return known + count * self._typical
        if not count:
            return known
        self._due = LOOK_EVERY
        found = _measure(message, subs)
        if self._decoded:
            found = max(found, _size_of_decoded(message))
        found = max(found - known, 0)
        if message.size < LARGE_BYTES:  # A large message says nothing about the others.
            each = found // count
            before = each if self._typical is None else self._typical
            self._typical = before + (each - before) // ROUND
            if each > SURPRISE * before:
                self._due = 0
        return known + found


def _measure(message: Message, subs: Sequence[SubMessage]) -> int:
    # The objects are kept, so that no other object gets their ids. A message that was shipped to a
    # Spark task may have no value.
    seen = {id(each): each for each in (getattr(message, "value", None), message.key)}
    # In each message, different sub-messages are measured, so that no pattern hides large ones.
    step = -(-len(subs) // LOOKED_AT)
    some = (subs[0], *subs[1 + message.offset % step :: step])
    return _spread([_size_of(sub, seen) for sub in some], len(subs))


def _size_of_decoded(message: Message) -> int:
    # Raw JSON that was not read is a part of the value. A shipped message may have neither.
    decoded = getattr(message, "read", None) or getattr(message, "meaning", None)
    if decoded is message.value or type(decoded) is Raw:
        return 0
    try:
        return _size(decoded, {}, DEEP)
    except Exception:  # The code of a decoder may raise anything.
        return 0


def _size_of(sub: SubMessage, seen: dict[int, Any]) -> int:
    try:
        # Reading ``payload`` would keep the decoded value in memory.
        size = _size(meaning(sub.content), seen, DEEP)
        if sub.keys is None:
            return size + _size(sub.key, seen, DEEP)
        return size + _size(sub.keys, seen, DEEP) + LANE_BYTES * (len(sub.keys) - 1)
    except Exception:  # The payload's own code may raise anything.
        return 0


def _spread(sizes: Sequence[int], count: int) -> int:
    """Estimate the size of ``count`` things by the sizes of some.

    The first size has what they share, so it counts once.
    """
    first, *others = sizes
    return first + sum(others) * (count - 1) // (len(others) or 1)


def _size(value: Any, seen: dict[int, Any], deep: int) -> int:
    kind = type(value)
    # For Raw, getsizeof() returns an address instead of a size (msgspec 0.22).
    size = memoryview(value).nbytes if kind is Raw else getsizeof(value, 0)
    if kind in _FLAT and size < SMALL_BYTES:
        return size
    if id(value) in seen:
        return 0
    seen[id(value)] = value
    if kind in _FLAT or not deep:
        return size
    if isinstance(value, _CONTAINERS) and value:
        step = -(-len(value) // WIDE)
        if isinstance(value, dict):
            some = islice(value.items(), 0, None, step)
            sizes = [_size(key, seen, deep - 1) + _size(each, seen, deep - 1) for key, each in some]
        else:
            sizes = [_size(each, seen, deep - 1) for each in islice(value, 0, None, step)]
        return size + _spread(sizes, len(value))
    of = value.obj if kind is memoryview else None
    named = (getattr(value, name, None) for cls in kind.__mro__ for name in _slots(cls))
    own = getattr(value, "__dict__", None)
    return size + sum(_size(each, seen, deep - 1) for each in (*named, own, of) if each is not None)


def _slots(cls: type) -> Iterable[str]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else slots
