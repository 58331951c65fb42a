"""Handlers that wait ``latency_ms`` for each call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import orjson

from drainer import Barrier, Context, Handler, Message, SubMessage


class Operations(Handler):
    """Makes one sub-message of each operation, by its document, and a barrier behind messages that
    want one."""

    def open(self, context: Context) -> None:
        self.latency_s = float(context.options["latency_ms"]) / 1000

    def split(self, message: Message) -> Iterable[SubMessage]:
        body = orjson.loads(message.value or b"{}")
        for operation in body["operations"]:
            yield SubMessage(operation["document"], operation)
        if body["barrier"]:
            yield Barrier()

    async def handle(self, sub: SubMessage) -> None:
        await asyncio.sleep(self.latency_s)


class Folded(Operations):
    """Folds neighbours of a document into one operation: the last write wins."""

    def coalesce(self, earlier: SubMessage, later: SubMessage) -> SubMessage | None:
        return later
