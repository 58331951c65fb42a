"""The four orders of a drain: which lane a sub-message stands in, when it isn't its sub-keys'."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum

from drainer.message import SubMessage


class Order(Enum):
    """What order is kept for. ``SUB_KEY`` is the point of the tool; the others are conventional."""

    SUB_KEY = "sub-key"
    KEY = "key"  # one message key at a time, as key-level consumers do
    PARTITION = "partition"  # one at a time, as a plain consumer does
    NONE = "none"  # no order at all


LANE_OF: dict[Order, Callable[[SubMessage], Hashable]] = {
    Order.KEY: lambda sub: sub.message.key,
    Order.PARTITION: lambda sub: sub.message.partition,
    # Not id(): a parked lane outlives its sub-message, and another one would get its number.
    Order.NONE: lambda sub: (sub.message.partition, sub.message.offset, sub.index),
}
