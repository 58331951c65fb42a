"""A backlog drawn from a seed: logs with holes, what their messages split into, how the handler
will fare with each part, and what must have finished before each part may begin."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from random import Random

from core.messages import Place, sub_of
from drainer.message import Message, SubMessage
from fake_kafka import Log, Record

TOPIC, TOPIC_ID, GROUP = "orders", "0pBNPmLQTQ6kMBJIlPOBWg", "billing"
ORDERS = ["sub-key"] * 6 + ["key", "key", "partition", "none"]

LATER = Record(b"later", b"later")
Spec = tuple[str, ...]  # the sub-keys of a sub-message; none for a barrier


class Act(Enum):
    """Act of the handler at one attempt."""

    SUCCEED = "succeeds"
    FAIL = "fails"
    HANG = "takes too long"
    LATER = "requests a later call"
    SKIP = "skips"
    FATAL = "halts the drain"
    REJECT = "does not split"


FAILING = {Act.FAIL, Act.HANG}


@dataclass(frozen=True)
class Script:
    """Acts of the handler with one sub-message, attempt by attempt over all lives."""

    acts: tuple[Act, ...] = ()
    then: Act = Act.SUCCEED

    def act(self, attempt: int) -> Act:
        """The act of an attempt, counted from 1."""
        return self.acts[attempt - 1] if attempt <= len(self.acts) else self.then

    @property
    def failures(self) -> float:
        """Number of attempts that fail; infinity when all do."""
        return inf if self.then in FAILING else sum(act in FAILING for act in self.acts)


# Classes that a drain may take first, and which sub-messages these select, in another notation.
CLASSES: dict[str, Callable[[Place, Spec, bytes], bool]] = {
    "'a' in keys": lambda place, spec, key: "a" in spec,
    "key == 'b' or key == 'x'": lambda place, spec, key: spec in (("b",), ("x",)),
    "index == 0": lambda place, spec, key: place[2] == 0,
    "message.offset % 2 == 0": lambda place, spec, key: place[1] % 2 == 0,
    "message.key == 'y'": lambda place, spec, key: key == b"y",
    "message.partition >= 0": lambda place, spec, key: True,
}


class Backlog:
    """Backlog to be drained. ``committed`` is where the group stands before, None for nowhere."""

    def __init__(self, random: Random) -> None:
        self.order = random.choice(ORDERS)
        self.committed_only = random.random() < 0.85
        self.whole = random.random() < 0.15  # the handler has no split of its own
        self.keys = "abcdefgh"[: random.randint(1, 8)]
        self._bundle = random.choice([1, 3, 6])
        self._barriers = random.random() < 0.3 and not self.whole
        self._failing = random.choice([0, 0, 0.03, 0.15])
        self._skipped_keys = random.choice(["", "", "", "ax", "abc"])
        self._skips_barriers = self._barriers and random.random() < 0.3
        self.rules = self._rules()
        self.ruled_out: set[Place] = set()
        self.logs: dict[int, Log] = {}
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.committed: dict[int, int | None] = {}
        self.specs: dict[Place, Spec] = {}
        self.parts: dict[tuple[int, int], list[Place]] = {}  # by message
        self.lanes: dict[Place, tuple[Hashable, ...]] = {}
        self.before: dict[Place, list[Place]] = {}
        self.scripts: dict[Place, Script] = {}
        self.rejected: set[Place] = set()  # split raises at the only part of the message
        self.grown = False  # since the drain was planned
        self.follows = False  # the drain moves the end of the backlog with the log
        # Of each partition: up to where it is split, and what the next part will have before it.
        self._split_below: dict[int, int] = {}
        self._last: dict[int, dict[Hashable, Place]] = {}
        self._barrier: dict[int, list[Place]] = {}
        self._since: dict[int, list[Place]] = {}
        known = random.random() < 0.8
        for number in range(random.choice([1, 1, 2, 3])):
            self._add_partition(number, random, known)
        share = 0 if self.whole else random.choice([0, 0, 0, 0, 0.1, 0.4])
        for parts in self.parts.values():
            if random.random() < share and len(parts) == 1 and self.specs[parts[0]]:
                self.rejected |= set(parts) - self.ruled_out - self.scripts.keys()
        self.size_most = max(
            (len(r.value) + len(r.key) for log in self.logs.values() for r in log.records.values()),
            default=0,
        )

    def is_in(self, where: str, place: Place) -> bool:
        """Whether a sub-message is of a class; a barrier is of none."""
        spec, number = self.specs[place], place[0]
        key = self.logs[number].records[place[1]].key
        return bool(spec) and CLASSES[where](place, spec, key)

    def split(self, message: Message) -> Iterator[SubMessage]:
        for place in self.parts[message.partition, message.offset]:
            spec = self.specs[place]
            yield sub_of(spec[0] if len(spec) == 1 else spec or None)

    def add_later(self, number: int, random: Random) -> None:
        """Producers go on; what they write now is in the backlog only of a drain that follows."""
        self.grown = True
        log = self.logs[number]
        for _ in range(random.randint(1, 3)):
            if self.follows and random.random() < 0.2:
                log.append(None)  # a hole
            value = bytes(random.choice([4, 40]))
            log.append(Record(random.choice("xyz").encode(), value) if self.follows else LATER)
        log.stable = log.end
        if self.follows:
            self._split_all(number, random)

    def add_partition(self, random: Random) -> int:
        """The topic gets another partition, from which a drain that follows reads, too.

        Its first records may be deleted before the drain sees it.
        """
        number, first = len(self.logs), random.choice([0, 0, 3])
        self.logs[number] = Log(first, first, first)
        self.starts[number] = self.ends[number] = first
        self.committed[number] = None
        self._open(number)
        self.add_later(number, random)
        return number

    def end_at(self, ends: Mapping[int, int]) -> None:
        """The drain has ended: what lies behind these offsets came too late for it."""
        for number, offset in [at for at in self.parts if at[1] >= ends.get(at[0], 0)]:
            for place in self.parts.pop((number, offset)):
                del self.specs[place]
        self.ruled_out &= self.specs.keys()
        self.ends = dict(ends)

    def _add_partition(self, number: int, random: Random, known: bool) -> None:
        start = offset = random.randrange(100)
        log = Log(start, start, start)
        messages = random.randint(0, 14)
        at = random.choice([0, 0, random.randint(0, messages)]) if known else 0
        committed = start if known else None
        for index in range(messages):
            offset += random.choice([0, 0, 0, 1, 4])
            key = random.choice("xyz").encode()
            aborted = random.random() < 0.05
            log.records[offset] = Record(key, bytes(random.choice([4, 40, 400])), aborted)
            offset += 1
            if index + 1 == at:
                committed = offset
        log.stable = log.end = offset + random.choice([0, 0, 3])
        if messages and random.random() < 0.2:  # a transaction is still open at the end
            log.stable = random.randint(min(log.records), log.end)
            if committed is not None:
                committed = min(committed, log.stable)
        self.logs[number] = log
        self.committed[number] = committed
        first = self.starts[number] = start if committed is None else committed
        self.ends[number] = max(first, log.end_for(self.committed_only))
        self._open(number)
        self._split_to(self.ends[number], number, random)

    def _open(self, number: int) -> None:
        self._split_below[number] = self.starts[number]
        self._last[number], self._barrier[number], self._since[number] = {}, [], []

    def _split_all(self, number: int, random: Random) -> None:
        self.ends[number] = max(self.ends[number], self.logs[number].end_for(self.committed_only))
        self._split_to(self.ends[number], number, random)

    def _split_to(self, end: int, number: int, random: Random) -> None:
        last, barrier, since = self._last[number], self._barrier[number], self._since[number]
        log, begin = self.logs[number], self._split_below[number]
        self._split_below[number] = end
        for offset in range(begin, end):
            if not log.shown(offset, self.committed_only):
                continue
            key = log.records[offset].key
            parts = self.parts[number, offset] = []
            for index, spec in enumerate(self._specs(key, random)):
                place = (number, offset, index)
                parts.append(place)
                self.specs[place] = spec
                if self._is_ruled_out(spec):
                    self.ruled_out.add(place)
                    self.lanes[place], self.before[place] = (), []
                    continue
                lanes = self.lanes[place] = self._lanes_of(place, spec, key) if spec else ()
                if random.random() < self._failing:
                    self.scripts[place] = _script(random)
                if spec:
                    self.before[place] = [last[lane] for lane in lanes if lane in last] + barrier
                    last.update(dict.fromkeys(lanes, place))
                    since.append(place)
                else:
                    self.before[place] = since + barrier
                    barrier, since = [place], []
        self._barrier[number], self._since[number] = barrier, since

    def _rules(self) -> tuple[str, ...]:
        rules = []
        if self._skipped_keys:
            rules.append(f"sub_key in {sorted(self._skipped_keys)}")
        if self._skips_barriers:
            rules.append("barrier")
        return tuple(rules)

    def _is_ruled_out(self, spec: Spec) -> bool:
        if not spec:
            return self._skips_barriers
        # A rule that names one sub-key has no answer for a sub-message of several.
        return len(spec) == 1 and spec[0] in self._skipped_keys

    def _specs(self, key: bytes, random: Random) -> list[Spec]:
        if self.whole:
            return [(key.decode(),)]
        specs: list[Spec] = []
        for _ in range(random.randint(0, self._bundle)):
            if self._barriers and random.random() < 0.05:
                specs.append(())
            else:
                width = min(len(self.keys), random.choice([1, 1, 1, 1, 2, 3]))
                specs.append(tuple(random.sample(self.keys, width)))
        return specs

    def _lanes_of(self, place: Place, spec: Spec, key: bytes) -> tuple[Hashable, ...]:
        match self.order:
            case "sub-key":
                return spec
            case "key":
                return (key,)
            case "partition":
                return (place[0],)
        return ()


def _script(random: Random) -> Script:
    kind = random.choice(["fails", "fails", "mixed", "poison", "skips"])
    if kind == "poison":
        return Script(then=Act.FAIL)
    if kind == "skips":
        return Script((Act.FAIL,) * random.randint(0, 1), then=Act.SKIP)
    if kind == "fails":
        return Script((Act.FAIL,) * random.randint(1, 3))
    few = [Act.FAIL, Act.HANG, Act.LATER, Act.LATER, Act.FATAL]
    return Script(tuple(random.choices(few, k=random.randint(1, 3))))
