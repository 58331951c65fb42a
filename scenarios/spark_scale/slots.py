"""Drains one backlog on more and more slots of the same cores, with messages of more and more
uneven size.

It shows what a slot costs that brings no core with it.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from scenarios.spark_scale.drains import Bench, Events, on_spark

SUB_KEYS = 14_000
MEAN = 50  # The mean number of operations of a message.
SEED = 1
# The most that a figure may be with so many slots. Times and bytes are ratios to the fewest slots.
MOST = {"whole_s_ratio": (1.3, 24), "shuffled_ratio": (1.5, 64), "shuffled_of_log": (1.0, 64)}
MOST |= {"sent_of_log": (1.1, 64)}


@dataclass(frozen=True, slots=True)
class Load:
    """A backlog, by how many operations its messages have.

    Attributes:
        messages: how many there are. All have one key and are on one partition.
        cv: the standard deviation divided by the mean.
        drifts: whether the mean grows from a fifth of ``MEAN`` to 1.8 times it over the backlog.
    """

    messages: int
    cv: float = 0.0
    drifts: bool = False

    def records(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield (key, value, partition) of every message."""
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


LOADS = {
    "equal": Load(20_000),
    "cv-0.3": Load(20_000, cv=0.3),
    "cv-1.0": Load(20_000, cv=1.0),
    "drift": Load(20_000, cv=0.3, drifts=True),
}
ONE = Load(1)


class Cost(NamedTuple):
    """The cost of one drain.

    It has the seconds from plan to summary, the processor seconds of all its processes from the
    command's start, the bytes that tasks shuffled, the bytes that the broker sent, and the number
    of tasks.
    """

    elapsed_s: float
    processor_s: float
    shuffled: float
    sent: float
    tasks: float

    def beyond(self, other: Cost) -> Cost:
        """Return the cost beyond that of another drain."""
        return Cost(*(mine - its for mine, its in zip(self, other, strict=True)))


def drain(made: Bench, topic: str, slots: int) -> Cost:
    """Drain once with a handler that does nothing, on ``local[slots]``."""
    events = Events(made.folder)
    conf = ("--spark-conf", f"drainer.tasks={slots}")  # By default, at most one for each core.
    options = [*on_spark(f"local[{slots}]"), *conf, *events.options]
    found = made.drain(topic, "Nothing", 1000, options)
    shuffled, tasks = events.shuffled()
    return Cost(found.elapsed_s, found.processor_s, shuffled, found.sent, tasks)


def empty(master: str, tasks: int) -> dict[str, float]:
    """Return the time that Spark takes for tasks with next to nothing to do, as ``empty.py`` prints
    it."""
    command = [sys.executable, "-m", "scenarios.spark_scale.empty", master, str(tasks)]
    found: dict[str, float] = orjson.loads(subprocess.check_output(command))
    return found


def compare(
    made: Bench, names: Sequence[str], slots_tried: Sequence[int], times: int
) -> dict[str, Any]:
    """Print a table with each load by the number of slots. Return the rows by load and slots.

    Ratios are those to the fewest slots. All of them but the first leave out what Spark takes for
    empty tasks. All but the ratio of the whole also leave out what a drain of one message takes,
    because that is how Spark starts.
    """
    made.fill("one", ONE.records)
    empty_s = {slots: empty(f"local[{slots}]", slots)["task_s"] for slots in slots_tried}
    start = {slots: drain(made, "one", slots) for slots in slots_tried}
    print("| slots | an empty task, processor ms | a drain of one message, s | processor s |")
    print("|---|---|---|---|")
    for slots, cost in start.items():
        ms = 1000 * empty_s[slots]
        print(f"| {slots} | {ms:.0f} | {cost.elapsed_s:.1f} | {cost.processor_s:.1f} |")
    print(
        "\n| load | slots | s | processor s | ratio | without empty tasks, ratio | whole, ratio"
        " | shuffled / log | ratio | sent / log | tasks |\n" + "|---" * 11 + "|"
    )
    rows: dict[str, Any] = {}
    for name in names:
        log = made.fill(name, LOADS[name].records)
        first: dict[str, float] = {}
        for slots in slots_tried:
            costs = [drain(made, name, slots).beyond(start[slots]) for _ in range(times)]
            cost = Cost(*map(statistics.median, zip(*costs, strict=True)))
            row = cost._asdict() | {"log": log, "slots": slots, "load": name}
            row["net_s"] = cost.processor_s - cost.tasks * empty_s[slots]
            row["whole_s"] = row["net_s"] + start[slots].processor_s
            row |= {f"{of}_of_log": row[of] / log for of in ("shuffled", "sent")}
            first = first or row
            row |= {
                f"{of}_ratio": row[of] / first[of]
                for of in ("processor_s", "net_s", "whole_s", "shuffled")
            }
            rows[f"{name}, {slots}"] = row
            print(
                f"| {name} | {slots} | {cost.elapsed_s:.1f} | {cost.processor_s:.1f}"
                f" | {row['processor_s_ratio']:.2f} | {row['net_s_ratio']:.2f}"
                f" | {row['whole_s_ratio']:.2f}"
                f" | {row['shuffled_of_log']:.2f} | {row['shuffled_ratio']:.2f}"
                f" | {row['sent_of_log']:.2f} | {cost.tasks:.0f} |",
                flush=True,
            )
    for figure, (most, up_to) in MOST.items():
        worst = max(rows.values(), key=lambda row: (row["slots"] <= up_to, row[figure]))
        met = "met" if worst[figure] <= most else "NOT MET"
        print(
            f"{figure}: {worst[figure]:.2f} ({worst['load']}, {worst['slots']} slots),"
            f" at most {most} wanted up to {up_to} slots: {met}"
        )
    return rows
