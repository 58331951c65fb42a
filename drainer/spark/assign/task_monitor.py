"""The monitor of the tasks of a driver. It makes a status of the drain from their last reports."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import nlargest
from typing import Any

from drainer.core.remainder import ReadSample, Remainder
from drainer.engine.meter import MINUTE_S, MetricsSampler
from drainer.model.claims import ALL, Shard
from drainer.model.latency import Latency, merge_latencies
from drainer.model.merging import merge
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Counts
from drainer.model.settings import FailureSettings
from drainer.model.status import (
    HELD_BACK_MOST,
    FailureStatus,
    LimitStatus,
    PartitionStatus,
    Status,
    TimingStatus,
)
from drainer.model.unhandled import RuleStatus
from drainer.policy.failures import Totals
from drainer.spark.assign.aggregation import Aggregation, Slice, SliceTask
from drainer.spark.assign.status import (
    ENDED,
    HANDLING,
    READING,
    SILENT,
    WAITING,
    SparkStatus,
    task_name,
)
from drainer.spark.reading.slices import Manifest
from drainer.spark.state.records import TaskStatus
from drainer.spark.state.state import Attempt

QUIET_S = 3.0  # After this long without a report, a task counts as silent.
NO_SLOT_S = 10.0  # After this long without a task, Spark has no slot for any.
LOST_S = 60.0  # After this long, it counts as lost. A handler may block its event loop for a while.
BEHIND = 0.5  # A task with less than this share of the average progress is a straggler.


# An attempt that Spark repeats, its host, its shard, and whether it had finished its share.
Repeat = tuple[Attempt, str, Shard, bool]


class TaskMonitor(MetricsSampler):
    """Notes what tasks report, and measures the drain by that.

    Only the driver's event loop uses it.
    """

    def __init__(
        self, aggregation: Aggregation, given_up_before: int, quiet_s: float = QUIET_S, **named: Any
    ) -> None:
        """Begin with the ``given_up_before`` sub-messages that earlier runs gave up.

        A task counts as silent after ``quiet_s`` without a report.
        """
        self.aggregation = aggregation
        self._quiet_s = quiet_s
        super().__init__(**named)
        # The sum of the statuses of slices and attempts that are over.
        self._before = TaskStatus(failures=FailureStatus(given_up=given_up_before))
        self._known = aggregation.claims()  # The progress before this run.
        self._subs_before = aggregation.sub_messages
        self._skipped_before = aggregation.unhandled().without_call
        # For each partition, the offset up to which slices were read, the number of their
        # sub-messages to handle, and the number of those that were finished before.
        self._positions = aggregation.watermarks
        self._subs, self._finished = Counter[int](), Counter[int]()
        self.repeats = deque[Repeat]()  # Repeated tasks that are yet to be reported.
        self._repeated = 0
        self.slices = 0
        self._about: int | None = None
        self._given_s = self._clock()  # When tasks were given something for the last time.
        self._slices_began_s = deque([self._given_s], maxlen=2)  # Those of the last two slices.
        self.tasks_most = 0

    def start(self) -> None:
        """Start to measure. The driver calls this once the tasks are checked and at work."""
        self._started = self._given_s = self._clock()
        self._slices_began_s.append(self._started)

    def counts(self) -> tuple[Counts, Counts]:
        return self.aggregation.counts()

    def note_slice(self, about: int, manifests: Iterable[Manifest]) -> None:
        """Note that the next slice is read. ``about`` is the estimated number of further ones."""
        for each in manifests:
            self._positions[each.partition] = max(self._positions[each.partition], each.end)
            self._subs[each.partition] += sum(each.subs.values())
            self._finished[each.partition] += each.finished
        self.slices += 1
        self._about = self.slices + about
        self._slices_began_s.append(self._clock())

    def note_begin(self, tasks: Iterable[SliceTask]) -> None:
        """Note that these tasks may begin, or begin again because drainer ended their query."""
        self._given_s = self._clock()
        for task in tasks:
            task.reported_s, task.cancelled = self._given_s, task.attempt
        self.tasks_most = max(self.tasks_most, len(self._tasks))

    def note_report(self, task: SliceTask, attempt: Attempt, status: TaskStatus | None) -> None:
        """Note a record of an attempt at a task, with its status if the record has one."""
        if task.attempt != attempt:
            if task.attempt is not None and task.attempt != task.cancelled:
                self.repeats.append((task.attempt, task.host, task.shard, task.is_over))
                self._repeated += 1
            self._add_ended(task)
            task.attempt, task.reported_s = attempt, self._clock()
        if status is not None:
            task.status, task.reported_s = status, self._clock()

    def has_lost(self, of: Slice) -> bool:
        """Return whether a slice waits for a task that has not been heard of for long.

        If all tasks are silent, that may be one that has reported its end: Spark repeats it if it
        lost the result with an executor.
        """
        now_s = self._clock()
        silent = [each for each in of.tasks if each.given and now_s - each.reported_s > LOST_S]
        at_work = any(each.is_busy for each in silent)
        return at_work or len(silent) == len(of.tasks)

    def note_end(self, of: Slice) -> None:
        """Note that a slice is over, and keep the sum of what its tasks reported."""
        for task in of.tasks:
            self._add_ended(task)

    def overall(self) -> Latency | None:
        """Return the handler's latency in this run, for the checkpointer."""
        return merge_latencies(each.timing.latency for each in self._ever)

    def failures(self, settings: FailureSettings) -> FailureStatus:
        """Return the failures of all tasks in this run. ``settings`` are those of the tasks."""
        before, *now = self._ever
        return merge(FailureStatus.of(settings), [each.failures for each in now], [before.failures])

    @property
    def given_up(self) -> int:
        """The number of sub-messages that all tasks gave up, in this run and before."""
        return sum(each.failures.given_up for each in self._ever)

    def totals(self) -> Totals:
        """Return the totals of all tasks in this run."""
        done_before = Counts.sum(self._subs_before.values()).done
        subs, skipped = self.aggregation.counts()[1], self.aggregation.unhandled().without_call
        began_s = max(each.began_s for each in self._ever)
        return Totals(subs.done - done_before, self.given_up, subs.finished - skipped, began_s)

    @property
    def trouble(self) -> str | None:
        """The trouble that a task has reported, or that keeps all tasks waiting; None if all is
        well."""
        waited_s = self._clock() - self._given_s
        if waited_s > NO_SLOT_S and set(map(self._state, self._tasks)) == {WAITING}:
            return f"Spark has no slot for any of the slice's {len(self._tasks)} tasks"
        return next((each.trouble for each in self._now if each.trouble), None)

    @property
    def running(self) -> int:
        """The number of sub-messages that are in handlers, by the last reports."""
        return sum(each.limits.in_flight for each in self._now)

    def measure(self, plan: OffsetPlan) -> None:
        """Take one measurement. The driver calls this about twice a second."""
        left, marks = self._remainder(plan), self.aggregation.watermarks
        of_lane, share = self.aggregation.longest_lane()
        to_come = share * left.share * sum((left.unread or {}).values())
        # If slices are not divided into shards, only what tasks have in memory is known of lanes.
        longest = max((each.limits.longest for each in self._now), default=0)
        self._measure(left, self.running, marks, max(longest, round(of_lane)), to_come)

    @property
    def _window_s(self) -> float:
        # At the end of a slice, its longest lane may keep only one worker busy. So the pace is that
        # of a whole slice.
        since_s = self._clock() - self._slices_began_s[0]
        return max(super()._window_s, min(MINUTE_S, since_s))

    def _lane_latency_s(self, latency: Latency) -> float:
        # A lane stands still while its next task begins, and that is not how long its calls take.
        return latency.mean_s

    def status(self, plan: OffsetPlan, *, ahead: bool) -> Status:
        """Return the status of the drain. ``ahead`` is whether the next slice is being read."""
        watermarks, now = self.aggregation.watermarks, self._now
        past = [each.timing for each in self._past]
        at_work = [each.limits for each in now if each.borrowed is not None]
        base = LimitStatus(concurrency=self.concurrency, buffer_bytes=self._buffer_bytes)
        subs, left = self.aggregation.sub_messages, self._remainder(plan)
        status = self._status(
            plan,
            left,
            starved=False,  # Slices come one by one, so waiting for one says little about speed.
            limits=self._holding(merge(base, at_work)),
            partitions=tuple(
                PartitionStatus(
                    partition=number,
                    start=part.start,
                    end=part.end,
                    position=self._positions[number],
                    watermark=watermarks[number],
                    committed=part.committed,
                    messages_finished=plan.account.claims[ALL][number].messages.finished,
                    sub_messages_finished=subs[number].finished,
                    sub_messages_left=left.of_partition(number, self._pending(number, subs)),
                )
                for number, part in plan.account.partitions.items()
            ),
            timing=merge(TimingStatus(), [each.timing for each in now], past),
            engine=self._spark(ahead=ahead),
        )
        rules = RuleStatus() + self.aggregation.unhandled()
        return replace(status, rules=merge(rules, [each.rules for each in self._ever]))

    def _holding(self, limits: LimitStatus) -> LimitStatus:
        """Return the limits with the messages that hold back the watermarks of the whole drain."""
        standing, marks = self._standing, self._marks
        found = [
            replace(each, for_s=standing[each.partition])
            for each in limits.held_back
            if each.partition in standing and each.offset == marks[each.partition][0]
        ]
        longest = nlargest(HELD_BACK_MOST, found, key=lambda each: (not each.is_ready, each.for_s))
        return replace(limits, held_back=tuple(longest))

    def _remainder(self, plan: OffsetPlan) -> Remainder:
        aggregation, known = self.aggregation, self._known
        samples = {}
        for n, position in self._positions.items():
            bounds = known[ALL][n].watermark, position, plan.account.partitions[n].end
            finished = self._finished[n]
            below = max(claim[n].end for claim in known.values())
            before = known[ALL][n].finished
            samples[n] = ReadSample.of(bounds, before, self._subs[n] + finished, finished, below)
        now = aggregation.sub_messages
        skipped = aggregation.unhandled().without_call - self._skipped_before
        all_now, before_all = Counts.sum(now.values()), Counts.sum(self._subs_before.values())
        read, finished = all_now.read - before_all.read, all_now.finished - before_all.finished
        given_up = aggregation.left_pending
        share = (read - skipped - given_up) / read if read else 1.0
        in_slices = sum(self._subs.values()) - read  # No task has applied the rules to these yet.
        return Remainder.of(
            samples,
            handled=all_now.finished - skipped,
            waiting=read - finished - given_up + round(share * in_slices),
            share=share,
        )

    def _pending(self, number: int, now: Mapping[int, Counts]) -> int:
        """Return the number of a partition's unfinished sub-messages in the slices so far."""
        finished = now[number].finished - self._subs_before[number].finished
        return self._subs[number] - finished

    def _spark(self, *, ahead: bool) -> SparkStatus:
        now_s, tasks = self._clock(), self._tasks
        at_work = [task for task in tasks if task.attempt and not task.is_over]
        silent = [task for task in at_work if self._state(task) == SILENT]
        done = sum(task.share_done for task in tasks)
        return SparkStatus(
            self.slices,
            self._about,
            ahead,
            now_s - self._slices_began_s[-1],
            Counter(map(self._state, tasks)),
            tuple(
                task_name(task.name, task.host)
                for task in at_work
                if task not in silent and task.share_done < BEHIND * done / len(tasks)
            ),
            tuple(task_name(task.name, task.host) for task in silent),
            self._repeated,
            max((now_s - task.reported_s for task in at_work), default=0.0),
        )

    def _state(self, task: SliceTask) -> str:
        if task.is_over:
            return ENDED
        if task.attempt is not None and self._clock() - task.reported_s > self._quiet_s:
            return SILENT
        return HANDLING if task.status else READING if task.attempt else WAITING

    @property
    def _tasks(self) -> list[SliceTask]:
        """The tasks that may work, or have worked, on the slices under way."""
        return [task for task in self.aggregation.tasks if task.given and task.subs]

    @property
    def _now(self) -> list[TaskStatus]:
        """The newest statuses of the tasks at work, except of silent ones, which may be out of
        date."""
        over = SILENT, ENDED
        return [e.status for e in self._tasks if e.status and self._state(e) not in over]

    @property
    def _past(self) -> list[TaskStatus]:
        """The sum of the attempts that are over, and the last statuses of other tasks."""
        over = SILENT, ENDED
        others = (e.status for e in self._tasks if e.status and self._state(e) in over)
        return [self._before, *others]

    @property
    def _ever(self) -> list[TaskStatus]:
        return [self._before, *(each.status for each in self._tasks if each.status)]

    def _add_ended(self, task: SliceTask) -> None:
        """Add the last status of an attempt that is over to the sum of such statuses."""
        if task.status is None:
            return
        ended = self._before, task.status
        self._before = TaskStatus(
            failures=merge(FailureStatus(), (), [each.failures for each in ended]),
            rules=merge(RuleStatus(), (), [each.rules for each in ended]),
            timing=merge(TimingStatus(), (), [each.timing for each in ended]),
            began_s=max(each.began_s for each in ended),
        )
        task.status = None
