"""Processes that a handler forks: they handle nothing, and hold nothing of the drain."""

from __future__ import annotations

from collections import Counter

import pytest

from command.conftest import distinct
from command.process import Command

FORKING = """
import asyncio, os, sys
import drainer

def note(*words):
    line = " ".join(map(str, words)) + "\\n"
    with open({log!r}, "a") as log:
        log.write(line)

class Base(drainer.Handler):
    def split(self, message):
        self.fork("split")
        yield drainer.SubMessage(key=message.value, payload=None)
    def fork(self, where, status=0):
        child = os.fork()
        if child:
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            note(where, ended == status)
        return child

class OnThreads(Base):
    def open(self, context):
        self.fork("open")
    def handle(self, sub):
        note("handle", os.getpid())
        if not self.fork("returns"):
            return
        if not self.fork("exits", 3):
            sys.exit(3)
        if not self.fork("raises", 1):
            raise LookupError("in the child")
    def close(self):
        self.fork("close")

class OnTheLoop(Base):
    async def open(self, context):
        self.fork("open")
    async def handle(self, sub):
        note("handle", os.getpid())
        if not self.fork("returns"):
            return
        if not self.fork("exits", 3):
            sys.exit(3)
        if not self.fork("raises", 1):
            raise LookupError("in the child")
        if not self.fork("awaits", 1):
            await asyncio.sleep(0)
            note("went on")
    async def close(self):
        self.fork("close")
"""


@pytest.mark.parametrize("kind", ["OnThreads", "OnTheLoop"])
def test_a_child_that_is_forked_in_a_call_ends_with_it_and_handles_nothing(
    command: Command, kind: str
) -> None:
    log = command.home / "log"
    handler = command.handler(FORKING.format(log=str(log)))
    topic = command.topic(distinct(6))
    command.drain(topic, "-c", "3", handler=f"{handler}:{kind}")
    lines = Counter(log.read_text().splitlines())
    handled = {line: count for line, count in lines.items() if line.startswith("handle")}
    assert list(handled.values()) == [6], "one process has handled each once"
    waits = {"awaits True": 6} if kind == "OnTheLoop" else {}
    each_time = dict.fromkeys(("split True", "returns True", "exits True", "raises True"), 6)
    assert lines - Counter(handled) == Counter(
        each_time | waits | {"open True": 1, "close True": 1}
    )
    assert command.committed(topic) == {0: 6}
