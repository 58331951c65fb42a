"""Drains for as long as you like, and looks at the process every second: does anything grow?

The backlog is as long as the drain is to take. Nearly every sub-message has a sub-key that has
never come before. One hot sub-key holds the watermark back. The scenario prints a row every
``--every`` seconds, and at the end the trend of each figure. The trend leaves out the first
quarter, in which the buffers fill, and the last part, when nothing is left to fetch. The scenario
ends with exit code 1 if the memory grew, or was above its bound at any moment. The bound is what
the process had before it read anything, twice the buffer and 24 MiB.

With ``--workload parked``, every tenth message is large and waits behind a lane that failed. With
``--workload fan-out``, messages have 10,000 sub-messages. With ``--workload payloads``, ``split``
makes a thousand times as many bytes as the message has.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from drainer.kafka.settings import ClientSettings
from drainer.model.option import parse_size
from scenarios.brokers import Broker
from scenarios.fill import create_topic, fill

HANDLER = Path(__file__).with_name("handler.py")
TOPIC = GROUP = "soak"
# The hot lane gets this share of what one worker can do. So it is always busy, and never far
# behind.
HOT_SHARE = 1.0
LOOK_EVERY_S = 1.0
HALTED = 5  # The exit code of a drain that leaves parked lanes.
# This many messages are parked at most, because a drain stops once it has parked 50,000.
PARKED_MOST = 20_000
# Buffers and MiB that the memory may take; they include the client's and the allocator's.
BOUND_BUFFERS, BOUND_MIB = 2.0, 24
# The trend leaves out these shares of the time, at its beginning and at its end.
FILLING, EMPTYING = 0.25, 0.15
# If the memory differs by more than this share between the middle and the end, it grows.
GROWTH = 0.05


@dataclass(frozen=True, slots=True)
class Workload:
    """The shape of messages: the sub-messages of each, the bytes of each, and the bytes of each
    payload.

    One of ``parked_every`` messages is parked, and none if that is 0.
    """

    fan_out: int = 50
    message_bytes: int = 1000  # 8 hours of 10,000 sub-messages a second are 6 GB on disk
    payload_bytes: int = 0
    parked_every: int = 0


WORKLOADS = {
    "plain": Workload(),
    "parked": Workload(message_bytes=50_000, parked_every=10),
    "fan-out": Workload(fan_out=10_000),
    "payloads": Workload(payload_bytes=20_000),
}


@dataclass(frozen=True, slots=True)
class Look:
    """The process and its files at one moment."""

    at_s: float
    resident_mib: float
    open_files: int
    threads: int
    plan_bytes: int
    journal_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--latency-ms", type=int, default=10)
    parser.add_argument("--buffer", default="8MiB")
    parser.add_argument("--workload", choices=WORKLOADS, default="plain")
    parser.add_argument(
        "--every", type=float, default=10.0, help="the seconds between two rows of the table"
    )
    given = parser.parse_args()
    seconds = (given.minutes if not given.hours else given.hours * 60) * 60
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(Path(folder) / "broker", die_with_parent=True, print_line=print) as broker,
    ):
        settings = ClientSettings.load(broker.bootstrap_servers)
        create_topic(settings, TOPIC)
        workload = WORKLOADS[given.workload]
        of_each = given.latency_ms / 1000 * workload.fan_out
        messages = int(seconds * given.concurrency / of_each)
        print(f"filling: {messages:,} messages of {workload.fan_out:,} sub-messages", flush=True)
        fill(settings, TOPIC, _records(workload, messages, given.concurrency))
        looks = list(_drain(broker.bootstrap_servers, Path(folder), given))
        idle_mib = float((Path(folder) / "idle_mib").read_text())
    _print(looks)
    _ensure_bounded(looks, idle_mib, parse_size(given.buffer) / 2**20)


def _records(
    workload: Workload, messages: int, concurrency: int
) -> Iterator[tuple[bytes, bytes, int]]:
    hot_due = 0.0
    parked_every = max(workload.parked_every, messages // PARKED_MOST)
    for number in range(messages):
        hot_due += HOT_SHARE * workload.fan_out / concurrency
        hot = int(hot_due)
        hot_due -= hot
        if workload.parked_every and number % parked_every == 0:
            hot = -1
        value = b"%d %d %d" % (number * workload.fan_out, workload.fan_out, hot)
        yield b"one key", value.ljust(workload.message_bytes), 0


def _drain(bootstrap: str, folder: Path, given: argparse.Namespace) -> Iterator[Look]:
    """Look at a drain until it is done. Raises SystemExit if it does not finish well."""
    plan = folder / "plan.json"
    workload = WORKLOADS[given.workload]
    print(_HEAD, flush=True)
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "drainer", "--quiet", "run"),
            *("--topic", TOPIC, "--group", GROUP, "-b", bootstrap, "--from", "earliest"),
            *("--plan", str(plan), "--yes"),
            *("--handler", f"{HANDLER}:Soaking", "--set", f"latency_ms={given.latency_ms}"),
            *("--set", f"payload_bytes={workload.payload_bytes}", "--set", f"folder={folder}"),
            *("--on-failure", "park", "--retries", "0"),
            *("--concurrency", str(given.concurrency), "--tune", f"buffer={given.buffer}"),
        ]
    ) as process:
        begun_s = due_s = time.monotonic()
        while process.poll() is None:
            now_s = time.monotonic()
            if plan.exists() and (look := look_at(process.pid, plan, now_s - begun_s)) is not None:
                yield look
                if now_s >= due_s:
                    print(_row(look), flush=True)
                    due_s += given.every
            time.sleep(LOOK_EVERY_S)
    if process.returncode != (HALTED if workload.parked_every else 0):
        raise SystemExit(f"the drain ended with {process.returncode}")


def look_at(pid: int, plan: Path, at_s: float) -> Look | None:
    """Look at a process and at its plan, unless one of them is gone."""
    # Between two looks the process may end, or a journal may be removed.
    process = Path(f"/proc/{pid}")
    try:
        pages = int((process / "statm").read_text().split()[1])
        return Look(
            at_s,
            pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            len(list((process / "fd").iterdir())),
            len(list((process / "task").iterdir())),
            plan.stat().st_size,
            sum(journal.stat().st_size for journal in plan.parent.glob(f"{plan.name}.journal-*")),
        )
    except (OSError, IndexError):
        return None


_HEAD = "\n| seconds | memory, MiB | open files | threads | plan, bytes | journal, bytes |\n" + (
    "|---|---|---|---|---|---|"
)


def _row(look: Look) -> str:
    return "| " + " | ".join(f"{value:,.0f}" for value in astuple(look)) + " |"


def _print(looks: Sequence[Look]) -> None:
    took_s = looks[-1].at_s
    steady = [look for look in looks if FILLING <= look.at_s / took_s <= 1 - EMPTYING]
    hours = [look.at_s / 3600 for look in steady]
    print("\n| figure | least | median | most | trend per hour |\n|---|---|---|---|---|")
    for field in fields(Look)[1:]:
        values = [getattr(look, field.name) for look in steady]
        trend = statistics.linear_regression(hours, values).slope
        print(
            f"| {field.name.replace('_', ' ')} | {min(values):,.1f} |"
            f" {statistics.median(values):,.1f} | {max(values):,.1f} | {trend:+,.1f} |"
        )
    third = len(steady) // 3
    middle = statistics.median(look.resident_mib for look in steady[:third])
    end = statistics.median(look.resident_mib for look in steady[-third:])
    print(f"\nmemory: {middle:.1f} MiB, and {end:.1f} MiB at the end = {end / middle - 1:+.1%}")
    if end > middle * (1 + GROWTH):
        raise SystemExit("the memory grew")


def _ensure_bounded(looks: Sequence[Look], idle_mib: float, buffer_mib: float) -> None:
    most = max(look.resident_mib for look in looks)
    bound = idle_mib + BOUND_BUFFERS * buffer_mib + BOUND_MIB
    print(
        f"bound: {idle_mib:.1f} MiB before anything was read, {most:.1f} at most, bound"
        f" {bound:.1f} (--buffer of {buffer_mib:.0f} MiB)"
    )
    if most > bound:
        raise SystemExit("the memory was above its bound")


if __name__ == "__main__":
    main()
