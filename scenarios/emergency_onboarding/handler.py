"""A handler that waits ``latency_ms`` for each operation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import orjson

from drainer import Context, Handler, Message, SubMessage


class Operations(Handler):
    """Makes one sub-message of each operation, by its document."""

    def open(self, context: Context) -> None:
        self.latency_s = float(context.options.get("latency_ms", "10")) / 1000

    def split(self, message: Message) -> Iterable[SubMessage]:
        for operation in orjson.loads(message.value or b"{}")["operations"]:
            yield SubMessage(operation["document"], operation)

    async def handle(self, sub: SubMessage) -> None:
        await asyncio.sleep(self.latency_s)
