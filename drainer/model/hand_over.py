"""The hand-over of a drained group to its consumers, as far as Kafka shows it.

A consumer that gets a partition starts at the group's committed offset, unless that offset is no
longer in the log or the consumer seeks elsewhere. So the hand-over is seen in the first other
offset that the group commits after the drain has ended. What a consumer has read never shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from drainer.model.listed import counted, listed

IDLE_S = 10.0  # Twice the time after which clients commit by default.
FASTEST = 100_000  # No consumer is expected to read more offsets of a partition per second.


class HandOverState(StrEnum):
    """What is known of the hand-over of a partition."""

    NO_READER = "no-reader"  # No member of the group has the partition.
    READING = "reading"  # A member has it, and has committed nothing, although there is more.
    NOTHING_NEW = "nothing-new"  # A member has it, and there is nothing to read yet.
    CONTINUED = "continued"  # A member has it, and the group's offset went on from the drain's.
    OVERLAP = "overlap"  # The group's offset went back.
    GAP = "gap"  # Offsets after the drain were deleted before a member could read them.
    DOUBTFUL = "doubtful"  # The group's offset went forward, but not because a member read so far.


_OPEN = (HandOverState.NO_READER, HandOverState.READING)
_GOOD = (HandOverState.NOTHING_NEW, HandOverState.CONTINUED)


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a partition shows: the group's offset, the partition's reader, and its log.

    ``at_s`` is the time of the look. ``end`` is where a consumer has nothing more to read, and
    ``high_watermark`` is the offset after the last record of all.
    """

    at_s: float
    committed: int | None
    reader: str | None
    start: int
    end: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class PartitionHandOver:
    """The hand-over of one partition.

    Attributes:
        begins_at: the offset that the drain committed, where consumers begin.
        committed: the first other offset that the group had; None if it had none, or no offset.
        reader: the member that had the partition last.
        unread_s: the time of the last look before a member had it, or else of the drain's end.
    """

    begins_at: int
    state: HandOverState = HandOverState.NO_READER
    committed: int | None = None
    reader: str | None = None
    detail: str = "the brokers have not answered"
    unread_s: float = 0.0

    def after(self, look: Look) -> PartitionHandOver:
        """Return the hand-over after one more look. A partition that has moved stays as it is."""
        if self.state not in (*_OPEN, HandOverState.NOTHING_NEW):
            return self
        reader = look.reader or self.reader
        unread_s = self.unread_s if reader else look.at_s
        if look.start > self.begins_at and self.reader is None:
            gone = f"{self.begins_at} to {look.start - 1} were deleted before anyone read them"
            state, detail = HandOverState.GAP, gone
        elif (look.committed or 0) > look.high_watermark:
            cut = f"{look.committed} is committed, but the log ends at {look.high_watermark}"
            state, detail = HandOverState.DOUBTFUL, cut
        elif look.committed == self.begins_at:
            state, detail = self._standing(look)
        else:
            state, detail = self._moved(look, reader, look.at_s - unread_s)
        committed = None if look.committed == self.begins_at else look.committed
        return PartitionHandOver(self.begins_at, state, committed, reader, detail, unread_s)

    def _standing(self, look: Look) -> tuple[HandOverState, str]:
        if look.reader is None:
            return HandOverState.NO_READER, "no member of the group has it"
        if look.end <= self.begins_at:
            return HandOverState.NOTHING_NEW, "nothing to read yet"
        waiting = counted(look.end - self.begins_at, "offset")
        return HandOverState.READING, f"no commit yet, although {waiting} can be read"

    def _moved(self, look: Look, reader: str | None, most_s: float) -> tuple[HandOverState, str]:
        begins, now = self.begins_at, look.committed
        if now is None:
            return HandOverState.OVERLAP, "the group's offset was deleted"
        if now < begins:
            return HandOverState.OVERLAP, f"the group went back: {now} to {begins - 1} come again"
        if reader is None:
            return HandOverState.DOUBTFUL, f"the group moved to {now}, but has no member there"
        if now - begins > FASTEST * most_s:
            far = f"the first commit is {now}: that is further than a consumer reads so soon"
            return HandOverState.DOUBTFUL, far
        return HandOverState.CONTINUED, f"the first commit is {now}"


@dataclass(frozen=True, slots=True)
class HandOver:
    """The hand-over of a group's drained partitions.

    ``cut_short`` says why drainer stopped looking before the hand-over was over; it is empty if
    drainer did not.
    """

    partitions: Mapping[int, PartitionHandOver]
    cut_short: str = ""

    def after(self, looks: Mapping[int, Look]) -> HandOver:
        now = {n: p.after(looks[n]) if n in looks else p for n, p in self.partitions.items()}
        return replace(self, partitions=now)

    def of(self, *states: HandOverState) -> dict[int, PartitionHandOver]:
        """Return the partitions in one of these states."""
        return {n: each for n, each in self.partitions.items() if each.state in states}

    def is_over(self, now_s: float, begun_s: float = 0.0) -> bool:
        """Return whether there is nothing more to wait for.

        A reader with nothing new to read is watched for IDLE_S since the first look at ``begun_s``:
        if it did not start at the group's offset, its first commit shows that.
        """
        idle = self.of(HandOverState.NOTHING_NEW).values()
        idle_s = [now_s - max(each.unread_s, begun_s) for each in idle]
        return not self.of(*_OPEN) and all(each >= IDLE_S for each in idle_s)

    @property
    def is_good(self) -> bool:
        return len(self.of(*_GOOD)) == len(self.partitions)

    @property
    def wrong(self) -> tuple[str, ...]:
        """What is wrong with each partition that was not handed over."""
        found = self.partitions.items() - self.of(*_GOOD).items()
        return tuple(f"{number}: {each.state}, {each.detail}" for number, each in sorted(found))

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``-o json`` prints for the hand-over."""
        shown = ("begins_at", "state", "committed", "reader", "detail")
        partitions = {
            str(number): {name: getattr(each, name) for name in shown}
            for number, each in self.partitions.items()
        }
        return {"verdict": str(self), "is_good": self.is_good, "partitions": partitions}

    def __str__(self) -> str:
        """Return the verdict in words, which claim no more than what was seen."""
        seen, idle = self.of(HandOverState.CONTINUED), self.of(HandOverState.NOTHING_NEW)
        if not self.is_good:
            bad = counted(len(self.partitions) - len(seen) - len(idle), "partition")
            return f"not handed over: {bad}{f' ({self.cut_short})' if self.cut_short else ''}"
        if not seen:
            return "consumers have joined, and have nothing to read yet: no commit shows more"
        rest = f"; {counted(len(idle), 'partition')} with nothing to read yet" if idle else ""
        many = counted(len(seen), "partition")
        return f"handed over: offsets show no gap, no overlap in {many}{rest}"

    @property
    def readers(self) -> str:
        return listed(sorted({each.reader for each in self.partitions.values() if each.reader}))
