"""The same backlog in one process and on Spark on the same cores, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from scenarios.spark_scale.drains import (
    FAN_OUT,
    IN_PROCESS,
    Bench,
    Drained,
    on_spark,
    rounds_of,
)

ONE, SPARK = "one process", "Spark"
COMPUTE_S = 0.002  # of a sub-message, or of a message's split


@dataclass(frozen=True, slots=True)
class Case:
    """A handler and its backlog. ``least`` is how many times as fast Spark should be."""

    handler: str
    messages: int
    concurrency: int
    least: float

    def options(self) -> list[str]:
        if self.handler == "Wait":
            return ["latency_ms=10"]
        return [f"rounds={rounds_of(COMPUTE_S)}"]


CASES = {
    "wait-1000": Case("Wait", 40_000, 1000, 1.0),
    "wait-2000": Case("Wait", 40_000, 2000, 1.3),
    "compute": Case("Compute", 400, 100, 1.8),
    "parse": Case("Parse", 15_000, 1000, 1.8),
}


def compare(made: Bench, names: Sequence[str], master: str, times: int, *, halves: bool) -> None:
    """Prints a table for each case: sub-messages a second from the start of the work to its end.

    Start-up is what the command takes beside that. Spark reads its first wave, of 8 MiB, while it
    looks at the tasks, before that.
    """
    for name in names:
        case = CASES[name]
        print(
            f"\n{name}: C={case.concurrency}, {case.messages * FAN_OUT:,} sub-messages\n",
            flush=True,
        )
        ratios = list(_ratios(made, case, master, times, halves=halves))
        met = "met" if statistics.median(ratios) >= case.least else "NOT MET"
        print(f"\nmedian {statistics.median(ratios):.2f}, at least {case.least} wanted: {met}")


def _ratios(made: Bench, case: Case, master: str, times: int, *, halves: bool) -> Iterator[float]:
    options = case.options()
    given = (case.handler, case.messages, case.concurrency)
    engines: dict[str, Callable[[], Drained]] = {
        ONE: lambda: made.drain(*given, engine=IN_PROCESS, options=options),
        SPARK: lambda: made.drain(*given, engine=on_spark(master), options=options),
    }
    if halves:
        engines["two processes, half each"] = lambda: made.drain_halves(*given, options=options)
    print(
        "| by | sub-messages/s | against one process | s | start-up, s | waves"
        " | MiB of Python | of Java |\n" + "|---" * 8 + "|"
    )
    for _ in range(times):
        found = {by: drain() for by, drain in engines.items()}
        for by, each in found.items():
            print(
                f"| {by} | {each.rate:,.0f} | {each.rate / found[ONE].rate:.2f}"
                f" | {each.elapsed_s:.1f} | {each.command_s - each.elapsed_s:.1f}"
                f" | {each.waves or ''} | {each.python_mib:.0f} | {each.java_mib:.0f} |",
                flush=True,
            )
        yield found[SPARK].rate / found[ONE].rate
