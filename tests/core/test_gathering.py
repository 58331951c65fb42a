"""Aggregation: what tasks reported, in whatever order, is in the plan, and no more.

Runs of a drain are played with the dispatchers that tasks have, and compared with a list of what
was finished: waves and dispatches side by side, attempts that die or wake up late, parked lanes,
connected lanes, barriers, crashes of the driver, and resumes with other shards, or by one process
without any.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_plan, advanced, changed, counts, progress_at
from core.messages import is_finished, message_at, sub_of, sub_place, written_and_read
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.core.merge import Record, TaskRecord, fold, merged
from drainer.core.other_claims import other_claims
from drainer.errors import DrainerError
from drainer.message import KeySums, Message, Origin, ShippedMessage, SubMessage
from drainer.model.account import Account, StateReference
from drainer.model.claims import ALL, Shard, ShardMap, Stream, streams_of
from drainer.model.order import Order
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Counts, Outcome, Partial, checksum_keys
from drainer.model.ranges import Range, ranges_of
from drainer.model.sub_messages import SubKeys, identify
from drainer.spark.assign.aggregation import Aggregation, Dispatch
from drainer.spark.assign.schedule import WAVES_MOST, Part, Schedule
from drainer.spark.state.objects import Objects
from drainer.spark.state.records import Head, TaskRecords
from drainer.store.journal import decode_line

Sub = tuple[int, int, int]  # partition, offset, index
Op = str | tuple[str, ...] | None  # a sub-key, several of them, or a barrier
Row = tuple[int, int, Shard, int]  # partition, offset, shard, bits of its sub-messages
STATE = StateReference("/state", 1, 1)


def halves(
    units: Mapping[int, tuple[Range, ...]] = MappingProxyType({}),
) -> tuple[Aggregation, Dispatch]:
    aggregation = Aggregation(a_plan(100), "/state", 1)
    subs = {"0/2": {0: 3}, "1/2": {0: 3}}
    aggregation.begin(1, {0: (0, 10)}, {0: ((0, 10),)}, subs, units)
    return aggregation, aggregation.dispatch([[(1, "0/2")], [(1, "1/2")]])


def head(claim: str, mark: int, done: int) -> Head:
    return Head({claim: {0: (0, mark)}}, {0: counts(done=done)})


def test_a_message_that_two_attempts_finished_between_them_leaves_a_plan_that_can_be_read() -> None:
    one, other = (
        TaskRecord(
            {"0/2": {0: progress_at(0, partial={4: Partial(3, 7, bits), 6: Partial(3, 7, 1)})}}
        )
        for bits in (0b101, 0b011)
    )
    whole = progress_at(0, finished=((4, 5),), partial={6: Partial(3, 7, 1)})
    assert merged([one, other]).claims["0/2"][0] == whole
    plan = fold(fold(a_plan(10, state=STATE), [one]), [other])
    assert OffsetPlan.decode(plan.encode()).account.claims["0/2"][0] == whole


def test_a_dispatch_that_does_not_add_up_makes_all_doubtful() -> None:
    aggregation, dispatch = halves()
    one, other = dispatch.tasks
    aggregation.add_progress(one, head("0/2", 10, 3))
    aggregation.add_progress(other, head("1/2", 10, 2))

    with pytest.raises(DrainerError, match=r"task 1\.1 was given 3"):
        aggregation.ensure_conserved(dispatch)
    assert aggregation.unbalanced


def test_a_state_that_was_removed_takes_nothing_from_the_account() -> None:
    aggregation, dispatch = halves()
    aggregation.add_progress(dispatch.tasks[0], head("0/2", 4, 2))
    before = aggregation.counts()

    for task in dispatch.tasks:
        aggregation.add_whole_record(task, TaskRecord())
    aggregation.end_dispatch(dispatch)

    assert before[1].done == aggregation.counts()[1].done == 2


def test_the_last_record_counts_where_news_of_it_never_came() -> None:
    aggregation, dispatch = halves()
    one, other = dispatch.tasks
    reported = TaskRecord({"1/2": {0: progress_at(10)}}, {0: counts(done=3)})
    aggregation.add_progress(one, head("0/2", 10, 3))

    aggregation.add_whole_record(other, reported)
    aggregation.ensure_conserved(dispatch)
    aggregation.end_dispatch(dispatch)

    assert aggregation.counts()[1].done == 6


def test_a_claim_that_goes_past_a_message_that_did_not_split_has_nothing_of_it() -> None:
    """The message may split into something of that claim the next time."""
    units = {0: ((4, 5),)}
    aggregation, dispatch = halves(units)
    one, other = dispatch.tasks
    aggregation.add_progress(one, head("0/2", 10, 3))
    aggregation.add_progress(other, head("1/2", 4, 1))
    plan = a_plan(100, claims=aggregation.claims(), state=aggregation.state)
    read = OffsetPlan.decode(plan.encode())
    assert read == plan
    assert plan.account.state is not None
    assert plan.account.state.units == {0: "4"}
    left = progress_at(4, finished=((5, 10),))
    assert plan.account.claims["0/2"][0] == left
    # The driver dies: what the tasks wrote is folded in.
    reported = TaskRecord({"0/2": {0: progress_at(0, finished=((0, 10),))}}, {0: counts(done=3)})
    before = TaskRecord(
        {"1/2": {0: progress_at(0, finished=((0, 4),))}}, {0: counts(done=1, pending=2)}
    )
    assert fold(read, [reported, before]).account.claims["0/2"][0] == left

    outcomes = dict.fromkeys((Outcome.UNSPLIT, Outcome.FAILED), ((4, 5),))
    decided = TaskRecord(
        {"1/2": {0: progress_at(0, finished=((0, 5),), outcomes=outcomes)}}, {0: counts(done=3)}
    )
    assert fold(
        changed(read, claims=a_plan(100).account.claims), [reported, decided]
    ).account.claims["0/2"][0] == (progress_at(10))


def test_the_longest_lane_is_what_one_shard_has_more_than_the_others() -> None:
    aggregation = Aggregation(a_plan(100), "/state", 1)
    assert aggregation.longest_lane() == (0, 0)
    for wave, hot in ((1, 500), (2, 700)):
        range_ = (10 * wave - 10, 10 * wave)
        subs = {f"{n}/4": {0: hot if n == 2 else 100} for n in range(4)}
        aggregation.begin(wave, {0: range_}, {0: (range_,)}, subs, {})
    whole, share = aggregation.longest_lane()
    assert whole == pytest.approx(1_000, rel=0.01)
    assert share == pytest.approx(1_000 / 1_800, rel=0.01)
    (task,) = aggregation.dispatch([[(1, "2/4")]]).tasks
    aggregation.add_progress(task, head("2/4", 5, 250))
    left, share_left = aggregation.longest_lane()
    assert left == pytest.approx(whole * 950 / 1_200)
    assert share_left == share

    by_chance = Aggregation(a_plan(100), "/state", 1)
    even = {f"{n}/4": {0: 110 if n == 2 else 100} for n in range(4)}
    by_chance.begin(1, {0: (0, 10)}, {0: ((0, 10),)}, even, {})
    assert by_chance.longest_lane() == (0, 0)


def test_the_plan_holds_no_endpoint_of_the_state() -> None:
    aggregation = Aggregation(a_plan(100), "s3://b/d?region=eu-1&endpoint=http://minio", 1)
    assert aggregation.state is not None
    assert aggregation.state.uri == "s3://b/d?region=eu-1"


class Backlog:
    """Messages with holes between them."""

    def __init__(self, draw: Random) -> None:
        self.barriers = draw.choice((0.0, 0.01, 0.03))
        self.several = draw.choice((0.0, 0.01, 0.3))
        self.ends = {n: draw.randrange(25) for n in range(draw.choice((1, 1, 2)))}
        self.subs: dict[tuple[int, int], list[Op]] = {}
        for number, end in self.ends.items():
            for offset in range(end):
                if draw.random() < 0.85:
                    count = draw.choice((0, 1, 1, 2, 3, 4))
                    self.subs[number, offset] = [self._op(draw) for _ in range(count)]

    def _op(self, draw: Random) -> Op:
        kind = draw.random()
        if kind < self.barriers:
            return None
        if kind < self.barriers + self.several:
            return tuple(draw.sample("abcdefgh", 2))
        return draw.choice("abcdefgh")

    def message(self, number: int, offset: int) -> tuple[Message, list[SubMessage]]:
        return message_at(offset, number), [sub_of(op) for op in self.subs[number, offset]]

    def identified(self, number: int, offset: int) -> tuple[Message, list[SubMessage]]:
        message, subs = self.message(number, offset)
        identify(message, subs)
        return message, subs

    def shipped(self, number: int, offset: int, shard: Shard, own: int) -> ShippedMessage:
        """Part of a message in a chunk: the sub-messages of one shard."""
        message, subs = self.identified(number, offset)
        keys = [sub.key if sub.keys is None else SubKeys(sub.keys) for sub in subs]
        origin = Origin("orders", "topic-id", number, Stream(number, shard))
        shipped = ShippedMessage(
            origin, offset, message.key, None, (), KeySums(len(subs), checksum_keys(keys))
        )
        shipped.subs = [sub for sub in subs if own >> sub.index & 1]
        for sub in shipped.subs:
            sub.message = shipped
        return shipped

    @property
    def everything(self) -> set[Sub]:
        return {(*at, index) for at, ops in self.subs.items() for index in range(len(ops))}

    def before(self, sub: Sub) -> Iterator[Sub]:
        """All of its partition that has to be finished before it."""
        own = self.subs[sub[:2]][sub[2]]
        for (number, offset), ops in self.subs.items():
            for index, op in enumerate(ops):
                other = (number, offset, index)
                if number == sub[0] and other < sub:
                    shared = set(op or ()) & set(own or ())
                    if op is None or own is None or shared:
                        yield other


class Task:
    """An attempt at what a task is given: the dispatcher that tasks have.

    ``rows`` are by partition, offset and shard, with the bits of its sub-messages.
    """

    def __init__(
        self,
        play: Play,
        bounds: dict[int, Range],  # by stream
        rows: list[Row],
        earlier: TaskRecord,
        behind: frozenset[int],
        parked: frozenset[str],
    ) -> None:
        self.objects = Kept()
        starts = {stream: start for stream, (start, _) in bounds.items()}
        self._records = TaskRecords(self.objects, "", starts, lambda: None)
        self._records.go_on_from(earlier)
        changes = streams_of(earlier.claims)
        ledgers = {}
        for stream, (start, end) in bounds.items():
            begun = progress_at(start)
            if stream in changes:
                begun = begun.merge(changes[stream])
            ledgers[stream] = Ledger(start, end, begun, reports_outcomes=True)
        self.dispatcher = Dispatcher(ledgers, parked=parked, behind=behind)
        self._draw = play.draw
        self._rows = iter(rows)
        self._backlog = play.backlog
        self._whole = False  # whether all was delivered
        self._over = False
        self.since: dict[Sub, Outcome] = {}  # finished, and not reported
        self.handled: list[Sub] = []

    def work(self) -> list[bytes] | None:
        """Some steps, and the records of them; None when nothing is left to be done."""
        if self._over:
            return None
        if self._whole and not self.dispatcher.ready:
            self._over = True
            # As the plan of a task, at its end.
            progress, unhandled = self.dispatcher.progress(), self.dispatcher.unhandled()
            plan = a_plan(claims={ALL: progress}, unhandled=unhandled)
            self._records.start_journal(plan.terms.drain_id, plan.account.generation)
            self._records.write(plan)
            return self.objects.news()
        for _ in range(self._draw.randrange(1, 12)):
            if self._draw.random() < 0.5:
                self._deliver()
            else:
                self._handle()
        self._check()
        if changes := self.dispatcher.changes():
            self._records.append(Record(changes, (), self.dispatcher.unhandled() or None))
        return self.objects.news()

    def _check(self) -> None:
        """Ensure that all streams together are what each of them is."""
        dispatcher, ledgers = self.dispatcher, self.dispatcher.ledgers.values()
        assert dispatcher.complete == all(each.complete for each in ledgers)
        assert dispatcher.delivered == all(each.delivered for each in ledgers)
        assert dispatcher.pending_bytes == sum(each.pending_bytes for each in ledgers)
        assert dispatcher.tally() == dispatcher.counts()
        assert dispatcher.tally()[1].read == sum(each.subs_read for each in ledgers)

    def _deliver(self) -> None:
        row = next(self._rows, None)
        if row is None:
            for number, ledger in self.dispatcher.ledgers.items():
                self.dispatcher.skip_to(number, ledger.end)
            self._whole = True
            return
        message = self._backlog.shipped(*row)
        if self.dispatcher.wants(message):
            self.dispatcher.deliver_parts([message])

    def _handle(self) -> None:
        sub = self.dispatcher.take()
        if sub is None:
            return
        place = sub_place(sub)
        fate = self._draw.random()
        if fate < 0.06:
            self.dispatcher.park(sub)
            return
        self.handled.append(place)
        outcome = Outcome.DEAD if fate < 0.1 else Outcome.SKIPPED if fate < 0.14 else Outcome.DONE
        self.since[place] = outcome
        self.dispatcher.finish(sub, outcome)


class Kept(Objects):
    """Objects in memory, each once."""

    uri, is_local = "/state", True

    def __init__(self) -> None:
        self._untaken: list[bytes] = []

    def news(self) -> list[bytes]:
        news, self._untaken = self._untaken, []
        return news

    def put(self, name: str, data: bytes, *, beside: bool = False) -> None:
        self._untaken.append(data)

    create = get = names = children = remove = None  # type: ignore[assignment]


@dataclass
class Wave:
    """Part of the backlog that was read, by shard."""

    number: int
    ranges: dict[int, Range]
    delivered: dict[int, list[int]]
    rows: dict[Shard, list[Row]] = field(default_factory=dict)
    subs: dict[Shard, dict[int, int]] = field(default_factory=dict)  # by partition


@dataclass
class UnderWay:
    """A task and its attempt."""

    parts: list[tuple[Shard, Wave]]
    behind: frozenset[int]
    parked: frozenset[str]
    task: Task
    attempt: int = 1


class Play:
    """One drain, run after run. With ``late``, a driver may know more of attempts which died
    than the next ones go on from.
    """

    def __init__(self, draw: Random, *, late: bool) -> None:
        self.draw = draw
        self.late = late
        self.backlog = Backlog(draw)
        self.plan = a_plan(*self.backlog.ends.values())
        self.reported: set[Sub] = set()  # to be finished, by records that count
        self.fates: dict[Sub, Outcome] = {}  # of those that tasks have handled
        self.handled: set[Sub] = set()
        self.epoch = 0

    def run_in_one(self) -> None:
        """One process without tasks, until all is done or it dies. It leaves out what they did."""
        draw, plan = self.draw, self.plan
        ends = self.backlog.ends
        dispatcher = Dispatcher(
            {n: Ledger(0, end, plan.account.claims[ALL][n]) for n, end in ends.items()},
            others=other_claims(plan),
        )
        known = set(self.reported)
        rows = iter(sorted(self.backlog.subs))
        running: list[SubMessage] = []
        since: set[Sub] = set()  # finished, and not reported
        while not dispatcher.complete and draw.random() > 0.005:
            what = draw.choice(("deliver", "take", "take", "finish", "finish", "note", "save"))
            if what == "deliver":
                row = next(rows, None)
                if row is None:
                    for number, end in ends.items():
                        dispatcher.skip_to(number, end)
                    continue
                message, subs = self.backlog.message(*row)
                if dispatcher.wants(message):
                    dispatcher.deliver(message, subs)
            elif what == "take" and (taken := dispatcher.take()) is not None:
                place = sub_place(taken)
                assert place not in known, "finished, and handled again"
                self._ensure_order([place])
                running.append(taken)
            elif what == "finish" and running:
                ended = running.pop(draw.randrange(len(running)))
                dispatcher.finish(ended)
                since.add(sub_place(ended))
                self.handled |= since
            elif what in ("note", "save"):
                changes = dispatcher.changes()
                if what == "save":
                    plan = changed(plan, claims=dispatcher.claims())
                else:
                    plan = replace(
                        plan,
                        account=plan.account.merge(
                            {n: written_and_read(p) for n, p in changes.items()}
                        ),
                    )
                self.reported |= since
                since = set()
        if dispatcher.complete:
            plan = changed(plan, claims=dispatcher.claims())
            assert set(plan.account.claims) == {ALL}, "all is finished by one claim"
            self.reported |= since
        self.plan = plan
        self.ensure()
        self.plan = replace(self.plan, account=self.plan.account.without_pending())

    def run(self) -> None:
        """In tasks, until all is done or their driver dies."""
        self.epoch += 1
        self.aggregation = aggregation = Aggregation(self.plan, "/state", self.epoch)
        self.known = set(self.reported)
        self.left_parked: set[str] = set()
        self.disk: dict[tuple[int, int], list[bytes]] = {}  # of the last attempt
        self._save()
        self.shards = self.draw.choice((2, 3, 5))
        self.connected = False  # shards of the last wave
        self.at = dict(aggregation.watermarks)
        self.waves: list[Wave] = []
        self.schedule, self.given = Schedule(), set[tuple[int, Shard]]()
        self.left: dict[int, set[Shard]] = {}  # shards that are not done, by dispatch
        self.under_way: dict[int, dict[int, UnderWay]] = {}  # by dispatch and task
        dies = False
        while not dies and self._is_left():
            dies = self._step()
        if dies:
            self._fold()
        else:
            aggregation.end()
            self._save()
            self.plan = self.saved
        self.ensure()
        self.plan = advanced(changed(self.plan, state=None), Account.without_pending)

    def _is_left(self) -> bool:
        return bool(
            self.under_way
            or self.schedule.waves
            or any(self.at[n] < end for n, end in self.backlog.ends.items())
        )

    def _step(self) -> bool:
        """Whether the driver died."""
        draw = self.draw
        if draw.random() < 0.005:
            return True
        if draw.random() < 0.1:
            self._save()
        if self.schedule.wants_to_read and draw.random() < 0.2:
            self._read()
        elif draw.random() < 0.3:
            busy, free = sum(map(len, self.under_way.values())), draw.randrange(1, 4)
            tasks = self.schedule.dispatch(free, busy, urgent=draw.random() < 0.5)
            if tasks is not None:
                assert len(tasks) <= free
                self._dispatch(tasks)
            elif not self.under_way:
                assert not self.schedule.waves, "all is done that was read"
                assert self.schedule.wants_to_read
        elif self.under_way:
            self._work()
        return False

    def _read(self) -> None:
        ranges = {
            n: (self.at[n], self.draw.randint(self.at[n] + 1, end))
            for n, end in self.backlog.ends.items()
            if self.at[n] < end
        }
        if not ranges:
            return
        self.at |= {n: end for n, (_, end) in ranges.items()}
        connected_before = self.connected
        wave = self._divided(ranges, self.shards)
        self.connected = wave is None
        if wave is None or connected_before:
            wave = self._divided(ranges, 1)
            assert wave is not None
        self.waves.append(wave)
        claims = {str(shard): subs for shard, subs in wave.subs.items()}
        delivered = {n: ranges_of(each) for n, each in wave.delivered.items()}
        self.aggregation.begin(wave.number, ranges, delivered, claims, {})
        counts = {shard: sum(subs.values()) for shard, subs in wave.subs.items()}
        self.schedule.add(wave.number, counts)
        assert len(self.schedule.waves) <= WAVES_MOST

    def _dispatch(self, parts: list[list[Part]]) -> None:
        for part in chain.from_iterable(parts):
            assert part.subs == sum(self.waves[part.wave - 1].subs[part.shard].values()) > 0
            assert part[:2] not in self.given, "given to a task before"
            self.given.add(part[:2])
        tasks = [[(part.shard, self.waves[part.wave - 1]) for part in own] for own in parts]
        number = self.aggregation.dispatch(
            [(wave.number, str(shard)) for shard, wave in own] for own in tasks
        ).number
        self.disk |= {(number, task): [] for task in range(len(tasks))}
        behind = frozenset[int]()
        if tasks[0][0][0].of == 1:
            at, ranges = self.aggregation.watermarks, tasks[0][0][1].ranges
            behind = frozenset(n for n, (start, _) in ranges.items() if at[n] < start)
        self.left[number] = {part.shard for own in parts for part in own}
        parked = frozenset(self.left_parked)
        self.under_way[number] = {
            task: UnderWay(own, behind, parked, self._begin(number, task, own, behind, parked))
            for task, own in enumerate(tasks)
        }

    def _work(self) -> None:
        """Some steps of one task."""
        draw, aggregation = self.draw, self.aggregation
        number = draw.choice(sorted(self.under_way))
        tasks = self.under_way[number]
        place = draw.choice(sorted(tasks))
        one = tasks[place]
        task = one.task
        handled = len(task.handled)
        received = task.work()
        self._ensure_order(task.handled[handled:])
        self.handled |= task.since.keys()
        if received is None:
            self.left_parked |= task.dispatcher.left_behind()
            del tasks[place]
        elif one.attempt < 3 and draw.random() < 0.05:  # it dies, and this is not reported
            if self.late:  # but its driver may have read it
                self._take(number, place, received)
            one.attempt += 1
            one.task = self._begin(number, place, one.parts, one.behind, one.parked)
        else:
            self.disk[number, place] += received
            self.reported |= task.since.keys()
            self.fates |= task.since
            task.since = {}
            for selector in self._take(number, place, received):
                self._done(number, Shard.parse(selector))
        if not tasks:
            dispatch = aggregation.dispatches[number]
            aggregation.ensure_conserved(dispatch)
            for place, of_it in enumerate(dispatch.tasks):
                if of_it.unfinished:
                    aggregation.add_whole_record(of_it, self._reported(number, place))
            aggregation.end_dispatch(dispatch)
            del self.under_way[number]
            for shard in list(self.left[number]):  # what is parked stays so in this run
                self._done(number, shard)

    def _done(self, dispatch: int, shard: Shard) -> None:
        self.left[dispatch].remove(shard)
        self.schedule.done(shard)

    def _take(self, dispatch: int, place: int, records: list[bytes]) -> list[str]:
        """The driver reads the heads of records, and nothing else of them."""
        task = self.aggregation.dispatches[dispatch].tasks[place]
        heads = [decode_line(record, Head) for record in records]
        return [claim for head in heads for claim in self.aggregation.add_progress(task, head)]

    def _reported(self, dispatch: int, task: int) -> TaskRecord:
        records = self.disk[dispatch, task]
        whole = [place for place, record in enumerate(records) if decode_line(record, Head).whole]
        return merged(decode_line(e, Head).decoded() for e in records[whole[-1] if whole else 0 :])

    def _fold(self) -> None:
        reference = self.saved.account.state
        assert reference is not None
        self.plan = fold(
            OffsetPlan.decode(self.saved.encode()),
            [
                self._reported(dispatch, task)
                for dispatch, task in self.disk
                if not reference.has_taken(self.epoch, dispatch)
            ],
        )

    def _save(self) -> None:
        aggregation = self.aggregation
        self.saved = changed(
            self.plan,
            claims=aggregation.claims(),
            unhandled=aggregation.unhandled(),
            state=aggregation.state,
        )
        self.saved.account.check()
        for number, watermark in self.saved.account.watermarks.items():
            below = {s for s in self.backlog.everything if s[0] == number and s[1] < watermark}
            assert below <= self.handled

    def ensure(self) -> None:
        """Ensure that the plan has what was reported as finished, nothing else, and counts it
        once."""
        plan = OffsetPlan.decode(self.plan.encode())
        others = other_claims(plan)
        finished: set[Sub] = set()
        for number, offset in self.backlog.subs:
            message, subs = self.backlog.identified(number, offset)
            known = plan.account.claims[ALL][number]
            bits = 0 if others is None else others.finished(message, subs)
            if offset in known.partial:
                bits |= known.partial[offset].bits
            whole = is_finished(known, offset)
            finished |= {(number, offset, i) for i in range(len(subs)) if whole or bits >> i & 1}
        messages, subs_counted = plan.account.counts()
        assert messages.conserved
        assert subs_counted.conserved
        assert messages.finished <= len(self.backlog.subs)
        assert self.reported <= finished <= self.handled
        if not self.late:
            assert finished == self.reported
            assert subs_counted.finished == len(finished)
            if plan.account.complete:
                assert messages == self._messages()
        self.reported = finished

    def _messages(self) -> Counts:
        """Each counts as the worst that became of its sub-messages."""
        worst = Counter[str]()
        for (number, offset), ops in self.backlog.subs.items():
            outcome = Outcome.DONE
            for index in range(len(ops)):
                outcome = outcome.worse_of(self.fates.get((number, offset, index), Outcome.DONE))
            worst[outcome.value] += 1
        return counts(read=len(self.backlog.subs), **worst)

    def _divided(self, ranges: dict[int, Range], of: int) -> Wave | None:
        """Divide a wave as a slice's task does: messages to account for, and rows by shard."""
        shard_map = ShardMap(Order.SUB_KEY)
        wave = Wave(len(self.waves) + 1, ranges, {n: [] for n in ranges})
        for number, offset in sorted(self.backlog.subs):
            start, end = ranges.get(number, (0, 0))
            if not start <= offset < end:
                continue
            if is_finished(self.plan.account.claims[ALL][number], offset):
                continue
            _, subs = self.backlog.identified(number, offset)
            done = sum(1 << i for i in range(len(subs)) if (number, offset, i) in self.known)
            own: dict[Shard, int] = {}
            for index, sub in enumerate(subs):
                if not done >> index & 1:
                    found = shard_map.shard_of(sub, of)
                    if found is None:
                        return None
                    shard = Shard(found, of)
                    own[shard] = own.get(shard, 0) | 1 << index
            wave.delivered[number].append(offset)
            for shard, bits in own.items():
                wave.rows.setdefault(shard, []).append((number, offset, shard, bits))
                by_partition = wave.subs.setdefault(shard, {})
                by_partition[number] = by_partition.get(number, 0) + bits.bit_count()
        return wave

    def _begin(
        self,
        dispatch: int,
        place: int,
        parts: list[tuple[Shard, Wave]],
        behind: frozenset[int],
        parked: frozenset[str],
    ) -> Task:
        earlier = self._reported(dispatch, place)
        bounds: dict[int, Range] = {
            Stream(n, shard): wave.ranges[n] for shard, wave in parts for n in wave.subs[shard]
        }
        rows = sorted(row for shard, wave in parts for row in wave.rows[shard])
        task = Task(self, bounds, rows, earlier, behind, parked)
        self.disk[dispatch, place] = task.objects.news()
        self._take(dispatch, place, self.disk[dispatch, place])
        return task

    def _ensure_order(self, handled: list[Sub]) -> None:
        for sub in handled:
            before = set(self.backlog.before(sub))
            assert before <= self.handled | set(handled[: handled.index(sub)]), (sub, before)


@given(seed=st.integers(0, 2**32), late=st.booleans())
def test_whatever_tasks_and_drivers_do_the_plan_has_what_is_finished(seed: int, late: bool) -> None:
    draw = Random(seed)
    play = Play(draw, late=late)
    for _ in range(4):
        play.run() if draw.random() < 0.7 else play.run_in_one()


def test_after_many_waves_the_account_holds_what_it_held_after_two() -> None:
    """However many holes their tasks finished: these are in the details of their records."""
    length, sizes = 100_000, list[int]()
    aggregation = Aggregation(a_plan(60 * length), "/state", 1)
    for number in range(1, 51):
        start, end = number * length - length, number * length
        subs = {f"{shard}/8": {0: length} for shard in range(8)}
        aggregation.begin(number, {0: (start, end)}, {0: ((start, end),)}, subs, {})
        dispatch = aggregation.dispatch([(number, claim)] for claim in subs)
        for task, claim in zip(dispatch.tasks, subs, strict=True):
            all_of_it = {0: counts(done=length)}
            aggregation.add_progress(task, Head({claim: {0: (start, start + 9)}}, all_of_it))
            aggregation.claims()
        if number in {2, 50}:  # this one and the one before are under way
            sizes.append(len(pickle.dumps(vars(aggregation))))
        if number > 1:
            before = aggregation.dispatches[number - 1]
            for task, claim in zip(before.tasks, subs, strict=True):
                aggregation.add_progress(task, Head({claim: {0: (start - length, start)}}))
            aggregation.end_dispatch(before)
    assert aggregation.watermarks == {0: 49 * length + 9}
    assert sizes[1] < 1.1 * sizes[0]  # of which numbers take more bytes
