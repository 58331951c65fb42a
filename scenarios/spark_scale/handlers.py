"""The handlers that are measured: one does nothing, one waits, and two compute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import orjson

from drainer import Context, Handler, Message, SubMessage


class Documents(Handler):
    """Takes each message as a JSON object with a list of documents, each of which is an
    operation."""

    def open(self, context: Context) -> None:
        self.latency_s = float(context.options.get("latency_ms", "0")) / 1000
        self.rounds = int(context.options.get("rounds", "0"))

    def split(self, message: Message) -> Iterable[SubMessage]:
        for document in orjson.loads(message.value or b"{}")["documents"]:
            yield SubMessage(document["id"], document)


class Wait(Documents):
    """Waits, as for a downstream that takes ``latency_ms``."""

    async def handle(self, sub: SubMessage) -> None:
        await asyncio.sleep(self.latency_s)


class Nothing(Documents):
    """Does nothing, which takes no time."""

    async def handle(self, sub: SubMessage) -> None:
        pass


class Connected(Wait):
    """Gives some documents a list of ids, and so several sub-keys. A call occupies its process for
    ``busy_ms``, as one that computes does, but leaves the cores to others."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.busy_s = float(context.options.get("busy_ms", "0")) / 1000

    def split(self, message: Message) -> Iterable[SubMessage]:
        for document in orjson.loads(message.value or b"{}")["documents"]:
            found = document["id"]
            if isinstance(found, str):
                yield SubMessage(found, document)
            else:
                yield SubMessage(keys=found, payload=document)

    async def handle(self, sub: SubMessage) -> None:
        if self.busy_s:
            time.sleep(self.busy_s)  # noqa: ASYNC251 - it is to block
        if self.latency_s:
            await super().handle(sub)


class Compute(Documents):
    """Computes ``rounds`` of pure Python for a sub-message."""

    async def handle(self, sub: SubMessage) -> None:
        compute(self.rounds)


class Parse(Nothing):
    """Computes ``rounds`` of pure Python to split a message."""

    def split(self, message: Message) -> Iterable[SubMessage]:
        compute(self.rounds)
        return super().split(message)


def compute(rounds: int) -> int:
    found = 0
    for number in range(rounds):
        found = (found * 31 + number) & 0xFFFF
    return found
