"""The laws under any order of events, with crashes, against a naive model of the backlog.

The model knows the whole backlog and keeps what has finished in a dict; it forgets at a crash what
had not been written down. All results of the core are compared with it after each step. The
events are drawn by a seed, which a failure prints: Hypothesis would take most of the time itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import date
from itertools import chain, groupby
from random import Random
from typing import Any

import pytest

from builders import counts, progress_at
from drainer.core import lanes as lanes_module
from drainer.core import ledger as ledger_module
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.message import Message, SubMessage, Unsplit
from drainer.model.order import Order
from drainer.model.progress import ENDS, OTHERWISE, Outcome, Progress
from drainer.model.unhandled import Unhandled
from drainer.policy.rules import RuleFilter

from .messages import (
    Place,
    finished_subs,
    is_finished,
    message_at,
    sub_of,
    sub_place,
    written_and_read,
)

Spec = tuple[Any, ...]  # the sub-keys of a sub-message; none for a barrier
UNSPLIT: Spec = ("!",)  # of a message that split rejects
UNKEYED: Spec = ("?",)  # without a sub-key: in a lane of its own
TOGETHER: Spec = (None,)  # without a sub-key: in the lane of all that are without one

KEYS = "abcd"
UNSPLIT_SHARE = 0.1

SKIPPED_KEYS = {"b", "c", b"b", b"c"}
KEY_RULE, BARRIER_RULE = "$all([each in ['b', 'c'] for each in sub_keys])", "barrier"
RULES = [(), (), (KEY_RULE,), (BARRIER_RULE,), (KEY_RULE, BARRIER_RULE)]


@dataclass(frozen=True)
class Record:
    key: bytes | None
    specs: tuple[Spec, ...]
    is_whole: bool = False  # it was not split: its key is its only sub-key

    def split(self) -> list[SubMessage]:
        if self.specs == (UNSPLIT,):
            return [Unsplit(b"{", "ValueError", "no", "ValueError: no")]
        return [made_of(spec) for spec in self.specs]


def made_of(spec: Spec) -> SubMessage:
    if spec in (UNKEYED, TOGETHER):
        return SubMessage(keys=None if spec == UNKEYED else spec)
    return sub_of(spec[0] if len(spec) == 1 else spec or None)


@dataclass(frozen=True)
class Log:
    """The backlog of one partition: records by offset, with holes before, between and behind."""

    start: int
    end: int
    records: dict[int, Record]


def spec(chance: Random) -> Spec:
    kind = chance.randrange(6)
    if kind == 0:
        return ()
    if kind == 5:
        return chance.choice((UNKEYED, TOGETHER))
    return tuple(chance.sample(KEYS, chance.choice((2, 3)) if kind == 1 else 1))


def record(chance: Random, *, wholes: bool) -> Record:
    if wholes and chance.random() < 0.9:
        key = chance.choice((b"a", b"b", b"c", b"d", None))
        return Record(key, (UNKEYED if key is None else (key,),), is_whole=True)
    if chance.random() < UNSPLIT_SHARE:
        return Record(chance.choice((None, b"x")), (UNSPLIT,))
    count = chance.choice((1, chance.randint(0, 2), chance.randint(2, 6)))
    specs = tuple(spec(chance) for _ in range(count))
    return Record(chance.choice((None, b"x", b"y")), specs)


def log(chance: Random, *, wholes: bool) -> Log:
    def gap() -> int:
        return chance.choice((0, 0, 0, 1, 3))

    start = offset = chance.randint(0, 9)
    by_offset = {}
    for _ in range(chance.choice((chance.randint(0, 4), chance.randint(6, 16)))):
        offset += gap()
        by_offset[offset] = record(chance, wholes=wholes)
        offset += 1
    return Log(start, offset + gap(), by_offset)


class Play:
    """One backlog, and the processes that drain it one after the other."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.rules = chance.choice(RULES)
        self.written_unhandled = Unhandled()
        wholes = chance.random() < 0.25
        self.logs = {number: log(chance, wholes=wholes) for number in range(chance.randint(1, 3))}
        self.order = chance.choice((Order.SUB_KEY, Order.SUB_KEY, *Order))
        # The sub-key of what is left alone.
        self.unselected = chance.choice(("", "", b"d" if wholes else "d"))
        # Behind dead letters, as the plan has it: an earlier run may have ended so.
        self.written_parked = {"partition 0"} if chance.random() < 0.1 else set[str]()
        self.parked_of: dict[str, Hashable] = {}  # which lane that is; a barrier's is its partition
        self.plan = {number: progress_at(log.start) for number, log in self.logs.items()}
        self.written: dict[Place, Outcome] = {}
        self.written_messages: set[tuple[int, int]] = set()
        self.handed_out: set[Place] = set()
        self.places = {  # everything in a partition, in order, delivered or not
            number: [
                (number, offset, index)
                for offset, record in log.records.items()
                for index in range(len(record.specs))
            ]
            for number, log in self.logs.items()
        }
        self.begin()

    def run(self, steps: int) -> None:
        events = [
            self.fetch, self.fetch, self.pass_a_hole, self.take, self.take, self.finish,
            self.one_worker_goes_on, self.decide, self.decide, self.delay, self.give_back,
            self.park, self.finish_all_but_the_first, self.write_plan, self.write_journal,
            self.crash_and_resume,
        ]  # fmt: skip
        # Some seldom or never: a park or a crash at every turn would leave little else to happen.
        weights = [self.chance.choice((0, 1, 1, 4)) for _ in events]
        weights[0] += 1
        for event in self.chance.choices(events, weights, k=steps):
            event()
            self.check()
        self.finish_it()

    def begin(self) -> None:
        """A process starts from the plan, and from nothing else."""
        ledgers = {n: Ledger(log.start, log.end, self.plan[n]) for n, log in self.logs.items()}
        self.dispatcher = Dispatcher(
            ledgers,
            self.order,
            self.written_parked,
            RuleFilter(
                self.rules,
                self.written_unhandled,
                (lambda sub: sub.key != self.unselected) if self.unselected else None,
            ),
        )
        self.behind_dead = set(self.written_parked)
        self.shut = {
            n: (n, 0, 0) for n in self.logs if f"partition {n}" in self.behind_dead
        }  # by partition, the place that it is parked at
        self.parked_lanes = {
            self.parked_of[text] for text in self.behind_dead if text in self.parked_of
        }
        self.parked: set[Place] = set()
        self.delayed: dict[Place, SubMessage] = {}
        self.attempts: Counter[Place] = Counter()
        self.messages: dict[tuple[int, int], Message] = {}
        self.finished = dict(self.written)
        self.finished_at_first = frozenset(self.written)
        self.finished_messages = set(self.written_messages)
        self.delivered: set[tuple[int, int]] = set()
        self.running: dict[Place, SubMessage] = {}
        self.watermarks = {n: progress.watermark for n, progress in self.plan.items()}
        self.positions = dict(self.watermarks)

    # What the model knows.

    def spec_at(self, place: Place) -> Spec:
        partition, offset, index = place
        return self.logs[partition].records[offset].specs[index]

    def lanes_of(self, place: Place) -> frozenset[Hashable]:
        partition, offset, _ = place
        spec = self.spec_at(place)
        if spec == UNSPLIT:
            return frozenset()
        if not spec or self.order is Order.SUB_KEY:
            return frozenset([(None, *place)] if spec == UNKEYED else spec)
        if self.order is Order.KEY:
            return frozenset([self.logs[partition].records[offset].key])
        return frozenset([partition if self.order is Order.PARTITION else place])

    def is_selected(self, place: Place) -> bool:
        return not self.unselected or self.spec_at(place) != (self.unselected,)

    def ruled_out_by(self, place: Place) -> str | None:
        """The rule that takes it out when it is delivered; of several sub-keys all must fit."""
        spec = self.spec_at(place)
        if KEY_RULE in self.rules and spec and set(spec) <= SKIPPED_KEYS:
            return KEY_RULE
        return BARRIER_RULE if BARRIER_RULE in self.rules and not spec else None

    def stays_pending(self, place: Place) -> bool:
        """In this run, whatever happens to others."""
        return (
            self.is_shut(place)
            or place in self.parked
            or not self.is_selected(place)
            or not self.parked_lanes.isdisjoint(self.lanes_of(place))
        )

    def is_shut(self, place: Place) -> bool:
        return place[0] in self.shut and place >= self.shut[place[0]]

    def is_unsplit(self, place: Place) -> bool:
        return self.spec_at(place) == UNSPLIT

    def is_out(self, place: Place) -> bool:
        return place in self.running or place in self.delayed

    def is_barrier(self, place: Place) -> bool:
        return not self.spec_at(place)

    def pending(self, partition: int) -> list[Place]:
        """Sub-messages that are delivered and not finished, in order."""
        return [
            place
            for place in self.places[partition]
            if place[:2] in self.delivered and place not in self.finished
        ]

    def must_start(self) -> list[Place]:
        """Sub-messages that wait for nothing, whatever the order of lanes across partitions."""
        pending = [self.pending(number) for number in self.logs]
        in_lane = Counter(
            lane
            for places in pending
            for place in places
            if self.is_selected(place)
            for lane in self.lanes_of(place)
        )
        found = []
        for places in pending:
            for number, place in enumerate(places):
                idle = not self.is_out(place) and not self.stays_pending(place)
                if self.is_barrier(place) or self.is_unsplit(place):
                    if number == 0 and idle and self.is_barrier(place):
                        found.append(place)
                    break
                if idle and all(in_lane[lane] == 1 for lane in self.lanes_of(place)):
                    found.append(place)
        return found

    def may_start_in_one_partition(self) -> list[Place]:
        taken: set[Hashable] = set()
        found = []
        for number, place in enumerate(self.pending(0)):
            idle = not self.is_out(place) and not self.stays_pending(place)
            if self.is_barrier(place) or self.is_unsplit(place):
                if number == 0 and idle and self.is_barrier(place):
                    found.append(place)
                break
            if not self.is_selected(place):
                continue
            lanes = self.lanes_of(place)
            if idle and taken.isdisjoint(lanes):
                found.append(place)
            taken |= lanes
        return found

    # Events; one that can't happen now does nothing.

    def any_log(self) -> int:
        return self.chance.choice(list(self.logs))

    def any_running(self) -> Place:
        return self.chance.choice(sorted(self.running))

    def fetch(self) -> None:
        number = self.any_log()
        log = self.logs[number]
        offsets = list(log.records)
        at = bisect_left(offsets, self.positions[number])
        most = self.chance.randint(1, 8)
        self.read(number, offsets[at : at + most])
        if len(offsets) <= at + most and self.chance.random() < 0.5:
            self.dispatcher.skip_to(number, log.end + self.chance.randint(0, 2))
            self.positions[number] = log.end

    def read(self, number: int, offsets: list[int]) -> None:
        """Deliver these messages of a partition: at once, as far as each is one sub-message."""
        records = self.logs[number].records
        messages = [message_at(offset, number, records[offset].key) for offset in offsets]
        for is_whole, run in groupby(messages, lambda message: records[message.offset].is_whole):
            together = list(run)
            if is_whole:
                self.dispatcher.deliver_whole(together)
            for message in together:
                record = records[message.offset]
                is_new = (number, message.offset) not in self.finished_messages
                if not is_whole:
                    assert self.dispatcher.wants(message) == is_new
                    if is_new:
                        self.dispatcher.deliver(message, record.split())
                if is_new:
                    self.note_delivered(message, record)
                self.positions[number] = message.offset + 1

    def note_delivered(self, message: Message, record: Record) -> None:
        place = (message.partition, message.offset)
        self.delivered.add(place)
        self.messages[place] = message
        for index in range(len(record.specs)):
            sub = (*place, index)
            if sub not in self.finished and self.is_selected(sub) and self.ruled_out_by(sub):
                self.note_ended(sub, Outcome.SKIPPED)
        if not record.specs:
            self.finished_messages.add(place)

    def pass_a_hole(self) -> None:
        number = self.any_log()
        log = self.logs[number]
        monitor = [o for o in log.records if o >= self.positions[number]]
        self.positions[number] = min([*monitor, log.end])
        self.dispatcher.skip_to(number, self.positions[number])

    def take(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            taken = self.dispatcher.take()
            self.check_taken(taken)
            if taken is None:
                return

    def decide(self) -> None:
        """Takes what split rejected; each is decided by a later event."""
        unit = self.dispatcher.next_rejected()
        if unit is None:
            return
        place = sub_place(unit)
        assert place not in self.finished
        assert not self.is_out(place)
        assert not self.stays_pending(place), "decided though it stays pending"
        for other in self.places[place[0]]:
            if other < place and other not in self.finished:
                assert not self.is_barrier(other), f"{place} decided before barrier {other}"
        self.running[place] = unit

    def finish(self) -> None:
        for _ in range(min(self.chance.randint(1, 8), len(self.running))):
            place = self.any_running()
            sub = self.running[place]
            outcome = self.chance.choice((*ENDS, Outcome.DONE, Outcome.DONE))
            if self.is_unsplit(place):
                outcome = self.chance.choice(OTHERWISE)
            self.note_finished(place, outcome)
            self.dispatcher.finish(sub, outcome)

    def one_worker_goes_on(self) -> None:
        if not self.running:
            return
        place = self.any_running()
        sub: SubMessage | None = self.running[place]
        if self.is_unsplit(place):
            return
        for _ in range(self.chance.randint(1, 8)):
            if sub is None:
                return
            self.note_finished(place, Outcome.DONE)
            sub = self.dispatcher.finish_and_take(sub)
            self.check_taken(sub)
            if sub is not None:
                place = sub_place(sub)

    def delay(self) -> None:
        if not self.running:
            return
        place = self.any_running()
        self.delayed[place] = sub = self.running.pop(place)
        self.dispatcher.delay(sub)

    def give_back(self) -> None:
        if not self.delayed:
            return
        place = self.chance.choice(sorted(self.delayed))
        sub = self.delayed.pop(place)
        if self.chance.random() < 0.5 and not self.is_unsplit(place):
            self.attempts[place] += 1
            self.dispatcher.release(sub)
        else:
            self.running[place] = sub
            self.dispatcher.resume(sub)

    def park(self) -> None:
        if not self.running or self.chance.random() < 0.75:
            return
        place, behind = self.any_running(), self.chance.random() < 0.5
        sub = self.running[place]
        lanes = self.lanes_of(place)
        if self.is_unsplit(place) and any(
            self.is_unsplit(other) and other[0] == place[0]
            for other in {*self.running, *self.delayed} - {place}
        ):
            return  # where one stops its partition, one is decided after the other
        if behind:
            self.note_finished(place, Outcome.DEAD)
            self.dispatcher.park_behind(sub, Outcome.DEAD)
        else:
            del self.running[place]
            self.parked.add(place)
            self.dispatcher.park(sub)
        if self.is_barrier(place) or self.is_unsplit(place):
            self.shut[place[0]] = place
            lanes = frozenset()
            if behind:
                self.behind_dead.add(f"partition {place[0]}")
        if behind and (self.order is Order.NONE or lanes == {(None, *place)}):
            return  # nothing is behind it
        self.parked_lanes |= lanes
        if behind:
            texts = {repr(lane): lane for lane in lanes}
            self.parked_of |= texts
            self.behind_dead |= set(texts)

    def finish_all_but_the_first(self) -> None:
        for place in sorted(self.running)[1:]:
            self.end(place)

    def end(self, place: Place) -> None:
        sub = self.running[place]
        outcome = Outcome.FAILED if self.is_unsplit(place) else Outcome.DONE
        self.note_finished(place, outcome)
        self.dispatcher.finish(sub, outcome)

    def write_plan(self) -> None:
        for number, progress in self.dispatcher.progress().items():
            self.check_written(number, progress)
            self.plan[number] = written_and_read(progress)
        self.written_unhandled = Unhandled.from_json(self.dispatcher.unhandled().as_json())
        self.written_parked = set(self.dispatcher.parked)
        self.note_written()

    def write_journal(self) -> None:
        for number, changes in self.dispatcher.changes().items():
            self.plan[number] = self.plan[number].merge(written_and_read(changes))
        assert self.dispatcher.changes() == {}
        self.written_parked |= set(self.dispatcher.newly_parked())
        assert self.dispatcher.newly_parked() == []
        unhandled = Unhandled.from_json(self.dispatcher.unhandled().as_json())
        self.written_unhandled = self.written_unhandled.merge(unhandled)
        self.note_written()
        for number, progress in self.dispatcher.progress().items():
            merged = self.plan[number]
            self.check_written(number, merged)
            assert merged.messages.without_pending() == progress.messages.without_pending()
            assert merged.sub_messages.without_pending() == progress.sub_messages.without_pending()
            # Merging moves the watermark over holes, and over what an earlier run finished,
            # which the ledger comes to only when it is fetched.
            assert merged.watermark >= progress.watermark
            self.plan[number] = written_and_read(merged)

    def crash_and_resume(self) -> None:
        if len(self.finished) == len(self.finished_at_first):
            return
        written = self.chance.choice(("nothing", "plan", "journal", "journal"))
        if written == "plan":
            self.write_plan()
        elif written == "journal":
            self.write_journal()
        self.begin()

    # Checks.

    def check(self) -> None:
        pending = {number: self.pending(number) for number in self.logs}
        self.everything_is_accounted_for(pending)
        self.rules_count_what_they_took_out()
        self.the_watermark_is_right(pending)
        self.what_is_ready_is_what_may_start()
        assert self.dispatcher.parked == self.behind_dead
        self.only_what_stays_pending_is_let_go_of(pending)
        self.memory_is_what_is_pending()

    def note_finished(self, place: Place, outcome: Outcome) -> None:
        del self.running[place]
        self.note_ended(place, outcome)

    def note_ended(self, place: Place, outcome: Outcome) -> None:
        self.finished[place] = outcome
        partition, offset, _ = place
        count = len(self.logs[partition].records[offset].specs)
        if all((partition, offset, index) in self.finished for index in range(count)):
            self.finished_messages.add((partition, offset))

    def note_written(self) -> None:
        self.written = dict(self.finished)
        self.written_messages = set(self.finished_messages)

    def check_taken(self, taken: SubMessage | None) -> None:
        if taken is None:
            assert not self.must_start(), "something may start and nothing was taken"
            return
        partition, offset, index = place = sub_place(taken)
        assert place not in self.finished, "handed out again"
        assert not self.is_out(place), "handed out twice"
        assert not self.ruled_out_by(place), "handed out against a rule"
        assert not self.stays_pending(place), "handed out though it stays pending"
        assert taken.attempt == 1 + self.attempts[place]
        assert taken.id == f"topic-id:{partition}:{offset}:{index}"
        lanes = self.lanes_of(place)
        for other in {*self.running, *self.delayed}:
            assert lanes.isdisjoint(self.lanes_of(other)), f"{place} beside {other}"
        for other in self.places[partition]:
            if other >= place:
                break
            if other not in self.finished:
                assert not self.is_barrier(place), f"barrier {place} before {other} is finished"
                assert not self.is_barrier(other), f"{place} before barrier {other} is finished"
                assert not self.is_unsplit(other), f"{place} before {other} is decided"
                if not self.is_selected(other):
                    continue
                assert lanes.isdisjoint(self.lanes_of(other)), f"{place} overtakes {other}"
        self.running[place] = taken
        self.handed_out.add(place)

    def check_written(self, number: int, progress: Progress) -> None:
        """Check that a progress has neither more nor less than what has finished."""
        for offset, record in self.logs[number].records.items():
            count = len(record.specs)
            assert is_finished(progress, offset) == ((number, offset) in self.finished_messages)
            assert finished_subs(progress, offset, count) == {
                index for index in range(count) if (number, offset, index) in self.finished
            }
        assert all(first >= progress.watermark for first, _ in progress.finished)
        assert all(end <= self.logs[number].end for _, end in progress.finished)
        for offset in progress.partial:
            assert offset >= progress.watermark
            assert not is_finished(progress, offset)
        assert progress.messages.conserved
        assert progress.sub_messages.conserved

    def everything_is_accounted_for(self, all_pending: Mapping[int, list[Place]]) -> None:
        messages, subs = self.dispatcher.counts()
        assert messages.conserved
        assert messages.finished == len(self.finished_messages)
        assert messages.pending == len(self.delivered - self.finished_messages)
        outcomes = Counter(self.finished.values())
        pending = sum(map(len, all_pending.values()))
        assert subs == counts(
            read=len(self.finished) + pending,
            done=outcomes[Outcome.DONE],
            dead=outcomes[Outcome.DEAD],
            skipped=outcomes[Outcome.SKIPPED],
            pending=pending,
            failed=outcomes[Outcome.FAILED],
            unsplit=sum(
                self.is_unsplit(place) and outcome in (Outcome.DEAD, Outcome.FAILED)
                for place, outcome in self.finished.items()
            ),
        )
        for ledger in self.dispatcher.ledgers.values():
            assert ledger.tally() == ledger.counts()
        assert self.dispatcher.tally() == self.dispatcher.counts()

    def rules_count_what_they_took_out(self) -> None:
        found = Counter(rule for place in self.finished if (rule := self.ruled_out_by(place)))
        assert self.dispatcher.rule_filter.skipped_by == found

    def the_watermark_is_right(self, pending: Mapping[int, list[Place]]) -> None:
        for number, ledger in self.dispatcher.ledgers.items():
            first = pending[number][0][1] if pending[number] else None
            assert (None if ledger.first_pending is None else ledger.first_pending.offset) == first
            assert ledger.position == self.positions[number]
            right = ledger.position if first is None else first
            assert self.watermarks[number] <= ledger.watermark == right
            assert all(
                (number, offset) in self.finished_messages
                for offset in self.logs[number].records
                if offset < ledger.watermark
            )
            assert ledger.complete == (ledger.watermark >= self.logs[number].end)
            self.watermarks[number] = ledger.watermark
        ledgers = self.dispatcher.ledgers.values()
        assert self.dispatcher.complete == all(each.complete for each in ledgers)
        assert self.dispatcher.delivered == all(each.delivered for each in ledgers)

    def what_is_ready_is_what_may_start(self) -> None:
        started = len(self.running) + len(self.dispatcher.rejected)
        assert self.dispatcher.lanes.running == started
        if len(self.logs) == 1:
            assert self.dispatcher.lanes.ready == len(self.may_start_in_one_partition())

    def only_what_stays_pending_is_let_go_of(self, pending: Mapping[int, list[Place]]) -> None:
        kept_whole = 0
        left_of: dict[tuple[int, int], list[Place]] = {}
        for place in chain.from_iterable(pending.values()):
            left_of.setdefault(place[:2], []).append(place)
        undecided = set(map(sub_place, self.dispatcher.rejected))  # let go of when their turn comes
        for at, message in self.messages.items():
            left = left_of.get(at)
            if message.value is None:
                kept_whole += 1
                assert left
                assert all(self.stays_pending(place) for place in left)
            elif left and undecided.isdisjoint(left):
                known = (self.is_shut(place) or place in self.parked for place in left)
                assert not all(known), f"{message} is kept whole for nothing"
        assert self.dispatcher.load.left_pending == kept_whole

    def memory_is_what_is_pending(self) -> None:
        alive = len(self.delivered - self.finished_messages)
        assert self.dispatcher.pending_bytes >= 100 * alive
        assert alive or not self.dispatcher.pending_bytes
        for ledger in self.dispatcher.ledgers.values():
            live, kept = ledger.counts()[0].pending, ledger.pending_bytes
            assert bool(kept) == bool(live)
        ledgers = self.dispatcher.ledgers.values()
        assert self.dispatcher.pending_bytes == sum(each.pending_bytes for each in ledgers)

    def finish_it(self) -> None:
        self.drain_all_that_can_be()
        if self.behind_dead or self.parked or self.shut or self.unselected:
            self.write_plan()
            self.written_parked, self.unselected = set(), ""
            self.begin()
            self.drain_all_that_can_be()
        everything = {place for number in self.logs for place in self.places[number]}
        assert set(self.finished) == everything
        assert self.handed_out == {
            place
            for place in everything
            if not self.ruled_out_by(place) and not self.is_unsplit(place)
        }
        assert self.dispatcher.complete
        assert len(self.dispatcher.lanes) == 0
        for number, progress in self.dispatcher.progress().items():
            assert progress.watermark == self.logs[number].end
            assert (progress.finished, progress.partial) == ((), {})

    def drain_all_that_can_be(self) -> None:
        for number, log in self.logs.items():
            self.read(number, [o for o in log.records if o >= self.positions[number]])
            self.dispatcher.skip_to(number, log.end)
            self.positions[number] = log.end
        for place, sub in self.delayed.items():
            if self.is_unsplit(place):
                self.running[place] = sub
                self.dispatcher.resume(sub)
                continue
            self.attempts[place] += 1
            self.dispatcher.release(sub)
        self.delayed.clear()
        while True:
            self.decide()
            taken = self.dispatcher.take()
            self.check_taken(taken)
            if taken is None and not self.running and not self.dispatcher.rejected:
                break
            if taken is None and self.running:
                self.end(max(self.running))
        self.check()


TODAY = 5_000 * date.today().toordinal()  # the long tests take other seeds each day


@pytest.mark.parametrize(
    "seeds",
    [range(120), pytest.param(range(TODAY, TODAY + 5_000), marks=pytest.mark.long, id="today")],
)
def test_the_laws_hold_under_any_order_of_events_and_crashes(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small, so that examples of a few messages come to purge and to clear.
    monkeypatch.setattr(ledger_module, "PURGE_MIN", 1)
    monkeypatch.setattr(lanes_module, "BLOCK", 1)
    monkeypatch.setattr(lanes_module, "BLOCKS_MIN", 1)
    for seed in seeds:
        try:
            Play(Random(seed)).run(60)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
