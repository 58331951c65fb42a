"""Waves and tasks of a drain on Spark, in every view."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from builders import a_plan, a_status, changed, counts
from drainer.model.status import Load, Status
from drainer.spark.assign.aggregation import Aggregation
from drainer.spark.assign.status import SparkStatus, straggler
from drainer.spark.assign.task_monitor import TaskMonitor
from drainer.spark.read.slices import Manifest
from drainer.spark.state.records import Head, TaskStatus
from drainer.spark.state.state import Attempt
from drainer.view.limit import limit
from drainer.view.live import LineView, frame, status_line
from drainer.view.log import logging_as_json
from drainer.view.status import share_finished
from view import samples


def on_spark(count: int) -> Status:
    return a_status(engine=samples.on_spark(count))


def test_an_address_stays_whole() -> None:
    assert straggler("7.1", "10.0.0.7") == "7.1 on 10.0.0.7"
    assert straggler("7.1", "worker-1.prod.example.com") == "7.1 on worker-1"
    assert straggler("7.1", "") == "7.1"


def test_what_binds_has_spark_s_words() -> None:
    late = changed(on_spark(8), running=100)
    assert limit(late) == "the slowest tasks: the wave waits for 7.0 on worker-1"
    calm = a_status(engine=replace(samples.on_spark(8), stragglers=()))
    assert limit(calm) == "the handler: every worker is busy"
    full = limit(changed(calm, processor=Load(0.97)))
    assert full == "the processor: each task uses 97% of a core"
    assert limit(changed(calm, running=0, lanes=0, lanes_ready=0)).startswith("reading")
    assert limit(changed(calm, running=100)).startswith("the executors")
    assert limit(changed(calm, running=100, lanes_ready=3)).startswith("order")
    names = tuple(f"7.{task}" for task in range(8))
    slow = changed(late, engine=replace(samples.on_spark(8), stragglers=names))
    assert limit(slow).endswith("waits for 7.0, 7.1, 7.2, 5 more")


def test_a_wave_whose_end_is_unknown_and_one_that_is_only_read() -> None:
    assert SparkStatus(1).facts == [("wave", "1, for 0s")]
    assert SparkStatus(0, wave_s=12).facts[0][1] == "reading the first one, for 12s"
    assert SparkStatus(1_200, 3_000, wave_s=130).facts[0][1] == "1,200 of ~3,000, for 2m 10s"


def test_every_view_has_wave_tasks_and_stragglers() -> None:
    lines = ["".join(text for text, _ in line) for line in frame(on_spark(8), 110, 40)]
    assert "  wave          3 of ~12, for 42s, reading the next one meanwhile" in lines
    assert "  tasks         8 (5 handling, 1 waiting, 2 ended)" in lines
    assert "  stragglers    7.0 on worker-1" in lines
    line = status_line(on_spark(8))
    assert "  wave 3 of ~12, for 42s, reading the next one meanwhile  " in line
    assert "  tasks 8 (5 handling, 1 waiting, 2 ended)  stragglers 7.0 on worker-1  " in line

    stream = io.StringIO()
    log = logging_as_json(stderr=stream)
    with log as terminal, LineView(terminal) as view:
        view.update(on_spark(200))
    shown = json.loads(stream.getvalue().splitlines()[-1])["engine"]
    assert (shown["wave"], shown["waves"], shown["wave_s"]) == (3, 12, 42.0)
    assert shown["tasks"] == {"handling": 129, "waiting": 21, "ended": 50}
    assert shown["stragglers"] == ["7.0 on worker-1"]


def test_the_time_left_counts_sub_messages_of_waves_and_of_what_is_yet_to_be_read() -> None:
    """Messages are no measure of the time: each ends with the last of its shards."""
    now_s = 1_000.0
    plan = a_plan(100)  # messages of fifty
    aggregation = Aggregation(plan, "/state", 1)
    monitor = TaskMonitor(
        aggregation, concurrency=20, buffer_bytes=1, plan_path="p", clock=lambda: now_s
    )
    task = Attempt(1, 1, 0, 1)

    def showing(done: int, mark: int = 0) -> Status:
        known = counts(done=done, pending=2_000 - done)
        head = Head({"0/1": {0: (0, mark)}}, {0: known}, status=TaskStatus(running=20))
        aggregation.take(1, 0, head)
        monitor.take(task, head.status)
        return monitor.status(plan, ahead=False)

    assert monitor.status(plan, ahead=True).progress.eta_s is None
    now_s += 20  # until the first wave is read
    assert monitor.status(plan, ahead=True).progress.eta_s is None
    aggregation.begin(1, {0: (0, 40)}, {0: ((0, 40),)}, {"0/1": {0: 2_000}}, {})
    aggregation.deal(1, [[(1, "0/1")]])
    monitor.begin_wave(3, [Manifest(0, 0, 40, subs={0: 2_000})])
    monitor.begin(1, 1)
    showing(0)
    for done in range(50, 2_000, 50):  # a hundred a second, and not a message
        now_s += 0.5
        status = showing(done)
        if done >= 200:  # for two seconds
            assert status.progress.eta_s == pytest.approx((100 * 50 - done) / 100)
    assert share_finished(status.progress.partitions) == pytest.approx(1_950 / 5_000)
    assert status.progress.messages.finished == 0
