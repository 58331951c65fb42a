"""Drains a backlog on one partition by the command, and measures what that takes."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from drainer.kafka.settings import ClientSettings
from scenarios.brokers import Broker
from scenarios.fill import create_topic, fill

HANDLERS = Path(__file__).with_name("handlers.py")
IN_PROCESS = ("--engine", "process")
LOOK_S = 0.3  # It is not shorter, because each look reads all of /proc.
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True, slots=True)
class Drained:
    """The cost of a drain.

    Attributes:
        rate: sub-messages per second of ``elapsed_s``.
        elapsed_s: seconds from the start of its work to its end.
        command_s: seconds from the command's start to its end.
        processor_s: processor seconds of all its processes from the command's start, without their
            last moment.
        sent: the bytes that the broker sent.
        python_mib, java_mib: the most memory of any Python process, and of the JVM.
    """

    rate: float
    elapsed_s: float
    command_s: float
    processor_s: float
    sent: int
    slices: int | None
    python_mib: float
    java_mib: float


class Bench:
    """Topics on a broker of its own."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        self._broker = broker
        self.bootstrap_servers = broker.bootstrap_servers
        self._logs: dict[str, int] = {}

    def fill(self, topic: str, records: Callable[[], Iterable[tuple[bytes, bytes, int]]]) -> int:
        """Create the topic unless it is there. Return the bytes of its log on disk."""
        if topic not in self._logs:
            settings = ClientSettings.load(self.bootstrap_servers)
            create_topic(settings, topic)
            fill(settings, topic, records())
            logs = self.folder.rglob(f"{topic}-0/*.log")
            self._logs[topic] = sum(log.stat().st_size for log in logs)
        return self._logs[topic]

    def drain(self, topic: str, handler: str, concurrency: int, options: Sequence[str]) -> Drained:
        """Drain all of the topic once. Exits if the drain is not done."""
        group = f"g-{secrets.token_hex(4)}"
        command = [sys.executable, "-m", "drainer", "--quiet", "run", "-b", self.bootstrap_servers]
        command += ["--topic", topic, "--group", group, "--handler", f"{HANDLERS}:{handler}"]
        command += ["--from", "earliest", "--concurrency", str(concurrency), "--tune", "timeout=0s"]
        command += ["--plan", str(self.folder / f"{group}.json"), "--yes", "-o", "json"]
        sent, begun_s = self._sent(), time.monotonic()
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE)
        watch = _Watch(process.pid)
        with looking(watch.look, LOOK_S):
            out, _ = process.communicate()
        command_s = time.monotonic() - begun_s
        if process.returncode:
            raise SystemExit(f"it ended with {process.returncode}: {out.decode()}")
        summary = orjson.loads(out)
        return Drained(
            summary["rate_average"],
            summary["elapsed_s"],
            command_s,
            watch.processor_s,
            self._sent() - sent,
            summary["engine_counts"].get("slices"),
            watch.python_mib,
            watch.java_mib,
        )

    def _sent(self) -> int:
        # Fetches are sent by sendfile, which counts as written. No producer is at work then.
        assert self._broker.mark is not None
        lines = Path(f"/proc/{self._broker.mark.pid}/io").read_text(encoding="ascii").splitlines()
        return int(dict(line.split(": ") for line in lines)["wchar"])


@contextmanager
def bench() -> Iterator[Bench]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(Path(folder) / "broker", die_with_parent=True) as broker,
    ):
        yield Bench(Path(folder), broker)


def on_spark(master: str, size: str | None = None) -> list[str]:
    options = ["--engine", "spark", "--master", master]
    return options if size is None else [*options, "--spark-conf", f"drainer.slice={size}"]


class Events:
    """Spark's event log of one drain, which must be given ``options``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / f"events-{secrets.token_hex(4)}"
        self._folder.mkdir()

    @property
    def options(self) -> list[str]:
        settings = {
            "enabled": "true",
            "dir": self._folder.as_uri(),
            "compress": "false",
            "rolling.enabled": "false",
        }
        named = [f"spark.eventLog.{name}={value}" for name, value in settings.items()]
        return [part for each in named for part in ("--spark-conf", each)]

    def of(self, name: str) -> Iterator[dict[str, Any]]:
        """Return the events of a name, such as SparkListenerTaskEnd."""
        (log,) = [e for e in self._folder.rglob("*") if e.is_file() and e.suffix != ".crc"]
        for line in log.read_bytes().splitlines():
            event = orjson.loads(line)
            if event["Event"] == name:
                yield event

    def shuffled(self) -> tuple[int, int]:
        """Return the bytes that tasks shuffled, and how many tasks there were."""
        tasks = [each.get("Task Metrics") or {} for each in self.of("SparkListenerTaskEnd")]
        written = [each.get("Shuffle Write Metrics") or {} for each in tasks]
        return sum(each.get("Shuffle Bytes Written", 0) for each in written), len(written)


@contextmanager
def looking(look: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call a function again and again in a thread of its own, until the end of the block."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            look()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Watch:
    """Processor time and memory of a process and of all that it begins, looked at now and then.

    The system does not report them afterwards: the parent of Spark's Python workers ignores their
    ends, so nobody adds up their time.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._spent_s: dict[int, float] = {}
        self.python_mib = self.java_mib = 0.0

    @property
    def processor_s(self) -> float:
        return sum(self._spent_s.values())

    def look(self) -> None:
        for pid in {*family(self._pid), *self._spent_s}:
            with suppress(OSError):
                stat = Stat.of(pid)
                self._spent_s[pid] = stat.own_s
                if stat.name == "java":
                    self.java_mib = max(self.java_mib, stat.mib)
                else:
                    self.python_mib = max(self.python_mib, stat.mib)


class Stat(NamedTuple):
    """A process: its own processor time, and that of the children for which it has waited."""

    name: str
    parent: int
    own_s: float
    all_s: float
    mib: float

    @classmethod
    def of(cls, pid: int) -> Stat:
        """Look at a process. Raises OSError if it is gone."""
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        spent = [int(ticks) / TICKS_PER_S for ticks in fields[11:15]]
        pages = int(fields[21])
        return cls(name, int(fields[1]), sum(spent[:2]), sum(spent), pages * PAGE_MIB)


def family(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                parents.setdefault(Stat.of(int(folder.name)).parent, []).append(int(folder.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found
