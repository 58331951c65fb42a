"""Trials: a fresh handler gets sub-messages in some order, and its state afterwards is compared.

The search for an order that ends in another state is Hypothesis's, which shrinks it.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

from drainer.certify.form import difference, equal
from drainer.certify.schedule import SampleWork, Step, SubIndex, dispatcher_of
from drainer.certify.split_result import split_result
from drainer.certify.subject import Subject, again, run
from drainer.certify.travel import shipped
from drainer.core.batches import Batcher, InPart
from drainer.engine.loop import ensure_done
from drainer.errors import HandleFailed, SplitFailed
from drainer.handler import Skip
from drainer.loader import LoadedHandler
from drainer.mask import describe
from drainer.message import Message, SubMessage
from drainer.splitting import split_up

StateOf = Callable[[Any], Any]  # of the handler: an instance or a module; may be async
Parts = tuple[Sequence[Step], ...]
Draw = Callable[[int, int], int]  # an int between two, both included; shrinks to the first

MESSAGES_DRAWN = 8  # of the sample, for one schedule
DRAWS = 100  # choices in one schedule; what comes after is in order
NARROWING_RUNS = 300


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a trial: a state, or what ``handle`` raised."""

    state: Any = None
    raised: str | None = None

    def same(self, other: Ended) -> bool:
        return self.raised == other.raised and equal(self.state, other.state)

    def against(self, other: Ended) -> tuple[str, str]:
        """Difference in words: what this one has where they differ, and what the other has."""
        if self.raised is not None or other.raised is not None:
            return self._error(), other._error()
        place, here, there = difference(self.state, other.state)
        name = f"state{place}"
        return f"{name} = {here}", f"{name} = {there}"

    def _error(self) -> str:
        return "no error" if self.raised is None else f"an error ({self.raised})"


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of a search: drawn schedules of each kind, seconds for them, and the seed."""

    examples: int = 100
    seconds: float = 30.0
    seed: int = 0


NORMAL = Effort()


class HandlerTrial:
    """Runs schedules, each on a handler of its own; counts what it has ``handled``.

    Its ``work`` is of the messages that ``split`` does not reject. Raises SplitFailed when it
    rejects all of them.
    """

    def __init__(
        self, subject: Subject, messages: Sequence[Message], state: StateOf, effort: Effort
    ) -> None:
        self.effort = effort
        self.handled = 0
        self._subject, self._state = subject, state
        self._sample, self.work, self.is_async = run(self._split_all(messages))

    async def _split_all(
        self, messages: Sequence[Message]
    ) -> tuple[Sequence[Message], SampleWork, bool]:
        async with self._subject.opened(messages) as handler:
            kept = [m for m in messages if not isinstance(split_result(again(m), handler)[1], str)]
            sample = [again(message) for message in kept or messages]
            return kept, SampleWork.of(sample, handler.split), handler.is_async

    def run(self, *parts: Sequence[Step], is_shipped: bool = False) -> Ended:
        """Handles the parts one after the other, and gives the state at the end.

        Each part is split again, as by a process that resumes after a crash. ``is_shipped``: with
        what Spark's tasks are sent. Raises SplitFailed and Refused where payloads can't be sent.
        """
        return run(self._run(parts, is_shipped=is_shipped))

    def run_together(self, chosen: Sequence[int]) -> Ended | None:
        """Handles some messages as a drain with one worker does that has read them all: folded,
        and in batches. None when the handler takes sub-messages one by one."""
        return run(self._run_together([again(self._sample[position]) for position in chosen]))

    async def _run_together(self, sample: Sequence[Message]) -> Ended | None:
        async with self._subject.opened(self._sample) as handler:
            if handler.batching is None:
                return None
            dispatcher = dispatcher_of(sample)
            for message in sample:
                dispatcher.deliver(message, split_up(handler.split, message))
            batcher = Batcher(dispatcher, handler.batching)
            try:
                while (batch := batcher.take()) is not None:
                    self.handled += 1
                    raised = await _caught(handler, handler.handle_batch, batch)
                    if raised is not None:
                        return Ended(raised=f"a call raised {describe(raised)} at {batch}")
                    batcher.finish(batch)
            except HandleFailed as error:  # coalesce
                return Ended(raised=str(error))
            return await self._ended(handler)

    async def _run(self, parts: Sequence[Sequence[Step]], *, is_shipped: bool) -> Ended:
        async with self._subject.opened(self._sample) as handler:
            for part in parts:
                subs = self._split(handler, part, is_shipped=is_shipped)
                for step in part:
                    raised = await self._handle(handler, [subs[place] for place in step])
                    if raised is not None:
                        return Ended(raised=raised)
            return await self._ended(handler)

    async def _ended(self, handler: LoadedHandler) -> Ended:
        found = self._state(handler.target)
        if isinstance(found, Awaitable):
            found = await found
        try:
            return Ended(copy.deepcopy(found))
        except Exception:  # it can't be copied; a fresh handler won't change this one's
            return Ended(found)

    def _split(
        self, handler: LoadedHandler, part: Sequence[Step], *, is_shipped: bool
    ) -> dict[SubIndex, SubMessage]:
        subs: dict[SubIndex, SubMessage] = {}
        for position in dict.fromkeys(position for step in part for position, _ in step):
            message = again(self._sample[position])
            found = split_up(handler.split, message)
            for index, sub in enumerate(found):
                sub.message, sub.index, sub.attempt = message, index, 1
            if is_shipped:
                found = shipped(handler, message, found)
            subs.update(((position, sub.index), sub) for sub in found)
        missing = next((place for step in part for place in step if place not in subs), None)
        if missing is not None:
            raise SplitFailed(
                f"split is not deterministic: {self._sample[missing[0]]} gave fewer sub-messages"
                " than before",
                hint="Make split depend on the message alone: not on time, chance or state.",
            )
        return subs

    async def _handle(self, handler: LoadedHandler, subs: Sequence[SubMessage]) -> str | None:
        self.handled += len(subs)
        ended = await asyncio.gather(*(_caught(handler, handler.handle, sub) for sub in subs))
        raised = [
            f"handle raised {describe(error)} at {sub}"
            for sub, error in zip(subs, ended, strict=True)
            if error is not None
        ]
        return raised[0] if raised else None


async def _caught(
    handler: LoadedHandler, handle: Callable[[Any], Any], given: object
) -> Exception | SystemExit | None:
    try:
        result = handle(given)
        if handler.is_async:
            result = await result
        ensure_done(result)
    except Skip:
        return None
    except InPart as part:
        failed = (error for error in part.results if not isinstance(error, Skip | None))
        return cast("Exception | None", next(failed, None))
    except (Exception, SystemExit) as error:
        return error
    return None


@dataclass(frozen=True, slots=True)
class CounterExample:
    """A schedule that ends otherwise than the serial one of the same messages."""

    work: SampleWork
    parts: Parts
    serial: Ended
    ended: Ended


def minimized(
    found: CounterExample, differs: Callable[[SampleWork], CounterExample | None]
) -> CounterExample:
    """The same with messages left out, more and more until each of the rest is needed."""
    left = NARROWING_RUNS
    size = max(1, len(found.work.chosen) // 2)
    while left:
        before = len(found.work.chosen)
        at = 0
        while at < len(found.work.chosen) and left:
            chosen = found.work.chosen
            rest = found.work.only(chosen[:at] + chosen[at + size :])
            left -= 1
            smaller = differs(rest) if rest.chosen else None
            if smaller is None:
                at += size
            else:
                found = smaller
        if size > 1:
            size //= 2
        elif len(found.work.chosen) == before:
            break
    return found


class _Differs(Exception):
    def __init__(self, example: CounterExample) -> None:
        super().__init__()
        self.example = example


@dataclass(eq=False)
class Search:
    """Tries the ``wide`` schedule of all messages, then schedules of a few that ``drawn`` makes.

    The wide one finds nearly everything at once, and explains little of it: when it differs,
    messages are left out for as long as it still does, and the drawing goes on with those.
    """

    trial: HandlerTrial
    wide: Callable[[SampleWork], Parts]
    drawn: Callable[[SampleWork, Draw], Parts]

    def __post_init__(self) -> None:
        self._known: dict[tuple[int, ...], Ended] = {}
        self.tried = 0

    def find(self, work: SampleWork) -> CounterExample | None:
        """A small schedule that should end as the serial one does, and doesn't."""
        whole = self._try(work, self.wide(work))
        if whole is None:
            return self._draw(work, MESSAGES_DRAWN)
        whole = minimized(whole, lambda part: self._try(part, self.wide(part)))
        return self._draw(whole.work, len(whole.work.chosen)) or whole

    def _draw(self, work: SampleWork, most: int) -> CounterExample | None:
        # Only now: a drain must not pay for the import.
        from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings  # noqa: PLC0415
        from hypothesis import strategies as st  # noqa: PLC0415
        from hypothesis.errors import Flaky  # noqa: PLC0415

        most = min(len(work.chosen), most)
        each = st.sampled_from(work.chosen)
        chosen = st.lists(each, min_size=1, max_size=most, unique=True)
        if most == len(work.chosen):  # which all of them would hardly ever be drawn for
            chosen |= st.just(list(work.chosen))
        until = monotonic() + self.trial.effort.seconds
        found: CounterExample | None = None

        @seed(self.trial.effort.seed)
        @settings(
            max_examples=self.trial.effort.examples,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        @given(st.data())
        def differs_nowhere(data: st.DataObject) -> None:
            nonlocal found
            if found is None and monotonic() > until:
                return
            left = DRAWS

            def draw(least: int, most: int) -> int:
                nonlocal left
                if left <= 0 or least == most:
                    return least
                left -= 1
                return data.draw(st.integers(least, most))

            part = work.only(data.draw(chosen))
            example = self._try(part, self.drawn(part, draw)) if part.specs else None
            if example is not None:
                found = example
                raise _Differs(example)

        try:
            differs_nowhere()
        except _Differs as differs:
            return differs.example
        except Flaky:  # it did not end twice in the same way; the last that differed is true
            return found
        return None

    def _try(self, work: SampleWork, parts: Parts) -> CounterExample | None:
        serial = self._known.get(work.chosen)
        if serial is None:
            serial = self._known[work.chosen] = self.trial.run(work.serial)
        if serial.raised is not None:  # it needs what was left out: that proves nothing
            return None
        self.tried += 1
        ended = self.trial.run(*parts)
        return None if ended.same(serial) else CounterExample(work, parts, serial, ended)
