"""A handler that calls a server on this machine, over one connection for each process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import orjson

import drainer
from drainer import Context, Message, SubMessage


class Calling(drainer.Handler):
    """Each op of a message is a sub-key. Options: ``port``."""

    async def open(self, context: Context) -> None:
        port = int(context.options["port"])
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        self.calls: dict[bytes, asyncio.Future[None]] = {}
        self.reading = asyncio.create_task(self.read())

    def split(self, message: Message) -> Iterator[SubMessage]:
        for op in orjson.loads(message.value or b"{}")["ops"]:
            yield SubMessage(op)

    async def handle(self, sub: SubMessage) -> None:
        line = f"{sub.id}\n".encode()
        answered = self.calls[line] = asyncio.get_running_loop().create_future()
        self.writer.write(line)
        await answered

    async def read(self) -> None:
        async for line in self.reader:
            self.calls.pop(line).set_result(None)

    async def close(self) -> None:
        self.reading.cancel()
        self.writer.close()
