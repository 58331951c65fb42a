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


def _by_message_key(sub: SubMessage) -> Hashable:
    return sub.message.key


def _by_partition(sub: SubMessage) -> Hashable:
    return sub.message.origin


def _by_itself(sub: SubMessage) -> Hashable:
    # Not id(): a parked lane outlives its sub-message, and another one would get its number.
    message = sub.message
    return message.origin.partition, message.offset, sub.index


LANE_OF: dict[Order, Callable[[SubMessage], Hashable]] = {
    Order.KEY: _by_message_key,
    Order.PARTITION: _by_partition,
    Order.NONE: _by_itself,
}
