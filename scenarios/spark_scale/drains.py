"""Drains of one hot partition, in one process and on Spark, in turns on one broker."""

from __future__ import annotations

import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from drainer.demo.fill import create_topic, fill
from drainer.kafka.settings import ClientSettings
from drainer.sandbox import Broker
from scenarios.side_by_side.workloads import Workload
from scenarios.spark_scale.handlers import compute
from scenarios.spark_scale.slots import compare

HANDLERS = Path(__file__).with_name("handlers.py")
FAN_OUT = 50
SUB_KEYS = 14_000
LOOK_S = 0.5  # all of /proc is read each time


@dataclass(frozen=True, slots=True)
class Drained:
    """``elapsed_s`` is the drain's, ``command_s`` all from the command's start to its end."""

    rate: float
    elapsed_s: float
    command_s: float
    waves: int | None
    python_mib: float  # the most of any Python process
    java_mib: float


def rounds_of(seconds: float) -> int:
    """How many rounds of ``compute`` take so long on this machine, now."""
    tried = 20_000
    taken = []
    for _ in range(7):
        begun_s = time.process_time()
        compute(tried)
        taken.append(time.process_time() - begun_s)
    return int(tried * seconds / min(taken))


class Bench:
    """Topics on a broker of its own."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self._folder = folder
        self._broker = broker
        self._bootstrap = broker.bootstrap_servers
        self._topics: dict[tuple[int, int], str] = {}

    def drain(
        self,
        handler: str,
        messages: int,
        concurrency: int,
        *,
        engine: Sequence[str],
        options: Sequence[str],
    ) -> Drained:
        """One drain of so many messages of 50 documents, by the command."""
        with self._begun(messages, 0, handler, concurrency, [*_set(options), *engine]) as drain:
            return drain.end()

    def by_slots(
        self, messages: int, slots: Sequence[int], options: Sequence[str], times: int
    ) -> None:
        """Prints what ``slots.compare`` finds on this broker."""
        compare(self._folder, self._broker, messages, slots, options, times)

    def drain_halves(
        self, handler: str, messages: int, concurrency: int, *, options: Sequence[str]
    ) -> Drained:
        """Two drains at once in processes of their own, each of half of it with half the calls:
        what two cores of this machine can do, and no engine on them does more."""
        given = [*_set(options), *IN_PROCESS]
        with (
            self._begun(messages // 2, 0, handler, concurrency // 2, given) as one,
            self._begun(messages // 2, 1, handler, concurrency // 2, given) as other,
        ):
            ended = [one.end(), other.end()]
        longest_s = max(each.elapsed_s for each in ended)
        return Drained(
            rate=sum(each.rate * each.elapsed_s for each in ended) / longest_s,
            elapsed_s=longest_s,
            command_s=max(each.command_s for each in ended),
            waves=None,
            python_mib=max(each.python_mib for each in ended),
            java_mib=0.0,
        )

    def _begun(
        self, messages: int, number: int, handler: str, concurrency: int, more: Sequence[str]
    ) -> _Drain:
        topic = self._topics.get((messages, number))
        if topic is None:
            topic = self._topics[messages, number] = f"scale-{messages}-{number}"
            settings = ClientSettings.load(self._bootstrap)
            create_topic(settings, topic)
            load = Workload("", messages, FAN_OUT, SUB_KEYS, one_key=True, latency_ms=0)
            fill(settings, topic, load.records())
        group = f"g-{secrets.token_hex(4)}"
        command = [sys.executable, "-m", "drainer", "run", "-b", self._bootstrap]
        command += ["--topic", topic, "--group", group, "--handler", f"{HANDLERS}:{handler}"]
        command += ["--from", "earliest", "--concurrency", str(concurrency), "--timeout", "0s"]
        command += ["--plan", str(self._folder / f"{group}.json"), "--yes", "--json", "--quiet"]
        return _Drain([*command, *more])


class _Drain:
    """A drain that runs."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def __enter__(self) -> _Drain:
        self._begun_s = time.monotonic()
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        self._memory = _Memory(self._process.pid)
        self._memory.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.__exit__()
        self._process.kill()
        self._process.wait()

    def end(self) -> Drained:
        """Waits for it."""
        out, _ = self._process.communicate()
        if self._process.returncode:
            raise SystemExit(f"it ended with {self._process.returncode}: {out.decode()}")
        told = orjson.loads(out)
        return Drained(
            told["sub_messages_per_s"],
            told["elapsed_s"],
            time.monotonic() - self._begun_s,
            told["engine_counts"].get("waves"),
            self._memory.python_mib,
            self._memory.java_mib,
        )


def _set(options: Sequence[str]) -> list[str]:
    return [part for option in options for part in ("--set", option)]


def bench() -> Iterator[Bench]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(Path(folder) / "broker", die_with_parent=True) as broker,
    ):
        yield Bench(Path(folder), broker)


def on_spark(master: str, wave: str | None = None) -> list[str]:
    said = ["--engine", "spark", "--master", master]
    return said if wave is None else [*said, "--wave", wave]


IN_PROCESS = ["--engine", "process"]


class _Memory:
    """The most memory that a process and those that it began take, looked at now and then."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.python_mib = self.java_mib = 0.0

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            for pid in family(self._pid):
                name, mib = _size(pid)
                if name == "java":
                    self.java_mib = max(self.java_mib, mib)
                else:
                    self.python_mib = max(self.python_mib, mib)


def family(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def _size(pid: int) -> tuple[str, float]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "", 0.0
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return fields["Name"].strip(), int(fields.get("VmRSS", "0 kB").split()[0]) / 1024
