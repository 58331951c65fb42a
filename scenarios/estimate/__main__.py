"""Estimates each of some backlogs, drains it, and prints both with their ratio.

The backlogs have uniform sub-keys, sub-keys by Zipf's law, one hot row, a downstream with two
modes, barriers, a handler that folds a hot row, and one that takes batches. Messages have 1 or 50
operations, and each backlog takes some seconds at each of several concurrencies. It fails if an
estimate is off by more than it may be, or if a drain took a time outside of the printed range.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import subprocess
import sys
import tempfile
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson

from drainer import sandbox
from drainer.kafka.settings import ClientSettings
from scenarios.brokers import delete_group, delete_topic
from scenarios.fill import create_topic, fill

HANDLERS = Path(__file__).with_name("handlers.py")
SEED = 1
# How far an estimate may be off if the handler waits, with barriers, and otherwise.
WAITS_WITHIN, BARRIERS_WITHIN, WITHIN = 0.05, 0.20, 0.25
SUB_KEYS = 20_000
SUB_MESSAGES_MOST = 400_000
# About the processor time of a sub-message, which decides how long a backlog has to be.
PROCESS_S = 10e-6
ONE_KEY = b"customer-4711"
WAITS = {"concurrency", "hottest lane"}  # The bounds of a drain that waits for its handler.


@dataclass(frozen=True, slots=True)
class Workload:
    """The shape of a backlog. ``hottest`` is roughly the share of the hottest sub-key."""

    name: str
    skew: float = 0.0
    hot_share: float = 0.0
    usual_ms: float = 10.0
    slow_ms: float = 10.0
    slow_share: float = 0.0
    latency: str = "10ms"
    hottest: float = 0.0
    handler: str = ""  # The handler, if it is not the one for the fan-out.
    in_a_call: float = 1.0  # About how many sub-messages a call has.
    barrier_every: int = 0  # One of so many messages is a barrier; 0 for none.

    @property
    def mean_s(self) -> float:
        return (self.usual_ms * (1 - self.slow_share) + self.slow_ms * self.slow_share) / 1000

    def sub_messages(self, concurrency: int, seconds: float) -> int:
        """Return the number of sub-messages that take about so long."""
        call_s = max(self.mean_s / concurrency, self.mean_s * self.hottest)
        each_s = max(call_s / self.in_a_call, PROCESS_S)
        if self.barrier_every:
            each_s += (self.mean_s + self.slow_ms / 1000) / self.barrier_every
        return min(SUB_MESSAGES_MOST, round(seconds / each_s))

    def records(self, fan_out: int) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield (key, value, partition) of every message."""
        keys = self._sub_keys()
        for number in range(SUB_MESSAGES_MOST // fan_out):
            if fan_out == 1:
                barrier = self.barrier_every and number % self.barrier_every == 0
                yield str(next(keys)).encode(), b"" if barrier else b"{}", 0
            else:
                yield ONE_KEY, orjson.dumps([next(keys) for _ in range(fan_out)]), 0

    def _sub_keys(self) -> Iterator[int]:
        chance = random.Random(SEED)
        weights = list(accumulate(1 / rank**self.skew for rank in range(1, SUB_KEYS + 1)))
        while True:
            if chance.random() < self.hot_share:
                yield SUB_KEYS
            else:
                yield bisect(weights, chance.random() * weights[-1])


WORKLOADS = {
    "uniform": Workload("uniform"),
    "zipf": Workload("Zipf(1.1)", skew=1.1, hottest=0.14),
    "hot-row": Workload("one hot row, 4%", hot_share=0.04, hottest=0.04),
    "bimodal": Workload(
        "bimodal: 5 ms, and 100 ms for 5%",
        usual_ms=5.0,
        slow_ms=100.0,
        slow_share=0.05,
        latency="p95=5ms,p95.01=100ms",
    ),
    "barriers-100": Workload("a barrier every 100", handler="Barriers", barrier_every=100),
    "barriers-2000": Workload("a barrier every 2,000", handler="Barriers", barrier_every=2_000),
    "barriers-bimodal": Workload(
        "bimodal, a barrier every 500",
        handler="Barriers",
        barrier_every=500,
        usual_ms=5.0,
        slow_ms=100.0,
        slow_share=0.05,
        latency="p95=5ms,p95.01=100ms",
    ),
    "folded": Workload("a hot row of 38%, folded", hot_share=0.38, handler="Folded", in_a_call=1.6),
    "together": Workload("20 sub-keys a call", handler="Together", in_a_call=20.0),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    workload: Workload
    fan_out: int
    concurrency: int
    sub_messages: int
    estimated_s: float
    range_s: tuple[float, float]
    bound: str
    drained_s: float

    @property
    def ratio(self) -> float:
        return self.estimated_s / self.drained_s

    @property
    def is_off(self) -> bool:
        """Return whether the estimate is off by more than it may be, or the drain is out of the
        printed range."""
        within = WAITS_WITHIN if self.bound in WAITS and not self.workload.handler else WITHIN
        if self.workload.barrier_every:
            within = BARRIERS_WITHIN
        least_s, most_s = self.range_s
        return abs(self.ratio - 1) > within or not least_s <= self.drained_s <= most_s


class Bench:
    """Topics for each workload and fan-out, which are filled once and removed at the end."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._settings = ClientSettings.load(bootstrap)
        self._topics: dict[tuple[str, int], str] = {}
        self._groups: list[str] = []

    def compare(self, workload: Workload, fan_out: int, concurrency: int, seconds: float) -> Row:
        topic = self._topic(workload, fan_out)
        group = f"estimate-{secrets.token_hex(3)}"
        self._groups.append(group)
        handler = workload.handler or ("Whole" if fan_out == 1 else "Batch")
        messages = max(1, workload.sub_messages(concurrency, seconds) // fan_out)
        what = [
            *("--topic", topic, "--group", group, "-b", self._bootstrap, "--from", "earliest"),
            *("--handler", f"{HANDLERS}:{handler}"),
            *("--until", str(messages), "--concurrency", str(concurrency), "-o", "json"),
            *("--set", f"usual_ms={workload.usual_ms}", "--set", f"slow_ms={workload.slow_ms}"),
            *("--set", f"slow_share={workload.slow_share}"),
        ]
        with tempfile.TemporaryDirectory() as folder:
            estimated = _answer("estimate", *what, "--latency", workload.latency, folder=folder)
            drained = _answer("run", *what, "--yes", folder=folder)
        found = estimated["estimate"]["sub-key"]
        row = Row(
            workload,
            fan_out,
            concurrency,
            drained["sub_messages"]["done"],
            found["seconds"],
            tuple(estimated["estimate"]["range_s"]),
            found["bound"],
            drained["elapsed_s"],
        )
        print(_line(row), flush=True)
        return row

    def _topic(self, workload: Workload, fan_out: int) -> str:
        known = self._topics.get((workload.name, fan_out))
        if known is not None:
            return known
        topic = self._topics[workload.name, fan_out] = f"estimate-{secrets.token_hex(3)}"
        create_topic(self._settings, topic)
        fill(self._settings, topic, workload.records(fan_out))
        return topic

    def close(self) -> None:
        for group in self._groups:
            delete_group(self._settings, group)
        for topic in self._topics.values():
            delete_topic(self._settings, topic)


def _answer(*words: str, folder: str) -> dict[str, Any]:
    found = subprocess.run(
        [sys.executable, "-m", "drainer", *words], cwd=folder, capture_output=True, check=False
    )
    if found.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}\nexit {found.returncode}\n{found.stderr.decode()}")
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


def _line(row: Row) -> str:
    least_s, most_s = row.range_s
    off = " OFF" if row.is_off else ""
    return (
        f"| {row.workload.name} | {row.fan_out} | {row.concurrency:,} | {row.sub_messages:,} |"
        f" {row.estimated_s:.2f} s, {least_s:.2f} to {most_s:.2f} s ({row.bound}) |"
        f" {row.drained_s:.2f} s | {row.ratio:.3f}{off} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.estimate", description=__doc__)
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        help="the brokers; by default the sandbox, which is started if it does not run",
    )
    parser.add_argument(
        "--only", choices=WORKLOADS, action="append", help="only this workload; repeat for several"
    )
    parser.add_argument(
        "--fan-out",
        type=int,
        action="append",
        help="operations of a message; repeat for several; by default 1 and 50",
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        action="append",
        help="calls at once; repeat for several; by default 10, 100 and 1000",
    )
    parser.add_argument(
        "--seconds", type=float, default=8.0, help="the seconds that each drain should take"
    )
    given = parser.parse_args()
    bootstrap = given.bootstrap_server or sandbox.up(print_line=print).bootstrap_servers
    bench = Bench(bootstrap)
    rows: list[Row] = []
    print("| workload | operations a message | at once | sub-messages | estimated | drained | |")
    print("|---|---|---|---|---|---|---|")
    try:
        for name in given.only or WORKLOADS:
            for fan_out in given.fan_out or (1, 50):
                if WORKLOADS[name].handler and fan_out > 1:
                    continue  # These have the default split.
                for concurrency in given.concurrency or (10, 100, 1000):
                    row = bench.compare(WORKLOADS[name], fan_out, concurrency, given.seconds)
                    rows.append(row)
    finally:
        bench.close()
    worst = max(rows, key=lambda row: abs(row.ratio - 1))
    print(f"\nthe worst is {worst.ratio:.3f}: {worst.workload.name}, C={worst.concurrency}")
    if off := sum(row.is_off for row in rows):
        raise SystemExit(f"{off} of {len(rows)} estimates were off by more than they may be")


if __name__ == "__main__":
    main()
