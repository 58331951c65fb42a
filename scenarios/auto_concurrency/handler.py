"""Handlers whose downstream has 300 slots. Each of them behaves differently under more load.

``--set latency_ms=20`` is the time that a call takes without load. ``--set trace=FILE`` names a
file in which the handler notes, ten times a second, how many sub-messages are in it and how many
are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

from drainer import Context, Handler, Message, SubMessage

SLOTS = 300
FAN_OUT = 50
TRACE_S = 0.1


class TooMany(Exception):
    """Raised by a downstream with a limit for a call that is one too many."""


class Pool(Handler):
    """A downstream with a pool: a call that finds all slots taken waits for one."""

    async def open(self, context: Context) -> None:
        self.latency_s = float(context.options.get("latency_ms", "20")) / 1000
        self.slots = asyncio.Semaphore(SLOTS)
        self.inside = self.done = 0
        trace = context.options.get("trace")
        self.tracing = asyncio.create_task(self.trace(trace)) if trace else None

    def split(self, message: Message) -> Iterable[SubMessage]:
        first = message.offset * FAN_OUT
        return [SubMessage(number, None) for number in range(first, first + FAN_OUT)]

    async def handle(self, sub: SubMessage) -> None:
        self.inside += 1
        try:
            await self.request()
        finally:
            self.inside -= 1
        self.done += 1

    async def request(self) -> None:
        async with self.slots:
            await asyncio.sleep(self.latency_s)

    async def trace(self, path: str) -> None:
        with Path(path).open("w", encoding="utf-8", buffering=1) as file:  # noqa: ASYNC230 - a line now and then
            while True:
                file.write(f"{monotonic()} {self.inside} {self.done}\n")
                await asyncio.sleep(TRACE_S)

    async def close(self) -> None:
        if self.tracing is not None:
            self.tracing.cancel()


class Degrading(Pool):
    """A downstream that slows down past 300 calls, by so much that throughput falls."""

    async def request(self) -> None:
        crowd = max(1.0, self.inside / SLOTS)
        await asyncio.sleep(self.latency_s * crowd**1.7)


class Refusing(Pool):
    """A downstream that refuses the 301st call after a moment."""

    async def request(self) -> None:
        if self.inside > SLOTS:
            await asyncio.sleep(self.latency_s / 4)
            raise TooMany(f"429: more than {SLOTS} at once")
        await asyncio.sleep(self.latency_s)
