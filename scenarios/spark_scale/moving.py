"""Drains a backlog whose hot lane moves, in slices of about a stretch.

In every second stretch of the backlog except the last ones, another sub-key has calls for twice the
time of the stretch, one after the other.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson

from scenarios.spark_scale.drains import Bench, on_spark

CONCURRENCY, LATENCY_MS = 200, 100
STRETCHES, STRETCH_S = 8, 20  # A stretch is long compared with the start of a task.
MEAN = 50
MESSAGES = STRETCH_S * CONCURRENCY * 1000 // LATENCY_MS // MEAN  # The messages of a stretch.
HOT = 2 * MESSAGES * MEAN // CONCURRENCY
SUB_KEYS = 3_000
TEXT_BYTES = 400
SLOTS = 8
MOST = 1.1  # A drain may take this many times max(W/C, L).


def records(stretches: int) -> Iterator[tuple[bytes, bytes, int]]:
    chance = random.Random(1)
    hot_each = HOT / MESSAGES
    for number in range(stretches * MESSAGES):
        stretch, at = divmod(number, MESSAGES)
        ids = [f"doc-{chance.randrange(SUB_KEYS)}" for _ in range(MEAN)]
        if stretch % 2 == 0 and stretch < stretches - 2:
            hot = int((at + 1) * hot_each) - int(at * hot_each)
            ids[:hot] = [f"hot-{stretch}"] * hot
        documents = [{"id": each, "text": chance.randbytes(TEXT_BYTES // 2).hex()} for each in ids]
        yield b"customer-4711", orjson.dumps({"documents": documents}), 0


def compare(made: Bench, stretches: int = STRETCHES) -> dict[str, Any]:
    """Print how long it took, compared with max(W/C, L)."""
    topic = f"moving-{stretches}"
    log = made.fill(topic, lambda: records(stretches))
    lanes: Counter[str] = Counter()
    for _, value, _ in records(stretches):
        lanes.update(document["id"] for document in orjson.loads(value)["documents"])
    work_s = lanes.total() * LATENCY_MS / 1000 / CONCURRENCY
    longest_s = max(lanes.values()) * LATENCY_MS / 1000
    tasks = ("--spark-conf", f"drainer.tasks={SLOTS}")  # By default, at most one for each core.
    options = [*on_spark(f"local[{SLOTS}]", str(log // stretches)), *tasks, "--set"]
    found = made.drain(topic, "Wait", CONCURRENCY, [*options, f"latency_ms={LATENCY_MS}"])
    ratio = found.elapsed_s / max(work_s, longest_s)
    print(
        f"{found.slices} slices: {found.elapsed_s:.1f} s, W/C {work_s:.1f} s, L {longest_s:.1f} s:"
        f" {ratio:.3f} of max(W/C, L), {MOST} at most: {'met' if ratio <= MOST else 'NOT MET'}",
        flush=True,
    )
    return {"ratio": ratio, "elapsed_s": found.elapsed_s, "work_s": work_s, "slices": found.slices}
