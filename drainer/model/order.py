"""The four orders of a drain: which lanes a sub-message stands in."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from enum import Enum

from drainer.message import SubMessage


class Order(Enum):
    """Scope in which order is kept. ``SUB_KEY`` is the point of the tool."""

    SUB_KEY = "sub-key"
    KEY = "key"  # one message key at a time, as key-level consumers do
    PARTITION = "partition"  # one at a time, as a plain consumer does
    NONE = "none"  # no order at all


# When it isn't that of its sub-keys.
LANE_OF: dict[Order, Callable[[SubMessage], Hashable]] = {
    Order.KEY: lambda sub: sub.message.key,
    Order.PARTITION: lambda sub: sub.message.partition,
    # Not id(): a parked lane outlives its sub-message, and another one would get its number.
    Order.NONE: lambda sub: (sub.message.partition, sub.message.offset, sub.index),
}


def keys_of(sub: SubMessage) -> Sequence[Hashable]:
    """Sub-keys of a sub-message; most have one."""
    return (sub.key,) if sub.keys is None else sub.keys


def key_text(key: Hashable) -> str:
    """Return a sub-key as a person types it: text as it is, bytes as UTF-8, others as their repr.

    Text that isn't Unicode, with half of a surrogate pair, is one of the others. Never raises.
    """
    with suppress(UnicodeError):
        if type(key) is str:
            return key.encode().decode()
        if type(key) is bytes:
            return key.decode()
    try:
        return repr(key)
    except Exception:  # it may be the user's own code
        return f"<{type(key).__name__}>"


def lanes_of(order: Order) -> Callable[[SubMessage], Sequence[Hashable]]:
    """Gives the lanes in which others may stand behind a sub-message: none without an order."""
    if order is Order.SUB_KEY:
        return keys_of
    if order is Order.NONE:
        return lambda sub: ()
    lane_of = LANE_OF[order]
    return lambda sub: (lane_of(sub),)
