"""The records that the core hands out: counts, partial messages, and progress in one partition."""

from __future__ import annotations

import re
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from itertools import pairwise
from operator import add, attrgetter, sub
from typing import TYPE_CHECKING, Any

from drainer.errors import SplitFailed
from drainer.message import KeySums, Message, NoKeys
from drainer.model.codec import JsonRecord, Whole

Range = tuple[int, int]  # offsets [first, last + 1)
Fates = Mapping["Outcome", tuple[Range, ...]]  # messages with a sub-message that ended so

if TYPE_CHECKING:
    Ranges = tuple[Range, ...]
    Partials = Mapping[int, "Partial"]
else:  # which JSON has as text

    class Ranges(tuple):
        __slots__ = ()
        written = str

        @classmethod
        def parse(cls, text: str) -> Ranges:
            return cls(decode_ranges(text))

    class Partials(dict):
        written = dict

        @classmethod
        def parse(cls, body: dict[str, object]) -> Partials:
            return cls((_offset(name), Partial.decode(text)) for name, text in body.items())


SUB_MESSAGES_MOST = 2**32  # of one message; no memory holds as many
_PARTIAL = re.compile(r"[0-9]{1,10}:[0-9a-f]{8}:[0-9a-f]+")
_RANGES = re.compile("[0-9 -]*")


class Outcome(Enum):
    """How a sub-message ended; anything else about it is still pending. Of a message it is the last
    of these with which one of its sub-messages ended.

    UNSPLIT is in ``fates`` alone: the message ended as one unit, whatever it splits into later.
    """

    UNSPLIT = "unsplit"
    DONE = "done"
    SKIPPED = "skipped"  # by a rule, or as the handler said
    FAILED = "failed"  # and was skipped for that
    DEAD = "dead"

    def or_worse(self, other: Outcome) -> Outcome:
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
        """For failing."""
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
        """What these of former runs are with those of this one."""
        skipped, failed, dead = otherwise.values()  # as in ``OTHERWISE``: it is asked often
        return Counts(
            self.read + read,
            self.done + done,
            self.dead + dead,
            self.skipped + skipped,
            pending,
            self.failed + failed,
            self.unsplit + unsplit,
        )

    def settled(self) -> Counts:
        """The counts without what is pending: what a resumed drain starts from."""
        return replace(self, read=self.finished, pending=0)


_numbers = attrgetter(*(each.name for each in fields(Counts)))  # astuple() takes 50 times as long


@dataclass(frozen=True, slots=True)
class Partial:
    """A message of which some sub-messages are finished.

    ``count`` is how many it split into, ``checksum`` covers their sub-keys in order (a split that
    gives others after a resume is found out by it), and bit i of ``bits`` says that sub-message i
    is finished.
    """

    count: int
    checksum: int
    bits: int

    def __or__(self, other: Partial) -> Partial:
        """What either of two records of one message says is finished."""
        return Partial(other.count, other.checksum, self.bits | other.bits)

    def insist_same(self, message: Message, keys: Sequence[Hashable] | KeySums) -> None:
        """Raises SplitFailed when these sub-keys of the message are not those of the record."""
        if isinstance(keys, NoKeys):
            raise split_no_more(message, keys.why)
        count, checksum = len(keys), checksum_keys(keys)
        if (self.count, self.checksum) != (count, checksum):
            raise SplitFailed(
                f"split is not deterministic: {message} gave {self.count} sub-messages (checksum"
                f" {self.checksum:08x}) before and gives {count} ({checksum:08x}) now",
                hint="Make split depend on the message alone: not on time, chance or state.",
            )

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left of the message; only together with others is that told so."""
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
        # Counted by the bits that are there: a number of `count` bits would be made for the asking.
        finished, highest = partial.bits.bit_count(), partial.bits.bit_length()
        if partial.bits <= 0 or highest > partial.count or finished == partial.count:
            raise ValueError(f"{text!r} finishes none or all of its sub-messages")
        return partial


@dataclass(frozen=True, slots=True)
class Progress(JsonRecord):
    """What is finished in one partition: all below the watermark, the ranges and parts above it.

    A range may span holes (offsets that hold no record); they count as finished.

    ``fates`` are messages of which a sub-message ended otherwise than done, by how: those that are
    pending, for what becomes of them in the end. A claim that has others beside it tells them of
    all, for what becomes of a message none of these knows alone.
    """

    watermark: Whole
    finished: Ranges = ()
    partial: Partials = field(default_factory=dict)
    messages: Counts = Counts()
    sub_messages: Counts = Counts()
    fates: Mapping[Outcome, Ranges] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As plan and journal have it, for ``codec.encode``; the journal is in a hurry."""
        body: dict[str, Any] = {
            "watermark": self.watermark,
            "finished": encode_ranges(self.finished),
            "partial": {offset: part.encode() for offset, part in self.partial.items()},
            "messages": self.messages,
            "sub_messages": self.sub_messages,
        }
        if self.fates:
            body["fates"] = {
                outcome.value: encode_ranges(ranges) for outcome, ranges in self.fates.items()
            }
        return body

    def merge(self, later: Progress) -> Progress:
        """This progress with a later record of the same partition added to it.

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
            join_fates((self.fates, later.fates)),
        )


class RangeSet:
    """Answers whether an offset lies in one of some sorted, disjoint ranges."""

    __slots__ = ("_at", "_ranges")

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._ranges = list(ranges)
        self._at = 0

    def __contains__(self, offset: int) -> bool:
        # Asked for rising offsets nearly always, so it walks; a fall starts again from the front.
        ranges = self._ranges
        if self._at and ranges[self._at - 1][1] > offset:
            self._at = 0
        while self._at < len(ranges) and ranges[self._at][1] <= offset:
            self._at += 1
        return self._at < len(ranges) and ranges[self._at][0] <= offset

    def from_offset(self, offset: int) -> list[Range]:
        """The ranges at or above an offset, the one that spans it cut there."""
        return [(max(first, offset), end) for first, end in self._ranges if end > offset]


def join_fates(each: Iterable[Fates]) -> Fates:
    """What any of these says."""
    found: dict[Outcome, list[Range]] = {}
    for fates in each:
        for outcome, ranges in fates.items():
            found.setdefault(outcome, []).extend(ranges)
    return {outcome: join_ranges(ranges) for outcome, ranges in found.items() if ranges}


def fate_of(offset: int, fates: Mapping[Outcome, RangeSet]) -> Outcome:
    """The worst that these say of an offset."""
    return max((o for o, at in fates.items() if offset in at), key=_OUTCOMES.index, default=DONE)


def join_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Sorted ranges with the touching and overlapping ones made one."""
    joined: list[Range] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            if end > joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return tuple(joined)


def ranges_of(offsets: Iterable[int]) -> tuple[Range, ...]:
    """Offsets as ranges."""
    return join_ranges((offset, offset + 1) for offset in offsets)


def count(ranges: Iterable[Range]) -> int:
    """The offsets in them."""
    return sum(end - first for first, end in ranges)


def cut(whole: Range, parts: int) -> tuple[Range, ...]:
    """A range in ``parts`` that follow each other, as even as can be, none of them empty."""
    start, end = whole
    size = end - start
    parts = min(parts, size)
    bounds = [start + size * part // parts for part in range(parts + 1)] if parts else []
    return tuple(pairwise(bounds))


def intersect(ranges: Sequence[Range], others: Sequence[Range]) -> tuple[Range, ...]:
    """What lies in both."""
    found: list[Range] = []
    at = behind = 0
    while at < len(ranges) and behind < len(others):
        first = max(ranges[at][0], others[behind][0])
        end = min(ranges[at][1], others[behind][1])
        if first < end:
            found.append((first, end))
        if ranges[at][1] == end:
            at += 1
        else:
            behind += 1
    return tuple(found)


def subtract(ranges: Iterable[Range], others: Sequence[Range]) -> tuple[Range, ...]:
    """What lies in the first and not in the others."""
    left: list[Range] = []
    at = 0
    for whole_first, end in ranges:
        first = whole_first
        while at < len(others) and others[at][1] <= first:
            at += 1
        cut = at
        while cut < len(others) and others[cut][0] < end:
            if others[cut][0] > first:
                left.append((first, others[cut][0]))
            first = others[cut][1]
            cut += 1
        if first < end:
            left.append((first, end))
    return tuple(left)


def encode_ranges(ranges: Iterable[Range]) -> str:
    """``105-119 125``: ranges with their last offset included, as a person reads them."""
    return " ".join(
        [f"{first}" if end == first + 1 else f"{first}-{end - 1}" for first, end in ranges]
    )


def decode_ranges(text: str) -> tuple[Range, ...]:
    """Raises ValueError when the text isn't sorted, disjoint ranges."""
    if not _RANGES.fullmatch(text):
        raise ValueError(f"{text!r} is not made of offsets and ranges")
    ranges: list[Range] = []
    reached = 0
    for word in text.split():
        begin, dash, last = word.partition("-")
        first = int(begin)
        end = int(last if dash else begin) + 1
        if first < reached or end <= first:
            raise ValueError(f"{word!r} is out of order")
        ranges.append((first, end))
        reached = end
    return tuple(ranges)


def split_no_more(message: Message, why: str) -> SplitFailed:
    """The error for a message that ``split`` rejects, although an earlier call of it did not."""
    return SplitFailed(
        f"split failed at {message}, which is done in part: {why}",
        hint="Make `split` give what it gave before, then resume.",
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
