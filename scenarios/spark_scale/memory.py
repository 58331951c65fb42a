"""Measures the most memory that a process of a drain on Spark takes, by the size of backlog and
slice."""

from __future__ import annotations

from scenarios.spark_scale.drains import Bench, on_spark
from scenarios.spark_scale.slots import Load


def compare(made: Bench, master: str) -> None:
    """Print a table of it."""
    print("| messages | slice | slices | MiB of Python | of Java |\n|---|---|---|---|---|")
    for messages in (5_000, 40_000):
        made.fill(f"memory-{messages}", Load(messages).records)
        for size in ("8MiB", "64MiB"):
            found = made.drain(f"memory-{messages}", "Nothing", 1000, on_spark(master, size))
            print(
                f"| {messages:,} | {size} | {found.slices} | {found.python_mib:.0f}"
                f" | {found.java_mib:.0f} |",
                flush=True,
            )
