"""Checks of the laws of ``handle``: sub-keys commute, and what was handled last may be repeated.

Each check handles the messages in the serial order, and then in other orders that a drain may
choose. If the states at the end differ, the check looks for a small counter-example: it leaves out
sub-messages as long as the states still differ.
"""

from __future__ import annotations

import asyncio
import copy
from bisect import insort
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from random import Random
from time import monotonic
from typing import Any

from drainer.certify.form import difference, equal, short
from drainer.certify.split import LawBroken
from drainer.certify.subject import AT_ONCE, HandlerSource, Subject, again, run, sub_messages_of
from drainer.core.batches import InPart
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.errors import SplitFailed
from drainer.handler import Skip
from drainer.host.calls import ensure_done
from drainer.loading.loader import LoadedHandler
from drainer.message import Barrier, Message, SubMessage
from drainer.model.order import keys_of, lane_of
from drainer.operations.in_memory import ends_of
from drainer.text.mask import describe

# A function that returns the state of a handler, which is an instance or a module. It may be async.
StateOf = Callable[[Any], Any]
Priority = Callable[["Part"], Any]

SEARCH_S = 30.0  # After this time, a check begins no further schedule.
NARROWING_RUNS = 300  # The number of attempts to find a smaller counter-example.
NAMED_MOST = 4  # A counter-example names at most this many sub-messages, and counts the others.

_REPEAT = (
    "Write values that do not depend on stored ones and never go back, or store sub.id with the"
    " effect."
)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The identity of a sub-message of the sample, for schedules.

    ``keys`` are the keys of its lanes. A barrier has none.
    """

    position: int  # The position of its message in the sample.
    index: int
    partition: int
    keys: tuple[Hashable, ...]
    text: str

    @classmethod
    def of(cls, position: int, sub: SubMessage) -> Part:
        if isinstance(sub, Barrier):
            return cls(position, sub.index, sub.message.partition, (), f"{sub} (a barrier)")
        word = "sub-key" if len(keys_of(sub)) == 1 else "sub-keys"
        text = f"{sub} ({word} {', '.join(short(key, 60) for key in keys_of(sub))})"
        lanes = (lane_of(sub),) if sub.keys is None else sub.keys
        return cls(position, sub.index, sub.message.partition, lanes, text)


# An order of parts. The parts of one step are in the handler at the same time.
Steps = Sequence[Sequence[Part]]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a schedule: the state of the handler, or the error that ``handle`` raised."""

    state: Any = None
    raised: str | None = None

    def same(self, other: Ended) -> bool:
        return self.raised == other.raised and equal(self.state, other.state)

    def against(self, other: Ended) -> tuple[str, str]:
        """Describe how this run and another one ended.

        The two texts are about the error, or about the first place at which the states differ.
        """
        if self.raised is not None or other.raised is not None:
            return self.raised or "no error", other.raised or "no error"
        place, here, there = difference(self.state, other.state)
        return f"state{place} = {here}", f"state{place} = {there}"


@dataclass(frozen=True, slots=True)
class CounterExample:
    """Parts of the sample with which ``schedule`` ends in another way than the serial order."""

    parts: Sequence[Part]
    schedule: Sequence[Steps]
    ended: Ended
    serial: Ended


class Trial:
    """The sample and the handler under test. Each run has a new handler, where that is possible.

    ``parts`` are the sub-messages of all messages that ``split`` accepts. Raises LawBroken if
    ``handle`` raises in the serial order, or if that order does not always end in the same state.
    Raises ValueError if nothing can be learned from the sample.
    """

    def __init__(self, subject: Subject, messages: Sequence[Message], state: StateOf) -> None:
        self._subject, self._state = subject, state
        self._known: dict[tuple[Part, ...], Ended] = {}  # The ends of serial orders.
        self._sample = [again(message) for message in messages]
        self.parts, self.is_async = run(self._split_all())
        if not self.parts:
            raise ValueError("split gives no sub-message for any of these messages")
        first, second = self.run(_one_by_one(self.parts)), self.run(_one_by_one(self.parts))
        if first.raised is not None:
            hint = (
                "Fix handle: a drain halts there. If it needs the effects of earlier messages,"
                " prepare them in open()."
            )
            raise LawBroken("handle", f"in order and one at a time, {first.raised}", hint)
        if not first.same(second):
            one, other = first.against(second)
            text = f"the same sub-messages in the same order left {one}, then {other}"
            hint = (
                "Begin with the same state in each open(). Leave times and random ids out of the"
                " state function."
            )
            raise LawBroken("state", text, hint)
        if first.same(self.run()):
            raise ValueError("the state function sees no change: return all that handle writes")

    async def _split_all(self) -> tuple[list[Part], bool]:
        parts: list[Part] = []
        rejected: SplitFailed | None = None
        async with self._subject.opened(self._sample) as handler:
            for position, message in enumerate(self._sample):
                try:
                    subs = sub_messages_of(handler, message)
                except SplitFailed as error:
                    rejected = error
                else:
                    parts += [Part.of(position, sub) for sub in subs]
            if rejected is not None and not parts:
                raise LawBroken("split", str(rejected), rejected.hint or "")
            return parts, handler.is_async

    def run(self, *schedule: Steps) -> Ended:
        """Handle the parts of a schedule, and return the state at the end.

        If the schedule has several ``Steps``, the messages are split again for each of them, as in
        a process that resumes after a crash.
        """
        return run(self._run(schedule))

    async def _run(self, schedule: Sequence[Steps]) -> Ended:
        async with self._subject.opened(self._sample) as handler:
            for steps in schedule:
                subs = self._subs(handler, steps)
                for step in steps:
                    calls = [_error_of(handler, subs[part]) for part in step]
                    for part, error in zip(step, await asyncio.gather(*calls), strict=True):
                        if error is not None:
                            where = str(subs[part])
                            return Ended(raised=f"handle raised {describe(error)} at {where}")
            found = self._state(handler.target)
            if isinstance(found, Awaitable):
                found = await found
            try:
                return Ended(copy.deepcopy(found))
            except Exception:
                # The state can't be copied. This does no harm if each run has a new handler,
                # because no later run changes this one.
                return Ended(found)

    def _subs(self, handler: LoadedHandler, steps: Steps) -> dict[Part, SubMessage]:
        wanted: defaultdict[int, list[Part]] = defaultdict(list)
        for step in steps:
            for part in step:
                wanted[part.position].append(part)
        found: dict[Part, SubMessage] = {}
        for position, parts in wanted.items():
            subs = sub_messages_of(handler, self._sample[position])
            if len(subs) <= max(part.index for part in parts):
                text = f"{self._sample[position]} gave fewer sub-messages than before"
                raise LawBroken("deterministic", text, "Make split depend on the message alone.")
            found.update((part, subs[part.index]) for part in parts)
        return found

    def schedule(self, parts: Sequence[Part], priority: Priority, width: int) -> Sequence[Steps]:
        """Return a schedule of parts that a drain may choose.

        A drain's dispatcher decides which parts may be handled next. Of these, the ``width`` parts
        with the highest priority are handled together.
        """
        by_message: defaultdict[int, list[Part]] = defaultdict(list)
        for part in parts:
            by_message[part.position].append(part)
        ends = ends_of([self._sample[position] for position in by_message])
        dispatcher = Dispatcher({number: Ledger(0, end) for number, end in ends.items()})
        part_of: dict[int, tuple[Part, SubMessage]] = {}
        for position, own in by_message.items():
            stand_ins = [SubMessage(keys=part.keys) if part.keys else Barrier() for part in own]
            dispatcher.deliver(again(self._sample[position]), stand_ins)
            part_of |= {id(sub): (part, sub) for part, sub in zip(own, stand_ins, strict=True)}
        free: list[tuple[Part, SubMessage]] = []
        steps: list[list[Part]] = []
        while True:
            while (sub := dispatcher.take()) is not None:
                insort(free, part_of[id(sub)], key=lambda each: priority(each[0]))
            if not free:
                return [steps]
            taken = [free.pop() for _ in range(min(width, len(free)))]
            steps.append([part for part, _ in taken])
            for _, sub in taken:
                dispatcher.finish(sub)

    def find(
        self, parts: Sequence[Part], schedule: Callable[[Sequence[Part]], Sequence[Steps]]
    ) -> CounterExample | None:
        """Return a small counter-example among these parts; None if there is none.

        ``schedule`` makes a schedule of some parts. They are a counter-example if the schedule does
        not end as their serial order does.
        """

        def differs(some: Sequence[Part]) -> CounterExample | None:
            serial = self._known.get(tuple(some))
            if serial is None:
                serial = self._known[tuple(some)] = self.run(_one_by_one(some))
            if serial.raised is not None:
                # These parts need parts that were left out, so the error proves nothing.
                return None
            made = schedule(some)
            ended = self.run(*made)
            return None if ended.same(serial) else CounterExample(some, made, ended, serial)

        return _minimized(parts, differs)

    def serial_groups(self) -> list[Sequence[Part]]:
        """Return the parts in groups, each of which has only one serial order.

        Kafka promises no order between partitions. While one partition waits at a barrier,
        sub-messages of other partitions may enter the lanes, and this is a valid serial order, too.
        So if there are barriers, each partition is a group of its own.
        """
        partitions = sorted({part.partition for part in self.parts})
        if len(partitions) < 2 or all(part.keys for part in self.parts):
            return [self.parts]
        return [[part for part in self.parts if part.partition == each] for each in partitions]


def check_commutes(
    handler: HandlerSource,
    messages: Sequence[Message],
    state: StateOf,
    *,
    options: Mapping[str, str] | None = None,
    schedules: int = 100,
    seed: int = 0,
) -> None:
    """Ensure that all schedules that a drain may choose end in the state of the serial order.

    The check tries up to ``schedules`` random schedules, drawn from ``seed``, for at most 30 s. If
    ``handler`` is a class, or a function that makes handlers, each schedule has a fresh handler,
    which is opened and closed. At the end, ``state`` is called with the handler, and its results
    are compared by ``==``. An async ``handle`` also gets several sub-messages at once. A plain one
    gets them one after the other, because threads can't be made to take turns.

    Raises:
        LawBroken: with the sub-messages that don't commute, as few as could be found.
        ValueError: when the sample leaves nothing to compare: all its sub-messages share one
            sub-key, or ``state`` sees no change.
    """
    trial = Trial(Subject(handler, options), messages, state)
    groups = [
        parts
        for parts in trial.serial_groups()
        if trial.schedule(parts, _last, 1) != [_one_by_one(parts)]
    ]
    if not groups:
        raise ValueError(
            "nothing to compare: all these sub-messages share one sub-key. Take more messages, or"
            " split finer: a drain gains nothing from one lane."
        )
    for priority in _priorities(schedules, seed):
        for width in (1, AT_ONCE) if trial.is_async else (1,):
            for parts in groups:
                found = trial.find(parts, partial(trial.schedule, priority=priority, width=width))
                if found is not None:
                    raise _not_commuting(found)


def check_idempotent(
    handler: HandlerSource,
    messages: Sequence[Message],
    state: StateOf,
    *,
    options: Mapping[str, str] | None = None,
    schedules: int = 100,
    seed: int = 0,
) -> None:
    """Ensure that what was handled last may be handled again, as by a resume after a kill.

    The same handler handles sub-messages again: at first all of them, and then random stretches,
    drawn from ``seed``. The handler keeps its memory, although a real kill would lose it.

    Raises:
        LawBroken: with the sub-messages that were repeated, and the state at the end.
        ValueError: when ``split`` gives no sub-message, or ``state`` sees no change.
    """
    trial = Trial(Subject(handler, options), messages, state)
    chance, total = Random(seed), len(trial.parts)
    until = monotonic() + SEARCH_S
    first, end = 0, total
    for _ in range(schedules):
        killed = partial(_killed, before=set(trial.parts[:end]), after=set(trial.parts[first:]))
        found = trial.find(trial.parts, killed)
        if found is not None:
            raise LawBroken("idempotent", _repeat_in_words(found), _REPEAT)
        if monotonic() > until:
            return
        first = chance.randrange(total)
        end = chance.randint(first + 1, total)


def _killed(parts: Sequence[Part], before: Set[Part], after: Set[Part]) -> Sequence[Steps]:
    """Return a schedule of the parts before a kill, and then of those that a resume handles."""
    return [_one_by_one([part for part in parts if part in each]) for each in (before, after)]


def _priorities(schedules: int, seed: int) -> Iterator[Priority]:
    """Yield priorities: at first one that prefers later parts, and then random ones.

    The first priority reverses each pair of parts that may change places.
    """
    until = monotonic() + SEARCH_S
    yield _last
    chance = Random(seed)
    for _ in range(schedules - 1):
        if monotonic() > until:
            return
        drawn: defaultdict[Part, float] = defaultdict(chance.random)
        yield drawn.__getitem__


def _last(part: Part) -> tuple[int, int]:
    return part.position, part.index


def _one_by_one(parts: Sequence[Part]) -> Steps:
    return [[part] for part in parts]


async def _error_of(handler: LoadedHandler, sub: SubMessage) -> BaseException | None:
    """Handle a sub-message, and return the error that ``handle`` raised. ``Skip`` is no error."""
    try:
        result = handler.handle(sub)
        if handler.is_async:
            result = await result
        ensure_done(result)
    except Skip:
        return None
    except InPart as part:  # Raised if handle_batch returned an outcome for each sub-message.
        return next((each for each in part.results if not isinstance(each, Skip | None)), None)
    except (Exception, SystemExit) as error:
        return error
    return None


def _minimized(
    parts: Sequence[Part], differs: Callable[[Sequence[Part]], CounterExample | None]
) -> CounterExample | None:
    """Return a counter-example with as few parts as possible; None if there is none.

    At first, half of the parts are left out, and then fewer at a time, until every remaining part
    is needed.
    """
    found = differs(parts)
    kept = list(parts)
    size, left = len(kept) // 2, NARROWING_RUNS
    while found is not None and size and left > 0:
        at, before = 0, len(kept)
        while at < len(kept) and left > 0:
            fewer = kept[:at] + kept[at + size :]
            left -= 1
            smaller = differs(fewer) if fewer else None
            if smaller is None:
                at += size
            else:
                found, kept = smaller, fewer
        if size > 1 or len(kept) == before:
            size //= 2
    return found


def _not_commuting(found: CounterExample) -> LawBroken:
    there, here = found.ended.against(found.serial)
    together = next((step for step in found.schedule[0] if len(step) > 1), None)
    if together is not None:
        words, others = _named(sorted(together, key=_last)), _beside(found, together)
        return LawBroken(
            "commutes",
            f"{words} at the same time leave {there}; one after the other, {here}{others}",
            "Don't await between reading and writing a shared value, or name it in `keys`.",
        )
    order, serial = [part for (part,) in found.schedule[0]], list(found.parts)
    # The parts with which both orders begin or end are not part of the difference.
    while len(order) > 2 and order[0] is serial[0]:
        del order[0], serial[0]
    while len(order) > 2 and order[-1] is serial[-1]:
        del order[-1], serial[-1]
    if len(order) == 2:
        one, other = serial
        text = f"{one.text} and then {other.text} leaves {here}; the other way round, {there}"
    else:
        text = f"{_named(serial)} in this order leave {here}; as {_named(order)}, {there}"
    hint = "Name in `keys` all that an operation touches, or make it a Barrier."
    return LawBroken("commutes", text + _beside(found, order), hint)


def _repeat_in_words(found: CounterExample) -> str:
    there, here = found.ended.against(found.serial)
    before, after = ([part for (part,) in steps] for steps in found.schedule)
    repeated = [part for part in after if part in before]
    return (
        f"killed after {_named(repeated)}, and resumed from {repeated[0].text} on, it leaves"
        f" {there}; without the kill, {here}{_beside(found, repeated)}"
    )


def _named(parts: Sequence[Part]) -> str:
    texts = [part.text for part in parts[:NAMED_MOST]]
    if len(parts) > NAMED_MOST:
        texts.append(f"{len(parts) - NAMED_MOST} more")
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _beside(found: CounterExample, named: Sequence[Part]) -> str:
    others = len(found.parts) - len(named)
    return f" (with {others} more handled around them)" if others else ""
