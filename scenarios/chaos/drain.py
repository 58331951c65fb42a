"""A backlog, and drains of it as processes that can be killed, stopped and starved."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from scenarios.brokers import delete_group, delete_topic
from scenarios.fill import fill
from scenarios.side_by_side.workloads import Workload

HANDLER = Path(__file__).with_name("handler.py")
FAN_OUT = 50
SUB_KEYS = 14_000
PATIENCE_S = 300.0
LOOK_EVERY_S = 0.002


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of a drain, which is ``concurrency / latency`` sub-messages per second."""

    concurrency: int
    latency_ms: int


class Process:
    """One drain. Its output goes to a file, so that it never waits for a reader."""

    def __init__(self, words: list[str], output: Path, env: Mapping[str, str]) -> None:
        self._output = output
        with output.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "drainer", *words],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def resident_mib(self) -> float:
        """Return how much memory it has now; 0 if it is gone."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="utf-8").split()[1])
        except (OSError, IndexError):
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    @property
    def sockets(self) -> int:
        """Return how many connections it has open or listens on; 0 if it is gone."""
        found = 0
        with suppress(OSError):
            for each in Path(f"/proc/{self.pid}/fd").iterdir():
                with suppress(FileNotFoundError):
                    found += str(each.readlink()).startswith("socket:")
        return found

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        self.send(signal.SIGKILL)
        self.ends()

    def ends(self, within_s: float = PATIENCE_S) -> int:
        """Wait for its end. Return its exit code, or the negative number of the signal that ended
        it."""
        return self._process.wait(within_s)

    def ends_within(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Spread:
    """How a backlog lies on the brokers: its partitions, which get messages in turn, and their
    replicas (-1 for the broker's default)."""

    partitions: int = 1
    replicas: int = -1
    fan_out: int = FAN_OUT
    config: Mapping[str, str] = field(default_factory=dict)


ONE_PARTITION = Spread()


class Backlog:
    """A topic with a backlog, a plan, and a trace of what ``handler`` has handled."""

    handler = "Traced"

    def __init__(
        self, settings: ClientSettings, folder: Path, messages: int, pace: Pace, spread: Spread
    ) -> None:
        fan_out = spread.fan_out
        self.workload = Workload("chaos", messages, fan_out, SUB_KEYS, True, pace.latency_ms)
        self.spread = spread
        self.topic = self.group = f"chaos-{secrets.token_hex(3)}"
        self.plan = folder / f"{self.topic}.plan.json"
        self.trace = folder / f"{self.topic}.trace"
        self.settings = settings
        self.pace = pace
        self._folder = folder
        self._started: list[Process] = []

    @classmethod
    @contextmanager
    def on(
        cls,
        settings: ClientSettings,
        folder: Path,
        messages: int,
        pace: Pace,
        spread: Spread = ONE_PARTITION,
    ) -> Iterator[Self]:
        """Fill the topic. At the end of the block none of its processes, topics and groups is
        left."""
        backlog = cls(settings, folder, messages, pace, spread)
        with Cluster.connect(settings) as cluster:
            topic, partitions, config = backlog.topic, spread.partitions, spread.config
            cluster.create_topic(topic, partitions, config, replicas=spread.replicas)
        try:
            backlog._fill(0)
            yield backlog
        finally:
            for process in backlog._started:
                if process.running:
                    process.send(signal.SIGKILL)
                    process.ends()
            backlog.trace.unlink(missing_ok=True)
            delete_topic(settings, backlog.topic)
            delete_group(settings, backlog.group)

    @property
    def sub_messages(self) -> int:
        return self.workload.sub_messages

    @property
    def traced_bytes(self) -> int:
        return self.trace.stat().st_size if self.trace.exists() else 0

    def grow(self, messages: int) -> None:
        """Produce so many messages more."""
        before = self.workload.messages
        self.workload = replace(self.workload, messages=before + messages)
        self._fill(before)

    def command(self, *words: str, brokers: bool = True) -> Process:
        """Start another command, on the same brokers if it takes any."""
        where = ["-b", self.settings.bootstrap_servers] if brokers else []
        return self._process([*words, *where])

    def begin(self, *more: str, env: Mapping[str, str] | None = None) -> Process:
        """Start a drain, or resume the one that has a plan."""
        if self.plan.exists():
            return self._start(["resume", str(self.plan), *self.named_handler, *more], env)
        return self.begin_other(self.plan, *more, env=env)

    def begin_other(
        self, plan: Path, *more: str, env: Mapping[str, str] | None = None, from_: str = "earliest"
    ) -> Process:
        """Start a drain with a plan of its own."""
        what = ["--topic", self.topic, "--group", self.group, "--from", from_]
        where = ["-b", self.settings.bootstrap_servers, "--plan", str(plan)]
        return self._start(["run", *what, *where, *self.named_handler, *more], env)

    @property
    def named_handler(self) -> list[str]:
        return ["--handler", f"{HANDLER}:{self.handler}"]

    def at_work(self, process: Process, lines: int = 1) -> bool:
        """Wait until so many further lines are in the trace. Return False if the process ended
        first."""
        wanted = self.traced_bytes + 42 * lines  # A line has about 42 bytes.
        return until(lambda: self.traced_bytes >= wanted, lambda: not process.running)

    def _start(self, words: list[str], env: Mapping[str, str] | None) -> Process:
        running = ["--concurrency", str(self.pace.concurrency), "--yes"]
        trace = [] if any(w.startswith("trace=") for w in words) else [f"trace={self.trace}"]
        pairs = [f"latency_ms={self.pace.latency_ms}", *trace]
        options = [word for pair in pairs for word in ("--set", pair)]
        return self._process(["--quiet", *words, *running, *options], env)

    def _process(self, words: list[str], env: Mapping[str, str] | None = None) -> Process:
        output = self._folder / f"{self.topic}.{len(self._started)}.output"
        process = Process(words, output, env or {})
        self._started.append(process)
        return process

    def _fill(self, first: int) -> None:
        records = enumerate(self.workload.records())
        spread = ((k, v, n % self.spread.partitions) for n, (k, v, _) in records if n >= first)
        fill(self.settings, self.topic, spread)


def until(condition: Callable[[], bool], over: Callable[[], bool] = lambda: False) -> bool:
    """Wait until the condition is true. Return False if something else was over first.

    Raises TimeoutError if neither happens.
    """
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if over():
            return condition()
        if time.monotonic() > end:
            raise TimeoutError(f"not within {PATIENCE_S:.0f} s")
        time.sleep(LOOK_EVERY_S)
    return True
