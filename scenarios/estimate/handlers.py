"""The handlers of the drains. Their downstream takes its time, and for some calls more of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence

import orjson

from drainer import Barrier, Context, Handler, Message, SubMessage


class Whole(Handler):
    """Takes each message as one sub-message (the default split). The message's key is the
    sub-key."""

    def open(self, context: Context) -> None:
        self.usual_s = float(context.options["usual_ms"]) / 1000
        self.slow_s = float(context.options["slow_ms"]) / 1000
        self.slow_share = float(context.options["slow_share"])

    async def handle(self, sub: SubMessage) -> None:
        slow = random.random() < self.slow_share
        await asyncio.sleep(self.slow_s if slow else self.usual_s)


class Batch(Whole):
    """Takes each message as a JSON list of ids of documents, each of which is an operation."""

    def split(self, message: Message) -> Iterable[SubMessage]:
        for document in orjson.loads(message.value or b"[]"):
            yield SubMessage(document)


class Folded(Whole):
    """Folds neighbours of a sub-key into one operation: the last write wins."""

    def coalesce(self, earlier: SubMessage, later: SubMessage) -> SubMessage | None:
        return later


class Together(Whole):
    """Takes many sub-keys in one call, which takes as long as a call with one of them."""

    max_batch = 20

    async def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        await self.handle(subs[0])


class Barriers(Whole):
    """Takes a message without a value as a barrier."""

    def split(self, message: Message) -> Iterable[SubMessage]:
        yield SubMessage(message.key) if message.value else Barrier()
