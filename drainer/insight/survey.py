"""A survey of messages as they are read: their sizes, keys, and sub-messages.

It takes messages in windows and is finished once. Several of them, of other parts of a backlog and
from other processes, make one. Its memory is bounded, whatever there is to be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from zlib import crc32

import orjson
from msgspec import Raw

from drainer.decoding import OF_REGISTRY
from drainer.errors import SplitFailed
from drainer.extensions import Extension
from drainer.insight.sketch import Amounts, Heavy, ItemShare, Spread
from drainer.loader import LoadedHandler
from drainer.mask import mask_text
from drainer.message import Barrier, Message, SubMessage
from drainer.model.sub_messages import identify
from drainer.model.terms import BY_HANDLER, TimeRange
from drainer.model.unhandled import RuleStatus
from drainer.policy.rules import RuleFilter
from drainer.splitting import split_up

SHOWN = 10
NO_KEY = "no key"
LONGEST_MESSAGE_KEY = 256  # bytes that are shown; a checksum stands for the rest
LONGEST_SUB_KEY = 256  # characters of its repr; both ends of a longer one are kept
# Fields of a payload that name the kind of its operation.
FIELDS = ("kind", "type", "op", "operation", "action", "event", "event_type", "eventType")
LONGEST_NAME = 80  # longer text is not the name of a kind
LONGEST_JSON = 64 * 1024  # bytes; of larger payloads it is not worth the parsing

BARRIER = "barrier"
UNKNOWN = "no kind"


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of the messages that were read."""

    messages: int
    bytes: int  # their keys and values
    tombstones: int
    sizes: Spread
    message_keys: int  # how many different ones came, to 1.6%
    hottest_keys: tuple[ItemShare, ...]  # those with the most messages
    # Ids of the registry's schemas, the most frequent first; none without such a format.
    value_schemas: tuple[ItemShare, ...] = ()
    key_schemas: tuple[ItemShare, ...] = ()


@dataclass(frozen=True, slots=True)
class Skew:
    """Spread of the sub-messages that were read. Shares are of all sub-messages.

    A sub-message with several sub-keys counts for each of them, so those shares may add up to more
    than 1.
    """

    messages: int
    sub_messages: int  # what they split into, barriers included
    barriers: int
    empty: int
    fan_out: Spread  # sub-messages per message
    sub_keys: int  # how many different ones came in what was read, to 1.6%
    # The sub-keys with the most sub-messages, by Python's repr; the hottest first.
    hottest: tuple[ItemShare, ...]
    kinds: tuple[ItemShare, ...]  # of operations, the most frequent first
    rules: tuple[ItemShare, ...]  # what each rule would leave out


@dataclass(frozen=True, slots=True)
class SplitFailures:
    """Messages that ``split`` rejected; ``--on-split-failure`` decides what a drain does."""

    messages: int
    first: str
    hint: str


class Survey:
    """The survey of what ``take`` was given; ``end_window`` after each window, the last one too.

    The handler's ``split`` is called, and nothing else of it; what it raises is counted. It can be
    pickled: then it takes no more messages.

    Attributes:
        tasks: how many read it on Spark; None for this process.
        read_s: how long reading and splitting took.
    """

    def __init__(
        self,
        handler: LoadedHandler | None,
        skip: Sequence[str] = (),
        times: TimeRange | None = None,
    ) -> None:
        self._times = times
        self._splits = handler is not None
        self._split = None if handler is None else handler.split
        self._rule_filter = rule_filter = RuleFilter(skip)
        self._has_rules = rule_filter.has_rules
        self._undecided, self._why = rule_filter.undecided, rule_filter.why_undecided
        self._messages, self._offsets, self._bytes = Counter[int](), Counter[int](), Counter[int]()
        self._counts = Counter[str]()
        self._first: tuple[tuple[int, int], str] | None = None  # its place before it
        self._sizes, self._fan_outs = Amounts(), Amounts()
        self._keys, self._sub_keys = Heavy(message_key_text), Heavy(sub_key_text)
        self._kinds, self._rules = Heavy(str), Heavy(str)
        payloads = BY_HANDLER if handler is None else handler.payloads
        formats = payloads.value_format, payloads.key_format
        self._is_framed = [each in OF_REGISTRY for each in formats]
        self._schemas = Heavy(str), Heavy(str)
        self.tasks: int | None = None
        self.read_s = 0.0

    @property
    def offsets(self) -> int:
        """Number of offsets that were read."""
        return self._offsets.total()

    def take(self, partition: int, messages: Sequence[Message], offsets: int) -> None:
        """Count all messages of so many offsets of a partition.

        Messages outside the range of times don't belong to the backlog, and are left out.
        """
        if (times := self._times) is not None:
            messages = [each for each in messages if times.why_outside(each.timestamp) is None]
        sizes = [message.size for message in messages]
        self._offsets[partition] += offsets
        self._messages[partition] += len(messages)
        self._bytes[partition] += sum(sizes)
        self._sizes.add(sizes)
        self._keys.add([message.key for message in messages])
        self._counts["tombstones"] += sum(message.value is None for message in messages)
        for is_key in (False, True):
            if self._is_framed[is_key]:
                self._schemas[is_key].add(_schemas_of(messages, is_key=is_key))
        if self._splits:
            for message in messages:
                try:
                    self._take_apart(message)
                except SplitFailed as error:
                    self._counts["failed"] += 1
                    place = (message.partition, message.offset)
                    self._first = self._first or (place, str(error))

    def end_window(self) -> None:
        """Ends the window; the next messages lie somewhere else."""
        for part in self._parts():
            part.end_cluster()

    def merge(self, other: Survey) -> None:
        """Adds the findings of the other."""
        for mine, others in zip(self._parts(), other._parts(), strict=True):
            mine.merge(others)  # type: ignore[arg-type]
        for name in ("_messages", "_offsets", "_bytes", "_counts", "_undecided"):
            getattr(self, name).update(getattr(other, name))
        self._splits = self._splits or other._splits
        self._why = {**other._why, **self._why}
        self._first = min(filter(None, (self._first, other._first)), default=None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_split": None, "_rule_filter": None}

    def density(self, partition: int) -> float:
        """Messages per offset, of the partition if anything of it was read, else of all."""
        return _per(self._messages, self._offsets, partition, 1.0)

    def mean_bytes(self, partition: int) -> float:
        """Mean bytes of a message, of the partition if anything of it was read, else of all."""
        return _per(self._bytes, self._messages, partition, 0.0)

    def contents(self, fraction: float) -> Contents:
        """Contents of all that was taken, which is this fraction (0 to 1) of the backlog."""
        return Contents(
            messages=self._messages.total(),
            bytes=self._bytes.total(),
            tombstones=self._counts["tombstones"],
            sizes=self._sizes.spread,
            message_keys=self._keys.distinct,
            hottest_keys=_masked(self._keys.most(SHOWN, self._sizes.counts, fraction)),
            value_schemas=self._schemas[False].most(SHOWN, self._sizes.counts, fraction),
            key_schemas=self._schemas[True].most(SHOWN, self._sizes.counts, fraction),
        )

    def skew(self, fraction: float) -> Skew | None:
        """Skew of all that was taken, this fraction of the backlog; None without a handler."""
        if not self._splits:
            return None
        fan_outs = self._fan_outs
        subs = fan_outs.sums
        return Skew(
            messages=fan_outs.count,
            sub_messages=fan_outs.total,
            barriers=self._counts["barriers"],
            empty=self._counts["empty"],
            fan_out=fan_outs.spread,
            sub_keys=self._sub_keys.distinct,
            hottest=_masked(self._sub_keys.most(SHOWN, subs, fraction)),
            kinds=self._kinds.most(SHOWN, subs, fraction),
            rules=self._rules.most(SHOWN, subs, fraction),
        )

    @property
    def failures(self) -> SplitFailures | None:
        """Messages that ``split`` rejected; None without any."""
        if self._first is None:
            return None
        number = self._counts["failed"]
        these = "this message" if number == 1 else f"these {number:,} messages"
        hint = f"Fix `split`, or choose --on-split-failure: a drain would stop at {these}."
        return SplitFailures(number, self._first[1], hint)

    @property
    def rule_status(self) -> RuleStatus:
        """Sub-messages that rules could not decide."""
        return RuleStatus(undecided=dict(self._undecided), why=dict(self._why))

    def _parts(self) -> tuple[Amounts | Heavy, ...]:
        return (
            *(self._sizes, self._fan_outs),
            *(self._keys, self._sub_keys, self._kinds, self._rules, *self._schemas),
        )

    def _take_apart(self, message: Message) -> None:
        """Raises SplitFailed, and counts nothing of it, of a message that ``split`` rejects."""
        subs = split_up(self._split, message)
        identify(message, subs)
        keys: list[Hashable] = [sub.key for sub in subs]
        if [sub for sub in subs if sub.keys is not None or type(sub) is not SubMessage]:
            laned = [sub for sub in subs if not isinstance(sub, Barrier)]
            self._counts["barriers"] += len(subs) - len(laned)
            of_each = [(sub.key,) if sub.keys is None else sub.keys for sub in laned]
            keys = list(chain.from_iterable(of_each))
        self._fan_outs.add([len(subs)])
        self._counts["empty"] += not subs
        self._sub_keys.add(keys)
        self._kinds.add(map(operation_kind, subs))
        if self._has_rules:
            self._rules.add(filter(None, map(self._rule_filter.rule_for, subs)))


def _schemas_of(messages: Sequence[Message], *, is_key: bool) -> Iterator[int | str]:
    schema_of = Extension.PAYLOADS.load().schema_of
    for message in messages:
        if (message.key if is_key else message.value) is not None:
            with suppress(ValueError):  # it has none, or unreadable headers
                yield schema_of(message, is_key=is_key)


def operation_kind(sub: SubMessage) -> str:
    """A short name; ``UNKNOWN`` when nothing shows it.

    In this order: a barrier; the name of the class that the handler derived from SubMessage; a
    field of the payload named as in ``FIELDS``, also when the payload is JSON in bytes or text.
    """
    if type(sub) is not SubMessage:
        return BARRIER if isinstance(sub, Barrier) else type(sub).__name__
    payload = bytes(sub.content) if isinstance(sub.content, Raw) else sub.content
    if isinstance(payload, bytes | str):
        payload = _decoded(payload)
    if isinstance(payload, dict):
        for field in FIELDS:
            value = payload.get(field)
            if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME:
                return str(value)
    return UNKNOWN


def _decoded(payload: bytes | str) -> object:
    if payload[:1] not in {b"{", "{"} or len(payload) > LONGEST_JSON:
        return None
    try:
        return orjson.loads(payload)
    except ValueError:
        return None


def message_key_text(key: bytes | None) -> str:
    """A message key as it is counted and shown."""
    if key is None:
        return NO_KEY
    text = key[:LONGEST_MESSAGE_KEY].decode("utf-8", "backslashreplace")
    return f"{text}…{crc32(key):08x}" if len(key) > LONGEST_MESSAGE_KEY else text


def sub_key_text(key: Hashable) -> str:
    """A sub-key's repr, by which it is counted; a very long one loses its middle."""
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
