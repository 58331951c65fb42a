"""Slices and tasks of a drain on Spark, in every view."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from builders import a_plan, a_status, changed, counts
from drainer.model.claims import Shard
from drainer.model.latency import Latency
from drainer.model.status import HeldBack, LimitStatus, Load, Status, TimingStatus, share_finished
from drainer.spark.assign.aggregation import Aggregation, SliceTask
from drainer.spark.assign.status import SparkStatus, repeat_words, task_name
from drainer.spark.assign.task_monitor import LOST_S, TaskMonitor
from drainer.spark.reading.slices import Manifest
from drainer.spark.state.records import Borrowed, Head, TaskStatus
from drainer.spark.state.state import Attempt
from drainer.view.limit import limit
from drainer.view.live import LineView, frame, status_line
from drainer.view.terminal import logging_as_json
from view import samples

PLAN = a_plan(100)


def on_spark(count: int) -> Status:
    return a_status(engine_status=samples.on_spark(count))


def test_an_address_stays_whole() -> None:
    assert task_name("7.1", "10.0.0.7") == "7.1 on 10.0.0.7"
    assert task_name("7.1", "worker-1.prod.example.com") == "7.1 on worker-1"
    assert task_name("7.1", "") == "7.1"


def test_a_task_that_spark_repeats_has_died_or_failed_or_its_result_was_lost() -> None:
    shard = Shard(3, 8)
    assert repeat_words("worker-1.example.com", shard, finished=False, failed=False) == (
        "the task of shard 3 on worker-1 fell silent: its Python worker or executor is gone; Spark"
        " repeats it"
    )
    assert repeat_words("", shard, finished=False, failed=True) == (
        "the task of shard 3 failed; Spark repeats it"
    )
    assert repeat_words("worker-1", shard, finished=True, failed=True) == (
        "the task of shard 3 on worker-1 had finished, but Spark lost its result, and repeats it"
    )


def test_what_binds_has_spark_s_words() -> None:
    late = changed(on_spark(8), in_flight=100)
    quiet = replace(samples.on_spark(8), silent=("7.1 on worker-2",))
    assert limit(changed(late, engine_status=quiet)) == (
        "tasks that report nothing: the slice waits for 7.1 on worker-2"
    )
    assert limit(late) == "the slowest tasks: the slice waits for 7.0 on worker-1"
    calm = a_status(engine_status=replace(samples.on_spark(8), stragglers=()))
    assert limit(calm) == "the handler: every worker is busy"
    full = limit(changed(calm, processor=Load(0.97)))
    assert full == "the processor: each task uses 97% of a core"
    assert limit(changed(calm, in_flight=0, lanes=0, lanes_ready=0)).startswith("reading")
    assert limit(changed(calm, in_flight=100)).startswith("the executors")
    assert limit(changed(calm, in_flight=100, lanes_ready=3)).startswith("order")
    names = tuple(f"7.{task}" for task in range(8))
    slow = changed(late, engine_status=replace(samples.on_spark(8), stragglers=names))
    assert limit(slow).endswith("waits for 7.0, 7.1, 7.2, 5 more")


def test_a_slice_whose_end_is_unknown_and_one_that_is_only_read() -> None:
    assert SparkStatus(1).facts == [("slice", "1, for 0s")]
    assert SparkStatus(0, slice_s=12).facts[0][1] == "reading the first one, for 12s"
    assert SparkStatus(1_200, 3_000, slice_s=130).facts[0][1] == "1,200 of ~3,000, for 2m 10s"


def test_every_view_has_slice_tasks_and_stragglers() -> None:
    lines = ["".join(text for text, _ in line) for line in frame(on_spark(8), 110, 40)]
    assert "  slice         3 of ~12, for 42s, while the next one is read" in lines
    assert "  tasks         8 (5 handling, 1 waiting, 2 ended)" in lines
    assert "  stragglers    7.0 on worker-1" in lines
    line = status_line(on_spark(8))
    assert "  slice 3 of ~12, for 42s, while the next one is read  " in line
    assert "  tasks 8 (5 handling, 1 waiting, 2 ended)  stragglers 7.0 on worker-1  " in line

    stream = io.StringIO()
    log = logging_as_json(stderr=stream)
    with log as terminal, LineView(terminal) as view:
        view.update(on_spark(200))
    shown = json.loads(stream.getvalue().splitlines()[-1])["engine_status"]
    assert (shown["slice"], shown["slices"], shown["slice_s"]) == (3, 12, 42.0)
    assert shown["tasks"] == {"handling": 129, "waiting": 21, "ended": 50}
    assert shown["stragglers"] == ["7.0 on worker-1"]


def test_a_silent_task_is_reported_and_makes_no_calls_until_it_is_repeated() -> None:
    now_s, plan = 0.0, a_plan(100)
    aggregation = Aggregation(plan, "/state", 1)
    monitor = TaskMonitor(
        aggregation, 0, concurrency=20, buffer_bytes=1, plan_path="p", clock=lambda: now_s
    )
    subs = {0: {0: 1_000}, 1: {0: 1_000}}
    one, other = aggregation.begin(1, 2, {0: (0, 40)}, {0: ((0, 40),)}, subs, {}).tasks
    one.given = other.given = True
    monitor.note_slice(0, [Manifest(0, 0, 40, subs={0: 1_000, 1: 1_000})])
    monitor.note_begin([one, other])
    took = Latency.of(1, 0.1, [0.1] * 101)
    at_work = TaskStatus(
        "worker-1",
        LimitStatus(in_flight=10, busy=10),
        timing=TimingStatus(latency=took, latency_recent=took),
        borrowed=Borrowed(),
    )

    def shown() -> tuple[int | None, SparkStatus]:
        status = monitor.status(plan, ahead=False)
        assert isinstance(status.engine_status, SparkStatus)
        return status.limits.busy, status.engine_status

    monitor.note_report(one, Attempt(1, 1, 0, 1), at_work)
    monitor.note_report(other, Attempt(1, 1, 1, 2), at_work)
    now_s = 2.9
    monitor.note_report(other, Attempt(1, 1, 1, 2), at_work)
    assert (shown()[0], shown()[1].silent) == (20, ())
    now_s = 3.1
    busy, engine = shown()
    assert (busy, engine.silent) == (10, ("1.0 on worker-1",))
    assert engine.tasks == {"handling": 1, "silent": 1}
    assert ("silent", "1.0 on worker-1") in engine.facts
    timing = monitor.status(plan, ahead=False).timing
    assert timing.latency is not None
    assert (timing.latency.count, timing.latency_recent) == (2, took)

    monitor.note_report(one, Attempt(1, 1, 0, 3), None)
    monitor.note_report(other, Attempt(1, 1, 1, 2), replace(at_work, borrowed=None))
    assert list(monitor.repeats) == [(Attempt(1, 1, 0, 1), "worker-1", Shard(0, 2), False)]
    now_s = 6.0
    busy, engine = shown()
    assert (busy, engine.silent, engine.repeated) == (0, (), 1)
    assert engine.tasks == {"reading": 1, "ended": 1}


class Watched:
    """A slice of two tasks that have begun, as their monitor sees it at the time ``now_s``."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.aggregation = Aggregation(PLAN, "/state", 1)
        self.monitor = TaskMonitor(
            self.aggregation,
            0,
            concurrency=20,
            buffer_bytes=1,
            plan_path="p",
            clock=lambda: self.now_s,
        )
        subs = {0: {0: 9}, 1: {0: 9}}
        self.slice = self.aggregation.begin(1, 2, {0: (0, 40)}, {0: ((0, 40),)}, subs, {})
        self.given(0, 1)

    def given(self, *numbers: int) -> None:
        for number in numbers:
            self.slice.tasks[number].given = True
        self.monitor.note_begin([self.slice.tasks[number] for number in numbers])

    def reports(
        self,
        number: int,
        attempt: int,
        *,
        mark: int = 0,
        over: bool = False,
        interrupted: bool = False,
    ) -> None:
        task = self.slice.tasks[number]
        known = counts(done=9 if mark else 0, pending=0 if mark else 9)
        self.aggregation.add_progress(
            self.slice, task, Head({task.claim: {0: (0, mark)}}, {0: known})
        )
        borrowed = None if over else Borrowed()
        status = TaskStatus("worker-1", borrowed=borrowed, interrupted=interrupted)
        self.monitor.note_report(task, Attempt(1, 1, number, attempt), status)

    @property
    def has_lost(self) -> bool:
        return self.monitor.has_lost(self.slice)

    @property
    def repeated(self) -> int:
        engine = self.monitor.status(PLAN, ahead=False).engine_status
        assert isinstance(engine, SparkStatus)
        return engine.repeated


def test_a_slice_has_lost_a_task_that_is_at_work_and_silent_whatever_others_do() -> None:
    seen = Watched()
    seen.reports(0, 1)
    seen.now_s = LOST_S + 1
    seen.reports(1, 2)
    assert seen.has_lost
    seen.reports(0, 3)
    assert not seen.has_lost
    seen.reports(0, 3, mark=40, over=True)
    seen.now_s *= 2
    seen.reports(1, 2)
    assert not seen.has_lost, "one task has ended, and the other one is at work"


@pytest.mark.parametrize("mark", [40, 30], ids=["finished", "parked"])
def test_a_slice_has_lost_a_task_if_all_reported_their_ends_and_its_query_does_not_end(
    mark: int,
) -> None:
    """Spark repeats a task whose result it lost, or one that had nothing to report."""
    seen = Watched()
    seen.reports(0, 1, mark=40, over=True)
    seen.reports(1, 2, mark=mark, over=True)
    seen.now_s = LOST_S - 1
    assert not seen.has_lost
    seen.now_s = LOST_S + 1
    assert seen.has_lost

    seen.reports(1, 3, mark=mark)

    assert not seen.has_lost, "it has a slot again"
    assert [finished for *_, finished in seen.monitor.repeats] == [True]


def test_a_slice_has_lost_a_task_whose_rows_spark_has_lost_whatever_others_do() -> None:
    seen = Watched()
    seen.reports(0, 1, over=True, interrupted=True)
    seen.reports(1, 2)
    assert seen.slice.busy == 2, "its repetition needs a slot"
    seen.now_s = LOST_S + 1
    seen.reports(1, 2)
    assert seen.has_lost

    seen.reports(0, 3)

    assert not seen.has_lost
    assert [finished for *_, finished in seen.monitor.repeats] == [False]


def test_a_task_that_waits_for_an_earlier_slice_is_not_lost() -> None:
    seen = Watched()
    seen.slice.tasks[1].given = False
    seen.reports(0, 1, mark=40, over=True)
    seen.now_s = LOST_S + 1
    assert not seen.has_lost


def test_a_task_that_drainer_began_again_is_no_repeat_of_spark_s() -> None:
    seen = Watched()
    seen.reports(0, 1)
    seen.given(0)  # Its query has yielded its slots, and begins again.
    seen.reports(0, 1)  # This was written before.
    seen.reports(0, 2)
    assert (list(seen.monitor.repeats), seen.repeated) == ([], 0)

    seen.reports(0, 3)

    assert [lost.number for lost, *_ in seen.monitor.repeats] == [2]
    assert seen.repeated == 1


def test_the_time_left_counts_sub_messages_of_slices_and_of_what_is_yet_to_be_read() -> None:
    """The time left can't follow messages, which end only with the last of their shards."""
    now_s = 1_000.0
    plan = a_plan(100)  # messages of fifty
    aggregation = Aggregation(plan, "/state", 1)
    monitor = TaskMonitor(
        aggregation, 0, concurrency=20, buffer_bytes=1, plan_path="p", clock=lambda: now_s
    )

    def showing(done: int, mark: int = 0) -> Status:
        known = counts(done=done, pending=2_000 - done)
        head = Head(
            {"0/1": {0: (0, mark)}}, {0: known}, status=TaskStatus(limits=LimitStatus(in_flight=20))
        )
        aggregation.add_progress(of, task, head)
        monitor.note_report(task, Attempt(1, 1, 0, 1), head.status)
        return measured(ahead=False)

    def measured(*, ahead: bool) -> Status:
        monitor.measure(plan)
        return monitor.status(plan, ahead=ahead)

    assert measured(ahead=True).progress.eta_s is None
    now_s += 20  # Reading the first slice takes so long.
    assert measured(ahead=True).progress.eta_s is None
    of = aggregation.begin(1, 1, {0: (0, 40)}, {0: ((0, 40),)}, {0: {0: 2_000}}, {})
    (task,) = of.tasks
    task.given = True
    monitor.note_slice(2, [Manifest(0, 0, 40, subs={0: 2_000})])
    monitor.note_begin([task])
    showing(0)
    for done in range(50, 2_000, 50):  # 100 sub-messages a second finish, but no message.
        now_s += 0.5
        status = showing(done)
        if done >= 200:  # They have been handled for two seconds.
            assert status.progress.eta_s == pytest.approx((100 * 50 - done) / 100)
    assert share_finished(status.progress.partitions) == pytest.approx(1_950 / 5_000)
    assert status.progress.messages.finished == 0
    for done in range(1_951, 1_991):  # Only one lane of the slice is left, which is slow.
        now_s += 0.5
        status = showing(done)
    assert status.progress.eta_s == pytest.approx((100 * 50 - done) / (done / 39.5))


def test_of_all_tasks_the_one_that_is_least_far_holds_the_watermark_back() -> None:
    now_s, plan = 0.0, a_plan(100)
    aggregation = Aggregation(plan, "/state", 1)
    monitor = TaskMonitor(
        aggregation, 0, concurrency=20, buffer_bytes=1, plan_path="p", clock=lambda: now_s
    )
    of = aggregation.begin(1, 2, {0: (0, 40)}, {0: ((0, 40),)}, {0: {0: 90}, 1: {0: 90}}, {})
    one, other = of.tasks
    one.given = other.given = True
    monitor.note_slice(0, [Manifest(0, 0, 40, subs={0: 90, 1: 90})])
    monitor.note_begin([one, other])

    def reports(task: SliceTask, claim: str, mark: int, done: int, *held: HeldBack) -> None:
        status = TaskStatus(limits=LimitStatus(held_back=held), borrowed=Borrowed())
        known = counts(done=done, pending=90 - done)
        head = Head({claim: {0: (0, mark)}}, {0: known}, status=status)
        aggregation.add_progress(of, task, head)
        monitor.note_report(task, Attempt(1, 1, int(task is other), 1), status)
        monitor.measure(plan)

    def shown() -> tuple[HeldBack, ...]:
        return monitor.status(plan, ahead=False).limits.held_back

    root, far = HeldBack(0, 7, "'d-root'", 30, 9.0), HeldBack(0, 20, "'d-2'", 3, 9.0)
    for step in range(1, 14):
        now_s = step / 2
        reports(one, "0/2", 7, step, root)
        reports(other, "1/2", 20, 2 * step, far)
    assert shown() == (replace(root, for_s=6.0),)
    now_s += 0.5
    reports(one, "0/2", 30, 40)
    assert shown() == (), "the watermark has just moved to 20"
    for step in range(1, 13):
        now_s += 0.5
        reports(one, "0/2", 30 + step // 2, 40 + step)
        reports(other, "1/2", 20, 2 * step + 28, far)
    assert shown() == (replace(far, for_s=6.0),)
