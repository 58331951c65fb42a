"""What sub-messages take in memory beside the message that they came from: an estimate.

``split`` may make far more of a message than its bytes are (it decompresses, it parses). To look at
every payload would take longer than to handle it, so some of some messages are measured.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from sys import getsizeof
from typing import Any

from drainer.message import Message, SubMessage

LOOK_EVERY = 512  # sub-messages between two messages that are measured, a message counting for 8
MESSAGE_WEIGHT = 8
LARGE_BYTES = 16 * 1024  # a message of that size is always measured: to parse it took longer
LOOKED_AT = 4  # payloads of a message
WIDE, DEEP = 8, 8  # entries of a container that are measured, and levels of them
LANE_BYTES = 250  # of each further sub-key that a sub-message has
ROUND = 4  # messages over which what is typical changes
SURPRISE = 2  # times what is typical: then the next message is measured, too
SMALL_BYTES = 256  # whether such a thing is shared is not worth a look

_FLAT = frozenset({str, bytes, int, float, bool, type(None), bytearray})
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)


class Payloads:
    """Estimates the payloads and sub-keys of messages, in bytes.

    What several sub-messages of a message share is counted once.
    """

    def __init__(self) -> None:
        self._due = 0
        self._typical: int | None = None  # of one sub-message

    def bytes_of(self, message: Message, subs: Sequence[SubMessage]) -> int:
        """About what a message's sub-messages hold, in bytes, without what the message holds."""
        count = len(subs)
        self._due -= MESSAGE_WEIGHT + count
        if self._due > 0 and message.size < LARGE_BYTES and self._typical is not None:
            return count * self._typical
        if not count:
            return 0
        self._due = LOOK_EVERY
        found = _measure(message, subs)
        if message.size < LARGE_BYTES:  # a large one says nothing of others
            each = found // count
            before = each if self._typical is None else self._typical
            self._typical = before + (each - before) // ROUND
            if each > SURPRISE * before:
                self._due = 0
        return found


def _measure(message: Message, subs: Sequence[SubMessage]) -> int:
    seen = {id(getattr(message, "value", None)), id(message.key)}  # a shipped one may have none
    # Other ones in each message, so that no rhythm within messages hides the large ones.
    step = -(-len(subs) // LOOKED_AT)
    some = (subs[0], *subs[1 + message.offset % step :: step])
    return _spread([_held_by(sub, seen) for sub in some], len(subs))


def _held_by(sub: SubMessage, seen: set[int]) -> int:
    try:
        size = _size(sub.payload, seen, DEEP)
        if sub.keys is None:
            return size + _size(sub.key, seen, DEEP)
        return size + _size(sub.keys, seen, DEEP) + LANE_BYTES * (len(sub.keys) - 1)
    except Exception:  # of the payload's own code
        return 0


def _spread(sizes: Sequence[int], count: int) -> int:
    """The size of all of ``count`` by that of some: what they share is in the first."""
    first, *others = sizes
    return first + sum(others) * (count - 1) // (len(others) or 1)


def _size(value: Any, seen: set[int], deep: int) -> int:
    kind = type(value)
    size = getsizeof(value, 0)
    if kind in _FLAT and size < SMALL_BYTES:
        return size
    if id(value) in seen:
        return 0
    seen.add(id(value))
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
