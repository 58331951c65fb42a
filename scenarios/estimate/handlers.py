"""The handlers that are drained with: a downstream that takes its time, some calls more of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence

import orjson

from drainer import Barrier, Context, Handler, Message, SubMessage


class Whole(Handler):
    """A message is one sub-message (the default split); its key is the sub-key."""

    def open(self, context: Context) -> None:
        self.usual_s = float(context.options["usual_ms"]) / 1000
        self.slow_s = float(context.options["slow_ms"]) / 1000
        self.slow_share = float(context.options["slow_share"])

    async def handle(self, sub: SubMessage) -> None:
        slow = random.random() < self.slow_share
        await asyncio.sleep(self.slow_s if slow else self.usual_s)


class Batch(Whole):
    """A message is a JSON list of documents' ids, each an operation."""

    def split(self, message: Message) -> Iterable[SubMessage]:
        for document in orjson.loads(message.value or b"[]"):
            yield SubMessage(document)


class Folded(Whole):
    """Neighbours of a sub-key are one operation: the last write wins."""

    def coalesce(self, earlier: SubMessage, later: SubMessage) -> SubMessage | None:
        return later


class Together(Whole):
    """A call takes many sub-keys at once, and as long as for one of them."""

    max_batch = 20

    async def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        await self.handle(subs[0])


class Barriers(Whole):
    """A message without a value is a barrier."""

    def split(self, message: Message) -> Iterable[SubMessage]:
        yield SubMessage(message.key) if message.value else Barrier()
