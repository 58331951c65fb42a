"""Sub-messages as ``split`` gives them: identity, sub-keys, and what they take in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice
from sys import getsizeof
from typing import Any, cast

from msgspec import Raw

from drainer.errors import SplitFailed
from drainer.mask import key_repr
from drainer.message import Barrier, KeySums, Message, SubMessage, Unsplit
from drainer.raw_json import meaning

SHOWN = 80  # characters of a key in an error
INT_BITS_MOST = 2_000  # Python refuses to print much longer ones, and a plan has keys as text

# Of the estimate of memory.
LOOK_EVERY = 512  # sub-messages between two messages that are measured, a message counting for 8
MESSAGE_WEIGHT = 8
LARGE_BYTES = 16 * 1024  # a message of that size is always measured: to parse it took longer
LOOKED_AT = 4  # payloads of a message
WIDE, DEEP = 8, 8  # entries of a container that are measured, and levels of them
LANE_BYTES = 250  # of each further sub-key that a sub-message has
ROUND = 4  # messages over which what is typical changes
SURPRISE = 2  # times what is typical: then the next message is measured, too
SMALL_BYTES = 256  # whether such a thing is shared is not worth a look

_FLAT = frozenset({str, bytes, int, float, bool, type(None), bytearray, Raw})
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_KINDS = {SubMessage, Barrier}
_ATOMS = {str, bytes, type(None)}


class SubKeys(tuple[Hashable, ...]):
    """The sub-keys of one sub-message that has several; a sub-key may be a tuple itself."""

    __slots__ = ()


def is_sub_key(key: object) -> bool:
    """Whether equal keys have one text, other keys another, and both the same in every process.

    That is so for exactly these types: str, bytes, int, None, and tuples of them. A bool or a float
    equals an int that reads otherwise; a subclass may equal or print what it likes.
    """
    kind = type(key)
    if kind is tuple or kind is SubKeys:
        return all(map(is_sub_key, cast("tuple[object, ...]", key)))
    return kind in _ATOMS or (kind is int and cast(int, key).bit_length() <= INT_BITS_MOST)


def identify_or_reject(
    message: Message, subs: Iterable[SubMessage]
) -> tuple[Sequence[SubMessage], Sequence[Hashable] | KeySums]:
    """Sub-messages with their identity, and their sub-keys.

    Where they would break the account, one unit stands for the whole message.
    """
    sequence = subs if type(subs) is list else list(subs)
    try:
        return sequence, identify(message, sequence)
    except SplitFailed as error:
        unit = Unsplit(message.value, SplitFailed.__name__, str(error), str(error))
        return [unit], unit.take_place(message)


def identify(message: Message, subs: Sequence[SubMessage]) -> tuple[Hashable, ...] | KeySums:
    """Gives each sub-message its identity; their sub-keys.

    Raises SplitFailed for what would break the account later on.
    """
    if not _KINDS.issuperset(map(type, subs)):
        take_place = getattr(subs[0], "take_place", None)  # of one that stands for all of it
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
    return "a too long int" if type(key) is int else type(key).__name__


class Payloads:
    """Estimate of what sub-messages take in memory beside their message, in bytes.

    ``split`` may decompress or parse, so that payloads take far more memory than the message's
    bytes. To measure every payload would take longer than to handle it, so only some payloads of
    some messages are measured. What several sub-messages of a message share is counted once.

    Payloads may be parts of the decoded value, so the larger of both counts. Without ``decoded``
    only payloads count. If a decoder counts the memory of its values, that count is used for every
    message: a few bytes may become a million values, and a stranger who writes messages could make
    large ones that are not measured.
    """

    def __init__(self, *, decoded: bool = True) -> None:
        self._decoded = decoded
        self._due = 0
        self._typical: int | None = None  # of one sub-message

    def bytes_of(self, message: Message, subs: Sequence[SubMessage]) -> int:
        """Estimate payloads and sub-keys of a message, without what the message has itself."""
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
        if message.size < LARGE_BYTES:  # a large one is no sample of others
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
    # Other ones in each message, so that no rhythm within messages hides the large ones.
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
    except Exception:  # of a decoder's own code
        return 0


def _size_of(sub: SubMessage, seen: dict[int, Any]) -> int:
    try:
        # ``payload`` would keep the decoded value.
        size = _size(meaning(sub.content), seen, DEEP)
        if sub.keys is None:
            return size + _size(sub.key, seen, DEEP)
        return size + _size(sub.keys, seen, DEEP) + LANE_BYTES * (len(sub.keys) - 1)
    except Exception:  # of the payload's own code
        return 0


def _spread(sizes: Sequence[int], count: int) -> int:
    """The size of all of ``count`` by that of some: what they share is in the first."""
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
