"""Drains the same backlog in one process and on Spark on the same cores, in turns."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any

from scenarios.spark_scale.drains import IN_PROCESS, Bench, on_spark
from scenarios.spark_scale.handlers import compute
from scenarios.spark_scale.slots import MEAN, Load


@dataclass(frozen=True, slots=True)
class Case:
    """A handler and its backlog. ``least`` is how many times as fast Spark should be.

    ``compute_s`` is the time that a sub-message, or a message's split, computes.
    """

    handler: str
    messages: int
    concurrency: int
    least: float
    compute_s: float = 0.0


CASES = {
    "wait-1000": Case("Wait", 40_000, 1000, 1.0),
    "wait-2000": Case("Wait", 40_000, 2000, 1.3),
    "compute": Case("Compute", 300, 100, 1.9, compute_s=0.002),
    "parse": Case("Parse", 6_000, 1000, 1.8, compute_s=0.01),
}


def compare(made: Bench, names: Sequence[str], master: str, times: int) -> dict[str, Any]:
    """Print a table of sub-messages per second, from the start of the work to its end. Return the
    rates and ratios by case.

    The table also has the start-up, which is what the command takes beside that. Spark reads its
    first slice, of 8 MiB, before the work starts, while it looks at the tasks. Beside each ratio is
    the machine's own one, which is the lesser of one just before and one just after. It shows how
    much more two cores do than one. That is less than twice as much if they share something, and on
    a shared machine it changes by the minute.
    """
    print(
        "| case | by | sub-messages/s | against one process | s | start-up, s | processor s"
        " | slices | MiB of Python | of Java | all cores against one |\n" + "|---" * 11 + "|"
    )
    rows = {}
    for name in names:
        rows[name] = row = _turns(made, name, master, times)
        met = "met" if row["ratio"] >= row["least"] else "NOT MET"
        print(
            f"| {name} | | | **{row['ratio']:.2f}**, {row['least']} wanted: {met}; pairs:"
            f" {', '.join(f'{ratio:.2f} of {cores:.2f}' for ratio, cores in row['pairs'])} |",
            flush=True,
        )
    return rows


def _all_cores() -> float:
    """Return how many times as much processes on all cores compute as one process alone."""
    cores = os.cpu_count() or 1
    with get_context("spawn").Pool(cores) as pool:
        pool.map(compute, [1] * cores)
        taken_s = []
        for tasks in (1, cores):
            begun_s = time.monotonic()
            pool.map(compute, [10_000_000] * tasks, chunksize=1)
            taken_s.append(time.monotonic() - begun_s)
    alone_s, together_s = taken_s
    return cores * alone_s / together_s


def _turns(made: Bench, name: str, master: str, times: int) -> dict[str, Any]:
    case = CASES[name]
    topic = f"against-{case.messages}"
    made.fill(topic, Load(case.messages).records)
    options = f"latency_ms=10 rounds={_rounds(case.compute_s)}".split()
    given = [part for option in options for part in ("--set", option)]
    engines = {"one process": IN_PROCESS, "Spark": on_spark(master)}
    rates: dict[str, list[float]] = {by: [] for by in engines}
    cores = [_all_cores()]
    for _ in range(times):
        for by, engine in engines.items():
            found = made.drain(topic, case.handler, case.concurrency, [*given, *engine])
            rates[by].append(found.rate)
            cores.append(_all_cores())
            print(
                f"| {name} | {by} | {found.rate:,.0f}"
                f" | {found.rate / rates['one process'][-1]:.2f} | {found.elapsed_s:.1f}"
                f" | {found.command_s - found.elapsed_s:.1f} | {found.processor_s:.1f}"
                f" | {found.slices or ''} | {found.python_mib:.0f} | {found.java_mib:.0f}"
                f" | {min(cores[-2:]):.2f} |",
                flush=True,
            )
    ratios = [on / one for one, on in zip(*rates.values(), strict=True)]
    least = [min(cores[at : at + 3]) for at in range(0, 2 * times, 2)]
    medians = {by: statistics.median(found) for by, found in rates.items()}
    subs = case.messages * MEAN
    return asdict(case) | {
        "ratio": statistics.median(ratios),
        "pairs": list(zip(ratios, least, strict=True)),
        "rates": medians,
        "subs": subs,
    }


def _rounds(seconds: float) -> int:
    """Return how many rounds of ``compute`` take so long on this machine at this moment."""
    tried = 20_000
    taken = []
    for _ in range(7):
        begun_s = time.process_time()
        compute(tried)
        taken.append(time.process_time() - begun_s)
    return int(tried * seconds / min(taken))
