"""A handler for drains on Spark, which records what it does in a file.

Spark's workers load this file by its path. Several processes append to the same record, each line
with a single write.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

import drainer
from drainer import Barrier, Context, Message, SubMessage


class Recorder(drainer.Handler):
    """Writes a line when the handler is opened and closed, and when a call begins and ends.

    A message is JSON such as ``{"ops": [...]}``. An operation is a sub-key, a list of sub-keys, or
    "|" for a barrier. The operation "!" makes split raise, unless the option ``repaired`` is given.

    The options are: ``record``, the file with the record; ``wait_ms``, how long a call takes;
    ``fail`` and ``skip``, a sub-key whose calls fail, or that is skipped; ``token``, the token that
    the client's file must have; ``up``, a file without which all calls from the offset
    ``down_from`` on fail.
    """

    async def open(self, context: Context) -> None:
        self.options = dict(context.options)
        self.file = os.open(self.options["record"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.wait_s = float(self.options.get("wait_ms", "0")) / 1000
        self.up = Path(self.options["up"]) if "up" in self.options else None
        assert self.options.get("token") == context.extras("http.").get("token")
        self.write("open")

    def split(self, message: Message) -> Iterator[SubMessage]:
        for op in orjson.loads(message.value or b"{}").get("ops", []):
            if op == "!" and "repaired" not in self.options:
                raise ValueError("malformed")
            if op == "|":
                barrier = Barrier()
                barrier.key = op  # split may set it, but that does not put the barrier into a lane.
                yield barrier
            elif isinstance(op, list):
                yield SubMessage(keys=op, payload=op)
            else:
                yield SubMessage(op, op)

    async def handle(self, sub: SubMessage) -> None:
        self.write("begin", sub)
        await asyncio.sleep(self.wait_s)
        down = self.up is not None and sub.message.offset >= int(self.options["down_from"])
        if down and self.up is not None and not self.up.exists():
            self.write("failed", sub)
            raise ConnectionError("the index is away")
        if sub.payload is not None and sub.payload == self.options.get("fail"):
            self.write("failed", sub)
            raise ValueError(f"{sub.payload} fails")
        if sub.payload is not None and sub.payload == self.options.get("skip"):
            self.write("skipped", sub)
            raise drainer.Skip("as the option requests")
        self.write("end", sub)

    async def close(self) -> None:
        self.write("close")
        os.close(self.file)

    def write(self, what: str, sub: SubMessage | None = None) -> None:
        line: dict[str, Any] = {"what": what, "at": time.monotonic_ns(), "pid": os.getpid()}
        if sub is not None:
            keys = ["|"] if isinstance(sub, Barrier) else list(sub.keys or [sub.key])
            keys = [key.decode() if isinstance(key, bytes) else key for key in keys]
            message = sub.message
            line |= {"keys": keys, "place": [message.partition, message.offset, sub.index]}
        # A kill may cut a line short. The line break before the next line keeps that one whole.
        os.write(self.file, b"\n" + orjson.dumps(line))


class Whole(Recorder):
    """Uses the default split, so that each message is one sub-message."""

    split = drainer.Handler.split  # type: ignore[assignment]


class Shut(Recorder):
    """Can't be opened."""

    async def open(self, context: Context) -> None:
        raise ConnectionError("the index is down")


class Slow(Recorder):
    """Takes long to open and to split, so that a test can act meanwhile."""

    async def open(self, context: Context) -> None:
        await super().open(context)
        time.sleep(float(self.options.get("open_s", "0")))  # noqa: ASYNC251 - it is to block

    def split(self, message: Message) -> Iterator[SubMessage]:
        if "split" not in self.options:
            self.options["split"] = "begun"
            self.write("split")
        time.sleep(float(self.options.get("split_s", "0")))
        yield from super().split(message)
