"""Measures every workload and order in one run, prints a table and draws a chart.

Ratios are measured in pairs within the run, because machines differ and drift more than ratios do.
Partition and key order are measured on a part of the backlog, because they would take hours. The
table notes that.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drainer import sandbox
from drainer.kafka.settings import ClientSettings
from scenarios.brokers import delete_group, delete_topic
from scenarios.fill import create_topic, fill
from scenarios.side_by_side.chart import draw
from scenarios.side_by_side.measure import (
    DRAINER,
    TIMED_JOURNAL,
    WITHOUT_JOURNAL,
    WITHOUT_PLAN,
    Measured,
    bare_loop,
    measure,
)
from scenarios.side_by_side.workloads import Workload

HOT = Workload("one hot key, 50 each", 22_000, 50, 14_000, one_key=True, latency_ms=10)
HOT_SHORT_MESSAGES = 2_000
# The messages, of 50 sub-messages each, that are measured in the conventional orders. One at a time
# at 10 ms, they take ten seconds.
CONVENTIONAL_MESSAGES = 20
DISTINCT = Workload("distinct keys", 1_000_000, 1, 1_000_000, one_key=False, latency_ms=10)
ZIPF = Workload("Zipf(1.1)", 10_000, 1, 10_000, one_key=False, latency_ms=10, skew=1.1)
MEMORY_BUFFER = "32MiB"
PAIRS = 3  # Pairs of runs with and without a plan each second.
JOURNAL_PAIRS = 5  # Pairs of runs with and without the journal.


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a figure, what it is compared with, and whether that is met."""

    workload: str
    mode: str
    figure: str
    target: str
    met: bool | None
    rate: float | None = None


class Bench:
    """Topics on one broker, each of which is filled once and removed at the end."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.settings = ClientSettings.load(bootstrap)
        self._topics: dict[str, str] = {}
        self._groups: list[str] = []

    def run(
        self,
        workload: Workload,
        concurrency: int,
        *,
        order: str = "sub-key",
        until: int | None = None,
        latency_ms: int | None = None,
        options: tuple[str, ...] = (),
        program: tuple[str, ...] = DRAINER,
    ) -> Measured:
        topic = self._topics.get(workload.name)
        if topic is None:
            topic = self._topics[workload.name] = f"side-by-side-{secrets.token_hex(3)}"
            print(f"filling {topic}: {workload.messages:,} messages ({workload.name})", flush=True)
            create_topic(self.settings, topic)
            fill(self.settings, topic, workload.records())
        self._groups.append(f"side-by-side-{secrets.token_hex(3)}")
        latency = workload.latency_ms if latency_ms is None else latency_ms
        found = measure(
            self.bootstrap,
            topic,
            self._groups[-1],
            workload.handler,
            latency_ms=latency,
            concurrency=concurrency,
            options=("--tune", f"order={order}", "--until", str(until or "end"), *options),
            program=program,
        )
        print(
            f"  {workload.name}, {order}, C={concurrency}, {latency} ms:"
            f" {found.rate:,.0f}/s over {found.elapsed_s:.1f} s, {found.peak_mib:.0f} MiB",
            flush=True,
        )
        return found

    def close(self) -> None:
        for group in self._groups:
            delete_group(self.settings, group)
        for topic in self._topics.values():
            delete_topic(self.settings, topic)


def hot_key(bench: Bench) -> list[Row]:
    part = CONVENTIONAL_MESSAGES
    partition = bench.run(HOT, 1000, order="partition", until=part)
    key = bench.run(HOT, 1000, order="key", until=part)
    short = bench.run(HOT, 1000, until=HOT_SHORT_MESSAGES)
    long = bench.run(HOT, 1000)
    ratio = min(short.rate / partition.rate, short.rate / key.rate)
    share = long.rate / (1000 / 0.01)
    measured_on = f"measured on {part} messages"
    return [
        Row(HOT.name, f"partition, C=1000 ({measured_on})", _rate(partition), "", None,
            partition.rate),
        Row(HOT.name, f"key, C=1000 ({measured_on})", _rate(key), "", None, key.rate),
        Row(HOT.name, "sub-key, C=1000, 2,000 messages", f"{_rate(short)} = {ratio:,.0f}x",
            "at least 600x", ratio >= 600, short.rate),
        Row(HOT.name, f"sub-key, C=1000, {long.elapsed_s:.0f} s",
            f"{_rate(long)} = {share:.1%} of C/latency", "at least 85%", share >= 0.85, long.rate),
    ]  # fmt: skip


def distinct_keys(bench: Bench) -> list[Row]:
    rows = []
    for concurrency, messages, least in ((100, 300_000, 0.97), (1000, 1_000_000, 0.85)):
        bare = bare_loop(concurrency, DISTINCT.latency_ms)
        found = bench.run(DISTINCT, concurrency, until=messages)
        share = found.rate / (concurrency / 0.01)
        rows.append(
            Row("event loop", f"nothing but sleeps of 10 ms, C={concurrency}",
                f"{bare:,.0f}/s = {bare / (concurrency / 0.01):.1%} of C/latency", "", None)
        )  # fmt: skip
        rows.append(
            Row(DISTINCT.name, f"sub-key, 10 ms, C={concurrency}, {found.elapsed_s:.0f} s",
                f"{_rate(found)} = {share:.1%} of C/latency", f"at least {least:.0%}",
                share >= least, found.rate)
        )  # fmt: skip
    return rows


def no_op(bench: Bench) -> list[Row]:
    rows = []
    for workload, least in ((DISTINCT, 600_000), (HOT, 500_000)):
        found = bench.run(workload, 100, latency_ms=0)
        rows.append(
            Row(workload.name, "sub-key, no-op handler", _rate(found), f"at least {least:,}/s",
                found.rate >= least, found.rate)
        )  # fmt: skip
    return rows


def zipf(bench: Bench) -> list[Row]:
    found = bench.run(ZIPF, 200)
    bound = ZIPF.bound_s(200)
    ratio = found.elapsed_s / bound
    return [
        Row(ZIPF.name, "sub-key, 10 ms, C=200",
            f"{found.elapsed_s:.1f} s = {ratio:.3f} x max(W/C, L) of {bound:.1f} s",
            "at most 1.15 x", ratio <= 1.15, found.rate)
    ]  # fmt: skip


def plan_cost(bench: Bench) -> list[Row]:
    ratios = []
    for _ in range(PAIRS):
        each_second = bench.run(HOT, 1000)
        never = bench.run(HOT, 1000, program=WITHOUT_PLAN)
        ratios.append(each_second.rate / never.rate)
    cost = 1 - sorted(ratios)[PAIRS // 2]
    return [
        Row(HOT.name, f"plan and commits each second ({PAIRS} pairs, median)",
            f"{cost:.1%} of throughput", "under 2%", cost < 0.02)
    ]  # fmt: skip


def journal_cost(bench: Bench) -> list[Row]:
    rows = []
    for workload, concurrency, latency_ms in ((DISTINCT, 100, 0), (HOT, 100, 0), (HOT, 1000, 10)):
        rates, cpu = [], []
        for pair in range(JOURNAL_PAIRS):
            # Each goes first every other time, because the second one finds the machine as the
            # first left it.
            found = {
                program: bench.run(workload, concurrency, latency_ms=latency_ms, program=program)
                for program in (DRAINER, WITHOUT_JOURNAL)[:: 1 if pair % 2 else -1]
            }
            rates.append(1 - found[DRAINER].rate / found[WITHOUT_JOURNAL].rate)
            cpu.append(found[DRAINER].cpu_s / found[WITHOUT_JOURNAL].cpu_s - 1)
        timed = bench.run(workload, concurrency, latency_ms=latency_ms, program=TIMED_JOURNAL)
        share = float(timed.stderr.rpartition("journal: ")[2]) / timed.elapsed_s
        handler = f"{latency_ms} ms" if latency_ms else "no-op handler"
        median = sorted(rates)[JOURNAL_PAIRS // 2]
        rows.append(
            Row(workload.name, f"journal, {handler}, C={concurrency}",
                f"{share:.1%} of the event loop's time by stopwatch; against a drain without it"
                f" ({JOURNAL_PAIRS} pairs): {median:.1%} of throughput (median; {min(rates):.1%} to"
                f" {max(rates):.1%}), {sorted(cpu)[JOURNAL_PAIRS // 2]:.1%} of CPU time",
                "under 3%", share < 0.03)
        )  # fmt: skip
    return rows


def memory(bench: Bench) -> list[Row]:
    options = ("--tune", f"buffer={MEMORY_BUFFER}")
    small = bench.run(DISTINCT, 1000, until=100_000, latency_ms=1, options=options)
    large = bench.run(DISTINCT, 1000, until=1_000_000, latency_ms=1, options=options)
    ratio = large.peak_mib / small.peak_mib
    return [
        Row(DISTINCT.name, f"peak memory, 100k and 1M messages, buffer {MEMORY_BUFFER}",
            f"{small.peak_mib:.0f} and {large.peak_mib:.0f} MiB = {ratio:.2f}x", "the same",
            ratio <= 1.1)
    ]  # fmt: skip


PARTS: dict[str, Callable[[Bench], list[Row]]] = {
    "hot-key": hot_key,
    "distinct-keys": distinct_keys,
    "no-op": no_op,
    "zipf": zipf,
    "plan-cost": plan_cost,
    "journal-cost": journal_cost,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.side_by_side", description=__doc__)
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        help="the brokers; by default the sandbox, which is started if it does not run",
    )
    parser.add_argument(
        "--only", choices=PARTS, action="append", help="run only this part; repeat for several"
    )
    parser.add_argument("--chart", type=Path, default=Path("side_by_side.svg"))
    given = parser.parse_args()
    bootstrap = given.bootstrap_server or sandbox.up(print_line=print).bootstrap_servers
    bench = Bench(bootstrap)
    rows: list[Row] = []
    try:
        for name in given.only or PARTS:
            rows += PARTS[name](bench)
    finally:
        bench.close()
    print(_table(rows))
    draw([(f"{row.workload}: {row.mode}", row.rate) for row in rows if row.rate], given.chart)
    print(f"chart: {given.chart}")


def _rate(found: Measured) -> str:
    return f"{found.rate:,.0f}/s"


def _table(rows: list[Row]) -> str:
    verdicts = {True: "met", False: "NOT MET", None: ""}
    lines = ["", "| workload | mode | measured | target | |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.workload} | {row.mode} | {row.figure} | {row.target} | {verdicts[row.met]} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
