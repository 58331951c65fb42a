"""The records that the core hands out: counts, partial messages, and progress in one partition."""

from __future__ import annotations

import re
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from operator import add, attrgetter, sub
from typing import TYPE_CHECKING, Any

from drainer.errors import SplitFailed
from drainer.message import KeySums, Message, NoKeys
from drainer.model.codec import JsonRecord, Whole
from drainer.model.ranges import Range, Ranges, RangeSet, encode_ranges, join_ranges

OutcomeRanges = Mapping["Outcome", tuple[Range, ...]]  # messages with a sub-message that ended so

if TYPE_CHECKING:
    Partials = Mapping[int, "Partial"]
else:  # which JSON has as text

    class Partials(dict):
        written = dict

        @classmethod
        def parse(cls, body: dict[str, object]) -> Partials:
            return cls((_offset(name), Partial.decode(text)) for name, text in body.items())


SUB_MESSAGES_MOST = 2**32  # of one message; no memory holds as many
_PARTIAL = re.compile(r"[0-9]{1,10}:[0-9a-f]{8}:[0-9a-f]+")


class Outcome(Enum):
    """Final state of a sub-message; one without is pending. A message has the last of those
    that its sub-messages have.

    UNSPLIT is in ``outcomes`` alone: the message ended as one unit, whatever it splits into later.
    """

    UNSPLIT = "unsplit"
    DONE = "done"
    SKIPPED = "skipped"  # by a rule, or by the handler
    FAILED = "failed"  # and was skipped for that
    DEAD = "dead"

    def worse_of(self, other: Outcome) -> Outcome:
        return max(self, other, key=_OUTCOMES.index)


DONE = Outcome.DONE  # looked up once for every sub-message
_OUTCOMES = tuple(Outcome)
OTHERWISE = (Outcome.SKIPPED, Outcome.FAILED, Outcome.DEAD)  # than done
ENDS = (DONE, *OTHERWISE)


@dataclass(frozen=True, slots=True)
class Counts(JsonRecord):
    """One line of the account. The law of conservation:
    read = done + dead + failed + skipped + pending.

    ``unsplit`` of the dead and failed sub-messages stand for a message that ``split`` rejected.
    """

    read: Whole = 0
    done: Whole = 0
    dead: Whole = 0
    skipped: Whole = 0
    pending: Whole = 0
    failed: Whole = 0
    unsplit: Whole = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, _numbers(self), _numbers(other)))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*map(sub, _numbers(self), _numbers(other)))

    @classmethod
    def sum(cls, counts: Iterable[Counts]) -> Counts:
        return cls(*map(sum, zip(*map(_numbers, counts), strict=True)))

    @property
    def given_up(self) -> int:
        """The column of the account for failing."""
        return self.dead + self.failed

    @property
    def finished(self) -> int:
        return self.done + self.dead + self.failed + self.skipped

    @property
    def conserved(self) -> bool:
        return self.read == self.finished + self.pending

    @property
    def possible(self) -> bool:
        """Whether none of them is below zero."""
        return all(count >= 0 for count in _numbers(self))

    def and_here(
        self, read: int, done: int, otherwise: Mapping[Outcome, int], pending: int, unsplit: int = 0
    ) -> Counts:
        """Add the counts of this run to those of former runs."""
        skipped, failed, dead = otherwise.values()  # as in ``OTHERWISE``: this is called often
        return Counts(
            self.read + read,
            self.done + done,
            self.dead + dead,
            self.skipped + skipped,
            pending,
            self.failed + failed,
            self.unsplit + unsplit,
        )

    def without_pending(self) -> Counts:
        """The counts without what is pending: what a resumed drain starts from."""
        return replace(self, read=self.finished, pending=0)


_numbers = attrgetter(*(each.name for each in fields(Counts)))  # astuple() takes 50 times as long


@dataclass(frozen=True, slots=True)
class Partial:
    """A message of which some sub-messages are finished.

    ``count`` is how many it split into, ``checksum`` covers their sub-keys in order (a split that
    gives others after a resume is detected by it), and bit i of ``bits`` is set when sub-message i
    is finished.
    """

    count: int
    checksum: int
    bits: int

    def __or__(self, other: Partial) -> Partial:
        """Join two records of one message: finished is what either has."""
        return Partial(other.count, other.checksum, self.bits | other.bits)

    def finished_of(self, message: Message, keys: Sequence[Hashable] | KeySums) -> int:
        """Bits of the message's sub-messages that are finished; none of a unit of unknown keys.

        Raises SplitFailed when these sub-keys are not those of the record.
        """
        if isinstance(keys, NoKeys):
            raise split_changed(message, keys.why)
        count, checksum = len(keys), checksum_keys(keys)
        if isinstance(keys, KeySums) and (count, checksum) == (1, 0):
            return 0
        if (self.count, self.checksum) != (count, checksum):
            raise SplitFailed(
                f"split is not deterministic: {message} gave {self.count} sub-messages (checksum"
                f" {self.checksum:08x}) before and gives {count} ({checksum:08x}) now",
                hint="Make split depend on the message alone: not on time, chance or state.",
            )
        return self.bits

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left of the message; only records joined with others are."""
        return self.bits.bit_count() == self.count

    @property
    def head(self) -> str:
        """The text before the bits, which stays the same while they come."""
        return f"{self.count}:{self.checksum:08x}:"

    def encode(self) -> str:
        return f"{self.head}{self.bits:x}"

    @classmethod
    def decode(cls, text: object) -> Partial:
        """Raises ValueError when it isn't ``count:checksum:bits``, or contradicts itself."""
        if type(text) is not str or not _PARTIAL.fullmatch(text):
            raise ValueError(f"{text!r} is not count:checksum:bits")
        count, checksum, bits = text.split(":")
        partial = cls(int(count), int(checksum, 16), int(bits, 16))
        if partial.count > SUB_MESSAGES_MOST:
            raise ValueError(f"{text!r} has more sub-messages than any message")
        # Counted by the bits that are there: a number of `count` bits would be made of any text.
        finished, highest = partial.bits.bit_count(), partial.bits.bit_length()
        if partial.bits <= 0 or highest > partial.count or finished == partial.count:
            raise ValueError(f"{text!r} finishes none or all of its sub-messages")
        return partial


@dataclass(frozen=True, slots=True)
class Progress(JsonRecord):
    """Finished work of one partition: all below the watermark, the ranges and parts above it.

    A range may span holes (offsets that hold no record); they count as finished.

    ``outcomes`` are messages of which a sub-message ended otherwise than done, by how: those that
    are pending, for their final state. A claim that has others beside it has them of all messages,
    for no claim alone knows the final state of one.
    """

    watermark: Whole
    finished: Ranges = ()
    partial: Partials = field(default_factory=dict)
    messages: Counts = Counts()
    sub_messages: Counts = Counts()
    outcomes: Mapping[Outcome, Ranges] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The offset from which on nothing is known to be finished."""
        ends = (end for _, end in self.finished[-1:])
        return max((self.watermark, *ends, *(offset + 1 for offset in self.partial)))

    def as_json(self) -> dict[str, Any]:
        """JSON of plan and journal, for ``codec.encode``; fast, for the journal."""
        body: dict[str, Any] = {
            "watermark": self.watermark,
            "finished": encode_ranges(self.finished),
            "partial": {offset: part.encode() for offset, part in self.partial.items()},
            "messages": self.messages,
            "sub_messages": self.sub_messages,
        }
        if self.outcomes:
            body["outcomes"] = {
                outcome.value: encode_ranges(ranges) for outcome, ranges in self.outcomes.items()
            }
        return body

    def merge(self, later: Progress) -> Progress:
        """Add a later record of the same partition.

        Finished work never becomes unfinished, so the union is right even when records overlap.
        The counts are the later record's.
        """
        partial = dict(self.partial)
        whole: list[Range] = []
        for offset, part in later.partial.items():
            known = partial.get(offset)
            partial[offset] = part if known is None else known | part
            if known is not None and partial[offset].is_whole:
                whole.append((offset, offset + 1))
        ranges = join_ranges([*self.finished, *later.finished, *whole])
        watermark = max(self.watermark, later.watermark)
        for first, end in ranges:
            if first <= watermark < end:
                watermark = end
        ranges = tuple((max(first, watermark), end) for first, end in ranges if end > watermark)
        finished = RangeSet(ranges)
        partial = {o: p for o, p in partial.items() if o >= watermark and o not in finished}
        return Progress(
            watermark,
            ranges,
            partial,
            later.messages,
            later.sub_messages,
            merge_outcomes((self.outcomes, later.outcomes)),
        )


def merge_outcomes(each: Iterable[OutcomeRanges]) -> OutcomeRanges:
    """Join ranges of outcomes: a message is in a range that it has in any of them."""
    found: dict[Outcome, list[Range]] = {}
    for outcomes in each:
        for outcome, ranges in outcomes.items():
            found.setdefault(outcome, []).extend(ranges)
    return {outcome: join_ranges(ranges) for outcome, ranges in found.items() if ranges}


def outcome_of(offset: int, outcomes: Mapping[Outcome, RangeSet]) -> Outcome:
    """The worst outcome that an offset has."""
    return max((o for o, at in outcomes.items() if offset in at), key=_OUTCOMES.index, default=DONE)


def split_changed(message: Message, why: str) -> SplitFailed:
    """The error for a message that ``split`` rejects, although an earlier call of it did not."""
    return SplitFailed(
        f"split failed at {message}, which is done in part: {why}",
        hint="Make `split` return the same as before, then resume.",
    )


def _offset(name: str) -> int:
    if not (name.isascii() and name.isdecimal()):
        raise ValueError(f"{name!r} is not an offset")
    return int(name)


def checksum_keys(keys: Iterable[Hashable] | KeySums) -> int:
    """CRC-32 over the sub-keys of a message, in order; equal in every process for equal keys."""
    if isinstance(keys, KeySums):
        return keys.checksum
    return zlib.crc32(repr(list(keys)).encode())
