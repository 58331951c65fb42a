"""A drain in virtual time, killed again and again: the real dispatcher, the real plan and journal
files, and made up: the clock, the workers, the group, the backlog.

There is no thread and no event loop; each event is one step, after which every law is checked. All
of it follows from the seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from random import Random

from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.core.plan import ALL, OffsetPlan, PartitionPlan
from drainer.core.progress import Outcome, Progress
from drainer.message import Barrier, Message, Origin, SubMessage
from drainer.operations.start import resumed
from drainer.store.plan_file import PlanFile

JOURNAL_MS = 50
PLAN_MS = 1000
STEPS_MOST = 50_000  # a drain that takes more goes round in circles

Place = tuple[int, int, int]  # partition, offset, index
Spec = tuple[str, ...]  # the sub-keys of a sub-message; none for a barrier

OUTCOMES = [Outcome.DONE] * 30 + [Outcome.DEAD, Outcome.SKIPPED]


@dataclass(frozen=True)
class Log:
    start: int
    end: int
    records: dict[int, tuple[Spec, ...]]


class Backlog:
    """Some logs, and what must have finished before each sub-message of them may begin."""

    def __init__(self, random: Random) -> None:
        keys = "abcdefgh"[: random.randint(1, 8)]
        bundle = random.choice([1, 3, 6])
        self.logs = {
            number: self._log(random, keys, bundle) for number in range(random.randint(1, 3))
        }
        self.before: dict[Place, list[Place]] = {}
        self.specs: dict[Place, Spec] = {}
        for number, log in self.logs.items():
            last: dict[str, Place] = {}
            barrier: list[Place] = []
            since_barrier: list[Place] = []
            for offset, specs in log.records.items():
                for index, spec in enumerate(specs):
                    place = (number, offset, index)
                    self.specs[place] = spec
                    if spec:
                        self.before[place] = [last[key] for key in spec if key in last] + barrier
                        last.update(dict.fromkeys(spec, place))
                        since_barrier.append(place)
                    else:
                        self.before[place] = since_barrier + barrier
                        barrier, since_barrier = [place], []

    @staticmethod
    def _log(random: Random, keys: str, bundle: int) -> Log:
        start = offset = random.randrange(100)
        records: dict[int, tuple[Spec, ...]] = {}
        with_barriers = random.random() < 0.3
        for _ in range(random.randint(0, 14)):
            offset += random.choice([0, 0, 0, 1, 4])
            specs: list[Spec] = []
            for _ in range(random.randint(0, bundle)):
                if with_barriers and random.random() < 0.05:
                    specs.append(())
                else:
                    width = min(len(keys), random.choice([1, 1, 1, 1, 2, 3]))
                    specs.append(tuple(random.sample(keys, width)))
            records[offset] = tuple(specs)
            offset += 1
        return Log(start, offset + random.choice([0, 0, 3]), records)

    def split(self, message: Message) -> list[SubMessage]:
        specs = self.logs[message.partition].records[message.offset]
        return [
            SubMessage(spec[0]) if len(spec) == 1 else SubMessage(keys=spec) if spec else Barrier()
            for spec in specs
        ]


@dataclass
class Known:
    """What is finished: of sub-messages and how, and of messages."""

    subs: dict[Place, Outcome] = field(default_factory=dict)
    messages: set[tuple[int, int]] = field(default_factory=set)

    def copy(self) -> Known:
        return Known(dict(self.subs), set(self.messages))


class Killed(Exception):
    """The process is gone; the files stay as they are."""


class VirtualDrain:
    """One backlog from the first plan to the end, over as many lives as it takes."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random = Random(seed)
        self.backlog = Backlog(random)
        self.file = PlanFile(folder / f"{seed}.plan.json")
        self.concurrency = random.choice([1, 2, 3, 5, 8])
        self.room = random.choice([3_000, 10_000, 1_000_000])
        self.latency_ms = random.choice([5, 60, 200, 600])
        self.lost_answers = random.choice([0, 0, 0.3, 0.8])
        self.lives_left = random.randint(1, 6)
        self.kept = Known()  # what the files say: the state at the last whole record
        self.group: dict[int, int | None] = dict.fromkeys(self.backlog.logs)
        self.begun: Counter[Place] = Counter()
        self.repeats_allowed = 0
        self.last_in_lane: dict[tuple[int, str], Place] = {}
        self.crashes = self.torn = 0

    def run(self) -> None:
        """Drains to the end. Raises AssertionError when a law is broken."""
        while True:
            life = Life(self, self._next_plan())
            try:
                life.live()
            except Killed:
                self.crashes += 1
                continue
            break
        self._check_end()

    def _next_plan(self) -> OffsetPlan:
        if not self.file.path.exists():
            plan = new_plan(self.backlog)
        else:
            loaded = self.file.load()
            assert loaded == self.file.load(), "reading changes nothing"
            assert finished_by(loaded.plan, self.backlog) == set(self.kept.subs)
            self._check_counts_of(loaded.plan)
            for number, part in loaded.plan.partitions.items():
                found = self.group[number]
                highest = loaded.written.watermark(number)
                assert found == part.committed or (
                    found is not None and (part.committed or 0) <= found <= highest
                ), f"a resume would refuse partition {number}: the group is at {found}"
            partitions = {
                n: replace(part, committed=self.group[n])
                for n, part in loaded.plan.partitions.items()
            }
            plan = resumed(replace(loaded.plan, partitions=partitions))
        self.file.write(plan)
        return plan

    def _check_counts_of(self, plan: OffsetPlan) -> None:
        messages, subs = plan.counts()
        assert messages.conserved
        assert subs.conserved
        assert messages.finished == len(self.kept.messages)
        outcomes = Counter(self.kept.subs.values())
        assert (subs.done, subs.dead, subs.skipped) == tuple(outcomes[o] for o in Outcome)

    def _check_end(self) -> None:
        assert set(self.begun) == set(self.backlog.specs), "something was never handled"
        assert sum(self.begun.values()) - len(self.begun) <= self.repeats_allowed
        plan = self.file.load().plan
        assert plan.complete
        assert finished_by(plan, self.backlog) == set(self.backlog.specs)
        messages, subs = plan.counts()
        assert (messages.pending, subs.pending) == (0, 0)
        assert messages.read == sum(len(log.records) for log in self.backlog.logs.values())
        assert subs.read == len(self.backlog.specs)
        assert self.group == {n: log.end for n, log in self.backlog.logs.items()}
        assert {n: part.committed for n, part in plan.partitions.items()} == self.group
        left = [
            p.name
            for p in self.file.path.parent.iterdir()
            if p.name.startswith(self.file.path.name)
        ]
        assert left == [self.file.path.name], "a journal was left behind"


class Life:
    """One process: from a plan until it is killed or done."""

    def __init__(self, drain: VirtualDrain, plan: OffsetPlan) -> None:
        self.drain = drain
        self.random = drain.random
        self.backlog = drain.backlog
        self.plan = plan
        self.known = drain.kept.copy()
        claim = plan.claims[ALL]
        self.ledgers = {
            n: Ledger(part.start, part.end, claim[n]) for n, part in plan.partitions.items()
        }
        self.dispatcher = Dispatcher(self.ledgers)
        self.now = 0.0
        self.steps = 0
        self.noted_at = 0.0
        self.finished_at: dict[Place, float] = {}
        self.running: dict[Place, SubMessage] = {}
        self.running_lanes: set[str] = set()
        self.lanes_of_this_life: set[tuple[int, str]] = set()
        self.delivered: set[tuple[int, int]] = set()
        self.watermarks = {n: ledger.watermark for n, ledger in self.ledgers.items()}
        self.doubt: dict[int, set[int]] = {n: set() for n in self.ledgers}
        self.unfetched = {
            n: [o for o in self.backlog.logs[n].records if o >= ledger.watermark]
            for n, ledger in self.ledgers.items()
        }
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.ties = count()
        self.under_way: Callable[[], None] | None = None
        self.dies_at: int | None = None
        self.dies = self.random.choice(["anywhere", "at a journal record", "at a plan"])
        if drain.lives_left > 0:
            drain.lives_left -= 1
            self.dies_at = int(self.random.expovariate(1 / 60)) + 1

    def live(self) -> None:
        """Returns when everything is finished. Raises Killed."""
        self.drain.file.start_journal(self.plan.drain_id, self.plan.generation)
        self.after(0, self.fetch)
        self.after(JOURNAL_MS, self.journal)
        self.after(PLAN_MS, self.save)
        self.check_laws()
        while not self.dispatcher.complete:
            self.now, _, event = heappop(self.events)
            self.step(event)
            while len(self.running) < self.drain.concurrency:
                sub = self.dispatcher.take()
                if sub is None:
                    break
                self.begin(sub)
            self.check_laws()
        assert not self.running
        self.finish()

    def step(self, event: Callable[[], None]) -> None:
        self.steps += 1
        assert self.steps < STEPS_MOST, "it does not end"
        event()
        if self.dying("anywhere"):
            self.die()

    def dying(self, where: str) -> bool:
        return self.dies_at is not None and self.steps >= self.dies_at and self.dies == where

    def die(self) -> None:
        drain = self.drain
        drain.file.release()
        recent = [place for place in self.known.subs if place not in drain.kept.subs]
        for place in recent:
            assert self.now - self.finished_at[place] <= JOURNAL_MS, "older than the last record"
        assert set(drain.kept.subs) <= set(self.known.subs), "the files claim too much"
        drain.repeats_allowed += len(self.running) + len(recent)
        raise Killed

    def after(self, ms: float, event: Callable[[], None]) -> None:
        heappush(self.events, (self.now + ms, next(self.ties), event))

    # What happens.

    def fetch(self) -> None:
        waiting = [n for n, ledger in self.ledgers.items() if not ledger.delivered]
        if not waiting:
            return
        self.after(self.random.choice([1, 5, 30]), self.fetch)
        if self.dispatcher.pending_bytes >= self.drain.room:
            return
        number = self.random.choice(waiting)
        log, offsets = self.backlog.logs[number], self.unfetched[number]
        position = log.start
        for offset in offsets[: self.random.randint(1, 8)]:
            message = Message(Origin("orders", "topic-id", number), offset, b"key", b"value")
            wanted = self.dispatcher.wants(message)
            assert wanted == ((number, offset) not in self.known.messages)
            if wanted:
                self.dispatcher.deliver(message, self.backlog.split(message))
                self.delivered.add((number, offset))
                if all(place in self.known.subs for place in self.places_at(number, offset)):
                    self.known.messages.add((number, offset))
            offsets.remove(offset)
            position = offset + 1
        if not offsets and self.random.random() < 0.7:
            position = log.end
        self.dispatcher.skip_to(number, position)

    def begin(self, sub: SubMessage) -> None:
        place = (sub.message.partition, sub.message.offset, sub.index)
        spec = self.backlog.specs[place]
        assert place not in self.known.subs, f"{place} is finished"
        assert place not in self.running, f"{place} runs already"
        for before in self.backlog.before[place]:
            assert before in self.known.subs, f"{place} began before {before} had finished"
        assert self.running_lanes.isdisjoint(spec), f"{place} shares a lane with what runs"
        if not spec:
            assert not [other for other in self.running if other[0] == place[0]]
        for key in spec:
            lane = (place[0], key)
            if lane in self.lanes_of_this_life:
                assert self.drain.last_in_lane[lane] < place, "went back within one life"
            self.lanes_of_this_life.add(lane)
            self.drain.last_in_lane[lane] = place
        self.drain.begun[place] += 1
        self.running[place] = sub
        self.running_lanes.update(spec)
        ms = self.random.expovariate(1 / self.drain.latency_ms)
        self.after(ms, lambda: self.end(place))

    def end(self, place: Place) -> None:
        sub = self.running.pop(place)
        self.running_lanes.difference_update(self.backlog.specs[place])
        outcome = self.random.choice(OUTCOMES)
        self.known.subs[place] = outcome
        self.finished_at[place] = self.now
        partition, offset, _ = place
        if all(other in self.known.subs for other in self.places_at(partition, offset)):
            self.known.messages.add((partition, offset))
        if outcome is not Outcome.DONE or self.random.random() < 0.2:
            self.dispatcher.finish(sub, outcome)
            return
        following = self.dispatcher.finish_and_take(sub)
        if following is not None:
            self.begin(following)

    def journal(self) -> None:
        self.after(JOURNAL_MS, self.journal)
        self.note()

    def note(self) -> None:
        """Appends what finished; a kill in the middle of it tears the record."""
        changes = self.dispatcher.changes()
        if changes:
            path = self.drain.file.path.with_name(
                f"{self.drain.file.path.name}.journal-{self.plan.generation}"
            )
            before = path.stat().st_size
            self.drain.file.append(changes)
            if self.dying("at a journal record"):
                with path.open("r+b") as stream:
                    stream.truncate(self.random.randrange(before, path.stat().st_size))
                self.drain.torn += 1
                self.die()
        self.keep()

    def keep(self) -> None:
        self.drain.kept = self.known.copy()

    def save(self) -> None:
        self.begin_save()
        self.go_on_with(self.write_and_commit, self.random.choice([1, 20, 120]))

    def go_on_with(self, event: Callable[[], None], ms: float) -> None:
        """The keeper's thread is at something, which is waited for even when the drain ends."""
        self.under_way = event

        def go_on() -> None:
            self.under_way = None
            event()

        self.after(ms, go_on)

    def write_and_commit(self) -> None:
        self.write_plan()
        self.after(self.random.choice([1, 40]), self.commit)

    def begin_save(self) -> None:
        self.note()
        claim = self.dispatcher.progress()
        self.plan = replace(self.plan, generation=self.plan.generation + 1, claims={ALL: claim})
        self.drain.file.start_journal(self.plan.drain_id, self.plan.generation)

    def write_plan(self) -> None:
        """Writes the plan; a kill in the middle leaves the old one, or the folded journals."""
        file = self.drain.file
        half_way = ""
        if self.dying("at a plan"):
            half_way = self.random.choice(["half a file", "old journals"])
        if half_way == "half a file":
            data = self.plan.encode()
            new = file.path.with_name(f".{file.path.name}.new")
            new.write_bytes(data[: self.random.randrange(len(data))])
            self.die()
        old = [
            (path, path.read_bytes())
            for path in file.path.parent.iterdir()
            if path.name.startswith(f"{file.path.name}.journal-")
        ]
        file.write(self.plan)
        if half_way == "old journals":
            for path, content in old:
                path.write_bytes(content)
            self.die()

    def commit(self) -> None:
        answered = self.send_commit()
        self.go_on_with(lambda: self.hear(answered), self.random.choice([1, 40, 300]))

    def send_commit(self) -> dict[int, int] | None:
        """What is committed then; None when the answer will be lost, and perhaps the request."""
        offsets = self.plan.watermarks
        lost = self.random.random() < self.drain.lost_answers
        group = self.drain.group
        for number, part in self.plan.partitions.items():
            allowed = {part.committed} | self.doubt[number]
            assert group[number] in allowed, "the drain would stop: the group was moved"
        moves = {n: o for n, o in offsets.items() if (at := group[n]) is None or o > at}
        if lost:
            for number, offset in moves.items():
                self.doubt[number].add(offset)
            if self.random.random() < 0.5:
                return None
        for number, offset in moves.items():
            self.check_commit(number, offset)
            group[number] = offset
        return None if lost else {n: o for n, o in group.items() if o is not None}

    def hear(self, answered: dict[int, int] | None) -> None:
        if answered is not None:
            self.plan = replace(
                self.plan,
                partitions={
                    n: replace(part, committed=answered.get(n, part.committed))
                    for n, part in self.plan.partitions.items()
                },
            )
        self.after(PLAN_MS, self.save)

    def finish(self) -> None:
        """The end of the keeper: save, commit until it is settled, save, drop the journals."""
        for step in self.finishing():
            self.step(step)
        self.drain.file.release()

    def finishing(self) -> Iterator[Callable[[], None]]:
        if self.under_way is not None:
            yield self.under_way
        yield self.begin_save
        yield self.write_plan
        answered = None
        while answered is None:
            answered = self.send_commit()
            yield lambda: None
        self.hear(answered)
        yield self.begin_save
        yield self.write_plan
        yield self.drain.file.remove_journals

    # The laws.

    def places_at(self, partition: int, offset: int) -> list[Place]:
        specs = self.backlog.logs[partition].records[offset]
        return [(partition, offset, index) for index in range(len(specs))]

    def check_commit(self, partition: int, offset: int) -> None:
        at = self.drain.group[partition]
        assert at is None or offset >= at, "the group moved backwards"
        for each in self.backlog.logs[partition].records:
            if each < offset:
                assert (partition, each) in self.drain.kept.messages, (
                    f"committed {offset} past {partition}/{each}, which the files don't have"
                )

    def check_laws(self) -> None:
        messages, subs = self.dispatcher.counts()
        assert messages.conserved
        assert subs.conserved
        outcomes = Counter(self.known.subs.values())
        assert (subs.done, subs.dead, subs.skipped) == tuple(outcomes[o] for o in Outcome)
        assert messages.finished == len(self.known.messages)
        pending = [place for place in self.delivered if place not in self.known.messages]
        assert messages.pending == len(pending)
        assert subs.pending == sum(
            place not in self.known.subs for at in pending for place in self.places_at(*at)
        )
        assert self.dispatcher.lanes.running == len(self.running) <= self.drain.concurrency
        for number, ledger in self.ledgers.items():
            assert ledger.tally() == ledger.counts()
            before = self.watermarks[number]
            assert ledger.watermark >= before, "the watermark went back"
            for offset in range(before, ledger.watermark):
                assert offset not in self.backlog.logs[number].records or (
                    (number, offset) in self.known.messages
                ), f"the watermark passed {number}/{offset}"
            self.watermarks[number] = ledger.watermark


def new_plan(backlog: Backlog) -> OffsetPlan:
    return OffsetPlan(
        drain_id="20260101-000000-abcdef",
        created="2026-01-01T00:00:00.000+00:00",
        updated="2026-01-01T00:00:00.000+00:00",
        generation=1,
        cluster_id="cluster",
        bootstrap_servers="localhost:9092",
        client_config=None,
        isolation="read_committed",
        topic="orders",
        topic_id="topic-id",
        group="billing",
        handler="handlers.py:Reindex",
        order="sub-key",
        partitions={n: PartitionPlan(g.start, g.end, None, None) for n, g in backlog.logs.items()},
        claims={ALL: {n: Progress(log.start) for n, log in backlog.logs.items()}},
    )


def finished_by(plan: OffsetPlan, backlog: Backlog) -> set[Place]:
    """The sub-messages that a plan says are finished, read naively."""
    found = set()
    for place in backlog.specs:
        partition, offset, index = place
        progress = plan.claims[ALL][partition]
        part = progress.partial.get(offset)
        if (
            offset < progress.watermark
            or any(first <= offset < end for first, end in progress.finished)
            or (part is not None and part.bits >> index & 1)
        ):
            found.add(place)
    return found
