"""Drains for as long as you like, and looks at the process every second: does anything grow?

The backlog is as long as the drain is to take. Nearly every sub-message has a sub-key of its own,
never seen before; one hot sub-key holds the watermark back. Prints a row every ``--every`` seconds,
and at the end the trend of each figure: without the first quarter, in which the buffers fill, and
the last part, when nothing is left to fetch. Ends with 1 when the memory grew.
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

from drainer.kafka.fill import create_topic, fill
from drainer.kafka.settings import ClientSettings
from drainer.sandbox import Broker

HANDLER = Path(__file__).with_name("handler.py")
TOPIC = GROUP = "soak"
FAN_OUT = 50
HOT_SHARE = 1.0  # of what one worker gets done: its lane is always busy, and never far behind
LOOK_EVERY_S = 1.0
MESSAGE_BYTES = 1000  # 8 hours of 10,000 sub-messages a second are 6 GB on the broker's disk
FILLING, EMPTYING = 0.25, 0.15  # of the time are left out of the trend
GROWTH = 0.05  # of the memory between the middle and the end: more is growth


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
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two rows")
    given = parser.parse_args()
    seconds = (given.minutes if not given.hours else given.hours * 60) * 60
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(Path(folder) / "broker", die_with_parent=True, say=print) as broker,
    ):
        settings = ClientSettings.load(broker.bootstrap_servers)
        create_topic(settings, TOPIC)
        messages = int(seconds * given.concurrency / (given.latency_ms / 1000) / FAN_OUT)
        print(f"filling: {messages:,} messages, {messages * FAN_OUT:,} sub-messages", flush=True)
        fill(settings, TOPIC, _records(messages, given.concurrency))
        looks = list(_drain(broker.bootstrap_servers, Path(folder), given))
    _tell(looks)


def _records(messages: int, concurrency: int) -> Iterator[tuple[bytes, bytes, int]]:
    hot_due = 0.0
    for number in range(messages):
        hot_due += HOT_SHARE * FAN_OUT / concurrency
        hot = int(hot_due)
        hot_due -= hot
        value = b"%d %d %d" % (number * FAN_OUT, FAN_OUT, hot)
        yield b"one key", value.ljust(MESSAGE_BYTES), 0


def _drain(bootstrap: str, folder: Path, given: argparse.Namespace) -> Iterator[Look]:
    """Looks at a drain until it is done. Raises SystemExit when it does not finish well."""
    plan = folder / "plan.json"
    print(_HEAD, flush=True)
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "drainer", "run", "--topic", TOPIC, "--group", GROUP),
            *("-b", bootstrap, "--from", "earliest", "--plan", str(plan), "--yes", "--quiet"),
            *("--handler", f"{HANDLER}:Soaking", "--set", f"latency_ms={given.latency_ms}"),
            *("--concurrency", str(given.concurrency), "--buffer", given.buffer),
        ]
    ) as process:
        begun_s = due_s = time.monotonic()
        while process.poll() is None:
            now_s = time.monotonic()
            if plan.exists() and (look := _look(process.pid, plan, now_s - begun_s)) is not None:
                yield look
                if now_s >= due_s:
                    print(_row(look), flush=True)
                    due_s += given.every
            time.sleep(LOOK_EVERY_S)
    if process.returncode != 0:
        raise SystemExit(f"the drain ended with {process.returncode}")


def _look(pid: int, plan: Path, at_s: float) -> Look | None:
    # In a moment between two looks it may end, or a journal be removed.
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


def _tell(looks: Sequence[Look]) -> None:
    took_s = looks[-1].at_s
    settled = [look for look in looks if FILLING <= look.at_s / took_s <= 1 - EMPTYING]
    hours = [look.at_s / 3600 for look in settled]
    print("\n| figure | least | median | most | trend per hour |\n|---|---|---|---|---|")
    for field in fields(Look)[1:]:
        values = [getattr(look, field.name) for look in settled]
        trend = statistics.linear_regression(hours, values).slope
        print(
            f"| {field.name.replace('_', ' ')} | {min(values):,.1f} |"
            f" {statistics.median(values):,.1f} | {max(values):,.1f} | {trend:+,.1f} |"
        )
    third = len(settled) // 3
    middle = statistics.median(look.resident_mib for look in settled[:third])
    end = statistics.median(look.resident_mib for look in settled[-third:])
    print(f"\nmemory: {middle:.1f} MiB, and {end:.1f} MiB at the end = {end / middle - 1:+.1%}")
    if end > middle * (1 + GROWTH):
        raise SystemExit("the memory grew")


if __name__ == "__main__":
    main()
