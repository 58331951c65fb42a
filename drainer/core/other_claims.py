"""The parts of a backlog that claims other than "all" have finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drainer.message import Message, SubMessage, Unsplit
from drainer.model.claims import ALL, Claims, Shard, ShardMap, class_of
from drainer.model.order import Order
from drainer.model.progress import (
    Outcome,
    Partial,
    Progress,
    merge_outcomes,
    outcome_of,
    split_changed,
)
from drainer.model.ranges import Range, RangeSet
from drainer.model.sub_messages import SubKeys
from drainer.policy.redrive import Unread
from drainer.policy.rules import Selection

if TYPE_CHECKING:
    from drainer.model.plan import OffsetPlan

CLASS_MAP_BITS = 8 * 1024 * 1024


class ClassMap:
    """A map of the stretches of a backlog that may have messages of a class. Its size is limited.

    The map may answer yes where there is no such message, but never no where there is one. For
    offsets that were not read yet, it answers yes. ``ranges`` are the offsets ``[start, end)`` of
    the backlog by partition.
    """

    def __init__(self, ranges: Mapping[int, Range]) -> None:
        total = sum(end - start for start, end in ranges.values())
        self._stride = max(1, -(-total // CLASS_MAP_BITS))
        self._starts: dict[int, int] = {}  # The number of the first bit of each partition.
        self._first = {number: start for number, (start, _) in ranges.items()}
        self._until = dict(self._first)
        bits = 0
        for number, (start, end) in ranges.items():
            self._starts[number] = bits
            bits += (end - start) // self._stride + 1
        self._bits = bytearray(bits // 8 + 1)

    def add(self, partition: int, offset: int, selected: bool) -> None:
        """Note whether the message at an offset has something of the class.

        The messages of a partition must come in the order of their offsets.
        """
        self._until[partition] = offset + 1
        if selected:
            at = self._at(partition, offset)
            self._bits[at >> 3] |= 1 << (at & 7)

    def may_have(self, partition: int, offset: int) -> bool:
        """Return whether the message at this offset may have something of the class."""
        if not self._first[partition] <= offset < self._until[partition]:
            return True
        at = self._at(partition, offset)
        return bool(self._bits[at >> 3] >> (at & 7) & 1)

    def _at(self, partition: int, offset: int) -> int:
        return self._starts[partition] + (offset - self._first[partition]) // self._stride


@dataclass(frozen=True, slots=True)
class _Class:
    """The progress of one priority class in a partition."""

    selection: Selection
    progress: Progress
    finished: RangeSet
    where: ClassMap | None

    def bits(self, message: Message, subs: Sequence[SubMessage]) -> int:
        """Return the bits of the sub-messages that the class has finished."""
        offset = message.offset
        found = _finished_bits(self.progress, self.finished, offset)
        if not found or (
            self.where is not None and not self.where.may_have(message.origin.partition, offset)
        ):
            return 0
        return found & self.selection.bits(subs)


class OtherClaims:
    """The sub-messages that claims other than "all" have finished.

    A sub-message belongs to a shard when all of its lanes do. ``maps`` are the maps of priority
    classes by selector, as far as this process has made them.
    """

    def __init__(
        self, claims: Claims, shard_map: ShardMap, maps: Mapping[str, ClassMap] | None = None
    ) -> None:
        self.claims = {selector: claim for selector, claim in claims.items() if selector != ALL}
        self._shard_map = shard_map
        self._classes: dict[int, list[_Class]] = {}  # By partition.
        # By partition, number of shards in the division, and number of the shard.
        self._shards: dict[int, dict[int, dict[int, tuple[Progress, RangeSet]]]] = {}
        self._partial: dict[int, dict[int, list[Partial]]] = {}
        self._outcomes: dict[int, dict[Outcome, RangeSet]] = {}
        for selector, by_partition in self.claims.items():
            where = class_of(selector)
            selection = None if where is None else Selection(where)
            for partition, progress in by_partition.items():
                divisions = self._shards.setdefault(partition, {})
                known = progress, RangeSet(progress.finished)
                if selection is None:
                    claim = Shard.parse(selector)
                    divisions.setdefault(claim.of, {})[claim.number] = known
                else:
                    found = _Class(selection, *known, (maps or {}).get(selector))
                    self._classes.setdefault(partition, []).append(found)
                parts = self._partial.setdefault(partition, {})
                for offset, part in progress.partial.items():
                    parts.setdefault(offset, []).append(part)
        for partition in self._shards:
            outcomes = merge_outcomes(claim[partition].outcomes for claim in self.claims.values())
            self._outcomes[partition] = {outcome: RangeSet(at) for outcome, at in outcomes.items()}

    @property
    def evaluates(self) -> bool:
        """Return whether expressions are evaluated to find what is finished."""
        return bool(self._classes)

    def finished(self, message: Message, subs: Sequence[SubMessage]) -> int:
        """Return the bits of the sub-messages that a claim has finished.

        Raises SplitFailed when a claim saw the message split into other sub-messages.
        """
        partition, offset = message.origin.partition, message.offset
        if offset in self._outcomes.get(partition, {}).get(Outcome.UNSPLIT, ()):
            return (1 << len(subs)) - 1
        if subs and isinstance(subs[0], Unsplit):
            return self._whole(message, subs[0])
        parts = self._partial.get(partition, {}).get(offset, ())
        is_unread = bool(subs) and isinstance(subs[0], Unread)
        if is_unread and (parts or self.outcome(message) is not Outcome.SKIPPED):
            # This letter's original can't be read any more. An earlier run could still read it, and
            # split it into sub-messages. Some of those may be left.
            return 0
        for known in parts:
            keys = [sub.key if sub.keys is None else SubKeys(sub.keys) for sub in subs]
            known.finished_of(message, keys)
        done = 0
        for of, by_number in self._shards.get(partition, {}).items():
            bits: dict[int, int] = {}
            for index, sub in enumerate(subs):
                number = self._shard_map.shard_of(sub, of)
                if number is None or number not in by_number:
                    continue
                if number not in bits:
                    bits[number] = _finished_bits(*by_number[number], offset)
                done |= bits[number] & 1 << index
        for each in self._classes.get(partition, ()):
            done |= each.bits(message, subs)
        return done

    def _whole(self, message: Message, unit: Unsplit) -> int:
        """Return 1 if a message that ``split`` now rejects is finished, and 0 if not.

        Raises SplitFailed when ``split`` accepted the message before, and a claim has finished some
        of its sub-messages.
        """
        partition, offset = message.origin.partition, message.offset
        known = {
            of == 1
            for of, by_number in self._shards.get(partition, {}).items()
            if any(_finished_bits(*each, offset) == -1 for each in by_number.values())
        }
        if True in known:
            return 1
        passed = (
            _finished_bits(c.progress, c.finished, offset) for c in self._classes.get(partition, ())
        )
        if known or any(passed) or self._partial.get(partition, {}).get(offset):
            raise split_changed(message, unit.why)
        return 0

    def outcome(self, message: Message) -> Outcome:
        """Return the worst outcome that a claim has reported for a part of the message."""
        return outcome_of(message.offset, self._outcomes.get(message.origin.partition, {}))

    @property
    def partitions(self) -> Set[int]:
        """The partitions that these claims have, which are the same for all of them."""
        return next(iter(self.claims.values())).keys()

    def highest(self, partition: int) -> int:
        """Return the first offset at and after which no claim has finished anything."""
        claims = (claim[partition] for claim in self.claims.values() if partition in claim)
        return max((progress.end for progress in claims), default=0)


def _finished_bits(progress: Progress, finished: RangeSet, offset: int) -> int:
    # The bits of the message's sub-messages that a claim has finished. All bits are set (-1) if it
    # has finished the whole message.
    if offset < progress.watermark or offset in finished:
        return -1
    part = progress.partial.get(offset)
    return 0 if part is None else part.bits


def other_claims(
    plan: OffsetPlan, maps: Mapping[str, ClassMap] | None = None
) -> OtherClaims | None:
    """Return what claims other than "all" have finished; None if the plan has no such claim."""
    if not plan.account.others:
        return None
    return OtherClaims(plan.account.others, ShardMap(Order(plan.terms.order)), maps)
