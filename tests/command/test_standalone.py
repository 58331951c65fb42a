"""A standalone cluster of Spark's: a drain reports what it lacks, and begins with what is there."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from random import Random
from time import time

import pytest

from command.conftest import operations
from command.process import Command
from kafka.topic import eventually
from scenarios.spark_chaos.standalone import standalone

pytestmark = pytest.mark.long

WAITS_S = 3.0  # A task that has nothing to wait for begins sooner.


def test_an_executor_that_never_comes_is_reported_and_ctrl_c_ends_the_wait(
    command: Command, tmp_path: Path
) -> None:
    topic = command.topic(operations(20))
    with standalone(tmp_path) as cluster:
        cluster.worker(memory="512m")
        state = ("--spark-conf", f"drainer.state={tmp_path / 'state'}")
        conf = ("--spark-conf", "spark.executor.memory=4g")
        running = command.begin(topic, "--master", cluster.url, *state, *conf)
        running.prints("no executor got the memory and cores that it needs")
        running.signal(signal.SIGINT)
        outcome = running.ends(4)

    assert (
        "interrupted by SIGINT while Spark's tasks were checked; nothing was handled" in outcome.err
    )
    assert "Traceback" not in outcome.err
    assert command.left_behind == []


def test_a_drain_begins_with_one_executor_and_deals_to_those_that_come(
    command: Command, tmp_path: Path
) -> None:
    draw = Random(16)
    values = [json.dumps([draw.randbytes(2_000).hex()]) for _ in range(2_000)]  # worth many tasks
    topic = command.topic(values)
    with standalone(tmp_path) as spark:
        spark.worker(cores=1, memory="1g")
        conf = ("dynamicAllocation.enabled=true", "executor.cores=1", "executor.memory=512m")
        words = [word for each in conf for word in ("--spark-conf", f"spark.{each}")]
        state = ("--spark-conf", f"drainer.state={tmp_path / 'state'}")
        where = ("--master", spark.url, *state, *words)
        options = ("--spark-conf", "drainer.slice=4MiB", "-c", "20")
        running = command.begin(topic, *where, *options, pause_ms=200)
        command.wait_for(running, "done", 1)  # The drain waits for no other executor.
        for _ in range(2):
            spark.worker(cores=1, memory="1g")
        running.ends(0)

    command.ensure_drained(topic, once=True)
    assert command.committed(topic) == {0: len(values)}
    assert len(set(command.record.pids("done"))) >= 3


def on_executors_of_one_core(master: str, folder: Path, slice_bytes: int) -> list[str]:
    """Return the options of a drain whose slices are so large and have two tasks each."""
    conf = (
        f"drainer.state=file://{folder / 'state'}",
        f"drainer.slice={slice_bytes}",
        "drainer.tasks=2",
        "spark.executor.cores=1",
        "spark.executor.memory=512m",
    )
    return ["--master", master, *(word for each in conf for word in ("--spark-conf", each))]


def test_an_executor_lost_for_good_takes_the_slot_of_a_task_that_waits_for_its_own(
    command: Command, tmp_path: Path
) -> None:
    """The last task of a slice is lost, while one of the next slice has the only slot left, and
    waits for it."""
    draw, slice_ = Random(3), 60
    ops = [["hot", f"k{draw.randrange(400)}"] for _ in range(4 * slice_)]
    values = [json.dumps([*each, draw.randbytes(2_000).hex()]) for each in ops]
    topic = command.topic(values)
    with standalone(tmp_path) as spark:
        workers = [spark.worker() for _ in range(2)]
        where = on_executors_of_one_core(spark.url, tmp_path, slice_ * len(values[0]))
        running = command.begin(topic, *where, "-c", "20", pause_ms=300)

        def next_waits() -> bool:
            """Whether the hot lane is all that is left, so that the next task of it waits."""
            lines = [line for line in command.record.lines() if line.mark == "begun"]
            hot = [line for line in lines if "hot" in (line.keys or ())]
            others = [line for line in lines if "hot" not in (line.keys or ())]
            if not hot or not any(line.place[1] >= slice_ for line in others):
                return False
            return hot[-1].place[1] < slice_ and hot[-1].at_s > others[-1].at_s + WAITS_S

        eventually(lambda: not running.running or next_waits(), "the next slice waits", 120)
        assert running.running, running.err
        pid = next(e.pid for e in reversed(command.record.lines()) if "hot" in (e.keys or ()))
        lost = next(worker for worker in workers if worker.pid in ancestors(pid))
        lost.kill()
        running.ends(0, within_s=300)

    command.ensure_drained(topic, once=False)
    assert command.committed(topic) == {0: len(values)}


def test_an_executor_lost_with_a_result_takes_the_slot_of_a_task_that_waits_for_that_slice(
    command: Command, tmp_path: Path
) -> None:
    """The task has reported its end, but Spark does not know it. The only slot left has the next
    slice, whose lanes are in other shards, so that it waits for the end of the first query."""
    slice_ = 20
    plain = [["hot!" if n == 0 else f"k{n:03}", f"j{n:03}"] for n in range(slice_)]
    connected = [[["hot!", f"k{n:03}"]] for n in range(2 * slice_)]
    width = max(len(json.dumps(each)) for each in (*plain, *connected))
    values = [json.dumps(each).ljust(width) for each in (*plain, *connected)]
    topic = command.topic(values)
    with standalone(tmp_path) as spark:
        workers = [spark.worker() for _ in range(2)]
        where = on_executors_of_one_core(spark.url, tmp_path, slice_ * width)
        gate = command.gate
        running = command.begin(topic, *where, "-c", "20", gate=gate, gated="hot!")

        def written(name: str) -> list[Path]:
            """Return the objects of this name in the state of the drain's epoch."""
            return list(tmp_path.glob(f"state/*/*/{name}"))

        def next_waits() -> bool:
            """Whether the second slice was read again, undivided, so that its task has a slot."""
            return any(time() > each.stat().st_mtime + WAITS_S for each in written("3/span-0"))

        def hot() -> list[int]:
            """The process of the call that waits at the gate."""
            return [each.pid for each in command.record.lines() if each.keys == ("hot!",)]

        def as_wanted() -> bool:
            return not running.running or (next_waits() and bool(hot()))

        eventually(as_wanted, "the first slice is at work, and the next one waits", 120)
        assert running.running, running.err
        pid = hot()[-1]
        _, executor, worker, *_ = ancestors(pid)
        os.kill(executor, signal.SIGSTOP)
        gate.touch()
        eventually(lambda: len(written("1/*/*/ended")) == 2, "both tasks report their ends", 30)
        next(each for each in workers if each.pid == worker).kill()
        os.kill(executor, signal.SIGKILL)
        outcome = running.ends(0, within_s=300)

    assert "had finished, but Spark lost its result" in outcome.err
    command.ensure_drained(topic, once=True)


def ancestors(pid: int) -> list[int]:
    """Return the processes above a process, beginning with its parent."""
    found = list[int]()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found
