"""Remainder of a backlog: exact where it was read, estimated from that elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from drainer.model.ranges import Range, count_offsets, subtract


class ReadSample(NamedTuple):
    """Offsets of one partition that a run has read, without those finished before the run."""

    read: int  # offsets, holes among them
    unread: int
    subs: int  # sub-messages of the messages that were read
    finished: int = 0  # of these, those that earlier runs or other claims have finished
    known_read: int = 0  # of ``read``, offsets of which those may have finished something
    known_unread: int = 0  # of ``unread``, the same

    @classmethod
    def of(
        cls,
        bounds: tuple[int, int, int],
        before: Sequence[Range],
        subs: int,
        finished: int = 0,
        known_below: int = 0,
    ) -> ReadSample:
        """Make a sample: ``bounds`` are start, position and end; ``before`` is what was finished
        before the run. Of messages at or above ``known_below`` nothing was."""
        start, position, end = bounds
        known = min(max(start, known_below), end)
        parts = (start, position), (position, end), (start, min(position, known)), (position, known)
        read, unread, *known_parts = (count_offsets(subtract((each,), before)) for each in parts)
        return cls(read, unread, subs, finished, *known_parts)


class Remainder(NamedTuple):
    """Progress of a run."""

    handled: int  # sub-messages that have been through the handler
    waiting: int  # sub-messages that were read, and are for the handler in this run
    # Of the sub-messages that were read, how many are for the handler, 0 to 1: rules take some out,
    # parked lanes keep some.
    share: float
    offsets_read: int  # of all partitions
    offsets_unread: int
    # Sub-messages that are yet to be read, by partition; None while nothing was read.
    unread: Mapping[int, float] | None

    @classmethod
    def of(
        cls, samples: Mapping[int, ReadSample], *, handled: int, waiting: int, share: float
    ) -> Remainder:
        read = sum(each.read for each in samples.values())
        unread = sum(each.unread for each in samples.values())
        return cls(handled, waiting, share, read, unread, unread_subs(samples))

    def of_partition(self, number: int, pending: int) -> int | None:
        """Sub-messages that are left of one of which so many were read and have not finished."""
        return None if self.unread is None else round(pending + self.unread[number])


def unread_subs(samples: Mapping[int, ReadSample]) -> dict[int, float] | None:
    """Estimate by partition how many sub-messages are yet to be read and not finished.

    Messages to come split into as many as those that were read, counting the finished ones; of
    these, others finished as large a part. A partition of which nothing was read is like the rest.
    None when nothing was read at all, and something is to be.
    """
    read = sum(each.read for each in samples.values())
    if not read and any(each.unread for each in samples.values()):
        return None
    typical = sum(each.subs for each in samples.values()) / max(1, read)
    found = {}
    for number, each in samples.items():
        fan_out = each.subs / each.read if each.read else typical
        finished = each.finished * each.known_unread / max(1, each.known_read)
        found[number] = max(0.0, each.unread * fan_out - finished)
    return found
