"""A handler whose sub-keys hardly ever come twice, except for a hot one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from drainer import Context, Handler, Message, SubMessage


class Soaking(Handler):
    """Takes a message as ``first sub-key, count, share``: so many new sub-keys, of which a share is
    the hot one.

    With a share of -1, all of the message is on one lane that fails. ``latency_ms`` is the time
    that the downstream takes, and ``payload_bytes`` the size of what is made for each sub-message.
    In ``folder``, the handler notes how much memory the process had when it began.
    """

    def open(self, context: Context) -> None:
        self.latency_s = float(context.options["latency_ms"]) / 1000
        self.payload_bytes = int(context.options["payload_bytes"])
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        mib = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        (Path(context.options["folder"]) / "idle_mib").write_text(f"{mib:.1f}")

    def split(self, message: Message) -> Iterable[SubMessage]:
        first, count, hot = map(int, (message.value or b"0 0 0").split())
        if hot < 0:
            for _ in range(count):
                yield SubMessage("bad", b"x" * self.payload_bytes)
            return
        for _ in range(hot):
            yield SubMessage("hot", b"x" * self.payload_bytes)
        for number in range(first, first + count - hot):
            yield SubMessage(f"document-{number:012}", b"x" * self.payload_bytes)

    async def handle(self, sub: SubMessage) -> None:
        if sub.key == "bad":
            raise ValueError("no such document")
        await asyncio.sleep(self.latency_s)
