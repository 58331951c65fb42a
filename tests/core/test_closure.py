"""What travels without the plan: never a message whose forerunners would be handled after it."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random

import pytest

from drainer.core import closure as closure_module
from drainer.core.closure import closed
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.core.order import Order
from drainer.core.progress import Partial, Progress, ranges_of
from drainer.message import Barrier, SubMessage

from .messages import deliver, message_at, one_partition, says_finished, take_all

Place = tuple[int, int]  # offset, index
Spec = tuple[Hashable, ...]  # the sub-keys of a sub-message; none for a barrier


def told(dispatcher: Dispatcher) -> Progress:
    """What goes to the group: the watermark, and ranges above it."""
    progress = dispatcher.progress()
    return Progress(progress[0].watermark, dispatcher.closed(progress)[0])


def finish(dispatcher: Dispatcher, taken: dict[str, SubMessage], *places: str) -> None:
    for place in places:
        dispatcher.finish(taken.pop(place))
        taken.update(take_all(dispatcher))


def begun(*messages: tuple[SubMessage | str, ...]) -> tuple[Dispatcher, dict[str, SubMessage]]:
    dispatcher = one_partition(0, 100)
    for offset, subs in enumerate(messages):
        deliver(dispatcher, offset, *subs)
    return dispatcher, take_all(dispatcher)


def test_messages_that_are_whole_travel() -> None:
    dispatcher, taken = begun(("stuck",), ("a",), ("b",), ("a",))
    finish(dispatcher, taken, "1[0]", "2[0]", "3[0]")

    assert told(dispatcher) == Progress(0, ((1, 4),))


def test_what_follows_a_part_that_will_be_repeated_does_not_travel() -> None:
    """Handled again, the part would be the last word on its sub-key."""
    dispatcher, taken = begun(("a", "stuck"), ("a",), ("b",))
    finish(dispatcher, taken, "0[0]", "1[0]", "2[0]")

    assert told(dispatcher) == Progress(0, ((2, 3),))


def test_nor_what_follows_that() -> None:
    dispatcher, taken = begun(("a", "stuck"), ("a", "b"), ("b", "c"), ("c",), ("d",))
    finish(dispatcher, taken, "0[0]", "1[1]", "1[0]", "2[0]", "2[1]", "3[0]", "4[0]")

    assert told(dispatcher) == Progress(0, ((4, 5),))


def test_it_travels_once_the_message_before_it_is_whole() -> None:
    dispatcher, taken = begun(("stuck",), ("a", "slow"), ("a",))
    finish(dispatcher, taken, "1[0]", "2[0]")
    assert told(dispatcher) == Progress(0)

    finish(dispatcher, taken, "1[1]")

    assert told(dispatcher) == Progress(0, ((1, 3),))


def test_one_of_several_sub_keys_is_enough() -> None:
    both = SubMessage(keys=("a", "b"))
    dispatcher, taken = begun((both, "stuck"), ("b",), (SubMessage(("a", "b")),))
    finish(dispatcher, taken, "0[0]", "1[0]", "2[0]")

    assert told(dispatcher) == Progress(0, ((2, 3),)), "a tuple is a sub-key of its own"


def test_what_ran_behind_a_barrier_stays_behind_it() -> None:
    dispatcher, taken = begun((Barrier(), "stuck"), ("a",))
    finish(dispatcher, taken, "0[0]", "1[0]")

    assert told(dispatcher) == Progress(0)


def test_a_message_that_rests_in_part_counts_from_its_first_finished_part_on() -> None:
    """Its account has begun before that, and the group was told meanwhile."""
    chosen = Dispatcher({0: Ledger(0, 100)}, selects=lambda sub: sub.key != "later")
    deliver(chosen, 0, "later", "a")
    deliver(chosen, 1, "a")
    taken = take_all(chosen)
    assert told(chosen) == Progress(0)
    finish(chosen, taken, "0[1]", "1[0]")

    assert told(chosen) == Progress(0)


def test_parts_of_an_earlier_run_hold_back_all_that_finished_behind_them() -> None:
    """Nobody knows any more which sub-keys these had."""
    partial = {3: Partial(2, 0, 0b01)}
    progress = Progress(0, ((1, 3), (4, 9)), partial)

    assert closed(progress) == ((1, 3),)
    dispatcher = one_partition(0, 100, progress)
    deliver(dispatcher, 0, "stuck")
    assert told(dispatcher) == Progress(0, ((1, 3),))


def test_they_travel_again_when_the_watermark_is_past_them() -> None:
    keys = ("a", "b")
    part = first_of(keys)
    dispatcher = one_partition(0, 100, Progress(0, ((2, 4),), {0: part}))
    deliver(dispatcher, 0, *keys)
    dispatcher.skip_to(0, 4)
    for offset, key in enumerate(["stuck", "x", "y"], 4):
        deliver(dispatcher, offset, key)
    deliver(dispatcher, 7, "z")
    taken = take_all(dispatcher)
    finish(dispatcher, taken, "5[0]")
    assert told(dispatcher) == Progress(0)

    finish(dispatcher, taken, "0[1]", "6[0]")

    assert told(dispatcher) == Progress(4, ((5, 7),))


def test_lanes_by_message_key_keep_their_order_whatever_the_sub_keys() -> None:
    """1 shares a sub-key with the part, and no lane; 2 has its lane behind 1."""
    dispatcher = Dispatcher({0: Ledger(0, 100)}, Order.KEY)
    messages = [("y", "a", "b"), ("z", "a"), ("z", "c")]
    for offset, (key, *subs) in enumerate(messages):
        message = message_at(offset, key=key.encode())
        dispatcher.deliver(message, [SubMessage(sub) for sub in subs])
    taken = take_all(dispatcher)
    finish(dispatcher, taken, "0[0]", "1[0]", "2[0]")

    assert told(dispatcher) == Progress(0, ((1, 3),))


def test_a_barrier_holds_back_what_is_behind_it_in_every_order() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 100)}, Order.NONE)
    dispatcher.deliver(message_at(0), [SubMessage("a"), Barrier(), SubMessage("b")])
    dispatcher.deliver(message_at(1), [SubMessage("c")])
    taken = take_all(dispatcher)
    finish(dispatcher, taken, "0[0]", "0[1]", "1[0]")

    assert told(dispatcher) == Progress(0)


def first_of(keys: tuple[str, ...]) -> Partial:
    """As the ledger notes it of a message of which the first sub-message is finished."""
    dispatcher, taken = begun(("stuck",), keys)
    finish(dispatcher, taken, "1[0]")
    return dispatcher.progress()[0].partial[1]


class Backlog:
    """Messages at random, drained at random, and a naive account of what happened."""

    def __init__(self, chance: Random, messages: int, keys: int, barriers: bool) -> None:
        self.chance = chance
        self.records: dict[int, list[Spec]] = {}
        offset = chance.randrange(5)
        for _ in range(messages):
            count = chance.choice([1, 1, 2, 3])
            self.records[offset] = [self._spec(keys, barriers) for _ in range(count)]
            offset += chance.choice([1, 1, 1, 2])
        self.end = offset
        self.dispatcher = Dispatcher({0: Ledger(0, self.end)})
        self.finished: set[Place] = set()
        self.stuck = {
            (o, n) for o, specs in self.records.items() for n in range(len(specs))
            if chance.random() < 0.1
        }  # fmt: skip
        for offset, specs in self.records.items():
            self.dispatcher.deliver(message_at(offset), [sub_of(spec) for spec in specs])
        self.running: list[SubMessage] = []

    def _spec(self, keys: int, barriers: bool) -> Spec:
        if barriers and self.chance.random() < 0.05:
            return ()
        return tuple(
            self.chance.sample([f"k{n}" for n in range(keys)], self.chance.choice([1, 1, 2]))
        )

    def step(self) -> bool:
        """Take or finish one; whether anything could be done."""
        while (sub := self.dispatcher.take()) is not None:
            self.running.append(sub)
        free = [s for s in self.running if (s.message.offset, s.index) not in self.stuck]
        if not free:
            return False
        sub = self.chance.choice(free)
        self.running.remove(sub)
        self.dispatcher.finish(sub)
        self.finished.add((sub.message.offset, sub.index))
        return True

    def order_law(self, progress: Progress) -> None:
        """Of what depends on each other, nothing is left out behind what is handled again."""
        again: list[tuple[Place, Spec]] = []
        for offset, specs in self.records.items():
            left_out = says_finished(progress, offset)
            for index, spec in enumerate(specs):
                place = (offset, index)
                if not left_out:
                    again.append((place, spec))
                    continue
                assert place in self.finished, f"{place} was never handled"
                for earlier, other in again:
                    if depend(spec, other):
                        assert earlier not in self.finished, f"{earlier} comes after {place}"
                        raise AssertionError(f"{place} was handled before {earlier}")

    def all_that_may_travel(self) -> set[int]:
        """The most whole messages that obey the law, by taking away until nothing changes."""
        kept = {
            offset
            for offset, specs in self.records.items()
            if all((offset, n) in self.finished for n in range(len(specs)))
        }
        while True:
            again = [
                (offset, spec)
                for offset, specs in self.records.items()
                if offset not in kept
                for spec in specs
            ]
            bad = {
                offset
                for offset in kept
                if any(
                    earlier < offset and depend(spec, other)
                    for earlier, other in again
                    for spec in self.records[offset]
                )
            }
            if not bad:
                return kept
            kept -= bad


def sub_of(spec: Spec) -> SubMessage:
    if not spec:
        return Barrier()
    return SubMessage(spec[0]) if len(spec) == 1 else SubMessage(keys=spec)


def depend(one: Spec, other: Spec) -> bool:
    return not one or not other or not set(one).isdisjoint(other)


@pytest.mark.parametrize("seed", range(150))
def test_whoever_goes_on_without_the_plan_keeps_the_order(seed: int) -> None:
    """And all that may be left out by it is."""
    chance = Random(seed)
    backlog = Backlog(chance, 40, chance.choice([3, 10, 40]), barriers=seed % 3 == 0)
    while backlog.step():
        if chance.random() < 0.2:
            progress = told(backlog.dispatcher)
            backlog.order_law(progress)
            known = {o for o in backlog.records if says_finished(progress, o)}
            assert known == backlog.all_that_may_travel()


@pytest.mark.parametrize("seed", range(60))
def test_with_too_many_sub_keys_to_remember_it_keeps_the_order_too(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closure_module, "KEYS_MOST", seed % 6)
    chance = Random(seed)
    backlog = Backlog(chance, 40, chance.choice([3, 10, 40]), barriers=False)
    while backlog.step():
        if chance.random() < 0.2:
            backlog.order_law(told(backlog.dispatcher))
    backlog.stuck.clear()
    while backlog.step():
        pass
    assert not backlog.running
    assert says_finished(told(backlog.dispatcher), max(backlog.records))


@pytest.mark.parametrize("seed", range(60))
def test_after_a_resume_it_keeps_the_order_too(seed: int) -> None:
    chance = Random(seed)
    backlog = Backlog(chance, 40, chance.choice([3, 10, 40]), barriers=False)
    for _ in range(chance.randrange(40)):
        backlog.step()
    known = backlog.dispatcher.progress()[0]
    backlog.dispatcher = Dispatcher({0: Ledger(0, backlog.end, known)})
    backlog.running.clear()
    for offset, specs in backlog.records.items():
        message = message_at(offset)
        if backlog.dispatcher.wants(message):
            backlog.dispatcher.deliver(message, [sub_of(spec) for spec in specs])
    while backlog.step():
        if chance.random() < 0.2:
            backlog.order_law(told(backlog.dispatcher))


def test_nothing_is_kept_of_messages_when_none_are_finished_in_part() -> None:
    dispatcher, taken = begun(("stuck",), *((f"k{n}",) for n in range(200)))
    finish(dispatcher, taken, *(f"{n}[0]" for n in range(1, 201)))

    assert told(dispatcher) == Progress(0, ranges_of(range(1, 201)))
    assert not dispatcher.ledgers[0]._closure._noted
