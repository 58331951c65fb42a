"""Records of what is finished: counts, messages that are finished in part, and progress."""

from __future__ import annotations

import re
import zlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from operator import add, attrgetter, sub
from typing import TYPE_CHECKING, Any

from drainer.errors import SplitFailed
from drainer.message import AnyKeys, KeySums, Message, NoKeys
from drainer.model.codec import JsonRecord, Whole
from drainer.model.ranges import Range, Ranges, RangeSet, encode_ranges, join_ranges

# By outcome, the offsets of the messages of which a sub-message ended with it, as ranges.
OutcomeRanges = Mapping["Outcome", tuple[Range, ...]]

if TYPE_CHECKING:
    Partials = Mapping[int, "Partial"]
else:

    class Partials(dict):  # In JSON, offsets and partial messages are text.
        written = dict

        @classmethod
        def parse(cls, body: dict[str, object]) -> Partials:
            return cls((_offset(name), Partial.decode(text)) for name, text in body.items())


SUB_MESSAGES_MOST = 2**32  # No message has more sub-messages, since no memory holds as many.
_PARTIAL = re.compile(r"[0-9]{1,10}:[0-9a-f]{8}:[0-9a-f]+")


class Outcome(Enum):
    """The final state of a sub-message. A pending sub-message has none.

    The outcome of a message is the worst one of its sub-messages, which is the last one here.
    """

    # Only ``Progress.outcomes`` has this one. The message ended as one unit, whatever it splits
    # into later.
    UNSPLIT = "unsplit"
    DONE = "done"
    SKIPPED = "skipped"  # A rule, a redrive or the handler skipped it.
    FAILED = "failed"  # It failed, and ``--on-failure skip`` skipped it.
    DEAD = "dead"  # It became a dead letter.

    def worse_of(self, other: Outcome) -> Outcome:
        return max(self, other, key=_OUTCOMES.index)


# This is looked up for every sub-message, and a global name is found faster than an attribute.
DONE = Outcome.DONE
_OUTCOMES = tuple(Outcome)
OTHERWISE = (Outcome.SKIPPED, Outcome.FAILED, Outcome.DEAD)  # The outcomes other than done.
ENDS = (DONE, *OTHERWISE)


@dataclass(frozen=True, slots=True)
class Counts(JsonRecord):
    """Counts of messages or of sub-messages, by what became of them.

    The law of conservation is: read = done + dead + failed + skipped + pending. ``unsplit`` is how
    many of the dead and failed sub-messages stand for a whole message that ``split`` rejected.
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
        """The number of messages or sub-messages that failed in the end."""
        return self.dead + self.failed

    @property
    def finished(self) -> int:
        return self.done + self.dead + self.failed + self.skipped

    @property
    def conserved(self) -> bool:
        return self.read == self.finished + self.pending

    @property
    def possible(self) -> bool:
        """Whether no count is below zero."""
        return all(count >= 0 for count in _numbers(self))

    def and_here(
        self, read: int, done: int, otherwise: Mapping[Outcome, int], pending: int, unsplit: int = 0
    ) -> Counts:
        """Add the counts of this run to those of former runs.

        This is called often, so it relies on ``otherwise`` having the order of ``OTHERWISE``.
        """
        skipped, failed, dead = otherwise.values()
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
        """Return the counts without what is pending, which a resumed drain starts from."""
        return replace(self, read=self.finished, pending=0)


# astuple() takes 50 times as long as this.
_numbers = attrgetter(*(each.name for each in fields(Counts)))


@dataclass(frozen=True, slots=True)
class Partial:
    """A message of which some sub-messages are finished.

    Attributes:
        count: how many sub-messages it split into.
        checksum: a checksum of their sub-keys, in order. It shows whether ``split`` gives other
            sub-messages after a resume.
        bits: bit i is set if sub-message i is finished.
    """

    count: int
    checksum: int
    bits: int

    def __or__(self, other: Partial) -> Partial:
        """Join two records of one message. A sub-message is finished if either record has it."""
        return Partial(other.count, other.checksum, self.bits | other.bits)

    def finished_of(self, message: Message, keys: AnyKeys) -> int:
        """Return the bits of the sub-messages that are finished, for a message with these sub-keys.

        A unit that stands for sub-messages of unknown keys has no bits. Raises SplitFailed if the
        sub-keys are not those of the record.
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
        """Whether all sub-messages are finished.

        One record never says so, because a message that is finished is no longer finished in part.
        Several records that were joined may.
        """
        return self.bits.bit_count() == self.count

    @property
    def head(self) -> str:
        """The text before the bits. It stays the same while more sub-messages finish."""
        return f"{self.count}:{self.checksum:08x}:"

    def encode(self) -> str:
        return f"{self.head}{self.bits:x}"

    @classmethod
    def decode(cls, text: object) -> Partial:
        """Read ``count:checksum:bits``. Raises ValueError for a text that makes no sense."""
        if type(text) is not str or not _PARTIAL.fullmatch(text):
            raise ValueError(f"{text!r} is not count:checksum:bits")
        count, checksum, bits = text.split(":")
        partial = cls(int(count), int(checksum, 16), int(bits, 16))
        if partial.count > SUB_MESSAGES_MOST:
            raise ValueError(f"{text!r} has more sub-messages than any message")
        # Building a number of ``count`` bits for a comparison would let a text take any memory.
        finished, highest = partial.bits.bit_count(), partial.bits.bit_length()
        if partial.bits <= 0 or highest > partial.count or finished == partial.count:
            raise ValueError(f"{text!r} finishes none or all of its sub-messages")
        return partial


@dataclass(frozen=True, slots=True)
class Progress(JsonRecord):
    """The finished work of one partition.

    Everything below the watermark is finished, and so are some ranges and parts of messages above
    it. A range may span holes, which are offsets without a record; they count as finished.

    ``outcomes`` has the messages of which a sub-message was skipped, failed or died. The outcome of
    a message is derived from them once all of it is finished, so they are kept for pending
    messages. If there are several claims, they are kept for all messages, because no claim alone
    knows when all of a message is finished.
    """

    watermark: Whole
    finished: Ranges = ()
    partial: Partials = field(default_factory=dict)
    messages: Counts = Counts()
    sub_messages: Counts = Counts()
    outcomes: Mapping[Outcome, Ranges] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The first offset at and after which nothing is known to be finished."""
        ends = (end for _, end in self.finished[-1:])
        return max((self.watermark, *ends, *(offset + 1 for offset in self.partial)))

    def as_json(self) -> dict[str, Any]:
        """Return the progress as plan and journal have it. This is fast, for the journal."""
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

        Finished work never becomes unfinished, so the union is right even if the records overlap.
        The counts are those of the later record.
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
    """Join the messages that several records have for each outcome."""
    found: dict[Outcome, list[Range]] = {}
    for outcomes in each:
        for outcome, ranges in outcomes.items():
            found.setdefault(outcome, []).extend(ranges)
    return {outcome: join_ranges(ranges) for outcome, ranges in found.items() if ranges}


def outcome_of(offset: int, outcomes: Mapping[Outcome, RangeSet]) -> Outcome:
    """Return the worst outcome of the message at an offset."""
    return max((o for o, at in outcomes.items() if offset in at), key=_OUTCOMES.index, default=DONE)


def split_changed(message: Message, why: str) -> SplitFailed:
    """Make the error for a message that ``split`` rejects now, and did not reject before."""
    return SplitFailed(
        f"split failed at {message}, which is done in part: {why}",
        hint="Make `split` return the same as before, then resume.",
    )


def _offset(name: str) -> int:
    if not (name.isascii() and name.isdecimal()):
        raise ValueError(f"{name!r} is not an offset")
    return int(name)


def checksum_keys(keys: Iterable[Hashable] | KeySums) -> int:
    """Return a CRC-32 of a message's sub-keys, in order. It is the same in every process."""
    if isinstance(keys, KeySums):
        return keys.checksum
    return zlib.crc32(repr(list(keys)).encode())
