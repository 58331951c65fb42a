"""What Spark gains and costs, with one process beside it in the same run.

Reading one partition by more and more tasks; one backlog by more and more slots of the same cores;
in one process and on Spark, where the handler waits, where it computes, and where split does; the
cost of a wave; memory by the size of backlog and wave.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from scenarios.spark_scale import against, reading
from scenarios.spark_scale.drains import Bench, bench, on_spark


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
    case: list[str]
    halves: bool


CHAPTERS = ("reading", "slots", "against", "waves", "memory")


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
    parser.add_argument("--case", nargs="+", choices=against.CASES, default=list(against.CASES))
    parser.add_argument(
        "--halves", action="store_true", help="of each case in two processes at once, too"
    )
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
        if "against" in given.only:
            against.compare(made, given.case, given.master, given.times, halves=given.halves)
        if "waves" in given.only:
            waves(made, given.messages, given)
        if "memory" in given.only:
            memory(made, (given.messages // 4, given.messages * 2), given)


main()
