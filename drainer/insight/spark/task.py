"""What a task of an inspection does: reads a range, splits it, counts, and gives the counts."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from drainer.errors import Refused, SplitFailed
from drainer.insight.splitting import split_one
from drainer.insight.statistics.contents import MessageTotals, message_key_text
from drainer.insight.statistics.kind import kinds_of
from drainer.insight.statistics.skew import SplitTotals, key_text
from drainer.insight.statistics.tally import Named, Tally
from drainer.kafka.record import KafkaMessage
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import read_range
from drainer.loader import LoadedHandler
from drainer.message import Barrier, Message, SubMessage
from drainer.policy.rules.rule_filter import RuleFilter, limit_text
from drainer.policy.rules.settings import RuleSettings
from drainer.spark.failure import carrying
from drainer.spark.options import placed
from drainer.spark.ranges import OffsetRange
from drainer.spark.shipping import Shipped

# What is counted. PART is none of it: those rows have what can't be counted by name.
MESSAGE_KEYS, SUB_KEYS, KINDS, RULES, PASSED, PART = (
    "message key", "sub-key", "kind", "rule", "passed", "part",
)  # fmt: skip
COLUMNS = "what string, name string, same string, count bigint, part binary"
_SCHEMA = pa.schema(
    [
        ("what", pa.string()),
        ("name", pa.string()),
        ("same", pa.string()),
        ("count", pa.int64()),
        ("part", pa.binary()),
    ]
)
ROWS = 10_000  # of a batch

Place = tuple[int, int]  # partition and offset


@dataclass(frozen=True, slots=True)
class Connection:
    """How tasks connect, as it was typed: the file is read where they run.

    ``properties`` are ``name=value``. Neither is shown by ``repr``.
    """

    bootstrap_servers: str | None
    client_config: str | None = None
    properties: tuple[str, ...] = field(default=(), repr=False)

    def settings(self) -> ClientSettings:
        """Raises UsageError when the file is not there, or librdkafka rejects what it says."""
        file: Path | None = None if self.client_config is None else placed(self.client_config)
        return ClientSettings.load(self.bootstrap_servers, file, self.properties)


@dataclass(slots=True)
class SurveyPart:
    """What a task found beside what it counts by name; several make one.

    Attributes:
        messages: of all.
        splits: of those that were split.
        messages_of, bytes_of: by partition.
        read_s, split_s: how long that took the task.
        failed: messages that ``split`` did not take.
        first: of those the one with the lowest place: its error's text and hint.
        undecided: how many sub-messages a rule could not be told of, by its name.
        why: the first reason of each of these rules.
    """

    messages: MessageTotals = field(default_factory=MessageTotals)
    splits: SplitTotals = field(default_factory=SplitTotals)
    messages_of: Counter[int] = field(default_factory=Counter)
    bytes_of: Counter[int] = field(default_factory=Counter)
    read_s: float = 0.0
    split_s: float = 0.0
    failed: int = 0
    first: tuple[Place, str, str | None] | None = None
    undecided: Counter[str] = field(default_factory=Counter)
    why: dict[str, tuple[Place, str]] = field(default_factory=dict)

    def merge(self, other: SurveyPart) -> None:
        """What the other found is in this one from now on."""
        self.messages.merge(other.messages)
        self.splits.merge(other.splits)
        self.messages_of.update(other.messages_of)
        self.bytes_of.update(other.bytes_of)
        self.read_s += other.read_s
        self.split_s += other.split_s
        self.failed += other.failed
        if other.first is not None and (self.first is None or other.first[0] < self.first[0]):
            self.first = other.first
        self.undecided.update(other.undecided)
        for name, reason in other.why.items():
            self.why[name] = min(self.why.get(name, reason), reason)


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """A look at a backlog, cut into ranges; it is sent to the tasks, each of which does one.

    Attributes:
        ranges: what to read; a task's input is the number of one.
        connection: how.
        handler: how a task finds it; None without one.
        rules: what would be left out.
        reader: the name of a group that the broker sees; nobody is in it.
    """

    ranges: tuple[OffsetRange, ...]
    connection: Connection
    handler: Shipped | None
    rules: RuleSettings
    reader: str

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of ``COLUMNS``: counts by name, and at the end of each range what else was found.

        Raises ``Carried``, as to be told through Spark.
        """
        with carrying():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from self._survey(self.ranges[number])

    def _survey(self, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
        handler = None if self.handler is None else self.handler.load()
        splitting = None if handler is None else _Splitting(handler, self.rules)
        part = SurveyPart()
        keys = Tally(message_key_text)
        settings = self.connection.settings()
        number, begun_s = range_.origin.partition, time.perf_counter()
        stream = read_range(settings, range_.origin, range_.start, range_.end, reader=self.reader)
        for batch in stream:
            # A batch knows the sizes of its records by some of them, and here they are told.
            messages = [KafkaMessage(batch.origin, r, len(r.key() or b"")) for r in batch.records]
            keys.add([message.key for message in messages])
            part.messages.take(messages)
            if keys.full:
                yield from _rows(MESSAGE_KEYS, keys.give())
            if splitting is not None:
                splitting.take(messages, part)
                yield from splitting.rows(all_=False)
        part.read_s = time.perf_counter() - begun_s - part.split_s
        part.messages_of[number] = part.messages.messages
        part.bytes_of[number] = part.messages.bytes
        yield from _rows(MESSAGE_KEYS, keys.give())
        if splitting is not None:
            yield from splitting.rows(all_=True)
            splitting.note(part, (number, range_.start))
        yield part_row(part, f"{number}/{range_.start}")


class _Splitting:
    """Splits messages, and counts what that gives."""

    def __init__(self, handler: LoadedHandler, rules: RuleSettings) -> None:
        self._split = handler.split
        # What a limit leaves out shows when all that passed the others is counted together.
        self._limited = rules.limit_per_key is not None
        self._rule_filter = RuleFilter(replace(rules, limit_per_key=None)) if rules else None
        self._tallies = {
            SUB_KEYS: Tally(key_text), KINDS: Tally(str), RULES: Tally(str), PASSED: Tally(str),
        }  # fmt: skip

    def take(self, messages: Sequence[Message], part: SurveyPart) -> None:
        begun_s = time.perf_counter()
        for message in messages:
            try:
                subs = split_one(self._split, message)
                keys = part.splits.take(message, subs)
            except SplitFailed as error:
                part.failed += 1
                if part.first is None:
                    place = (message.partition, message.offset)
                    part.first = (place, str(error), error.hint)
                continue
            self._tallies[SUB_KEYS].add(keys)
            self._tallies[KINDS].add(kinds_of(message, subs))
            if self._rule_filter is not None:
                self._ask(self._rule_filter, subs)
        part.split_s += time.perf_counter() - begun_s

    def _ask(self, rule_filter: RuleFilter, subs: Sequence[SubMessage]) -> None:
        names = list(map(rule_filter.skips, subs))
        self._tallies[RULES].add(filter(None, names))
        if self._limited:
            left = (sub for sub, name in zip(subs, names, strict=True) if name is None)
            passed = [_only_key(sub) for sub in left if not isinstance(sub, Barrier)]
            self._tallies[PASSED].add(map(limit_text, passed))

    def rows(self, *, all_: bool) -> Iterator[pa.RecordBatch]:
        """The counts that are due; or all of them."""
        for what, tally in self._tallies.items():
            if all_ or tally.full:
                yield from _rows(what, tally.give())

    def note(self, part: SurveyPart, place: Place) -> None:
        """What rules could not be told of."""
        if self._rule_filter is not None:
            part.undecided.update(self._rule_filter.undecided)
            why = self._rule_filter.why_undecided
            part.why = {name: (place, reason) for name, reason in why.items()}


def _only_key(sub: SubMessage) -> object:
    if sub.keys is None:
        return sub.key
    if len(sub.keys) == 1:
        return sub.keys[0]
    raise Refused(
        f"{sub.message} has a sub-message with several sub-keys: what a limit per sub-key leaves"
        " out of such depends on their order, and tasks of Spark count apart",
        hint="leave the limit out, or say --engine process",
    )


def part_row(part: SurveyPart, name: str) -> pa.RecordBatch:
    """The row that has it."""
    body = pickle.dumps(part, pickle.HIGHEST_PROTOCOL)
    row = {"what": [PART], "name": [name], "same": [None], "count": [1], "part": [body]}
    return pa.RecordBatch.from_pydict(row, _SCHEMA)


def parts_of(batches: Iterable[pa.RecordBatch]) -> SurveyPart:
    """One of all that the column ``part``, which is the only one, has."""
    whole = SurveyPart()
    for batch in batches:
        for body in batch.column(0):
            whole.merge(pickle.loads(body.as_py()))
    return whole


def _rows(what: str, counts: Iterable[Named]) -> Iterator[pa.RecordBatch]:
    rows = list(counts)
    for begin in range(0, len(rows), ROWS):
        some = rows[begin : begin + ROWS]
        yield pa.RecordBatch.from_pydict(
            {
                "what": [what] * len(some),
                "name": [row.name for row in some],
                "same": [row.same for row in some],
                "count": [row.count for row in some],
                "part": [None] * len(some),
            },
            _SCHEMA,
        )
