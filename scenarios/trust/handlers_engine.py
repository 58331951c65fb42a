"""The handlers of the cases in ``case_engine.py``, which a process of the command runs."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Iterable
from pathlib import Path

import orjson

from drainer import Barrier, Context, Handler, Message, SubMessage


class Rounds(Handler):
    """Takes a message as a round: so many short calls on a lane, a barrier, and eight calls that
    meet.

    It writes a line for each round to the file ``log``: the seconds between the first start of the
    eight and the last.
    """

    def open(self, context: Context) -> None:
        self.log = Path(context.options["log"]).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self.starts: list[float] = []

    def split(self, message: Message) -> Iterable[SubMessage]:
        for _ in range(orjson.loads(message.value or b"0")):
            yield SubMessage("one", 0.001)
        yield Barrier()
        for number in range(8):
            yield SubMessage(f"k{number}", 0.5)
        yield Barrier()

    async def handle(self, sub: SubMessage) -> None:
        if sub.payload == 0.5:
            self.starts.append(time.monotonic())
        elif isinstance(sub, Barrier) and self.starts:
            self.log.write(f"{self.starts[-1] - self.starts[0]:.4f}\n")
            self.starts.clear()
        if sub.payload:
            await asyncio.sleep(sub.payload)

    def close(self) -> None:
        self.log.close()


class Measured(Handler):
    """Writes to the file ``log`` by how many MiB the process has grown since the handler was
    opened."""

    def open(self, context: Context) -> None:
        self.log = Path(context.options["log"])
        self.at_first = _peak_mib()

    def close(self) -> None:
        self.log.write_text(f"{_peak_mib() - self.at_first:.0f}")


class Parks(Measured):
    """Takes each message as one operation on its key, and fails for the key ``bad``."""

    async def handle(self, sub: SubMessage) -> None:
        if sub.key == b"bad":
            raise ValueError("no such document")


class FansOut(Measured):
    """Takes a message as the number of its operations, each of which is on a document of its
    own."""

    def split(self, message: Message) -> Iterable[SubMessage]:
        for index in range(orjson.loads(message.value or b"0")):
            yield SubMessage(f"{message.offset}-{index}", {"document": index})

    async def handle(self, sub: SubMessage) -> None:
        await asyncio.sleep(0)


class Unpacks(Measured):
    """Takes a message as one operation, which is packed."""

    def split(self, message: Message) -> Iterable[SubMessage]:
        yield SubMessage(f"{message.offset}", zlib.decompress(message.value or b""))

    async def handle(self, sub: SubMessage) -> None:
        await asyncio.sleep(0.001)


class Peaks(Measured):
    """Writes the most memory that the process has taken since its start, its preview included."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.at_first = 0.0

    async def handle(self, sub: SubMessage) -> None:
        await asyncio.sleep(0.02)


def _peak_mib() -> float:
    # getrusage does not do, because its count begins with what the parent had.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


class TrueAndOne(Handler):
    """Makes two operations on what Python takes for one key, and a plan for two."""

    def split(self, message: Message) -> Iterable[SubMessage]:
        return [SubMessage(1), SubMessage(True)]

    async def handle(self, sub: SubMessage) -> None:
        raise ValueError("no such document")
