"""Prints as JSON how many processor seconds Spark takes for tasks that have next to nothing to do.

The command is ``python -m scenarios.spark_scale.empty MASTER TASKS``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

import orjson
import pyarrow as pa

from drainer.spark import spark_session
from scenarios.spark_scale.drains import Stat, family

TASKS = 500  # About as many jobs are run as this many tasks take.


def spent_s(pids: Iterable[int]) -> float:
    return sum(Stat.of(pid).all_s for pid in pids)


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def main() -> None:
    master, tasks = sys.argv[1], int(sys.argv[2])
    session = spark_session(master, "empty")
    here = os.getpid()
    numbers = session.range(0, tasks, 1, tasks)
    # The JVM is a child, since spark-submit execs it.
    stats = ((pid, Stat.of(pid)) for pid in family(here))
    jvms = [pid for pid, stat in stats if stat.name == "java" and stat.parent == here]
    driver = [here, *jvms]

    jobs = max(1, TASKS // (2 * tasks))  # Each job has two stages.

    def run() -> tuple[float, float]:
        """Return the processor time of all processes, and that of the driver's."""
        before = spent_s(family(here)), spent_s(driver)
        for _ in range(jobs):
            numbers.repartition(tasks, "id").mapInArrow(same, "id long").count()
        return spent_s(family(here)) - before[0], spent_s(driver) - before[1]

    run()  # The first run lets Java compile most of the code.
    task_s, driver_s = (each / (jobs * 2 * tasks) for each in run())
    print(orjson.dumps({"task_s": task_s, "driver_s": driver_s}).decode())
    session.stop()


if __name__ == "__main__":
    main()
