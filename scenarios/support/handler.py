"""The handler of the checks: writes down what it does, in lines that survive a kill."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator

from drainer import Context, Handler, Message, SubMessage


class Recorder(Handler):
    """Each message is a list of sub-keys. The sub-key ``bad`` fails, unless ``fixed`` is set."""

    def open(self, context: Context) -> None:
        options = context.options
        self._file = os.open(options["record"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._pause_s = float(options.get("pause_ms", "0")) / 1000
        self._fixed = "fixed" in options

    def split(self, message: Message) -> Iterator[SubMessage]:
        for key in json.loads(message.value or b"[]"):
            yield SubMessage(key)

    async def handle(self, sub: SubMessage) -> None:
        await asyncio.sleep(self._pause_s)
        if sub.key == "bad" and not self._fixed:
            raise ValueError("a bad document")
        place = [sub.key, sub.message.partition, sub.message.offset, sub.index]
        os.write(self._file, b"\n" + json.dumps(place).encode())

    def close(self) -> None:
        os.close(self._file)
