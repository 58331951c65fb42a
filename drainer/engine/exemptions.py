"""Exemptions: sub-messages that a handler is not called for, such as those that are diverted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any

from drainer.core.batches import Batch, InPart, ensure_all_done
from drainer.engine.loop import ensure_done
from drainer.handler import Results, Skip

Handle = Callable[[Any], Any]
HandleBatch = Callable[[Batch], Any]


def exempting(
    call: Handle, call_batch: HandleBatch, exempt: Handle, *, of_lane: bool, is_async: bool
) -> tuple[Handle, HandleBatch]:
    """Make calls that end with an error for what ``exempt`` gives one for, and None for others.

    ``exempt`` may be async if the calls are. The others of a batch are handled once. With
    ``of_lane``, those behind an exempt one that is not skipped wait for it.
    """

    def plainly(sub: Any) -> Any:
        if (error := exempt(sub)) is not None:
            raise error
        return call(sub)

    async def later(sub: Any) -> BaseException | None:
        found = exempt(sub)
        error: BaseException | None = await found if isawaitable(found) else found
        return error

    async def on_the_loop(sub: Any) -> Any:
        if (error := await later(sub)) is not None:
            raise error
        return await call(sub)

    def plainly_together(batch: Batch) -> None:
        errors: list[BaseException | None] = []
        for sub in batch.subs:
            try:
                errors.append(exempt(sub))
            except Exception as raised:  # as if it had been handled alone
                errors.append(raised)
        with _others(batch, errors, of_lane) as called:
            ensure_done(called.subs and call_batch(called))

    async def together(batch: Batch) -> None:
        errors = await asyncio.gather(*map(later, batch.subs), return_exceptions=True)
        with _others(batch, errors, of_lane) as called:
            ensure_done(called.subs and await call_batch(called))

    return (on_the_loop, together) if is_async else (plainly, plainly_together)


@contextmanager
def _others(batch: Batch, errors: Sequence[BaseException | None], of_lane: bool) -> Iterator[Batch]:
    """The part of a batch that is called; the results of all are raised."""
    ends, waits = list[BaseException | None](), None
    for error in errors:
        ends.append(waits or error)
        if of_lane and not isinstance(error, Skip | None):
            waits = waits or error
    results: Results = ()
    called = Batch()
    called.subs = [sub for sub, end in zip(batch.subs, ends, strict=True) if end is None]
    called.members = list(called.subs)
    try:
        yield called
    except InPart as part:
        results = part.results
    except Exception as raised:
        if len(called.subs) > 1:
            raise  # nothing is done: the batch is tried in smaller calls
        results = [raised]
    of_called = iter(results)
    ends = [next(of_called, None) if end is None else end for end in ends]
    ensure_all_done(ends)
