"""Programs with the verbs and a journal, whose workers and queries are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from drainer.engine.checkpointer import JOURNAL_SLOWEST_S
from drainer.kafka.settings import ClientSettings
from drainer.spark.state.state import JOURNAL_REMOTE_S
from kafka.topic import eventually
from s3 import S3
from scenarios.connect_server import ConnectServer
from scenarios.fill import create_topic, fill
from spark import composing
from spark.connect import local

pytestmark = [pytest.mark.long, local]

PARTITIONS, CONCURRENCY = 2, 400
WAIT_S = 600.0


@dataclass
class Program:
    """Runs of a program that handles one topic, with the log of all of them."""

    bootstrap: str
    topic: str
    folder: Path
    options: list[str] = field(default_factory=list)
    subs: int = 0
    took_s: float = 0.0  # of all runs

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def fill(self, messages: int, subs: int) -> None:
        """Fill the topic with so many messages of so many sub-messages. A tenth has one key."""
        drawn = random.Random(46)
        settings = ClientSettings(self.bootstrap)
        create_topic(settings, self.topic, PARTITIONS)
        keys = ["hot", *(f"k{number}" for number in range(2_000))]
        weights = [222, *[1] * 2_000]
        values = (orjson.dumps(drawn.choices(keys, weights, k=subs)) for _ in range(messages))
        fill(settings, self.topic, ((b"one", v, n % PARTITIONS) for n, v in enumerate(values)))
        self.subs = messages * subs

    def start(self, *more: str) -> subprocess.Popen[str]:
        words = [self.bootstrap, self.topic, str(self.folder), *self.options, *more]
        return subprocess.Popen(
            [sys.executable, composing.__file__, *words],
            stdout=subprocess.PIPE,
            stderr=(self.folder / "err").open("a"),
            text=True,
            cwd=self.folder,
        )

    def await_calls(self, count: int, running: subprocess.Popen[str]) -> None:
        """Wait until so many calls have ended, in all runs."""
        size = 2 * count * 18  # A line has about 20 bytes.

        def is_reached() -> bool:
            assert running.poll() is None, (self.folder / "err").read_text()[-3000:]
            return self.log.exists() and self.log.stat().st_size > size

        eventually(is_reached, "it works", WAIT_S)

    def kill_worker(self) -> None:
        with self.log.open("rb") as log:
            log.seek(-200, os.SEEK_END)
            victim = int(log.read().splitlines()[-2][1:].split()[0])
        os.kill(victim, signal.SIGKILL)

    def ensure_ends(self, running: subprocess.Popen[str]) -> None:
        """Ensure that a run ends well, with an outcome for each sub-message."""
        output, _ = running.communicate(timeout=WAIT_S)
        assert running.returncode == 0, (self.folder / "err").read_text()[-3000:]
        assert f"outcomes {self.subs} {self.subs} of" in output

    def ensure_laws(self, *, kills: int, unwritten_s: float = JOURNAL_SLOWEST_S) -> None:
        """Ensure that all is done, in order, and that little began again after each kill."""
        begun = defaultdict[str, list[tuple[int, int, int]]](list)
        running = dict[str, tuple[int, tuple[int, int, int]]]()
        done = set[tuple[int, int, int]]()
        calls, last = 0, dict[int, int]()
        lines = list(_lines(self.log))
        for number, (_, pid, _, _) in enumerate(lines):
            last[pid] = number
        for number, (mark, pid, place, key) in enumerate(lines):
            if mark == "+":
                calls += 1
                other = running.get(key)
                alive = other is not None and last[other[0]] > number
                assert not alive, f"{place} began while {other} ran"
                running[key] = pid, place
                begun[key].append(place)
            else:
                running.pop(key, None)
                done.add(place)
        assert len(done) == self.subs
        for key, places in begun.items():
            first = list(dict.fromkeys(places))
            for partition in range(PARTITIONS):
                of_one = [place for place in first if place[0] == partition]
                assert of_one == sorted(of_one), key
        in_a_moment = self.subs * (unwritten_s + 1.0) / self.took_s
        print(f"{calls - self.subs:,} of {self.subs:,} began again; {self.took_s:.0f} s")
        assert calls - self.subs <= kills * (CONCURRENCY + in_a_moment)


def session_of(leader: int) -> set[int]:
    """Return the processes of the session that a process leads, or led until it ended."""
    found = set()
    for each in Path("/proc").iterdir():
        with suppress(ValueError, ProcessLookupError):  # It is no process, or has ended.
            if os.getsid(int(each.name)) == leader:
                found.add(int(each.name))
    return found


def end(family: set[int], leader: int) -> None:
    """Kill the processes that are still in the session of a leader that has ended."""
    for pid in family & session_of(leader):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _lines(log: Path) -> Iterator[tuple[str, int, tuple[int, int, int], str]]:
    with log.open() as lines:
        for line in lines:
            pid, partition, offset, index, key = line[1:].split()
            yield line[0], int(pid), (int(partition), int(offset), int(index)), key


@pytest.fixture
def program(bootstrap: str, topic_name: str, tmp_path: Path) -> Program:
    journal = ["--journal", str(tmp_path / "journal-{}")]
    return Program(bootstrap, topic_name, tmp_path, journal)


@pytest.mark.parametrize("on", ["classic", "connect"])
@pytest.mark.parametrize("stream", [[], ["--stream", "2500"]], ids=["batch", "foreachBatch"])
def test_a_million_sub_messages_outlive_kills_of_a_worker_and_of_the_query(
    program: Program, stream: list[str], on: str
) -> None:
    program.fill(10_000, 100)
    with ExitStack() as opened:
        server = None
        if on == "connect":
            folder = program.folder / "server"
            folder.mkdir()
            server = opened.enter_context(ConnectServer(folder, master="local[2,4]"))
            program.options += ["--remote", server.url]
        since_s = time.monotonic()
        first = program.start(*stream)
        program.await_calls(200_000, first)
        program.kill_worker()
        program.await_calls(500_000, first)
        first.kill()
        first.wait()
        if server is not None:  # There the query outlives its client.
            # The process in which the server runs foreachBatch outlives the server.
            opened.callback(end, session_of(server.pid), server.pid)
            server.start_again()
        program.ensure_ends(program.start(*stream))
        program.took_s = time.monotonic() - since_s

    program.ensure_laws(kills=3)


def test_after_ctrl_c_no_call_goes_on_and_the_next_session_does_the_rest(program: Program) -> None:
    program.fill(200, 100)
    since_s = time.monotonic()
    first = program.start("--pause-s", "0.2")
    program.await_calls(5_000, first)

    first.send_signal(signal.SIGINT)

    assert first.wait(60) != 0
    assert "KeyboardInterrupt" in (program.folder / "err").read_text()
    before = program.log.stat().st_size
    program.ensure_ends(program.start())
    program.took_s = time.monotonic() - since_s
    assert program.log.stat().st_size > before
    program.ensure_laws(kills=2)


def test_a_journal_in_a_bucket_outlives_a_kill_of_the_query(program: Program, s3: S3) -> None:
    program.fill(400, 100)
    program.options = ["--journal", s3.uri(f"journal-{program.topic}/{{}}")]
    since_s = time.monotonic()
    first = program.start("--pause-s", "0.1")
    program.await_calls(20_000, first)
    first.kill()
    first.wait(60)
    program.ensure_ends(program.start())
    program.took_s = time.monotonic() - since_s

    program.ensure_laws(kills=2, unwritten_s=JOURNAL_REMOTE_S)
    puts = sum("s3_PutObject" in line for line in s3.requests())
    assert puts < 3 * program.took_s + 50
