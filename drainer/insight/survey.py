"""A survey of messages as they are read: their sizes, keys, and sub-messages.

The memory of a survey is bounded, however many different keys there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest, nsmallest
from itertools import chain
from zlib import crc32

from drainer.errors import SplitFailed
from drainer.insight.workload import NO_KEY
from drainer.loading.loader import LoadedHandler
from drainer.message import Barrier, Message
from drainer.model.order import Order, lanes_of
from drainer.model.priority import NO_CLASSES
from drainer.model.settings import FailureSettings
from drainer.model.sub_messages import identify
from drainer.model.terms import BY_HANDLER, TimeRange
from drainer.model.unhandled import RuleStatus
from drainer.operations.look import OptionsTried
from drainer.policy.rules import RuleFilter
from drainer.split.splitting import split_up, way_out
from drainer.text.mask import mask_text

SHOWN = 10
COUNTED = 10_000  # If there are many more different texts, only this many frequent ones are kept.
LONGEST_MESSAGE_KEY = 256  # A key with more bytes is cut, and a checksum stands for the rest.
LONGEST_SUB_KEY = 256  # Of a repr with more characters, both ends and a checksum are kept.
DIGITS = 2  # Numbers are rounded to two digits, so a quantile is wrong by at most 5%.


@dataclass(frozen=True, slots=True)
class ItemShare:
    """A key or a rule, how often it was seen, and its share of all that was read, from 0 to 1."""

    name: str
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of numbers: mean, median, 99th percentile and maximum.

    Median and percentile are rounded to two digits.
    """

    mean: float
    p50: int
    p99: int
    max: int


class Frequent:
    """Counts texts. If there are too many different ones, it keeps only the most frequent.

    These are the counters of J. Misra and D. Gries ("Finding repeated elements", 1982), to which
    those of Space-Saving are equivalent. Once there are more than twice ``COUNTED`` different
    texts, the highest count among those to be dropped is subtracted from all counts. So no count is
    too high, and none is too low by more than 1/COUNTED of all texts.
    """

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def add(self, texts: Iterable[str]) -> None:
        self._counts.update(texts)
        if len(self._counts) > 2 * COUNTED:
            *_, least = nlargest(COUNTED + 1, self._counts.values())
            kept = ((text, count - least) for text, count in self._counts.items() if count > least)
            self._counts = Counter(dict(kept))

    def most(self, number: int, total: int) -> tuple[ItemShare, ...]:
        """Return the most frequent texts, with their shares of ``total``."""
        ranked = nsmallest(number, self._counts.items(), key=lambda item: (-item[1], item[0]))
        return tuple(ItemShare(text, count, count / total) for text, count in ranked)


class Amounts:
    """Numbers of at least 0: how many there are, their sum, and their spread."""

    def __init__(self) -> None:
        self._rounded = Counter[int]()
        self._max = 0
        self.count = self.total = 0

    def add(self, numbers: Sequence[int]) -> None:
        self.count += len(numbers)
        self.total += sum(numbers)
        self._max = max(self._max, max(numbers, default=0))
        self._rounded.update(round(number, DIGITS - len(str(number))) for number in numbers)

    @property
    def spread(self) -> Spread:
        """The spread of all numbers; zeros if there are none."""
        mean = self.total / max(1, self.count)
        return Spread(mean, self._quantile(0.5), self._quantile(0.99), self._max)

    def _quantile(self, rank: float) -> int:
        behind = 0
        for number in sorted(self._rounded):
            behind += self._rounded[number]
            if behind >= rank * self.count:
                return min(number, self._max)
        return 0


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of the messages that were read.

    Attributes:
        bytes: bytes of keys and values.
        tombstones: messages without a value.
        sizes: the spread of the messages' bytes.
        hottest_keys: the message keys with the most messages.
    """

    messages: int
    bytes: int
    tombstones: int
    sizes: Spread
    hottest_keys: tuple[ItemShare, ...]


@dataclass(frozen=True, slots=True)
class Skew:
    """The sub-messages of the messages that were read. Shares are of all sub-messages.

    A sub-message with several sub-keys counts for each of them, so the shares of sub-keys may add
    up to more than 1.

    Attributes:
        sub_messages: sub-messages of all messages, barriers included.
        empty: messages that split into no sub-messages.
        fan_out: sub-messages per message.
        hottest: the sub-keys with the most sub-messages, the hottest first. Each is named by its
            repr.
        rules: the sub-messages that each rule would skip.
    """

    messages: int
    sub_messages: int
    barriers: int
    empty: int
    fan_out: Spread
    hottest: tuple[ItemShare, ...]
    rules: tuple[ItemShare, ...]


@dataclass(frozen=True, slots=True)
class SplitFailures:
    """Messages that ``split`` rejected: how many, the first error, and what to do about it."""

    messages: int
    first: str
    hint: str


@dataclass(eq=False)
class Survey:
    """A survey of the messages that ``take`` gets. Of the handler, it calls only ``split``."""

    handler: LoadedHandler | None
    skip: Sequence[str] = ()
    times: TimeRange | None = None

    def __post_init__(self) -> None:
        self._splits = self.handler is not None
        self._split = None if self.handler is None else self.handler.split
        self._rule_filter = RuleFilter(self.skip)
        payloads = BY_HANDLER if self.handler is None else self.handler.payloads
        self._tried = OptionsTried(NO_CLASSES, FailureSettings(skip=tuple(self.skip)), payloads)
        self._messages, self._offsets, self._bytes = Counter[int](), Counter[int](), Counter[int]()
        self._tombstones = self._barriers = self._empty = self._rejected = 0
        self._first_error = ""
        self._sizes, self._fan_outs = Amounts(), Amounts()
        self._keys, self._sub_keys, self._rules = Frequent(), Frequent(), Frequent()

    @property
    def offsets(self) -> int:
        """How many offsets were read."""
        return self._offsets.total()

    def take(self, partition: int, messages: Sequence[Message], offsets: int) -> None:
        """Count messages of a partition that were read from a stretch of ``offsets`` offsets.

        Messages outside the range of times don't belong to the backlog and don't count.
        """
        if (times := self.times) is not None:
            messages = [each for each in messages if times.why_outside(each.timestamp) is None]
        sizes = [message.size for message in messages]
        self._offsets[partition] += offsets
        self._messages[partition] += len(messages)
        self._bytes[partition] += sum(sizes)
        self._sizes.add(sizes)
        self._keys.add(message_key_text(message.key) for message in messages)
        self._tombstones += sum(message.value is None for message in messages)
        for message in messages if self._splits else ():
            try:
                self._split_up(message)
            except SplitFailed as error:
                self._rejected += 1
                self._first_error = self._first_error or str(error)

    def _split_up(self, message: Message) -> None:
        """Count the sub-messages of a message. If it raises SplitFailed, it counts none of them."""
        subs = split_up(self._split, message)
        identify(message, subs)
        self._tried.add(subs)
        self._barriers += sum(isinstance(sub, Barrier) for sub in subs)
        keys = chain.from_iterable(map(lanes_of(Order.SUB_KEY), subs))
        self._fan_outs.add([len(subs)])
        self._empty += not subs
        self._sub_keys.add(map(sub_key_text, keys))
        if not self._rule_filter.passes_all:
            self._rules.add(filter(None, map(self._rule_filter.rule_for, subs)))

    def density(self, partition: int) -> float:
        """Return a partition's messages per offset; the mean of all if nothing of it was read."""
        return _per(self._messages, self._offsets, partition, 1.0)

    def mean_bytes(self, partition: int) -> float:
        """Return a partition's bytes per message; the mean of all if nothing of it was read."""
        return _per(self._bytes, self._messages, partition, 0.0)

    @property
    def contents(self) -> Contents:
        """The contents of all messages that were taken."""
        messages = self._messages.total()
        return Contents(
            messages=messages,
            bytes=self._bytes.total(),
            tombstones=self._tombstones,
            sizes=self._sizes.spread,
            hottest_keys=_masked(self._keys.most(SHOWN, messages)),
        )

    @property
    def skew(self) -> Skew | None:
        """The sub-messages of all messages that were taken; None without a handler."""
        if not self._splits:
            return None
        subs = self._fan_outs.total
        return Skew(
            messages=self._fan_outs.count,
            sub_messages=subs,
            barriers=self._barriers,
            empty=self._empty,
            fan_out=self._fan_outs.spread,
            hottest=_masked(self._sub_keys.most(SHOWN, subs)),
            rules=self._rules.most(COUNTED, subs),
        )

    @property
    def failures(self) -> SplitFailures | None:
        """The messages that ``split`` rejected; None if there are none."""
        number = self._rejected
        if not number:
            return None
        these = "this message" if number == 1 else f"these {number:,} messages"
        hint = f"{way_out(self._first_error)}, or choose --tune on-split-failure: a drain would"
        return SplitFailures(number, self._first_error, f"{hint} stop at {these}.")

    def warnings(self) -> Iterator[str]:
        """Yield warnings on expressions that match nothing, and on keys that nothing has.

        Raises Refused if no sub-message has a key of ``--key``.
        """
        yield from self._tried.unmatched()
        yield from self._tried.keys_missing()

    @property
    def rule_status(self) -> RuleStatus:
        """The sub-messages on which rules could not decide, and why."""
        return self._rule_filter.status()


def message_key_text(key: bytes | None) -> str:
    """Return the text by which a message key is counted and shown."""
    if key is None:
        return NO_KEY
    text = key[:LONGEST_MESSAGE_KEY].decode("utf-8", "backslashreplace")
    return f"{text}…{crc32(key):08x}" if len(key) > LONGEST_MESSAGE_KEY else text


def sub_key_text(key: Hashable) -> str:
    """Return the text by which a sub-key is counted: its repr, or both ends of a long repr."""
    text = repr(key)
    if len(text) <= LONGEST_SUB_KEY:
        return text
    mark = crc32(text.encode("utf-8", "backslashreplace"))
    return f"{text[: LONGEST_SUB_KEY // 2]}…{mark:08x}…{text[-LONGEST_SUB_KEY // 4 :]}"


def _masked(shares: Sequence[ItemShare]) -> tuple[ItemShare, ...]:
    return tuple(
        share if share.name == NO_KEY else replace(share, name=mask_text(share.name))
        for share in shares
    )


def _per(parts: Counter[int], wholes: Counter[int], number: int, otherwise: float) -> float:
    if wholes[number]:
        return parts[number] / wholes[number]
    whole = wholes.total()
    return parts.total() / whole if whole else otherwise
