"""Aggregation: what tasks reported, in whatever order, is in the plan, and no more.

Runs of a drain are played with the dispatchers that tasks have, and compared with a list of what
was finished: slices side by side, attempts that die or wake up late, parked lanes,
connected lanes, barriers, crashes of the driver, and resumes with other shards, or by one process
without any.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
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
from drainer.spark.assign.aggregation import OPEN_MOST, Aggregation, Slice, SliceTask
from drainer.spark.state.records import Head, TaskRecords
from drainer.store.journal import decode_line
from drainer.store.objects import Objects

Sub = tuple[int, int, int]  # partition, offset, index
Op = str | tuple[str, ...] | None  # a sub-key, several of them, or a barrier
Row = tuple[int, int, Shard, int]  # partition, offset, shard, bits of its sub-messages
STATE = StateReference("/state", 1, 1)


def halves(
    units: Mapping[int, tuple[Range, ...]] = MappingProxyType({}),
) -> tuple[Aggregation, Slice]:
    aggregation = Aggregation(a_plan(100), "/state", 1)
    subs = {0: {0: 3}, 1: {0: 3}}
    return aggregation, aggregation.begin(1, 2, {0: (0, 10)}, {0: ((0, 10),)}, subs, units)


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


def test_a_slice_that_does_not_add_up_makes_all_doubtful() -> None:
    aggregation, of = halves()
    one, other = of.tasks
    aggregation.add_progress(of, one, head("0/2", 10, 3))
    aggregation.add_progress(of, other, head("1/2", 10, 2))

    with pytest.raises(DrainerError, match=r"task 1\.1 was given 3"):
        aggregation.ensure_conserved(of)
    assert aggregation.unbalanced


def test_a_state_that_was_removed_takes_nothing_from_the_account() -> None:
    aggregation, of = halves()
    aggregation.add_progress(of, of.tasks[0], head("0/2", 4, 2))
    before = aggregation.counts()

    for task in of.tasks:
        aggregation.add_whole_record(of, task, TaskRecord())
    aggregation.end_slice(of)

    assert before[1].done == aggregation.counts()[1].done == 2


def test_the_last_record_counts_where_news_of_it_never_came() -> None:
    aggregation, of = halves()
    one, other = of.tasks
    reported = TaskRecord({"1/2": {0: progress_at(10)}}, {0: counts(done=3)})
    aggregation.add_progress(of, one, head("0/2", 10, 3))

    aggregation.add_whole_record(of, other, reported)
    aggregation.ensure_conserved(of)
    aggregation.end_slice(of)

    assert aggregation.counts()[1].done == 6


def test_a_claim_that_goes_past_a_message_that_did_not_split_has_nothing_of_it() -> None:
    """The message may split into something of that claim the next time."""
    units = {0: ((4, 5),)}
    aggregation, of = halves(units)
    one, other = of.tasks
    aggregation.add_progress(of, one, head("0/2", 10, 3))
    aggregation.add_progress(of, other, head("1/2", 4, 1))
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
    for number, hot in ((1, 500), (2, 700)):
        range_ = (10 * number - 10, 10 * number)
        subs = {n: {0: hot if n == 2 else 100} for n in range(4)}
        aggregation.begin(number, 4, {0: range_}, {0: (range_,)}, subs, {})
    whole, share = aggregation.longest_lane()
    assert whole == pytest.approx(1_000, rel=0.01)
    assert share == pytest.approx(1_000 / 1_800, rel=0.01)
    of = aggregation.slices[1]
    aggregation.add_progress(of, of.tasks[2], head("2/4", 5, 250))
    left, share_left = aggregation.longest_lane()
    assert left == pytest.approx(whole * 950 / 1_200)
    assert share_left == share

    by_chance = Aggregation(a_plan(100), "/state", 1)
    even = {n: {0: 110 if n == 2 else 100} for n in range(4)}
    by_chance.begin(1, 4, {0: (0, 10)}, {0: ((0, 10),)}, even, {})
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
class Read:
    """A slice that was read, by shard."""

    number: int
    of: int
    ranges: dict[int, Range]
    delivered: dict[int, list[int]]
    rows: dict[int, list[Row]] = field(default_factory=dict)
    subs: dict[int, dict[int, int]] = field(default_factory=dict)  # by partition


@dataclass
class UnderWay:
    """A task and its attempt."""

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
        self.disk: dict[tuple[int, int], list[bytes]] = {}  # by slice and shard, of all attempts
        self._save()
        self.shards = self.draw.choice((2, 3, 5))
        self.connected = False  # shards of the last slice
        self.at = dict(aggregation.watermarks)
        self.read: dict[int, Read] = {}  # by number
        self.under_way: dict[tuple[int, int], UnderWay] = {}  # by slice and shard
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
            self.aggregation.slices or any(self.at[n] < end for n, end in self.backlog.ends.items())
        )

    def _step(self) -> bool:
        """Whether the driver died."""
        draw = self.draw
        if draw.random() < 0.005:
            return True
        if draw.random() < 0.1:
            self._save()
        if len(self.aggregation.slices) < OPEN_MOST and draw.random() < 0.2:
            self._read()
        elif draw.random() < 0.3:
            self._give()
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
        # The number of slots may change from slice to slice.
        self.shards = self.draw.choice((self.shards, self.shards, self.shards, 2, 3, 5))
        connected_before = self.connected
        read = self._divided(ranges, self.shards)
        self.connected = read is None
        if read is None or connected_before:
            read = self._divided(ranges, 1)
            assert read is not None
        self.read[read.number] = read
        delivered = {n: ranges_of(each) for n, each in read.delivered.items()}
        self.aggregation.begin(read.number, read.of, ranges, delivered, read.subs, {})

    def _give(self) -> None:
        """Let some tasks begin that may."""
        for of, task in list(self.aggregation.free()):
            if self.draw.random() < 0.3:
                continue
            task.given = True
            behind, ranges = frozenset[int](), self.read[of.number].ranges
            if len(of.tasks) == 1:
                at = self.aggregation.watermarks
                behind = frozenset(n for n, (start, _) in ranges.items() if at[n] < start)
            if task.subs:
                parked = frozenset(self.left_parked)
                begun = self._begin(of, task, behind, parked)
                self.under_way[of.number, task.shard.number] = UnderWay(behind, parked, begun)
        for of in list(self.aggregation.slices.values()):
            self._end_if_over(of)

    def _work(self) -> None:
        """Some steps of one task."""
        draw = self.draw
        at = draw.choice(sorted(self.under_way))
        one, of = self.under_way[at], self.aggregation.slices[at[0]]
        task = one.task
        handled = len(task.handled)
        received = task.work()
        self._ensure_order(task.handled[handled:])
        self.handled |= task.since.keys()
        if received is None:
            self.left_parked |= task.dispatcher.left_behind()
            del self.under_way[at]
            self._end_if_over(of)
        elif one.attempt < 3 and draw.random() < 0.05:  # it dies, and this is not reported
            if self.late:  # but its driver may have read it
                self._take(of, at[1], received)
            one.attempt += 1
            one.task = self._begin(of, of.tasks[at[1]], one.behind, one.parked)
        else:
            self.disk[at] += received
            self.reported |= task.since.keys()
            self.fates |= task.since
            task.since = {}
            self._take(of, at[1], received)

    def _end_if_over(self, of: Slice) -> None:
        if any(
            not task.given or (of.number, n) in self.under_way for n, task in enumerate(of.tasks)
        ):
            return
        for task in of.unfinished:
            self.aggregation.add_whole_record(
                of, task, self._reported(of.number, task.shard.number)
            )
        self.aggregation.ensure_conserved(of)
        self.aggregation.end_slice(of)

    def _take(self, of: Slice, shard: int, records: list[bytes]) -> None:
        """The driver reads the heads of records, and nothing else of them."""
        for record in records:
            self.aggregation.add_progress(of, of.tasks[shard], decode_line(record, Head))

    def _reported(self, number: int, shard: int) -> TaskRecord:
        records = self.disk.get((number, shard), [])
        whole = [place for place, record in enumerate(records) if decode_line(record, Head).whole]
        return merged(decode_line(e, Head).decoded() for e in records[whole[-1] if whole else 0 :])

    def _fold(self) -> None:
        reference = self.saved.account.state
        assert reference is not None
        self.plan = fold(
            OffsetPlan.decode(self.saved.encode()),
            [
                self._reported(number, shard)
                for number, shard in self.disk
                if not reference.has_taken(self.epoch, number)
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

    def _divided(self, ranges: dict[int, Range], of: int) -> Read | None:
        """Divide a slice as its readers do: messages to account for, and rows by shard."""
        shard_map = ShardMap(Order.SUB_KEY)
        read = Read(len(self.read) + 1, of, ranges, {n: [] for n in ranges})
        for number, offset in sorted(self.backlog.subs):
            start, end = ranges.get(number, (0, 0))
            if not start <= offset < end:
                continue
            if is_finished(self.plan.account.claims[ALL][number], offset):
                continue
            _, subs = self.backlog.identified(number, offset)
            done = sum(1 << i for i in range(len(subs)) if (number, offset, i) in self.known)
            own: dict[int, int] = {}
            for index, sub in enumerate(subs):
                if not done >> index & 1:
                    shard = shard_map.shard_of(sub, of)
                    if shard is None:
                        return None
                    own[shard] = own.get(shard, 0) | 1 << index
            read.delivered[number].append(offset)
            for shard, bits in own.items():
                read.rows.setdefault(shard, []).append((number, offset, Shard(shard, of), bits))
                by_partition = read.subs.setdefault(shard, {})
                by_partition[number] = by_partition.get(number, 0) + bits.bit_count()
        return read

    def _begin(
        self, of: Slice, given: SliceTask, behind: frozenset[int], parked: frozenset[str]
    ) -> Task:
        at, read = (of.number, given.shard.number), self.read[of.number]
        earlier = self._reported(*at)
        bounds: dict[int, Range] = {Stream(n, given.shard): read.ranges[n] for n in given.subs}
        task = Task(self, bounds, sorted(read.rows[at[1]]), earlier, behind, parked)
        self.disk[at] = task.objects.news()
        self._take(of, at[1], self.disk[at])
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


def test_after_many_slices_the_account_holds_what_it_held_after_two() -> None:
    """However many holes their tasks finished: these are in the details of their records."""
    length, sizes = 100_000, list[int]()
    aggregation = Aggregation(a_plan(60 * length), "/state", 1)
    for number in range(1, 51):
        start, end = number * length - length, number * length
        subs = {shard: {0: length} for shard in range(8)}
        of = aggregation.begin(number, 8, {0: (start, end)}, {0: ((start, end),)}, subs, {})
        for task in of.tasks:
            all_of_it = {0: counts(done=length)}
            aggregation.add_progress(
                of, task, Head({task.claim: {0: (start, start + 9)}}, all_of_it)
            )
            aggregation.claims()
        if number in {2, 50}:  # this one and the one before are under way
            sizes.append(len(pickle.dumps(vars(aggregation))))
        if number > 1:
            before = aggregation.slices[number - 1]
            for task in before.tasks:
                aggregation.add_progress(
                    before, task, Head({task.claim: {0: (start - length, start)}})
                )
            aggregation.end_slice(before)
    assert aggregation.watermarks == {0: 49 * length + 9}
    assert sizes[1] < 1.1 * sizes[0]  # of which numbers take more bytes
