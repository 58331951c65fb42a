"""Measures the processor time of one sub-message by the steps that Spark adds.

The command is ``python -m scenarios.spark_scale.steps``. It needs neither Spark nor a broker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from drainer.loading.loader import load_handler
from drainer.message import Message, Origin
from drainer.model.claims import key_hash
from drainer.spark.task.chunk import ChunkWriter, decode_chunk
from drainer.spark.task.rows import Row
from drainer.split.splitting import split_up
from scenarios.spark_scale.drains import HANDLERS
from scenarios.spark_scale.slots import Load

MESSAGES, SHARDS, TIMES = 1_000, 64, 5
ORIGIN = Origin("steps", "", 0)


def once() -> dict[str, float]:
    """Split, encode and decode a backlog. Return seconds per sub-message by step."""
    handler = load_handler(f"{HANDLERS}:Nothing")
    records = Load(MESSAGES).records()
    messages = [Message(ORIGIN, n, key, value) for n, (key, value, _) in enumerate(records)]
    spent_s = dict.fromkeys(("split", "encode", "decode"), 0.0)

    @contextmanager
    def step(name: str) -> Iterator[None]:
        begun_s = time.process_time()
        yield
        spent_s[name] += time.process_time() - begun_s

    writer, rows = ChunkWriter(ORIGIN), list[Row]()
    for message in messages:
        with step("split"):
            subs = split_up(handler.split, message)
        with step("encode"):
            for index, sub in enumerate(subs):
                sub.index = index
            keys = [sub.key for sub in subs]
            writer.add(message, subs, keys, [key_hash(key) % SHARDS for key in keys])
            rows += writer.full()
    with step("encode"):
        rows += writer.flush()
    count = 0
    with step("decode"):
        for row in rows:
            count += sum(len(message.subs) for message in decode_chunk(row.body, ORIGIN))
    return {name: each / count for name, each in spent_s.items()}


def measure() -> dict[str, list[float]]:
    """Measure all steps several times, and return their times by step."""
    found = [once() for _ in range(TIMES)]
    return {name: [each[name] for each in found] for name in found[0]}


def main() -> None:
    for name, found in measure().items():
        least, most = 1e6 * min(found), 1e6 * max(found)
        print(f"{name}: {least:.2f} us at best of {TIMES}, {most:.2f} at worst")


if __name__ == "__main__":
    main()
