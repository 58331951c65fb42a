"""Exemptions: sub-messages that a handler is not called for, such as those that are diverted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from drainer.core.batches import Batch, InPart
from drainer.engine.loop import ensure_done
from drainer.handler import Results, Skip

Exempt = Callable[[Any], BaseException | None]  # of a sub-message: None if it is called for
ExemptLater = Callable[[Any], Awaitable[BaseException | None]]


@dataclass(frozen=True, slots=True)
class ExemptingCalls:
    """Calls on threads that leave out what is exempt: that ends with the error of ``exempt``.

    The others of a batch are handled once. With ``of_lane``, those behind an exempt one that is
    not skipped wait for it.
    """

    call: Callable[[Any], Any]
    call_batch: Callable[[Batch], Any]
    exempt: Exempt
    of_lane: bool

    def handle(self, sub: Any) -> Any:
        if (error := self.exempt(sub)) is not None:
            raise error
        return self.call(sub)

    def handle_batch(self, batch: Batch) -> Any:
        errors = [self._exempt(sub) for sub in batch.subs]
        if all(error is None for error in errors):
            return self.call_batch(batch)
        called, results = _others(batch, errors, self.of_lane), None
        if called.subs:
            try:
                ensure_done(self.call_batch(called))
            except Exception as raised:
                results = _results_of(raised, called)
        _raise(batch, errors, results)

    def _exempt(self, sub: Any) -> BaseException | None:
        try:
            return self.exempt(sub)
        except Exception as raised:  # as if it had been handled alone
            return raised


@dataclass(frozen=True, slots=True)
class ExemptingCallsOnTheLoop:
    """The same on the event loop."""

    call: Callable[[Any], Awaitable[Any]]
    call_batch: Callable[[Batch], Awaitable[Any]]
    exempt: ExemptLater
    of_lane: bool

    async def handle(self, sub: Any) -> Any:
        if (error := await self.exempt(sub)) is not None:
            raise error
        return await self.call(sub)

    async def handle_batch(self, batch: Batch) -> Any:
        errors = await asyncio.gather(*map(self.exempt, batch.subs), return_exceptions=True)
        if all(error is None for error in errors):
            return await self.call_batch(batch)
        called, results = _others(batch, errors, self.of_lane), None
        if called.subs:
            try:
                ensure_done(await self.call_batch(called))
            except Exception as raised:
                results = _results_of(raised, called)
        _raise(batch, errors, results)


def _others(batch: Batch, errors: list[BaseException | None], of_lane: bool) -> Batch:
    """The part of a batch that is called; in ``errors``, what waits has that of what it is
    behind."""
    waits = None
    for place, error in enumerate(errors):
        errors[place] = waits or error
        if of_lane and waits is None and not isinstance(error, Skip | None):
            waits = error
    called = Batch()
    called.subs = [sub for sub, error in zip(batch.subs, errors, strict=True) if error is None]
    called.members = list(called.subs)
    return called


def _results_of(raised: Exception, called: Batch) -> Results:
    if isinstance(raised, InPart):
        return raised.results
    if len(called.subs) == 1:
        return [raised]
    raise raised  # nothing is done: the batch is tried in smaller calls


def _raise(batch: Batch, errors: Sequence[BaseException | None], results: Results | None) -> None:
    of_called = iter(results or ())
    whole = [next(of_called, None) if error is None else error for error in errors]
    if len(whole) == 1 and whole[0] is not None:
        raise whole[0]
    raise InPart(whole)
