"""A handler that leaves a trace outside the process: one line a sub-message, in a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

import orjson

from drainer import Context, Handler, Message, SubMessage


class Traced(Handler):
    """Appends ``sub-key offset index`` to the file ``--set trace=PATH`` once it is done."""

    def open(self, context: Context) -> None:
        self.latency_s = float(context.options.get("latency_ms", "5")) / 1000
        # Written pages outlive the process: what it did before a kill is known exactly.
        self.trace = os.open(context.options["trace"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def split(self, message: Message) -> Iterable[SubMessage]:
        for document in orjson.loads(message.value or b"{}")["documents"]:
            yield SubMessage(document["id"])

    async def handle(self, sub: SubMessage) -> None:
        await asyncio.sleep(self.latency_s)
        os.write(self.trace, f"{sub.key} {sub.message.offset} {sub.index}\n".encode())

    def close(self) -> None:
        os.close(self.trace)
