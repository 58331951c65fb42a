"""What other claims have finished, for a drain that shares its backlog with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drainer.message import Message, SubMessage, Unsplit
from drainer.model.claims import ALL, Claim, Claims, ShardMap, class_of
from drainer.model.identity import SubKeys
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
from drainer.policy.rules.selection import Selection

if TYPE_CHECKING:
    from drainer.model.plan import OffsetPlan

CLASS_MAP_BITS = 8 * 1024 * 1024


class ClassMap:
    """Where in a backlog messages of a class lie, in a fixed size: which stretches of offsets have
    one, as far as was looked. It may err only towards yes."""

    def __init__(self, ranges: Mapping[int, Range]) -> None:
        """``ranges`` are the offsets ``[start, end)`` by partition."""
        total = sum(end - start for start, end in ranges.values())
        self._stride = max(1, -(-total // CLASS_MAP_BITS))
        self._starts: dict[int, int] = {}  # where the bits of a partition begin
        self._first = {number: start for number, (start, _) in ranges.items()}
        self._until = dict(self._first)
        bits = 0
        for number, (start, end) in ranges.items():
            self._starts[number] = bits
            bits += (end - start) // self._stride + 1
        self._bits = bytearray(bits // 8 + 1)

    def look(self, partition: int, offset: int, holds: bool) -> None:
        """Notes what was seen of a message; they come in order."""
        self._until[partition] = offset + 1
        if holds:
            at = self._at(partition, offset)
            self._bits[at >> 3] |= 1 << (at & 7)

    def may_hold(self, partition: int, offset: int) -> bool:
        if not self._first[partition] <= offset < self._until[partition]:
            return True
        at = self._at(partition, offset)
        return bool(self._bits[at >> 3] >> (at & 7) & 1)

    def _at(self, partition: int, offset: int) -> int:
        return self._starts[partition] + (offset - self._first[partition]) // self._stride


@dataclass(frozen=True, slots=True)
class _Class:
    """What one class has finished of a partition."""

    selection: Selection
    progress: Progress
    finished: RangeSet
    where: ClassMap | None

    def bits(self, message: Message, subs: Sequence[SubMessage]) -> int:
        offset = message.offset
        found = _finished_bits(self.progress, self.finished, offset)
        if not found or (
            self.where is not None and not self.where.may_hold(message.origin.partition, offset)
        ):
            return 0
        return found & self.selection.bits(subs)


class OtherClaims:
    """What claims other than "all" have finished.

    A sub-message is a shard's when all of its lanes are. ``maps`` tell where classes lie, by
    selector, as far as this process has seen that.
    """

    def __init__(
        self, claims: Claims, shard_map: ShardMap, maps: Mapping[str, ClassMap] | None = None
    ) -> None:
        self._claims = {selector: claim for selector, claim in claims.items() if selector != ALL}
        self._shard_map = shard_map
        self.classes: dict[int, list[_Class]] = {}  # by partition
        # By partition; then by division (of 2/8@3 the 8 and the 3) and number.
        self._said: dict[int, dict[tuple[int, int], dict[int, tuple[Progress, RangeSet]]]] = {}
        self._partial: dict[int, dict[int, list[Partial]]] = {}
        self._fates: dict[int, dict[Outcome, RangeSet]] = {}
        for selector, by_partition in self._claims.items():
            where = class_of(selector)
            selection = None if where is None else Selection(where)
            for partition, progress in by_partition.items():
                divisions = self._said.setdefault(partition, {})
                said = progress, RangeSet(progress.finished)
                if selection is None:
                    claim = Claim.parse(selector)
                    divisions.setdefault((claim.of, claim.joins), {})[claim.number] = said
                else:
                    found = _Class(selection, *said, (maps or {}).get(selector))
                    self.classes.setdefault(partition, []).append(found)
                parts = self._partial.setdefault(partition, {})
                for offset, part in progress.partial.items():
                    parts.setdefault(offset, []).append(part)
        for partition in self._said:
            fates = merge_outcomes(claim[partition].fates for claim in self._claims.values())
            self._fates[partition] = {outcome: RangeSet(at) for outcome, at in fates.items()}

    def finished(self, message: Message, subs: Sequence[SubMessage]) -> int:
        """A bit for each sub-message that a claim has finished.

        Raises SplitFailed when a claim saw the message split into others.
        """
        partition, offset = message.origin.partition, message.offset
        if offset in self._fates.get(partition, {}).get(Outcome.UNSPLIT, ()):
            return (1 << len(subs)) - 1
        if subs and isinstance(subs[0], Unsplit):
            return self._whole(message, subs[0])
        for known in self._partial.get(partition, {}).get(offset, ()):
            keys = [sub.key if sub.keys is None else SubKeys(sub.keys) for sub in subs]
            known.ensure_same(message, keys)
        done = 0
        for division, by_number in self._said.get(partition, {}).items():
            bits: dict[int, int] = {}
            for index, sub in enumerate(subs):
                number = self._shard_map.shard_of(sub, *division)
                if number is None or number not in by_number:
                    continue
                if number not in bits:
                    bits[number] = _finished_bits(*by_number[number], offset)
                done |= bits[number] & 1 << index
        for each in self.classes.get(partition, ()):
            done |= each.bits(message, subs)
        return done

    def _whole(self, message: Message, unit: Unsplit) -> int:
        """Whether a message that ``split`` rejects now is finished: 1 or 0.

        Raises SplitFailed when a claim has gone past what it split into.
        """
        partition, offset = message.origin.partition, message.offset
        said = {
            of == 1
            for (of, _), by_number in self._said.get(partition, {}).items()
            if any(_finished_bits(*each, offset) == -1 for each in by_number.values())
        }
        if True in said:
            return 1
        passed = (
            _finished_bits(c.progress, c.finished, offset) for c in self.classes.get(partition, ())
        )
        if said or any(passed) or self._partial.get(partition, {}).get(offset):
            raise split_changed(message, unit.why)
        return 0

    def fate(self, message: Message) -> Outcome:
        """The worst with which a claim has finished a sub-message of it."""
        return outcome_of(message.offset, self._fates.get(message.origin.partition, {}))

    def highest(self, partition: int) -> int:
        """From this offset on they say nothing."""
        claims = (claim[partition] for claim in self._claims.values() if partition in claim)
        return max((progress.end for progress in claims), default=0)

    def needed(self, watermarks: Mapping[int, int]) -> Claims:
        """The claims that say something above these watermarks, by partition."""
        return {
            selector: claim
            for selector, claim in self._claims.items()
            if any(progress.end > watermarks[n] for n, progress in claim.items())
        }


def _finished_bits(progress: Progress, finished: RangeSet, offset: int) -> int:
    # Of a message's sub-messages that are a claim's; -1 for all.
    if offset < progress.watermark or offset in finished:
        return -1
    part = progress.partial.get(offset)
    return 0 if part is None else part.bits


def other_claims(
    plan: OffsetPlan, maps: Mapping[str, ClassMap] | None = None
) -> OtherClaims | None:
    """What the claims of a plan have finished; None when it has none beside "all"."""
    if not plan.account.others:
        return None
    return OtherClaims(
        plan.account.others, ShardMap(Order(plan.terms.order), plan.account.joins), maps
    )
