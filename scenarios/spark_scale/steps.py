"""Processor time of one sub-message by the steps that Spark adds: ``python -m
scenarios.spark_scale.steps``. No Spark and no broker; the estimate for Spark is made of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from drainer.core.claims import place_of
from drainer.loader import load_handler, split_up
from drainer.message import Message, Origin
from drainer.spark.chunk import ChunkWriter, Row, decode
from scenarios.spark_scale.slots import HANDLERS, Load

MESSAGES, SHARDS, TIMES = 1_000, 64, 5
ORIGIN = Origin("steps", "", 0)


class Steps:
    """Seconds of the processor by step."""

    def __init__(self) -> None:
        self.spent_s = dict.fromkeys(("split", "pack", "unpack"), 0.0)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        begun_s = time.process_time()
        yield
        self.spent_s[name] += time.process_time() - begun_s


def once() -> tuple[Steps, int]:
    """Splits, packs and unpacks a backlog; gives how many sub-messages it has, too."""
    handler = load_handler(f"{HANDLERS}:Nothing")
    records = Load("steps", MESSAGES).records()
    messages = [Message(ORIGIN, n, key, value) for n, (key, value, _) in enumerate(records)]
    steps, writer, rows = Steps(), ChunkWriter(ORIGIN), list[Row]()
    for message in messages:
        with steps.step("split"):
            subs = split_up(handler.split, message)
        with steps.step("pack"):
            writer.begin(message, subs, [sub.key for sub in subs])
            for index, sub in enumerate(subs):
                sub.index = index
                writer.add(place_of(sub.key) % SHARDS, sub)
            rows += writer.full()
    with steps.step("pack"):
        rows += writer.flush()
    count = 0
    with steps.step("unpack"):
        for row in rows:
            count += sum(len(message.subs) for message in decode(row[-1], ORIGIN))
    return steps, count


def main() -> None:
    found = [once() for _ in range(TIMES)]
    for name in Steps().spent_s:
        each_us = [1e6 * steps.spent_s[name] / count for steps, count in found]
        print(f"{name}: {min(each_us):.2f} us at best of {TIMES}, {max(each_us):.2f} at worst")


if __name__ == "__main__":
    main()
