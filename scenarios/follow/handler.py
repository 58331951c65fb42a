"""A handler that writes down what it was given, and how old that was."""

from __future__ import annotations

import os
import time

from drainer import Context, Handler, SubMessage


class Ages(Handler):
    """Writes a line for each call: partition, offset, sub-key, and the age of the record in ms."""

    def open(self, context: Context) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(context.options["record"], flags, 0o600)

    async def handle(self, sub: SubMessage) -> None:
        at = sub.message
        age_ms = round(time.time() * 1000) - (at.timestamp or 0)
        line = f"{at.partition} {at.offset} {sub.key} {age_ms} {os.getpid()}\n"
        os.write(self._file, line.encode())

    def close(self) -> None:
        os.close(self._file)
