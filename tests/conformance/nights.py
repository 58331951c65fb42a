"""Nights to look back on: what the handlers of a drain were given, life by life, until its end.

A night is drawn by chance and has kills in it. Those of the simulation take milliseconds each; in
the others, processes are killed on a real broker.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from command.process import Command
from command.record import Record
from core.messages import Place, sub_place
from drainer.message import Barrier, SubMessage
from drainer.model.progress import Outcome
from simulation.simulation import Simulation

LISTS = Path(__file__).with_name("lists.py")

Lanes = dict[Place, tuple[Hashable, ...]]
Lists = dict[Hashable, list[Place]]
Reads = Mapping[Hashable, Sequence[Place]]
Keys = tuple[Hashable, ...]
Offset = tuple[int, int]  # with its partition


@dataclass(frozen=True, slots=True)
class Event:
    """A sub-message is given to the handler, comes out of it, or ends without it.

    ``mark`` is ``begun``, ``done``, ``failed`` (and so it may come again), or ``ended``: given up,
    skipped, or ruled out. ``call`` numbers the calls of the handler. ``read`` is what a handler
    that appends to lists read of its lanes when it began, where it tells that. ``keys`` are the
    sub-keys that it was given; None where they are not told.
    """

    mark: str
    life: int
    place: Place
    call: int = 0
    read: Reads = field(default_factory=dict)
    keys: Keys | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """The drain requests that the group be put to these offsets, or a look at the group shows them.

    Everything below them must have finished by then.
    """

    life: int
    offsets: Mapping[int, int]


@dataclass
class Night:
    """A night as it went. ``lanes`` has every sub-message of the backlog; a barrier has no lane."""

    lanes: Lanes
    events: list[Event | Commit] = field(default_factory=list)
    lists: Lists = field(default_factory=dict)  # what a sink that appends held in the end
    wrote: dict[Place, int] = field(default_factory=dict)  # the life that appended each
    told: bool = True  # the drain said that everything was finished
    sent: dict[Place, Keys] = field(default_factory=dict)  # the sub-keys of each
    aborted: set[Offset] = field(default_factory=set)  # of transactions that were aborted
    undecided: set[Offset] = field(default_factory=set)  # of transactions that were open all night
    committed_only: bool = True  # the drain read nothing else
    together: bool = False  # a call of the handler may be given several

    def marked(self, mark: str) -> list[Event]:
        return [each for each in self.events if isinstance(each, Event) and each.mark == mark]

    @property
    def owed(self) -> set[Place]:
        """Sub-messages whose effects must be there: done, or not said to be given up."""
        ended = {each.place for each in self.marked("ended")}
        done = {each.place for each in self.marked("done")}
        return (set(self.lanes) - ended) | done


class Sink:
    """Lists by lane; each appends by reading, and writing what it read with one more.

    That is wrong in general, and right when nobody else is at the same lane meanwhile. What is in a
    list already, by its identity, is not appended again.
    """

    def __init__(self) -> None:
        self.lists: Lists = {}

    def read(self, lanes: Iterable[Hashable]) -> Reads:
        return {lane: list(self.lists.get(lane, ())) for lane in lanes}

    def write(self, place: Place, read: Reads) -> None:
        for lane, found in read.items():
            if place not in found:
                self.lists[lane] = [*found, place]


def replayed(night: Night, sink: Sink) -> Night:
    """The same night with a sink that its handler reads when it begins, and writes when it ends."""
    events: list[Event | Commit] = []
    reads: dict[Place, Reads] = {}
    wrote: dict[Place, int] = {}
    for each in night.events:
        if isinstance(each, Event) and each.mark == "begun":
            reads[each.place] = read = sink.read(night.lanes.get(each.place, ()))
            events.append(replace(each, read=read))
            continue
        events.append(each)
        if isinstance(each, Event) and each.mark == "done":
            sink.write(each.place, reads[each.place])
            wrote.setdefault(each.place, each.life)
    return replace(night, events=events, lists=sink.lists, wrote=wrote)


class Recorder:
    """Writes down what the handler of a simulation is given, and what the drain commits."""

    def __init__(self, seed: int) -> None:
        self.simulation = simulation = Simulation(seed)
        self._night = Night({})
        self._call = 0
        for number, log in simulation.backlog.logs.items():
            self._night.aborted |= {(number, n) for n, each in log.records.items() if each.aborted}
            behind = range(log.stable, log.end)
            self._night.undecided |= {(number, n) for n in behind if n in log.records}
        account, broker = simulation.account, simulation.broker
        self._begin, self._leave = account.begin, account.leave
        self._conclude, self._rule_out = account.conclude, account.rule_out
        self._may_commit = broker.may_commit
        account.begin = self._on_begin  # type: ignore[method-assign]
        account.leave = self._on_leave  # type: ignore[method-assign]
        account.conclude = self._on_conclude  # type: ignore[method-assign]
        account.rule_out = self._on_rule_out  # type: ignore[method-assign]
        broker.may_commit = self._on_commit

    def run(self) -> Night:
        """The whole night. The simulation's own laws are checked elsewhere, and not asked here."""
        simulation, night = self.simulation, self._night
        with suppress(AssertionError):
            simulation.run()
        backlog = simulation.backlog
        night.lanes = {place: backlog.lanes[place] for place in sorted(backlog.specs)}
        night.sent = {} if backlog.whole else dict(backlog.specs)
        if backlog.grown:
            night.undecided.clear()  # they were committed meanwhile
        well = simulation.world.tally["exit 0"] + simulation.world.tally["exit 6"]
        night.told = bool(well) and not simulation.doomed
        night.committed_only = backlog.committed_only
        night.together = simulation.downstream.folds or simulation.downstream.batches
        return night

    def _note(self, mark: str, place: Place, keys: Keys | None = None) -> None:
        life = self.simulation.lives
        self._night.events.append(Event(mark, life, place, self._call, keys=keys))

    def _on_begin(self, subs: Sequence[SubMessage]) -> list[Place]:
        self._call += 1
        for member in (member for sub in subs for member in sub.folded):
            self._note("begun", sub_place(member), _keys(member))
        return self._begin(subs)  # it stops the night at what is against the simulation's laws

    def _on_leave(self, place: Place, what: str) -> None:
        self._leave(place, what)  # a kill comes here, and then it has not been done
        self._note("done" if what == "done" else "failed", place)

    def _on_conclude(self, place: Place, outcome: Outcome) -> None:
        self._conclude(place, outcome)
        self._note("ended", place)

    def _on_rule_out(self, place: Place) -> None:
        self._rule_out(place)
        self._note("ended", place)

    def _on_commit(self, offsets: Mapping[int, int]) -> None:
        self._night.events.append(Commit(self.simulation.lives, dict(offsets)))
        self._may_commit(offsets)


@cache
def simulated(seed: int) -> Night:
    """A night in virtual time."""
    return Recorder(seed).run()


def _keys(sub: SubMessage) -> Keys:
    """The sub-keys that a handler is given."""
    if isinstance(sub, Barrier):
        return ()
    return tuple(sub.keys or (sub.key,))


class KilledNight:
    """A drain on a real broker that is killed again and again, until a resume of it ends well."""

    PARTITIONS, MESSAGES, LANES = 2, 350, 40

    def __init__(self, command: Command, seed: int, **sabotage: str) -> None:
        self.command = command
        self.chance = random.Random(seed)
        self.folder = command.home / f"night-{seed}"
        self.folder.mkdir()
        command.record = Record(self.folder / "record")
        self._options = {
            "lists": str(self.folder / "lists.db"),
            "calls": str(self.folder / "calls"),
            "pause_ms": "1",
            **sabotage,
        }
        self._handler = command.handler(LISTS.read_text(), "lists.py") + ":Lists"
        values = [json.dumps(self._message()) for _ in range(self.MESSAGES)]
        self.topic = command.topic(values, self.PARTITIONS)
        self._values = {
            (partition, offset): value
            for partition in range(self.PARTITIONS)
            for offset, value in enumerate(values)
        }
        self._aborted = set[Offset]()
        self._undecided = set[Offset]()
        self._commits: dict[int, Commit] = {}  # by the process that was killed before

    @classmethod
    def of_chance(cls, command: Command, **sabotage: str) -> KilledNight:
        """One of a seed that is drawn, and printed."""
        seed = random.randrange(2**32)
        print(f"seed {seed}")
        return cls(command, seed, **sabotage)

    def _message(self) -> list[str | list[str]]:
        """Up to five operations. A few have several sub-keys, and some sub-keys are far hotter."""
        chance = self.chance
        operations: list[str | list[str]] = []
        for _ in range(chance.randint(1, 5)):
            width = chance.choice([1, 1, 1, 1, 1, 1, 2, 3])
            keys = {f"k{int(chance.paretovariate(0.5)) % self.LANES}" for _ in range(width)}
            operations.append(sorted(keys) if len(keys) > 1 else keys.pop())
        return operations

    def run(self, *more: str, kills: int = 3, order: str = "sub-key") -> Night:
        """Drain it, with so many kills at moments of chance."""
        command, topic = self.command, self.topic
        sub_messages = sum(len(json.loads(value)) for value in self._values.values())
        moments = sorted(self.chance.randrange(sub_messages) for _ in range(kills))
        more = ("-c", "20", *more)
        terms = ("--tune", f"order={order}")  # which no resume may change
        running = command.begin(topic, *more, *terms, handler=self._handler, **self._options)
        for moment in moments:
            command.wait_for(running, "done", moment)
            running.kill()
            self._look_at_group(running.pid)
            words = [*command.resume_of(command.plan(topic)), *more]
            running = command.start(*words, *command.options(**self._options))
        running.ends(0)
        self._look_at_group(running.pid)
        return self._night()

    def _look_at_group(self, life: int) -> None:
        found = self.command.committed(self.topic)
        offsets = {number: offset for number, offset in found.items() if offset is not None}
        self._commits[life] = Commit(life, offsets)

    @contextmanager
    def transactions(self, count: int = 50) -> Iterator[None]:
        """Add messages of a transaction that is aborted, of none, and of one that stays open."""
        ends = self.command.cluster.log_ends(self.topic.name, [0])
        first = ends[0][0]
        values = [json.dumps(self._message()) for _ in range(count)]
        self.topic.transact(values, commit=False)
        behind = first + count + 1  # a marker takes an offset
        self.topic.produce(values)
        producer = self.topic.open_transaction(values)
        self._aborted = {(0, first + n) for n in range(count)}
        self._undecided = {(0, behind + count + n) for n in range(count)}
        self._values |= {(0, behind + n): value for n, value in enumerate(values)}
        yield
        producer.abort_transaction()

    def _night(self) -> Night:
        lanes = {
            (*offset, index): (keys,) if isinstance(keys, str) else tuple(keys)
            for offset, value in self._values.items()
            for index, keys in enumerate(json.loads(value))
        }
        night = Night(lanes, sent=lanes, aborted=self._aborted, undecided=self._undecided)
        lives: dict[int, list[Event | Commit]] = {}
        for number, (mark, life, place, keys, read) in enumerate(self._calls()):
            found = {lane: [_place(each) for each in elements] for lane, elements in read.items()}
            event = Event(mark, life, tuple(place), number, found, tuple(keys))
            lives.setdefault(life, []).append(event)
        for life, commit in self._commits.items():
            night.events += [*lives.pop(life, []), commit]
        assert not lives
        with closing(sqlite3.connect(self._options["lists"])) as lists:
            for lane, text in lists.execute("SELECT lane, elements FROM lists"):
                elements = json.loads(text)
                night.lists[lane] = [_place(each) for each in elements]
                for each in elements:
                    night.wrote.setdefault(_place(each), each[1])
        return night

    def _calls(self) -> Iterator[Any]:
        for text in Path(self._options["calls"]).read_text().splitlines():
            with suppress(json.JSONDecodeError):  # torn by a kill
                yield json.loads(text)


def _place(element: tuple[str, int]) -> Place:
    _, partition, offset, index = element[0].split(":")
    return int(partition), int(offset), int(index)
