"""How much of a backlog is left: counted where it was read, and estimated from that elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from drainer.model.ranges import Range, count_offsets, subtract

CHANCE = 2.0  # So many standard deviations of a lane's length or time may be chance.


class ReadSample(NamedTuple):
    """What a run has read of one partition.

    Offsets of messages that were wholly finished before the run are left out.
    """

    read: int  # Offsets that were read, including holes.
    unread: int  # Offsets that were not read yet.
    subs: int  # Sub-messages of the messages that were read.
    finished: int = 0  # Those of ``subs`` that earlier runs or other claims have finished.
    # The offsets, of ``read`` and of ``unread``, where earlier runs or other claims may have
    # finished some sub-messages.
    known_read: int = 0
    known_unread: int = 0

    @classmethod
    def of(
        cls,
        bounds: tuple[int, int, int],
        before: Sequence[Range],
        subs: int,
        finished: int = 0,
        known_below: int = 0,
    ) -> ReadSample:
        """Make a sample of a partition.

        Args:
            bounds: the offsets at which the run starts, up to which it has read, and at which it
                ends.
            before: the ranges that were finished before the run.
            subs, finished: see the fields.
            known_below: from this offset on, nothing was finished in part before the run.
        """
        start, position, end = bounds
        known = min(max(start, known_below), end)
        parts = (start, position), (position, end), (start, min(position, known)), (position, known)
        read, unread, *known_parts = (count_offsets(subtract((each,), before)) for each in parts)
        return cls(read, unread, subs, finished, *known_parts)


class Remainder(NamedTuple):
    """How far a run has come, and an estimate of what is left."""

    handled: int  # Sub-messages that the handler has finished.
    waiting: int  # Sub-messages that were read, and that the handler will get in this run.
    # The share, from 0 to 1, of the sub-messages read so far that go to the handler. The others are
    # skipped by rules, or stand in parked lanes.
    share: float
    offsets_read: int  # Over all partitions.
    offsets_unread: int
    # The estimated number of sub-messages that were not read yet, by partition; None while nothing
    # was read.
    unread: Mapping[int, float] | None

    @classmethod
    def of(
        cls, samples: Mapping[int, ReadSample], *, handled: int, waiting: int, share: float
    ) -> Remainder:
        read = sum(each.read for each in samples.values())
        unread = sum(each.unread for each in samples.values())
        return cls(handled, waiting, share, read, unread, unread_subs(samples))

    def of_partition(self, number: int, pending: int) -> int | None:
        """Estimate how many sub-messages of a partition are left; ``pending`` of them were read."""
        return None if self.unread is None else round(pending + self.unread[number])


def unread_subs(samples: Mapping[int, ReadSample]) -> dict[int, float] | None:
    """Estimate by partition how many unfinished sub-messages were not read yet.

    It assumes that messages to come split into as many sub-messages as those that were read, and
    that as large a share of them is finished already. A partition of which nothing was read is
    taken to be like the others. The result is None while nothing was read at all.
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


def sure_share(longest: float, others: float) -> float:
    """Return the share, from 0 to 1, of a longest lane that is not its length by chance.

    ``others`` is the mean length of the others. What is the longest by chance shows nothing of what
    is unread.
    """
    excess = longest - others
    return max(0.0, 1 - CHANCE**2 * longest / excess**2) if excess > 0 else 0.0
