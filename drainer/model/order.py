"""The four orders of a drain. The order decides in which lanes a sub-message stands."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from enum import Enum

from drainer.message import SubMessage
from drainer.text.escape import repr_of


class Order(Enum):
    """The scope in which order is kept. ``SUB_KEY`` is the point of drainer."""

    SUB_KEY = "sub-key"
    KEY = "key"  # One sub-message per message key at a time, as key-level consumers do.
    PARTITION = "partition"  # One sub-message per partition at a time, as a plain consumer does.
    NONE = "none"  # There is no order at all.


# The lane of a sub-message in all orders but SUB_KEY.
LANE_OF: dict[Order, Callable[[SubMessage], Hashable]] = {
    Order.KEY: lambda sub: sub.message.key,
    Order.PARTITION: lambda sub: sub.message.partition,
    # It can't be id(): a parked lane outlives its sub-message, whose id another one may get.
    Order.NONE: lambda sub: (sub.message.partition, sub.message.offset, sub.index),
}


def lane_of(sub: SubMessage) -> Hashable:
    """Return the lane of a sub-message that has at most one sub-key.

    Without a sub-key it has a lane of its own, which it has in every process and after a resume.
    """
    key = sub.key
    return (None, sub.message.partition, sub.message.offset, sub.index) if key is None else key


def keys_of(sub: SubMessage) -> Sequence[Hashable]:
    """Return the sub-keys of a sub-message. Most have one; ``None`` stands for none."""
    return (sub.key,) if sub.keys is None else sub.keys


def key_text(key: Hashable) -> str:
    """Return a sub-key as a person types it: text as it is, bytes as UTF-8, others as their repr.

    A text with half of a surrogate pair can't be encoded, so it is returned as its repr, too. This
    never raises.
    """
    with suppress(UnicodeError):
        if type(key) is str:
            return key.encode().decode()
        if type(key) is bytes:
            return key.decode()
    return repr_of(key)


def lanes_of(order: Order) -> Callable[[SubMessage], Sequence[Hashable]]:
    """Return a function that gives the lanes in which others may stand behind a sub-message.

    Without an order or a sub-key there are none.
    """
    if order is Order.SUB_KEY:
        return lambda sub: () if sub.key is None and sub.keys is None else keys_of(sub)
    if order is Order.NONE:
        return lambda sub: ()
    lane_of = LANE_OF[order]
    return lambda sub: (lane_of(sub),)
