"""Bringing a drain to rest: in order, or at once when a person asks a second time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from drainer.core.dispatch import Dispatcher
from drainer.engine.checkpointer import Checkpointer
from drainer.engine.failures import Failures
from drainer.engine.outcome import not_closed
from drainer.engine.ports import Ports, Source
from drainer.engine.pump import Pump
from drainer.engine.workers import Workers
from drainer.errors import (
    DrainerError,
    GroupJoined,
    LockLost,
    OffsetMoved,
    ThreadsOverdue,
    TopicGone,
    both,
)
from drainer.loader import LoadedHandler, describe

AT_ONCE_S = 1.0  # what the second Ctrl-C leaves to the source and to the handler's close()

NOT_OURS = (OffsetMoved, GroupJoined, LockLost, TopicGone)  # then nothing may be committed


class Shutdown:
    """How one run of a drain comes to rest.

    ``forced`` is set when nobody shall wait any more; who did that, ``asked`` tells.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        source: Source,
        pump: Pump,
        failures: Failures,
        workers: Workers,
        checkpointer: Checkpointer,
        ports: Ports,
        handler: LoadedHandler,
        grace_s: float,
        forced: asyncio.Event,
        asked: Callable[[], BaseException | None],
    ) -> None:
        self._dispatcher = dispatcher
        self._source = source
        self._pump = pump
        self._failures = failures
        self._workers = workers
        self._checkpointer = checkpointer
        self._ports = ports
        self._in_thread = ports.runtime.blocking_call
        self._handler = handler
        self._grace_s = grace_s
        self._forced = forced
        self._asked = asked
        self._closing = False

    async def stop(self, cause: BaseException | None) -> BaseException | None:
        """Gives what to tell as the reason, None when all is done."""
        self._pump.stop()
        self._failures.stop()
        self._workers.begin_no_more()
        in_order = asyncio.ensure_future(self._stop_in_order(cause))
        forced = asyncio.ensure_future(self._forced.wait())
        await asyncio.wait((in_order, forced), return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()
        if in_order.done():
            return in_order.result()
        in_order.cancel()
        await self.stop_at_once()
        return cause or self._asked()

    async def stop_at_once(self) -> None:
        """What finished goes to the journal first; then as much as fits into a moment."""
        self._note()
        ending = [
            self._in_thread(self._source.stop),
            asyncio.ensure_future(self._checkpointer.stop()),
            asyncio.ensure_future(self._close_dead_letters(0.0)),
            asyncio.ensure_future(self._workers_away_and_handler_closed()),
        ]
        await asyncio.wait(ending, timeout=AT_ONCE_S)
        for each in ending:
            each.cancel()
        self._note()  # the broker may have confirmed a letter meanwhile

    def _note(self) -> None:
        with suppress(DrainerError):
            self._checkpointer.note()

    async def _stop_in_order(self, cause: BaseException | None) -> BaseException | None:
        stopped = self._in_thread(self._source.stop)
        # Whoever works for the group by now handles what died here: no letter is ours to write.
        grace_s = 0.0 if isinstance(cause, NOT_OURS) else self._grace_s
        await (self._let_finish() if grace_s > 0 else self._workers.abandon())
        if isinstance(cause, ThreadsOverdue) and self._dispatcher.complete:
            cause = None  # they came back after all
        await self._close_dead_letters(grace_s)
        await self._checkpointer.stop()
        await stopped
        cause = await self._close_handler(cause)
        lost = self._ports.lock.lost  # maybe only now: the first reason hides it
        try:
            ours = lost is None and not isinstance(cause, NOT_OURS)
            await self._checkpointer.finish(commit=ours)
        except DrainerError as error:
            cause = both(cause, error)
        return cause if lost is None or lost is cause else both(cause, lost)

    async def _workers_away_and_handler_closed(self) -> None:
        await self._workers.abandon()
        await self._close_handler(None)

    async def _close_dead_letters(self, timeout_s: float) -> None:
        if self._ports.dead_letters is not None:
            await self._in_thread(self._ports.dead_letters.close, timeout_s)

    async def _close_handler(self, cause: BaseException | None) -> BaseException | None:
        if self._closing:
            return cause
        self._closing = True
        try:
            await self._handler.close(self._in_thread)
        except Exception as error:
            return both(cause, not_closed(describe(error), error))
        return cause

    async def _let_finish(self) -> None:
        finishing = asyncio.ensure_future(self._workers.drain())
        finished, _ = await asyncio.wait((finishing,), timeout=self._grace_s)
        if not finished:
            finishing.cancel()
            await self._workers.abandon()
