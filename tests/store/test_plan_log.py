"""Who owns a plan in a topic, and what the plan is, by the records of the log alone.

The adversaries are compaction, which may remove any record that has a later one of its key, at any
moment; other processes between any two requests; and death at any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random, randrange
from typing import Any

import pytest
from greenlet import GreenletExit, getcurrent, greenlet
from hypothesis import given
from hypothesis import strategies as st

from builders import a_plan, changed, counts, progress_at
from drainer.core.merge import Record
from drainer.errors import LockLost, PlanNotWritten, PlanRefused
from drainer.model.claims import ALL
from drainer.model.formats import PLAN_TOPIC
from drainer.model.plan import OffsetPlan
from drainer.model.ranges import join_ranges
from drainer.store import plan_log, plan_topic
from drainer.store.plan_log import Bid, KeyedRecord, Owner, PlanLog
from drainer.store.plan_topic import TopicPlan

NAME = "orders.indexer"
BID = Bid(str(PLAN_TOPIC), "ana@db1", "2026-01-01T18:00:00.000+00:00")
RUNS = 90
PROCESSES = 4
STEPS = 400
ROOM = 100  # Offsets of each process.
PLAN = a_plan(ROOM * 500)
PLAN_DRAIN = PLAN.terms.drain_id


def folded(records: Sequence[KeyedRecord]) -> PlanLog:
    log = PlanLog(NAME)
    for record in records:
        log.take(record)
    return log


def known(log: PlanLog) -> tuple[Any, ...]:
    """All that a process learns of a plan from its log."""
    snapshot = log.snapshot
    journals = snapshot and log.journals(snapshot.owner)
    return snapshot, log.epoch, log.winner(log.epoch), journals


def superseded(records: Sequence[KeyedRecord]) -> Iterator[int]:
    """Places of records that compaction may remove now.

    A tombstone goes last: once it is the only record of its key.
    """
    last: dict[bytes, int] = {record.key: place for place, record in enumerate(records)}
    count: dict[bytes, int] = {}
    for record in records:
        count[record.key] = count.get(record.key, 0) + 1
    for place, (key, value) in enumerate(records):
        if last[key] != place or (value is None and count[key] == 1):
            yield place


# The fold as a pure function.


@dataclass
class Writer:
    """A process that writes as its own records allow: one bid, and plans into slots by turns."""

    owner: Owner
    writes: int = 0
    has_bid: bool = False
    queue: list[KeyedRecord] = field(default_factory=list)

    def next(self, chance: Random, seen: PlanLog) -> KeyedRecord:
        if not self.has_bid:
            self.has_bid = True
            return seen.bidding(self.owner, BID)
        if not self.queue:
            match chance.randrange(4):
                case 0:
                    number = self.writes, chance.randrange(1, 4)
                    self.queue = [seen.piece(self.owner, *number, chance.randbytes(3))]
                case 1 if self.writes:
                    self.queue = list(seen.tombstones(self.owner, self.writes))
            if not self.queue:
                self.writes += 1
                data = chance.randbytes(chance.randrange(1, 9))
                self.queue = list(seen.parts(self.owner, self.writes, data))
        return self.queue.pop(0)


@given(seed=st.integers(0, 2**63), length=st.integers(1, 60))
def test_compaction_changes_neither_the_owner_nor_the_plan(seed: int, length: int) -> None:
    chance = Random(seed)
    # Several processes bid with one epoch, and several epochs are at work at once.
    writers = [Writer(Owner(epoch, f"{epoch}{letter}")) for epoch in (1, 2, 3) for letter in "ab"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plan_log, "PART_BYTES", 3)
        full = PlanLog(NAME)
        records: list[KeyedRecord] = []
        left: list[KeyedRecord] = []
        for _ in range(length):
            record = chance.choice(writers).next(chance, full)
            full.take(record)
            records.append(record)
            left.append(record)
            while chance.random() < 0.6 and (places := [*superseded(left)]):
                del left[chance.choice(places)]
            assert known(folded(left)) == known(full)
        # Who reads while records vanish learns the same once it has read to the end. Tombstones
        # stay for a day (delete.retention.ms), which is longer than a read takes.
        behind, at = PlanLog(NAME), chance.randrange(len(records))
        for record in records[:at]:
            behind.take(record)
        still = {id(record) for record in left}
        for record in records[at:]:
            if record.value is None or id(record) in still:
                behind.take(record)
        assert known(behind) == known(full)


@given(key=st.binary(max_size=40) | st.text(max_size=40).map(str.encode), value=st.binary())
def test_what_drainer_did_not_write_is_ignored(key: bytes, value: bytes) -> None:
    own = Owner(1, "a")
    log = PlanLog(NAME)
    records = [log.bidding(own, BID), *log.parts(own, 1, b"plan"), KeyedRecord(key, value)]
    records += [KeyedRecord(f"{NAME}/{rest}".encode(), value) for rest in ("", "1", "1/a/other")]
    records += [KeyedRecord(f"{NAME}/2/{rest}".encode(), value) for rest in ("b/plan/0/0",)]
    records.append(KeyedRecord(f"{NAME}/{5000 * '9'}/a/bid".encode(), value))
    assert folded(records).snapshot == (own, 1, b"plan")


def test_a_bid_of_a_newer_version_is_refused_by_name() -> None:
    log = PlanLog(NAME)
    bid = Bid("drainer-plan-topic/99", BID.by, BID.at)
    with pytest.raises(PlanRefused, match="plan topic format 99 is newer"):
        log.take(log.bidding(Owner(1, "a"), bid))


# The protocol: processes that write plans as drains do, switched at each request.


class World:
    """A topic, and processes that use it. One of them runs at a time, up to its next request."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.log: list[KeyedRecord | None] = []  # None is a record that compaction has removed.
        self.processes: list[Process] = []
        self.kept: set[int] = set()  # Offsets whose progress must never be lost.
        self.facts: set[int] = set()  # Offsets that some process has finished.
        self.hub = getcurrent()
        self.favourite: Process | None = None
        self.owners: dict[int, Process] = {}  # Who has passed the check of its bid, by epoch.

    def compact(self) -> None:
        left = [(at, record) for at, record in enumerate(self.log) if record is not None]
        places = [*superseded([record for _, record in left])]
        for place in self.chance.sample(places, self.chance.randint(0, len(places))):
            at, record = left[place]
            if record.value is not None:  # Tombstones stay for a day, longer than a read takes.
                self.log[at] = None

    def epoch(self) -> int:
        """The highest epoch of all bids, by all that was ever written."""
        return max((each.epoch for each in self.processes), default=0)

    def step(self) -> None:
        for _ in range(self.chance.choice([0, 0, 1, 3])):
            self.compact()
        living = [each for each in self.processes if not each.dead]
        while len(living) < PROCESSES:
            self.processes.append(Process(self, len(self.processes)))
            living.append(self.processes[-1])
        # Mostly one process runs, as when the others are suspended, or slow.
        if self.chance.random() < 0.02 or self.favourite not in living:
            self.favourite = self.chance.choice(living)
        each = self.favourite
        if self.chance.random() < 0.1:
            each = self.chance.choice(self.processes)
        if each.outbox and self.chance.random() < 0.5:
            each.deliver()
        elif not each.dead:
            each.switch()


class Process:
    """A process that loads the plan, and works by it until it is refused, loses it or dies."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.outbox: list[tuple[KeyedRecord, Future[None], set[int]]] = []
        self.done: list[int] = []
        self.epoch = 0
        self.dead = False
        self.plan = TopicPlan(f"kafka://plans/{NAME}", self)  # type: ignore[arg-type]
        self.greenlet = greenlet(self.run)

    def switch(self) -> None:
        self.greenlet.switch()
        self.dead = self.dead or self.greenlet.dead

    def kill(self) -> None:
        """Die now. What was sent may still arrive, up to some record."""
        self.dead = True
        del self.outbox[self.world.chance.randint(0, len(self.outbox)) :]
        self.greenlet.throw(GreenletExit)

    def deliver(self) -> None:
        record, written, facts = self.outbox.pop(0)
        self.world.log.append(record)
        kind = record.key.split(b"/")[3]
        epoch = int(record.key.split(b"/")[1])
        if kind == b"bid":
            self.epoch = max(self.epoch, epoch)
        if kind == b"journal" and record.value is not None and epoch == self.world.epoch():
            self.world.kept |= facts
        written.set_result(None)

    def run(self) -> None:
        try:
            if self.plan.exists:
                loaded = self.plan.load()
                account, generation = loaded.plan, loaded.last_generation + 2
                check(self.world, finished(account))
            else:
                account, generation = PLAN, 1
            self.drain(account, generation)
        except (PlanRefused, LockLost):
            pass

    def drain(self, plan: OffsetPlan, generation: int) -> None:
        self.write(plan, generation)
        own = self.plan._own  # noqa: SLF001
        assert own is not None
        assert self.world.owners.setdefault(own.epoch, self) is self, "one owner of an epoch"
        self.plan.start_journal(PLAN_DRAIN, generation)
        before = finished(plan)
        while True:
            for _ in range(self.world.chance.randrange(4)):
                self.handle()
            generation += 1
            self.plan.start_journal(PLAN_DRAIN, generation)
            self.write(with_finished(before | set(self.done)), generation)

    def handle(self) -> None:
        """Finish the next offset of this process. It comes after all that the process finished."""
        offset = self.number * ROOM + len(self.done)
        self.done.append(offset)
        self.world.facts.add(offset)
        changes = {0: progress_of({offset}, len(self.done))}
        self.plan.append(Record(changes))

    def write(self, plan: OffsetPlan, generation: int) -> None:
        self.plan.write(changed(plan, generation=generation))
        self.world.kept |= finished(plan)


class Topic:
    """What stands for ``CompactedTopic``: each request lets other processes run before it."""

    trouble = None

    def __init__(self, process: Process, name: str) -> None:
        self.process, self.name = process, name
        self.next = 0

    def read_on(self) -> Iterator[tuple[bytes, bytes | None]]:
        world = self.process.world
        world.hub.switch()
        end = len(world.log)
        while self.next < end:
            if world.chance.random() < 0.3:
                world.hub.switch()
            record, self.next = world.log[self.next], self.next + 1
            if record is not None:
                yield record

    def send(self, key: bytes, value: bytes | None) -> Future[None]:
        written, facts = Future[None](), set(self.process.done)
        self.process.outbox.append((KeyedRecord(key, value), written, facts))
        if getcurrent() is not self.process.world.hub:
            self.process.world.hub.switch()
        return written

    def write(self, records: Sequence[KeyedRecord]) -> None:
        for written in [self.send(*record) for record in records]:
            while not written.done():
                self.process.world.hub.switch()

    def close(self) -> None: ...


def progress_of(offsets: set[int], total: int) -> Any:
    done = counts(done=total)
    ranges = join_ranges((offset, offset + 1) for offset in offsets)
    return progress_at(0, finished=ranges, messages=done, sub_messages=done)


def with_finished(offsets: set[int]) -> OffsetPlan:
    return changed(PLAN, claims={ALL: {0: progress_of(offsets, len(offsets))}})


def finished(plan: OffsetPlan) -> set[int]:
    progress = plan.account.claims[ALL][0]
    above = (offset for start, end in progress.finished for offset in range(start, end))
    return {*range(progress.watermark), *above}


def check(world: World, found: set[int]) -> None:
    """Ensure that nothing was made up, and that each process's progress has no gap."""
    assert found <= world.facts
    for number in {offset // ROOM for offset in found}:
        own = sorted(offset for offset in found if offset // ROOM == number)
        assert own == list(range(number * ROOM, number * ROOM + len(own))), "a record came alone"


@pytest.mark.parametrize("part", range(3))
def test_whoever_runs_and_dies_what_was_acknowledged_is_never_lost(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_topic, "CompactedTopic", Topic)
    monkeypatch.setattr(plan_log, "PART_BYTES", 1000)
    wins = takeovers = 0
    for _ in range(RUNS // 3):
        seed = randrange(2**32)
        print(f"seed {seed}")
        world = played(seed)
        wins += len(world.owners)
        takeovers += len(world.owners) > 1
    assert wins > RUNS // 3, "most runs have owners"
    assert takeovers > RUNS // 10, "and many of them several"


def played(seed: int) -> World:
    """Let processes work, and then look at the plan as the next one finds it."""
    chance = Random(seed)
    world = World(chance)
    for _ in range(STEPS):
        world.step()
        victim = chance.choice(world.processes)
        if chance.random() < 0.01 and not victim.dead:
            victim.kill()
    for each in world.processes:
        if not each.dead:
            each.kill()
        while each.outbox:
            each.deliver()
    found: list[set[int]] = []

    def look() -> None:
        if not last.plan.exists:
            found.append(set())
            return
        loaded = last.plan.load()
        assert not loaded.torn
        found.append(finished(loaded.plan))

    last = Process(world, len(world.processes))
    last.greenlet = greenlet(look)
    world.processes = [last]
    while not last.dead:
        world.compact()
        last.switch()
    check(world, found[0])
    assert world.kept <= found[0], f"lost with seed {seed}"
    return world


# Requests that fail, and a process that goes on.


class FailingTopic:
    """What stands for ``CompactedTopic``: it takes ``left`` more records, and then none.

    If it ``is_mute``, it takes records and does not say so.
    """

    trouble = None
    is_mute = False

    def __init__(self, log: list[KeyedRecord], name: str) -> None:
        self.log, self.name, self.left, self.next = log, name, 100, 0

    def read_on(self) -> Iterator[tuple[bytes, bytes | None]]:
        new, self.next = self.log[self.next :], len(self.log)
        yield from new

    def send(self, key: bytes, value: bytes | None, on_written: Any) -> None:
        self.write([(key, value)])

    def write(self, records: Any) -> None:
        for key, value in records:
            if not self.left:
                raise PlanNotWritten("the broker does not answer")
            self.left -= 1
            self.log.append(KeyedRecord(key, value))
            if self.is_mute:
                raise PlanNotWritten("the broker does not answer")

    def close(self) -> None: ...


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> tuple[TopicPlan, FailingTopic, list[KeyedRecord]]:
    monkeypatch.setattr(plan_topic, "CompactedTopic", FailingTopic)
    monkeypatch.setattr(plan_log, "PART_BYTES", 500)
    log: list[KeyedRecord] = []
    plan = TopicPlan(f"kafka://plans/{NAME}", log)  # type: ignore[arg-type]
    topic: Any = plan._topic  # noqa: SLF001
    return plan, topic, log


def test_writes_that_fail_one_after_the_other_leave_the_last_plan(
    failing: tuple[TopicPlan, FailingTopic, list[KeyedRecord]],
) -> None:
    plan, topic, log = failing
    plan.write(changed(PLAN, generation=1))
    plan.write(whole := changed(PLAN, generation=2))
    for generation in (3, 4, 5):
        topic.left = 1  # The first part of several arrives.
        with pytest.raises(PlanNotWritten):
            plan.write(changed(PLAN, generation=generation))
        found = folded(log).snapshot
        assert found is not None, "the plan of the last complete write is still there"
        assert found.data == whole.encode()
    topic.left = 100
    plan.write(last := changed(PLAN, generation=6))
    found = folded(log).snapshot
    assert found is not None
    assert found.data == last.encode()


def test_a_bid_without_an_answer_is_not_written_again(
    failing: tuple[TopicPlan, FailingTopic, list[KeyedRecord]],
) -> None:
    former, _, log = failing
    former.write(PLAN)
    plan = TopicPlan(f"kafka://plans/{NAME}", log)  # type: ignore[arg-type]
    plan.load()
    topic: Any = plan._topic  # noqa: SLF001
    topic.is_mute = True
    with pytest.raises(PlanNotWritten):
        plan.write(PLAN)
    topic.is_mute = False
    with pytest.raises(PlanRefused):  # Its first bid may be somebody else's, for all it knows.
        plan.write(PLAN)
    bids = [record.key for record in log if record.key.endswith(b"/bid")]
    assert len({*bids}) == len(bids), "compaction would move a bid behind later ones"
