"""What Spark gains and costs, with one process beside it in the same run.

Reading one partition by more and more tasks; draining one hot partition with a handler that waits
and with one that computes; the cost of a wave; memory by the size of backlog and wave.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence

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
    """In one process, in two at once and on Spark, so many times each; prints the medians."""
    engines: dict[str, Callable[[], Drained]] = {
        "one process": lambda: made.drain(
            handler, messages, concurrency, engine=IN_PROCESS, options=options
        ),
        "two processes, half each": lambda: made.drain_halves(
            handler, messages, concurrency, options=options
        ),
        "Spark": lambda: made.drain(
            handler, messages, concurrency, engine=on_spark(given.master), options=options
        ),
    }
    found: dict[str, list[Drained]] = {name: [] for name in engines}
    for _ in range(given.times):
        for name, drain in engines.items():
            last = drain()
            found[name].append(last)
            print(
                f"    {name}: {last.rate:,.0f}/s in {last.elapsed_s:.1f} s"
                f" ({last.command_s:.1f} s with all that starts), Python"
                f" {last.python_mib:.0f} MiB, Java {last.java_mib:.0f} MiB, waves {last.waves}",
                flush=True,
            )
    by, *others = found
    print(f"{handler}, C={concurrency}, {messages * FAN_OUT:,} sub-messages:")
    print(f"  {by}: {statistics.median(d.rate for d in found[by]):,.0f}/s")
    for name in others:
        ratios = [on.rate / one.rate for on, one in zip(found[name], found[by], strict=True)]
        target = TARGETS.get((handler, concurrency)) if name == "Spark" else None
        print(
            f"  {name}: {statistics.median(d.rate for d in found[name]):,.0f}/s; against it"
            f" {', '.join(f'{ratio:.2f}' for ratio in ratios)},"
            f" median {statistics.median(ratios):.2f}" + (f" (target {target})" if target else ""),
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
    slots: list[int]
    shards: int | None
    only: list[str]


CHAPTERS = ("reading", "slots", "waits", "computes", "waves", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.spark_scale", description=__doc__)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--times", type=int, default=3, help="of each, in turns")
    parser.add_argument("--messages", type=int, default=20_000, help="of 50 documents each")
    parser.add_argument("--records", type=int, default=1_000_000, help="to be read")
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 2, 4], help="that read")
    parser.add_argument("--slots", type=int, nargs="+", default=[2, 8, 24, 64], help="of local[N]")
    parser.add_argument("--shards", type=int, help="for the chapter on slots")
    parser.add_argument("--only", nargs="+", choices=CHAPTERS, default=CHAPTERS)
    given = parser.parse_args(namespace=Given())
    if "reading" in given.only:
        reading.compare(given.master, given.records, given.record_bytes, given.tasks, given.times)
    if set(given.only) == {"reading"}:
        return
    for made in bench():
        if "slots" in given.only:
            options = ["--shards", str(given.shards)] if given.shards else []
            made.by_slots(given.messages, given.slots, options, given.times)
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
