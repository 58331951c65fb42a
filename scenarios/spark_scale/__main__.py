"""What Spark gains and costs, with one process beside it in the same run.

Reading one partition by more and more tasks; draining one hot partition with a handler that waits
and with one that computes; the cost of a wave; memory by the size of backlog and wave.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from scenarios.spark_scale import reading
from scenarios.spark_scale.drains import (
    COMPUTE_S,
    FAN_OUT,
    IN_PROCESS,
    Bench,
    Drained,
    bench,
    on_spark,
    rounds_of,
)

TARGETS = {("Wait", 1000): 0.85, ("Wait", 2000): 1.3, ("Compute", 100): 1.8}


def in_turns(
    made: Bench, handler: str, messages: int, concurrency: int, options: list[str], given: Given
) -> None:
    """In-process and on Spark, so many times each, and prints the medians."""
    process: list[Drained] = []
    spark: list[Drained] = []
    for _ in range(given.times):
        for found, engine in ((process, IN_PROCESS), (spark, on_spark(given.master))):
            found.append(made.drain(handler, messages, concurrency, engine=engine, options=options))
            last = found[-1]
            print(
                f"    {' '.join(engine[1:4:2])}: {last.rate:,.0f}/s in {last.elapsed_s:.1f} s"
                f" ({last.command_s:.1f} s with all that starts), Python"
                f" {last.python_mib:.0f} MiB, Java {last.java_mib:.0f} MiB, waves {last.waves}",
                flush=True,
            )
    ratios = [on.rate / by.rate for on, by in zip(spark, process, strict=True)]
    target = TARGETS.get((handler, concurrency))
    print(
        f"{handler}, C={concurrency}, {messages * FAN_OUT:,} sub-messages:"
        f" {statistics.median(d.rate for d in process):,.0f}/s in one process,"
        f" {statistics.median(d.rate for d in spark):,.0f}/s on Spark; ratios"
        f" {', '.join(f'{ratio:.2f}' for ratio in ratios)}, median {statistics.median(ratios):.2f}"
        + (f" (target {target})" if target else ""),
        flush=True,
    )


def waves(made: Bench, messages: int, given: Given) -> None:
    """The same backlog in fewer and more waves, with a handler that does nothing."""
    options = ["latency_ms=0"]
    found = [
        made.drain("Wait", messages, 1000, engine=on_spark(given.master, wave), options=options)
        for wave in ("1GiB", "4MiB", "2MiB")
    ]
    few, *more = found
    assert few.waves is not None
    for each in more:
        assert each.waves is not None
        cost_s = (each.elapsed_s - few.elapsed_s) / max(1, each.waves - few.waves)
        print(
            f"{each.waves} waves: {each.elapsed_s:.1f} s; {few.waves}: {few.elapsed_s:.1f} s;"
            f" {cost_s:.2f} s a wave",
            flush=True,
        )


def memory(made: Bench, sizes: Sequence[int], given: Given) -> None:
    """The most that a process took, by backlog and wave."""
    for messages in sizes:
        for wave in ("8MiB", "64MiB"):
            found = made.drain(
                "Wait",
                messages,
                1000,
                engine=on_spark(given.master, wave),
                options=["latency_ms=0"],
            )
            print(
                f"{messages:,} messages, waves of {wave} ({found.waves}): Python"
                f" {found.python_mib:.0f} MiB, Java {found.java_mib:.0f} MiB",
                flush=True,
            )


class Given(argparse.Namespace):
    """What was asked for."""

    master: str
    times: int
    messages: int
    records: int
    record_bytes: int
    tasks: list[int]
    only: list[str]


CHAPTERS = ("reading", "waits", "computes", "waves", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.spark_scale", description=__doc__)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--times", type=int, default=3, help="of each, in turns")
    parser.add_argument("--messages", type=int, default=20_000, help="of 50 documents each")
    parser.add_argument("--records", type=int, default=1_000_000, help="to be read")
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 2, 4], help="that read")
    parser.add_argument("--only", nargs="+", choices=CHAPTERS, default=CHAPTERS)
    given = parser.parse_args(namespace=Given())
    if "reading" in given.only:
        reading.compare(given.master, given.records, given.record_bytes, given.tasks, given.times)
    if set(given.only) == {"reading"}:
        return
    for made in bench():
        if "waits" in given.only:
            for concurrency in (1000, 2000):
                in_turns(made, "Wait", given.messages, concurrency, ["latency_ms=10"], given)
        if "computes" in given.only:
            rounds = rounds_of(COMPUTE_S)
            in_turns(made, "Compute", given.messages // 50, 100, [f"rounds={rounds}"], given)
        if "waves" in given.only:
            waves(made, given.messages, given)
        if "memory" in given.only:
            memory(made, (given.messages // 4, given.messages * 2), given)


main()
