"""A handler whose calls take a fixed time, and which writes down how old each record was then."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator

from drainer import Context, Handler, Message, SubMessage


class Ages(Handler):
    """Writes a line for each call: the time of its end, and the age of its record, in seconds."""

    def open(self, context: Context) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(context.options["record"], flags, 0o600)
        self._call_s = float(context.options["call_s"])

    def split(self, message: Message) -> Iterator[SubMessage]:
        for key in json.loads(message.value or b"[]"):
            yield SubMessage(key=key)

    async def handle(self, sub: SubMessage) -> None:
        await asyncio.sleep(self._call_s)
        now_s = time.time()
        age_s = now_s - (sub.message.timestamp or 0) / 1000
        os.write(self._file, f"{now_s:.3f} {age_s:.3f}\n".encode())

    def close(self) -> None:
        os.close(self._file)
