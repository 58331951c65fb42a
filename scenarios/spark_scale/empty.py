"""Prints the processor seconds that Spark takes for a task with next to nothing to do.

``python -m scenarios.spark_scale.empty SLOTS``
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from drainer.spark import spark_session
from scenarios.spark_scale.drains import family

JOBS = 10
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def spent_s() -> float:
    """Of this process and all that it began."""
    ticks = 0
    for pid in family(os.getpid()):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += sum(map(int, stat[11:15]))  # its own, and of children that it waited for
    return ticks / TICKS_PER_S


def main() -> None:
    slots = int(sys.argv[1])
    session = spark_session(f"local[{slots}]", "empty")
    pairs = session.sparkContext.parallelize([(number, number) for number in range(slots)], slots)

    def run(jobs: int) -> None:
        for _ in range(jobs):
            pairs.partitionBy(slots, int).mapPartitions(list).count()

    run(JOBS)  # until Java has compiled it
    begun_s = spent_s()
    run(JOBS)
    print((spent_s() - begun_s) / (JOBS * 2 * slots))  # each job has two stages
    session.stop()


if __name__ == "__main__":
    main()
