"""The handlers that are measured. ``--set latency_ms=10`` is the time that the downstream takes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import orjson

from drainer import Context, Handler, Message, SubMessage


class Whole(Handler):
    """Takes each message as one sub-message (the default split)."""

    def open(self, context: Context) -> None:
        self.latency_s = float(context.options.get("latency_ms", "0")) / 1000

    async def handle(self, sub: SubMessage) -> None:
        if self.latency_s:
            await asyncio.sleep(self.latency_s)


class Batch(Whole):
    """Takes each message as a JSON object with a list of documents, each of which is an
    operation."""

    def split(self, message: Message) -> Iterable[SubMessage]:
        for document in orjson.loads(message.value or b"{}")["documents"]:
            yield SubMessage(document["id"], document)
