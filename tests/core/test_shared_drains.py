"""A backlog drained by turns of one process and of several claims, each of them killed somewhere.

What claims other than "all" say goes through the plan's text every time. The model keeps every
sub-message that was ever handled, and reads plans naively.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.core.claims import Claim, Places
from drainer.core.dispatch import Dispatcher
from drainer.core.identity import identify
from drainer.core.ledger import Ledger
from drainer.core.order import Order
from drainer.core.plan import ALL, OffsetPlan, PartitionPlan
from drainer.core.progress import Counts, Progress
from drainer.message import Barrier, Message, SubMessage

from .messages import message_at, says_finished

Place = tuple[int, int, int]  # partition, offset, index
Spec = tuple[str, ...]  # the sub-keys of a sub-message; none for a barrier
EXAMPLES = 300


def new_plan(ends: Mapping[int, int], order: Order) -> OffsetPlan:
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
        topic_partitions=1,
        group="billing",
        handler="handlers.py:Accounting",
        order=order.value,
        partitions={n: PartitionPlan(0, end, None, None) for n, end in ends.items()},
        claims={ALL: {n: Progress(0) for n in ends}},
    )


@dataclass
class Backlog:
    records: dict[int, dict[int, tuple[Spec, ...]]]
    ends: dict[int, int]
    order: Order

    @classmethod
    def drawn(cls, random: Random) -> Backlog:
        records: dict[int, dict[int, tuple[Spec, ...]]] = {}
        ends = {}
        barriers, several = random.choice([0, 0, 0.05]), random.choice([0, 0, 0.1])
        for partition in range(random.randint(1, 2)):
            ends[partition] = random.randint(1, 14)
            records[partition] = {
                offset: tuple(
                    ()
                    if random.random() < barriers
                    else tuple(random.sample("abcdef", 2 if random.random() < several else 1))
                    for _ in range(random.randint(0, 4))
                )
                for offset in range(ends[partition])
                if random.random() < 0.85
            }
        return cls(records, ends, random.choice([Order.SUB_KEY, Order.SUB_KEY, *Order]))

    def message(self, partition: int, offset: int) -> tuple[Message, list[SubMessage]]:
        specs = self.records[partition][offset]
        subs = [
            Barrier() if not s else SubMessage(s[0]) if len(s) == 1 else SubMessage(keys=s)
            for s in specs
        ]
        return message_at(offset, partition, b"%d" % (offset % 3)), subs

    @property
    def places(self) -> list[Place]:
        return [
            (n, offset, index)
            for n, records in self.records.items()
            for offset, specs in records.items()
            for index in range(len(specs))
        ]

    def lanes(self, place: Place) -> set[Any]:
        """Empty for a barrier."""
        spec = self.records[place[0]][place[1]][place[2]]
        if not spec:
            return set()
        by_order: dict[Order, set[Any]] = {
            Order.SUB_KEY: set(spec),
            Order.KEY: {place[1] % 3},
            Order.PARTITION: {place[0]},
            Order.NONE: {place},
        }
        return by_order[self.order]

    def before(self, place: Place) -> Iterator[Place]:
        """What of its partition it depends on."""
        lanes = self.lanes(place)
        for other in self.places:
            if other[0] == place[0] and other < place:
                theirs = self.lanes(other)
                if not lanes or not theirs or lanes & theirs:
                    yield other

    def finished(self, plan: OffsetPlan) -> set[Place]:
        return {place for place in self.places if self._says(plan, place)}

    def _says(self, plan: OffsetPlan, place: Place) -> bool:
        number, offset, index = place
        for selector, claim in plan.claims.items():
            if selector != ALL and not self._has(Claim.parse(selector), place):
                continue
            part = claim[number].partial.get(offset)
            if says_finished(claim[number], offset) or (part and part.bits >> index & 1):
                return True
        return False

    def _has(self, claim: Claim, place: Place) -> bool:
        message, subs = self.message(*place[:2])
        identify(message, subs)
        sub = subs[place[2]]
        if isinstance(sub, Barrier):
            return False
        if sub.keys and self.order is Order.SUB_KEY:
            subs = [SubMessage(key) for key in sub.keys]
        else:
            subs = [sub]
        found = [Places(self.order).of(each) for each in subs]
        return all(place is not None and claim.has(place) for place in found)


class Hand:
    """A dispatcher that is driven one step after the other, and what of it was written down."""

    def __init__(
        self,
        drain: Drain,
        dispatcher: Dispatcher,
        rows: Mapping[int, Sequence[int]],
        ends: Mapping[int, int],
    ) -> None:
        self.dispatcher = dispatcher
        self.written = dispatcher.progress()
        self._drain = drain
        self._rows = {n: list(offsets) for n, offsets in rows.items()}
        self._ends = ends
        self._running: list[SubMessage] = []

    def step(self, random: Random) -> bool:
        """Does something; False when nothing is left to be done."""
        steps = []
        left = [n for n, offsets in self._rows.items() if offsets is not None]
        if left:
            steps.append(lambda: self._deliver(random.choice(left)))
        if self.dispatcher.ready:
            steps.append(self._take)
        if self._running:
            steps.append(lambda: self._finish(random.randrange(len(self._running))))
        if not steps:
            return False
        random.choice(steps)()
        if random.random() < 0.3:
            self.write()
        return True

    def write(self) -> None:
        changes = self.dispatcher.changes()
        self.written = {
            n: p.merge(Progress(c.watermark, c.finished, encoded(c), c.messages, c.sub_messages))
            if (c := changes.get(n))
            else p
            for n, p in self.written.items()
        }

    def _deliver(self, number: int) -> None:
        offsets = self._rows[number]
        if not offsets:
            del self._rows[number]
            self.dispatcher.skip_to(number, self._ends[number])
            return
        message, subs = self._drain.backlog.message(number, offsets.pop(0))
        if self.dispatcher.wants(message):
            self.dispatcher.deliver(message, subs)

    def _take(self) -> None:
        sub = self.dispatcher.take()
        assert sub is not None
        self._drain.began(place_in(sub))
        self._running.append(sub)

    def _finish(self, at: int) -> None:
        sub = self._running.pop(at)
        self._drain.ended(place_in(sub))
        self.dispatcher.finish(sub)


def encoded(progress: Progress) -> dict[int, Any]:
    # A part goes on changing: what is written down is its text.
    return {
        offset: part.record() if hasattr(part, "record") else part
        for offset, part in progress.partial.items()
    }


def place_in(sub: SubMessage) -> Place:
    return sub.message.partition, sub.message.offset, sub.index


class Drain:
    """What happens to a backlog over all runs."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.backlog = Backlog.drawn(random)
        self.plan = new_plan(self.backlog.ends, self.backlog.order)
        self.ever: set[Place] = set()
        self._known: set[Place] = set()  # by the plan that the run began with
        self._now: set[Place] = set()  # finished in this run
        self._running: set[Place] = set()

    def began(self, place: Place) -> None:
        backlog = self.backlog
        assert place not in self._known, "finished, and handled again"
        assert place not in self._now | self._running, "handled twice in one run"
        missing = set(backlog.before(place)) - self._known - self._now
        assert not missing, f"{place} came before {missing}"
        beside = [other for other in self._running if backlog.lanes(other) & backlog.lanes(place)]
        assert not beside, f"{place} runs beside {beside}"
        self._running.add(place)

    def ended(self, place: Place) -> None:
        self._running.remove(place)
        self._now.add(place)
        self.ever.add(place)

    def run(self, *, tasks: int, steps: int) -> None:
        """One process, or several tasks, until it is done or killed after so many steps."""
        self.plan = self.plan.settled()
        self._known = self.backlog.finished(self.plan)
        self._now, self._running = set(), set()
        if tasks:
            self._in_tasks(tasks, steps)
        else:
            self._in_one(steps)
        self._check()

    def _in_one(self, steps: int) -> None:
        plan, ends = self.plan, self.backlog.ends
        dispatcher = Dispatcher(
            {n: Ledger(0, end, plan.claims[ALL][n]) for n, end in ends.items()},
            self.backlog.order,
            others=plan.elsewhere(),
        )
        hand = Hand(self, dispatcher, {n: list(r) for n, r in self.backlog.records.items()}, ends)
        claims = dispatcher.claims()
        for _ in range(steps):
            if not hand.step(self.random):
                assert dispatcher.complete
                break
            if self.random.random() < 0.1:  # a save
                claims = dispatcher.claims()
                hand.written = dispatcher.progress()
                dispatcher.changes()
        if dispatcher.complete:
            claims, hand.written = dispatcher.claims(), dispatcher.progress()
            assert set(claims) == {ALL}, "all is said by one claim"
        self.plan = replace(plan, claims=claims).merge(hand.written)

    def _in_tasks(self, tasks: int, steps: int) -> None:
        while not self.plan.complete:
            rows, ends, divided = self._wave(tasks)
            starts = self.plan.watermarks
            hands = []
            for number in range(tasks if divided else 1):
                dispatcher = Dispatcher(
                    {n: Ledger(starts[n], end) for n, end in ends.items()},
                    self.backlog.order,
                    elsewhere=self._absent(rows, number),
                )
                mine = {
                    n: [o for o, shares in by_offset.items() if shares[number]]
                    for n, by_offset in rows.items()
                }
                hands.append(Hand(self, dispatcher, mine, ends))
            busy = list(hands)
            while busy and steps:
                steps -= 1
                hand = self.random.choice(busy)
                if not hand.step(self.random):
                    busy.remove(hand)
                    hand.write()
                    assert hand.dispatcher.complete
            if divided and tasks > 1:
                for number, hand in enumerate(hands):
                    self._add(Claim(number, tasks), hand.written)
            else:
                self._add_to_all(hands[0].written)
            self.plan = OffsetPlan.decode(self.plan.encode())
            if busy:
                return
            self._fold(ends)

    def _wave(self, tasks: int) -> tuple[dict[int, dict[int, list[int]]], dict[int, int], bool]:
        plan, backlog = self.plan, self.backlog
        known = backlog.finished(plan)
        places = Places(backlog.order)
        rows: dict[int, dict[int, list[int]]] = {}
        ends: dict[int, int] = {}
        for n, start in plan.watermarks.items():
            rows[n] = {}
            ends[n] = min(backlog.ends[n], start + self.random.randint(1, 6))
            for offset in range(start, ends[n]):
                if offset not in backlog.records[n]:
                    continue
                message, subs = backlog.message(n, offset)
                identify(message, subs)
                done = sum(1 << i for i in range(len(subs)) if (n, offset, i) in known)
                shares = places.divide(subs, tasks, done)
                if shares is not None:
                    rows[n][offset] = shares
                elif offset > start:
                    ends[n] = offset
                    break
                else:  # this one alone
                    alone = {m: dict[int, list[int]]() for m in backlog.ends}
                    alone[n][offset] = [((1 << len(subs)) - 1) & ~done]
                    return alone, {**plan.watermarks, n: offset + 1}, False
        return rows, ends, True

    def _absent(self, rows: Mapping[int, Mapping[int, Sequence[int]]], number: int) -> Any:
        return lambda message, subs: (
            ((1 << len(subs)) - 1) & ~rows[message.partition][message.offset][number]
        )

    def _add(self, claim: Claim, written: Mapping[int, Progress]) -> None:
        before = self.plan.claims.get(str(claim))
        counted = {n: replace(p, messages=Counts()) for n, p in written.items()}
        if before is not None:
            counted = {
                n: replace(before[n].merge(p), sub_messages=before[n].sub_messages + p.sub_messages)
                for n, p in counted.items()
            }
        self.plan = replace(self.plan, claims={**self.plan.claims, str(claim): counted})

    def _add_to_all(self, written: Mapping[int, Progress]) -> None:
        known = self.plan.claims[ALL]
        self._replace_all(
            {
                n: replace(
                    known[n].merge(p),
                    messages=known[n].messages,
                    sub_messages=known[n].sub_messages + p.sub_messages,
                )
                for n, p in written.items()
            }
        )

    def _fold(self, ends: Mapping[int, int]) -> None:
        """The wave is over: "all" says so, and has counted it."""
        self._replace_all(
            {
                n: replace(
                    p.merge(Progress(ends[n])), messages=p.messages, sub_messages=p.sub_messages
                )
                for n, p in self.plan.claims[ALL].items()
            }
        )
        self.plan = self.plan.settled()

    def _replace_all(self, merged: Mapping[int, Progress]) -> None:
        known = self.plan.claims[ALL]
        counted = {}
        for n, progress in merged.items():
            more = sum(
                says_finished(progress, offset) and not says_finished(known[n], offset)
                for offset in self.backlog.records[n]
            )
            counted[n] = replace(progress, messages=progress.messages + Counts(more, more))
        self.plan = replace(self.plan, claims={**self.plan.claims, ALL: counted})

    def _check(self) -> None:
        self.plan = OffsetPlan.decode(self.plan.encode())
        plan, backlog = self.plan, self.backlog
        known = backlog.finished(plan)
        assert known <= self.ever, "the plan says too much"
        assert self._known <= known, "what was finished is so no more"
        for place in known:
            assert set(backlog.before(place)) <= known, "a lane has a gap"
        for n, watermark in plan.watermarks.items():
            left = [p[1] for p in backlog.places if p[0] == n and p not in self.ever]
            assert all(offset >= watermark for offset in left), "past an unfinished message"
        messages, subs = plan.counts()
        assert messages.conserved
        assert subs.conserved
        assert subs.finished == len(known)
        if plan.complete:
            assert known == set(backlog.places)
            assert messages == Counts(count := self._messages(), count)

    def _messages(self) -> int:
        return sum(len(records) for records in self.backlog.records.values())


def turns(random: Random) -> Iterable[int]:
    """How many tasks the next run has, 0 for one process without any."""
    for _ in range(random.randint(0, 5)):
        yield random.choice([0, 1, 2, 3, 8])


@given(seed=st.integers(0, 2**32))
@settings(max_examples=EXAMPLES, deadline=None)
@pytest.mark.parametrize("last", [0, 3])
def test_whoever_goes_on_after_a_kill_keeps_the_laws(seed: int, last: int) -> None:
    random = Random(seed)
    drain = Drain(random)
    for tasks in turns(random):
        drain.run(tasks=tasks, steps=random.randint(0, 120))

    drain.run(tasks=last, steps=100_000)

    assert drain.plan.complete
