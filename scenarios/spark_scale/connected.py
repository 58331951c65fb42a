"""Drains backlogs with sub-messages that have two sub-keys: one task gets each slice that has
any."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import orjson

from scenarios.spark_scale.drains import Bench, on_spark

MEAN = 50  # The mean number of sub-messages of a message.
SUB_KEYS = 100_000
TEXT_BYTES = 100
SHARES = (0.0, 0.01, 0.3)  # The shares of sub-messages that have two sub-keys.
CONCURRENCY = 200
# The number of messages, and the options of the handler.
LOADS = {
    "no-op": (10_000, ()),
    "waits 2 ms": (10_000, ("--set", "latency_ms=2")),
    "occupies its process for 2 ms": (200, ("--set", "busy_ms=2")),
}


def records(messages: int, share: float) -> Iterator[tuple[bytes, bytes, int]]:
    chance = random.Random(2)

    def sub_key() -> str:
        return f"doc-{chance.randrange(SUB_KEYS)}"

    for _ in range(messages):
        documents = [
            {
                "id": [sub_key(), sub_key()] if chance.random() < share else sub_key(),
                "text": chance.randbytes(TEXT_BYTES // 2).hex(),
            }
            for _ in range(MEAN)
        ]
        yield b"customer-4711", orjson.dumps({"documents": documents}), 0


def compare(made: Bench, master: str, times: int) -> dict[str, Any]:
    """Print the time of drains by load, and by the share of sub-messages with two sub-keys."""
    found: dict[str, list[float]] = {}
    for _ in range(times):
        for load, (messages, options) in LOADS.items():
            for share in SHARES:
                topic = f"connected-{messages}-{share}"
                made.fill(topic, partial(records, messages, share))
                drained = made.drain(topic, "Connected", CONCURRENCY, [*on_spark(master), *options])
                found.setdefault(f"{load}, {share}", []).append(drained.elapsed_s)
                print(
                    f"{load}, {share:.0%} with two sub-keys: {drained.elapsed_s:.1f} s,"
                    f" {drained.rate:,.0f}/s, {drained.processor_s:.1f} s of processor time,"
                    f" {drained.slices} slices",
                    flush=True,
                )
    return found
