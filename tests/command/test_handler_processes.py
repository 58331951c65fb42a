"""Processes that a handler forks: they handle nothing, and hold nothing of the drain."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from command.conftest import distinct
from command.process import Command
from drainer.host.process import ProcessMark
from drainer.sandbox.ports import free_port
from kafka.topic import eventually

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

    def works(self, sub):
        note("handle", os.getpid())
        if not self.fork("returns"):
            return False
        if not self.fork("exits", 3):
            sys.exit(3)
        if not self.fork("raises", 1):
            raise LookupError("in the child")
        return True

class OnThreads(Base):
    def open(self, context):
        self.fork("open")
    def handle(self, sub):
        self.works(sub)
    def close(self):
        self.fork("close")

class OnTheLoop(Base):
    async def open(self, context):
        self.fork("open")
    async def handle(self, sub):
        if self.works(sub) and not self.fork("awaits", 1):
            await asyncio.sleep(0)
            note("went on")
    async def close(self):
        self.fork("close")
"""


@pytest.mark.parametrize("kind", [pytest.param("OnThreads", marks=pytest.mark.long), "OnTheLoop"])
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
    each_time = dict.fromkeys(("returns True", "exits True", "raises True"), 6)
    each_time["split True"] = 12  # Before the drain, drainer tries split on a few messages.
    assert lines - Counter(handled) == Counter(
        each_time | waits | {"open True": 1, "close True": 1}
    )
    assert command.committed(topic) == {0: 6}


POOL = """
import asyncio, multiprocessing, os, time
from pathlib import Path

def open(context):
    pool = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
    pool.start()
    Path({pids!r}).write_text(f"{{os.getpid()}} {{pool.pid}}")

async def handle(sub):
    while not Path({gate!r}).exists():
        await asyncio.sleep(0.01)
"""


def children_of(pid: int) -> list[ProcessMark]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [mark for each in found if (mark := ProcessMark.of(int(each))) is not None]


def test_a_child_of_the_handler_holds_nothing_of_a_killed_drain(command: Command) -> None:
    """A process pool keeps no port, no control socket, and no other process alive."""
    pids = command.home / "pids"
    handler = command.handler(POOL.format(pids=str(pids), gate=str(command.gate)))
    metrics = ("--metrics", f"127.0.0.1:{free_port()}")
    topic = command.topic(distinct(6))
    command.by = ("env",)  # a process of its own, which this one waits for
    running = command.begin(topic, *metrics, handler=handler)
    running.prints("metrics: http")
    eventually(lambda: pids.exists() and pids.read_text(), "the handler is open")
    drain, pool = map(int, pids.read_text().split())
    try:
        others = [each for each in children_of(drain) if each.pid != pool]
        assert others, "a process for requests to coordinators"
        running.kill()
        assert all(each.wait(30) for each in others)
        plans = [each["plan"] for each in command("ps", "-o", "json").answer["drains"]]
        assert [each for each in plans if each.endswith(".sock")] == []
        command.gate.touch()
        command.resume(topic, *metrics)
        assert command.committed(topic) == {0: 6}
    finally:
        for each in {pool, int(pids.read_text().split()[1])}:  # the resume has one too
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
