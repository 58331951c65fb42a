"""One backlog drained on more and more slots of the same cores, with messages of more and more
uneven size: what a slot costs that brings no core with it.
"""

from __future__ import annotations

import ctypes
import os
import random
import resource
import secrets
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson

from drainer.demo.fill import create_topic, fill
from drainer.kafka.settings import ClientSettings
from drainer.sandbox import Broker

HANDLERS = Path(__file__).with_name("handlers.py")
SUB_KEYS = 14_000
MEAN = 50  # operations of a message
SEED = 1
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Load:
    """A backlog, by how many operations its messages have.

    Attributes:
        messages: how many; all have one key and lie on one partition.
        cv: standard deviation over mean.
        drifts: the mean grows from a fifth of ``MEAN`` to 1.8 times it over the backlog.
    """

    name: str
    messages: int
    cv: float = 0.0
    drifts: bool = False

    def records(self) -> Iterator[tuple[bytes, bytes, int]]:
        """(key, value, partition) of every message."""
        chance = random.Random(SEED)
        for number in range(self.messages):
            mean = MEAN * (0.2 + 1.6 * number / self.messages) if self.drifts else MEAN
            shape = self.cv**-2 if self.cv else 0
            count = max(1, round(chance.gammavariate(shape, mean / shape) if shape else mean))
            documents = [
                {"id": f"doc-{chance.randrange(SUB_KEYS):05}", "version": number}
                for _ in range(count)
            ]
            yield b"customer-4711", orjson.dumps({"documents": documents}), 0

    @property
    def topic(self) -> str:
        return "slots-" + self.name.replace(" ", "-")


def loads(messages: int) -> list[Load]:
    return [
        Load("equal", messages),
        Load("cv 0.3", messages, cv=0.3),
        Load("cv 1.0", messages, cv=1.0),
        Load("drift", messages, cv=0.3, drifts=True),
    ]


class Cost(NamedTuple):
    """What one drain took: seconds from plan to summary, processor seconds of all its processes
    from the command's start, bytes that tasks shuffled, bytes that the broker sent, tasks."""

    elapsed_s: float
    processor_s: float
    shuffled: float
    sent: float
    tasks: float

    def beyond(self, other: Cost) -> Cost:
        """What it took more than the other one."""
        return Cost(*(mine - its for mine, its in zip(self, other, strict=True)))


class Backlogs:
    """Topics on a broker of their own, and drains of them."""

    def __init__(self, folder: Path, broker: Broker, options: Sequence[str]) -> None:
        self._folder = folder
        self._broker = broker
        self._options = options

    def fill(self, load: Load) -> int:
        """Makes the topic; gives the bytes of its log on disk."""
        settings = ClientSettings.load(self._broker.bootstrap_servers)
        create_topic(settings, load.topic)
        fill(settings, load.topic, load.records())
        return sum(log.stat().st_size for log in self._folder.rglob(f"{load.topic}-0/*.log"))

    def drain(self, load: Load, slots: int) -> Cost:
        """One drain by the command, with a handler that does nothing, on ``local[slots]``."""
        group = f"g-{secrets.token_hex(4)}"
        events = self._folder / group
        events.mkdir()
        command = [sys.executable, "-m", "drainer", "run", "-b", self._broker.bootstrap_servers]
        command += ["--topic", load.topic, "--group", group, "--handler", f"{HANDLERS}:Nothing"]
        command += ["--from", "earliest", "--concurrency", "1000", "--timeout", "0s"]
        command += ["--plan", str(self._folder / f"{group}.json"), "--yes", "--json", "--quiet"]
        command += ["--engine", "spark", "--master", f"local[{slots}]", *self._options]
        for name, value in _events_to(events).items():
            command += ["--spark-conf", f"{name}={value}"]
        sent = self._sent()
        with _Processor() as processor:
            done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise SystemExit(f"it ended with {done.returncode}: {done.stdout.decode()}")
        elapsed_s = orjson.loads(done.stdout)["elapsed_s"]
        shuffled, tasks = _of_tasks(events)
        return Cost(elapsed_s, processor.spent_s, shuffled, self._sent() - sent, tasks)

    def _sent(self) -> int:
        # Fetches go out by sendfile, which counts as written; no producer is at work then.
        assert self._broker.mark is not None
        lines = Path(f"/proc/{self._broker.mark.pid}/io").read_text(encoding="ascii").splitlines()
        return int(dict(line.split(": ") for line in lines)["wchar"])


def empty_task_s(slots: int) -> float:
    """Processor seconds of a task with next to nothing to do."""
    command = [sys.executable, "-m", "scenarios.spark_scale.empty", str(slots)]
    return float(subprocess.check_output(command))


def compare(
    folder: Path,
    broker: Broker,
    messages: int,
    slots_tried: Sequence[int],
    options: Sequence[str],
    times: int,
) -> None:
    """Prints a table: each load by so many slots, in turns.

    What a drain of one message takes is not counted: it is how Spark starts. Ratios are against
    the fewest slots; the last one is of processor time less what empty tasks take.
    """
    backlogs = Backlogs(folder, broker, options)
    one = Load("one", 1)
    backlogs.fill(one)
    empty_s = {slots: empty_task_s(slots) for slots in slots_tried}
    start = {slots: backlogs.drain(one, slots) for slots in slots_tried}
    print("| slots | an empty task, processor ms | a drain of one message, s | processor s |")
    print("|---|---|---|---|")
    for slots, cost in start.items():
        ms = 1000 * empty_s[slots]
        print(f"| {slots} | {ms:.0f} | {cost.elapsed_s:.1f} | {cost.processor_s:.1f} |")
    print(
        "\n| load | slots | s | ratio | processor s | ratio | without empty tasks, ratio"
        " | shuffled / log | ratio | sent / log | tasks |"
    )
    print("|---" * 11 + "|")
    for load in loads(messages):
        log = backlogs.fill(load)
        found: dict[int, list[Cost]] = {slots: [] for slots in slots_tried}
        for _ in range(times):
            for slots, costs in found.items():
                costs.append(backlogs.drain(load, slots).beyond(start[slots]))
        least: Cost | None = None
        for slots, costs in found.items():
            cost = Cost(*map(statistics.median, zip(*costs, strict=True)))
            least = least or cost
            net_s = cost.processor_s - cost.tasks * empty_s[slots]
            least_net_s = least.processor_s - least.tasks * empty_s[slots_tried[0]]
            print(
                f"| {load.name} | {slots} | {cost.elapsed_s:.1f}"
                f" | {cost.elapsed_s / least.elapsed_s:.2f}"
                f" | {cost.processor_s:.1f} | {cost.processor_s / least.processor_s:.2f}"
                f" | {net_s / least_net_s:.2f}"
                f" | {cost.shuffled / log:.2f} | {cost.shuffled / least.shuffled:.2f}"
                f" | {cost.sent / log:.2f} | {cost.tasks:.0f} |",
                flush=True,
            )


def _events_to(folder: Path) -> dict[str, str]:
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def _of_tasks(events: Path) -> tuple[int, int]:
    """Bytes that tasks shuffled, and how many tasks there were."""
    shuffled = tasks = 0
    (log,) = [each for each in events.rglob("*") if each.is_file() and each.suffix != ".crc"]
    for line in log.read_bytes().splitlines():
        event = orjson.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            tasks += 1
            metrics = event.get("Task Metrics") or {}
            written = metrics.get("Shuffle Write Metrics") or {}
            shuffled += written.get("Shuffle Bytes Written", 0)
    return shuffled, tasks


class _Processor:
    """Processor seconds of the processes that begin and end within it, with all that they
    begin: what outlives its parent becomes this process's child, and is waited for."""

    spent_s = 0.0

    def __enter__(self) -> _Processor:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._mine = _children()
        self._begun_s = _children_s()
        return self

    def __exit__(self, *_: object) -> None:
        while orphans := _children() - self._mine:  # and those that these leave behind
            for pid in orphans:
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        self.spent_s = _children_s() - self._begun_s


def _children() -> set[int]:
    threads = Path("/proc/self/task").glob("*/children")
    return {int(pid) for thread in threads for pid in thread.read_text(encoding="ascii").split()}


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
