"""A handler whose sub-keys hardly ever come twice, but for one hot one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from drainer import Context, Handler, Message, SubMessage


class Soaking(Handler):
    """A message is ``first sub-key, count, share``: so many new sub-keys, some of them the hot one.

    ``latency_ms`` is what the downstream takes.
    """

    def open(self, context: Context) -> None:
        self.latency_s = float(context.options["latency_ms"]) / 1000

    def split(self, message: Message) -> Iterable[SubMessage]:
        first, count, hot = map(int, (message.value or b"0 0 0").split())
        for _ in range(hot):
            yield SubMessage("hot")
        for number in range(first, first + count - hot):
            yield SubMessage(f"document-{number:012}", number)

    async def handle(self, sub: SubMessage) -> None:
        await asyncio.sleep(self.latency_s)
