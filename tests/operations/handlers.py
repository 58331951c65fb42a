"""Handlers of drains in this process. A plan has a digest of what their file imports: of little."""

from __future__ import annotations

import asyncio
import os

from drainer.handler import Context, Fatal, Handler
from drainer.message import SubMessage


class WillNotOpen(Handler):
    def open(self, context: Context) -> None:
        raise LookupError("no index")

    async def handle(self, sub: SubMessage) -> None:
        raise AssertionError("it was never open")


class Signals(Handler):
    """Sends its own process a signal while it is opened."""

    def __init__(self, number: int) -> None:
        self.number = number

    async def open(self, context: Context) -> None:
        os.kill(os.getpid(), self.number)
        await asyncio.sleep(10)

    async def handle(self, sub: SubMessage) -> None:
        raise AssertionError("it was never open")


class Fails(Handler):
    async def handle(self, sub: SubMessage) -> None:
        raise Fatal("no index")


class Remembers(Handler):
    def __init__(self) -> None:
        self.handled: list[int] = []

    async def handle(self, sub: SubMessage) -> None:
        self.handled.append(sub.message.offset)
