"""A handler that leaves a trace outside of the process: a line when each sub-message begins, and
one when it is done.

It has these options. ``latency_ms`` is how long each call takes. ``trace`` is the file or pipe for
the lines. ``leak_kib`` is memory that each call never gives back. ``hog`` is the offset whose first
sub-message wants more memory than there is. ``dead`` lets the first sub-message of each message
fail.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable

import orjson

from drainer import Context, Handler, Message, SubMessage

HOG_BYTES = 1 << 30


class Tracing(Handler):
    """Writes lines such as ``mark sub-key partition offset index pid nanoseconds``. The mark is
    ``+`` for a beginning and ``-`` for an end."""

    def open(self, context: Context) -> None:
        options = context.options
        self.latency_s = float(options.get("latency_ms", "5")) / 1000
        self.leak = bytes(1024 * int(options.get("leak_kib", "0")))
        self.leaked: list[bytearray] = []
        self.hog = int(options.get("hog", "-1"))
        self.dead = "dead" in options
        self.pid = os.getpid()
        # Written pages outlive the process, so it is known exactly what it did before a kill.
        self.trace = os.open(options["trace"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def split(self, message: Message) -> Iterable[SubMessage]:
        for document in orjson.loads(message.value or b"{}")["documents"]:
            yield SubMessage(document["id"])

    def note(self, mark: str, sub: SubMessage) -> None:
        place = f"{sub.message.partition} {sub.message.offset} {sub.index}"
        line = (
            # A kill may tear the line.
            f"\n{mark} {sub.key} {place} {self.pid} {time.monotonic_ns()} ."
        )
        os.write(self.trace, line.encode())

    def close(self) -> None:
        os.close(self.trace)

    def end(self, sub: SubMessage) -> None:
        """Note the end. Raises ValueError for a sub-message that is to become a dead letter."""
        self.note("-", sub)
        if self.dead and sub.index == 0:
            raise ValueError("a bad one")


class Traced(Tracing):
    """Handles sub-messages by coroutines."""

    async def handle(self, sub: SubMessage) -> None:
        if sub.message.offset == self.hog and sub.index == 0:
            bytearray(
                HOG_BYTES
            )  # a call that fails here leaves no trace, however often it is tried
        self.note("+", sub)
        if self.leak:
            self.leaked.append(bytearray(self.leak))
        await asyncio.sleep(self.latency_s)
        self.end(sub)


class TracedDecoded(Traced):
    """Does the same as ``Traced`` for values that drainer decodes."""

    def split(self, message: Message) -> Iterable[SubMessage]:
        for document in message.decoded["documents"]:
            yield SubMessage(document)


class TracedOnThreads(Tracing):
    """Handles sub-messages on threads."""

    def handle(self, sub: SubMessage) -> None:
        self.note("+", sub)
        time.sleep(self.latency_s)
        self.end(sub)
