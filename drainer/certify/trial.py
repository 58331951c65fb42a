"""A trial: a fresh handler is given sub-messages in a certain order, and its state is asked for."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from typing import Any

from drainer.certify.form import difference, equal
from drainer.certify.schedule import Place, Step, dispatcher_of
from drainer.certify.subject import Subject, again, run, splitter
from drainer.core.bundles import Bundler
from drainer.errors import HandleFailed, SplitFailed
from drainer.handler import Skip
from drainer.loader import LoadedHandler, describe
from drainer.message import Message, SubMessage

StateOf = Callable[[Any], Any]  # of the handler: an instance or a module; may be async


@dataclass(frozen=True, slots=True)
class Ended:
    """How a trial ended: with a state, or with what ``handle`` raised."""

    state: Any = None
    raised: str | None = None

    def same(self, other: Ended) -> bool:
        return self.raised == other.raised and equal(self.state, other.state)

    def against(self, other: Ended) -> tuple[str, str]:
        """Where they differ, in words: what this one has there, and the other."""
        if self.raised is not None or other.raised is not None:
            return self._told(), other._told()
        place, here, there = difference(self.state, other.state)
        name = f"state{place}"
        return f"{name} = {here}", f"{name} = {there}"

    def _told(self) -> str:
        return "no error" if self.raised is None else f"an error ({self.raised})"


class HandlerTrial:
    """Runs schedules, each on a handler of its own; counts what it has ``handled``."""

    def __init__(self, subject: Subject, sample: Sequence[Message], state: StateOf) -> None:
        self._subject = subject
        self._sample = sample
        self._state = state
        self.handled = 0

    def run(self, *parts: Sequence[Step]) -> Ended:
        """Handles the parts one after the other, and gives the state at the end.

        Each part is split anew, as by a process that resumes after a crash. A place that comes a
        second time within a part is the same sub-message at its next attempt.
        """
        return run(self._run(parts))

    def run_together(self, chosen: Sequence[int]) -> Ended | None:
        """Handles some messages as a drain with one worker does that has read them all: folded,
        and in batches. None when the handler takes sub-messages one by one."""
        return run(self._run_together([again(self._sample[position]) for position in chosen]))

    async def _run_together(self, sample: Sequence[Message]) -> Ended | None:
        async with self._subject.opened(self._sample) as handler:
            if handler.bundling is None:
                return None
            split, dispatcher = splitter(handler), dispatcher_of(sample)
            for message in sample:
                dispatcher.deliver(message, split(message))
            bundler = Bundler(dispatcher, replace(handler.bundling, linger_s=0.0), lambda: 0.0)
            try:
                while (bundle := bundler.take()) is not None:
                    self.handled += 1
                    raised = await _caught(handler, handler.handle_bundle, bundle)
                    if raised is not None:
                        return Ended(raised=f"a call raised {describe(raised)} at {bundle}")
                    bundler.finish(bundle)
            except HandleFailed as error:  # coalesce
                return Ended(raised=str(error))
            return await self._ended(handler)

    async def _run(self, parts: Sequence[Sequence[Step]]) -> Ended:
        async with self._subject.opened(self._sample) as handler:
            for part in parts:
                subs = self._split(handler, part)
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

    def _split(self, handler: LoadedHandler, part: Sequence[Step]) -> dict[Place, SubMessage]:
        split = splitter(handler)
        subs = {}
        for position in dict.fromkeys(position for step in part for position, _ in step):
            message = again(self._sample[position])
            for index, sub in enumerate(split(message)):
                sub.message, sub.index, sub.attempt = message, index, 0
                subs[position, index] = sub
        missing = next((place for step in part for place in step if place not in subs), None)
        if missing is not None:
            raise SplitFailed(
                f"split is not deterministic: {self._sample[missing[0]]} gave fewer sub-messages"
                " than before",
                hint="split must depend on the message alone; see docs/correctness.md",
            )
        return subs

    async def _handle(self, handler: LoadedHandler, subs: Sequence[SubMessage]) -> str | None:
        self.handled += len(subs)
        for sub in subs:
            sub.attempt += 1
        if len(subs) == 1:
            ended: list[object] = [await _caught(handler, handler.handle, subs[0])]
        else:
            ended = await asyncio.gather(*(_caught(handler, handler.handle, s) for s in subs))
        raised = [
            f"handle raised {describe(error)} at {sub}"
            for sub, error in zip(subs, ended, strict=True)
            if isinstance(error, BaseException)
        ]
        return raised[0] if raised else None


async def _caught(
    handler: LoadedHandler, handle: Callable[[Any], Any], given: object
) -> Exception | SystemExit | None:
    try:
        result = handle(given)
        if handler.is_async:
            result = await result
        _insist_on_done(result)
    except Skip:
        return None
    except (Exception, SystemExit) as error:
        return error
    return None


def _insist_on_done(result: object) -> None:
    # As a drain does: what is given back unfinished may never be done.
    if isawaitable(result) or isgenerator(result) or isasyncgen(result):
        if iscoroutine(result):
            result.close()
        raise TypeError(f"handle gave back a {type(result).__name__} that nobody waits for")
