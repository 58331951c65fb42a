"""The account of a drain that many tasks work on: what all claims finished, as one progress.

The driver of a drain on Spark owns it, and the checkpointer reads it as it reads a dispatcher.
While a task works, the account has only the mark below which the task has finished everything. So
its size depends on the slices, and not on what tasks finish in which order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drainer.core.merge import TaskRecord, count_in, undecided
from drainer.core.remainder import sure_share
from drainer.errors import account_wrong
from drainer.model.account import ParkedLanes, StateReference
from drainer.model.claims import ALL, Claims, Shard, ahead_of
from drainer.model.plan import OffsetPlan
from drainer.model.progress import OTHERWISE, Counts, OutcomeRanges, Progress, merge_outcomes
from drainer.model.ranges import (
    Range,
    count_offsets,
    encode_ranges,
    intersect,
    join_ranges,
    subtract,
)
from drainer.model.unhandled import Unhandled
from drainer.spark.state.records import Head, TaskStatus
from drainer.spark.state.state import Attempt
from drainer.store.place import uri_to_keep

OPEN_MOST = 3  # This many slices are under way at once. There are more than two if lanes are hot.


@dataclass(slots=True)
class SliceTask:
    """The task that handles one shard of a slice, with what it has reported.

    Attributes:
        name: the number of the slice, and the number of the shard.
        shard: the shard. Its text is the selector of its claim.
        subs: the number of its sub-messages by partition.
        left: the partitions that it has not finished.
        given: whether the driver has let the task begin.
        counts: the account of its sub-messages by partition.
        unhandled: the counts of what it finished without a call of the handler.
        attempt, status: the newest attempt at the task, and the newest status of that attempt.
        cancelled: the attempt that ended because drainer cancelled the query, to begin it again.
        reported_s: the time of its last report.
    """

    name: str
    shard: Shard
    subs: Mapping[int, int]
    left: set[int]
    given: bool = False
    counts: dict[int, Counts] = field(default_factory=dict)
    unhandled: Unhandled = field(default_factory=Unhandled)
    attempt: Attempt | None = None
    status: TaskStatus | None = None
    cancelled: Attempt | None = None
    reported_s: float = 0.0

    @property
    def claim(self) -> str:
        """The selector of the shard's claim."""
        return str(self.shard)

    @property
    def total(self) -> int:
        """The number of its sub-messages."""
        return sum(self.subs.values())

    @property
    def share_done(self) -> float:
        """The share of the task's sub-messages that is finished, from 0 to 1."""
        return Counts.sum(self.counts.values()).finished / max(1, self.total)

    @property
    def is_over(self) -> bool:
        """Whether the task is over, as it has reported, and nothing has interrupted it."""
        status = self.status
        return status is not None and status.borrowed is None and not status.interrupted

    @property
    def is_busy(self) -> bool:
        """Whether the task needs a slot, or will need one: it has something left to handle.

        A task that leaves lanes parked needs none once it is over.
        """
        return bool(self.left) and not self.is_over

    @property
    def host(self) -> str:
        return self.status.host if self.status else ""


@dataclass(slots=True)
class _SlicePartition:
    """The part of a slice in one partition.

    Attributes:
        marks: by claim, the offset below which the claim has finished all of its sub-messages.
        left: the offsets of messages that some claim may not have finished.
        messages: the account of all messages.
        outcomes: by claim, the outcomes of messages that are left.
        units: the offsets of messages that ``split`` rejected.
        beyond: by claim, what it finished above its mark. Only claims whose slice ended early are
            in it.
        finished: the offsets that all claims have finished.
        moved: whether a mark has moved since the last call of ``reach``.
    """

    start: int
    end: int
    marks: dict[str, int]
    left: Sequence[Range]
    messages: Counts
    outcomes: dict[str, OutcomeRanges]
    units: Sequence[Range] = ()
    beyond: dict[str, Progress] = field(default_factory=dict)
    finished: tuple[Range, ...] = ()
    moved: bool = True

    def finished_by(self, claim: str) -> tuple[Range, ...]:
        """Return the offsets that a claim has finished."""
        mark = self.marks[claim]
        below = ((self.start, mark),) if self.start < mark else ()
        return (
            join_ranges((*below, *self.beyond[claim].finished)) if claim in self.beyond else below
        )

    def add_outcomes(self, claim: str, outcomes: OutcomeRanges) -> None:
        """Add outcomes of a claim's messages. Some of them may be known already."""
        self.outcomes[claim] = merge_outcomes((self.outcomes.get(claim, {}), outcomes))

    def reach(self) -> None:
        """Account for the messages that all claims have finished."""
        self.moved = False
        marks = (mark for claim, mark in self.marks.items() if claim not in self.beyond)
        mark = min(marks, default=self.end)
        self.finished = ((self.start, mark),) if self.start < mark else ()
        for claim in self.beyond:
            self.finished = intersect(self.finished, self.finished_by(claim))
        ended = intersect(self.left, self.finished)
        self.left = subtract(self.left, self.finished)
        over, counts = count_offsets(ended), {}
        outcomes = merge_outcomes(self.outcomes.values())
        for outcome in reversed(OTHERWISE):  # A message counts under its worst outcome.
            found = intersect(ended, outcomes.get(outcome, ()))
            counts[outcome.value] = count_offsets(found)
            ended = subtract(ended, found)
        self.messages += Counts(0, count_offsets(ended), pending=-over, **counts)
        self.outcomes = {
            claim: {outcome: subtract(ranges, self.finished) for outcome, ranges in each.items()}
            for claim, each in self.outcomes.items()
        }


@dataclass(eq=False, slots=True)
class Slice:
    """A slice that is under way: its tasks by the number of their shard, and its partitions."""

    number: int
    tasks: tuple[SliceTask, ...]
    parts: dict[int, _SlicePartition]

    @property
    def unfinished(self) -> list[SliceTask]:
        """The tasks that have something left to handle. Some may wait for a slot."""
        return [task for task in self.tasks if task.left]

    @property
    def busy(self) -> int:
        """The number of tasks that need a slot. Some may wait for one."""
        return sum(task.is_busy for task in self.tasks)


class Aggregation:
    """Adds up what tasks have finished.

    The driver begins a slice, adds what its tasks report, and ends the slice, which folds it into
    the account. Several slices may be under way at once, but each claim goes through the slices one
    after the other.

    Args:
        uri, epoch: the place and the epoch of the state that the tasks write to.
    """

    def __init__(self, plan: OffsetPlan, uri: str, epoch: int) -> None:
        self._uri = uri_to_keep(uri)
        self._epoch = epoch
        self._over = False
        self._base = dict(plan.account.claims[ALL])
        self._others = {selector: dict(claim) for selector, claim in plan.account.others.items()}
        self._starts = {n: progress.watermark for n, progress in self._base.items()}
        self._ends = {n: part.end for n, part in plan.account.partitions.items()}
        self.parked = set(plan.account.parked)
        self.parked_lanes = ParkedLanes(0, plan.account.parked_lanes.of(self.parked))
        self._unhandled = plan.account.unhandled
        self.slices: dict[int, Slice] = {}  # The slices under way by number, the oldest first.
        self._next = 1  # A later slice has this number, or a higher one.
        # Whether the counts of a slice did not add up. If so, nothing may be committed.
        self.unbalanced = False

    @property
    def complete(self) -> bool:
        return all(self._base[n].watermark >= end for n, end in self._ends.items())

    @property
    def state(self) -> StateReference | None:
        """The reference to the tasks' state; None when no task can report anything any more.

        It has the counts that ``claims`` and ``unhandled`` have taken from the state.
        """
        if self._over:
            return None
        return StateReference(
            self._uri,
            self._epoch,
            self._next,
            tuple(self.slices),
            self._counted(),
            sum((task.unhandled for task in self.tasks), Unhandled()),
            self._units(),
        )

    @property
    def watermarks(self) -> dict[int, int]:
        """The current watermarks by partition."""
        return {n: progress.watermark for n, progress in self._by_all().items()}

    def begin(
        self,
        number: int,
        of: int,
        ranges: Mapping[int, Range],
        delivered: Mapping[int, Sequence[Range]],
        subs: Mapping[int, Mapping[int, int]],
        units: Mapping[int, Sequence[Range]],
    ) -> Slice:
        """Begin a slice that was read. Its number is higher than those of earlier slices.

        Args:
            of: the number of shards that it is divided into.
            ranges: the offsets of the slice, by partition.
            delivered: the offsets of messages that were not finished before, by partition.
            subs: the number of sub-messages to handle, by the number of the shard and partition.
            units: the offsets of messages that ``split`` rejected, by partition.
        """
        tasks = tuple(
            SliceTask(f"{number}.{n}", Shard(n, of), subs.get(n, {}), set(subs.get(n, {})))
            for n in range(of)
        )
        parts = {}
        for n, (start, end) in ranges.items():
            left = delivered.get(n, ())
            read = count_offsets(left)
            of_others = (claim[n].outcomes for claim in self._others.values())
            parts[n] = _SlicePartition(
                start,
                end,
                {task.claim: start for task in tasks if n in task.subs},
                left,
                Counts(read, pending=read),
                {ALL: merge_outcomes((self._base[n].outcomes, *of_others))},
                units.get(n, ()),
            )
        self.slices[number] = begun = Slice(number, tasks, parts)
        self._next = number + 1
        return begun

    def add_progress(self, of: Slice, task: SliceTask, head: Head) -> None:
        """Add a record of a task.

        The counts of a record are those of all attempts so far, since each attempt goes on from the
        counts of the one before.
        """
        for claim, marks in head.marks.items():
            for n, (_, mark) in marks.items():
                part = of.parts[n]
                if mark > part.marks[claim]:
                    part.marks[claim] = mark
                    part.moved = True
                if mark >= part.end:
                    task.left.discard(n)
        for claim, by_partition in head.outcomes.items():
            for n, outcomes in by_partition.items():
                of.parts[n].add_outcomes(claim, outcomes)
        self._note(task, head)

    def add_whole_record(self, of: Slice, task: SliceTask, record: TaskRecord) -> None:
        """Add everything that an ended task has reported, including what lies above its marks.

        If the state was removed, the record is empty and changes nothing.
        """
        self._note(task, record)
        for claim, changes in record.claims.items():
            for n, progress in changes.items():
                part = of.parts[n]
                part.beyond[claim], part.moved = progress, True
                part.add_outcomes(claim, progress.outcomes)

    def ensure_conserved(self, of: Slice) -> None:
        """Ensure that the tasks of a slice account for all that they were given.

        Raises AccountWrong, and then nothing may be committed.
        """
        for task in of.tasks:
            counts = sum(task.counts.values(), Counts())
            if counts.read != task.total or not counts.conserved:
                self.unbalanced = True
                raise account_wrong(
                    f"task {task.name} was given {task.total:,} sub-messages and reports {counts}"
                )

    @property
    def busy(self) -> int:
        """The number of tasks that need a slot. Some may wait for one."""
        return sum(each.busy for each in self.slices.values())

    def wants_next(self, slots: int) -> bool:
        """Whether the next slice should be read, with so many slots for tasks.

        That is so once a slot is free for a task of it. With as many tasks as slots, a slot is free
        when the first task of the newest slice has ended.
        """
        open_ = len(self.slices)
        return not open_ or (open_ < OPEN_MOST and self.busy < slots)

    def order(self, of: int) -> tuple[int, ...]:
        """Return the shards of the next slice in the order in which their tasks should begin.

        Shards that are at work come last: their next tasks have to wait, and should leave the slots
        to others until then.
        """
        at_work = {task.shard for each in self.slices.values() for task in each.unfinished}
        return tuple(sorted(range(of), key=lambda number: Shard(number, of) in at_work))

    def free(self) -> Iterator[tuple[Slice, SliceTask]]:
        """Yield the tasks that may begin: those whose shard has nothing left in earlier slices.

        If a slice is divided into another number of shards than earlier ones, its lanes are in
        other shards. So its tasks may begin only when all earlier slices have ended.
        """
        earlier = list[Slice]()
        for each in self.slices.values():
            if any(len(other.tasks) != len(each.tasks) for other in earlier):
                return
            for n, task in enumerate(each.tasks):
                if not task.given and not any(other.tasks[n].left for other in earlier):
                    yield each, task
            earlier.append(each)

    def end_slice(self, ended: Slice) -> None:
        """End a slice. Sub-messages that are pending now stay pending in this run."""
        del self.slices[ended.number]
        for task in ended.tasks:
            self._unhandled += task.unhandled
            for n, counts in task.counts.items():
                subs = self._base[n].sub_messages + counts
                self._base[n] = replace(self._base[n], sub_messages=subs)
        for part in ended.parts.values():
            part.reach()
        _add(ended, self._base)
        self._fold(ended, self._others)
        self._others = ahead_of(self._others, self._base)

    def end(self) -> None:
        """Note that no slice is left. The plan needs no state from here on, since this account has
        all that tasks reported."""
        self._over = True

    def claims(self) -> Claims:
        """Return the progress of all claims, as a plan has it."""
        base, others = self._by_all(), {s: dict(claim) for s, claim in self._others.items()}
        for each in self.slices.values():
            self._fold(each, others)
        for n, counts in self._counted().items():
            base[n] = replace(base[n], sub_messages=base[n].sub_messages + counts)
        return {ALL: base, **ahead_of(others, base)}

    def counts(self) -> tuple[Counts, Counts]:
        """Return the counts of messages, and of sub-messages."""
        self._reach()
        messages = [each.messages for each in self._base.values()]
        messages += (part.messages for each in self.slices.values() for part in each.parts.values())
        return Counts.sum(messages), Counts.sum(self.sub_messages.values())

    @property
    def sub_messages(self) -> dict[int, Counts]:
        """The counts of sub-messages by partition."""
        counted = self._counted()
        return {n: e.sub_messages + counted.get(n, Counts()) for n, e in self._base.items()}

    def longest_lane(self) -> tuple[float, float]:
        """Estimate the longest lane from the shard that has the most sub-messages.

        Returns what is left of the lane in the slices under way, and its share of these slices.

        By so many more than the mean of the others, it has them from one lane.
        """
        divided = [each for each in self.slices.values() if len(each.tasks) > 1]
        subs = Counter[str]()
        for each in divided:
            subs.update({task.claim: task.total for task in each.tasks})
        if not subs.total():
            return 0.0, 0.0
        ((claim, most),) = subs.most_common(1)
        others = (subs.total() - most) / (len(subs) - 1)
        of_lane = sure_share(most, others) * (most - others) / most
        left = 0.0
        for each in divided:
            for task in each.tasks:
                for n, count in task.subs.items() if task.claim == claim else ():
                    part = each.parts[n]
                    left += count * (part.end - part.marks[claim]) / (part.end - part.start)
        return of_lane * left, of_lane * most / subs.total()

    @property
    def left_pending(self) -> int:
        """The number of sub-messages that ended slices have left for a later run."""
        return sum(each.sub_messages.pending for each in self._base.values())

    def record(self) -> None:
        """Do nothing: a drain on Spark has no journal, because its tasks write records."""

    def unhandled(self) -> Unhandled:
        """Return the counts of what finished without being handled, in all runs and tasks."""
        return sum((task.unhandled for task in self.tasks), self._unhandled)

    @property
    def tasks(self) -> Iterator[SliceTask]:
        """The tasks of all slices that are under way."""
        return (task for each in self.slices.values() for task in each.tasks)

    def _note(self, task: SliceTask, reported: Head | TaskRecord) -> None:
        task.counts |= reported.counts
        self.parked.update(reported.parked)
        if reported.unhandled is not None:
            task.unhandled = task.unhandled.merge(reported.unhandled)

    def _counted(self) -> dict[int, Counts]:
        """Return the counts of sub-messages of slices under way, by partition."""
        counted: dict[int, Counts] = {}
        for task in self.tasks:
            count_in(counted, task.counts)
        return counted

    def _units(self) -> dict[int, str]:
        """Return the messages of slices under way that ``split`` rejected, by partition."""
        units: dict[int, list[Range]] = {}
        for each in self.slices.values():
            for n, part in each.parts.items():
                units.setdefault(n, []).extend(part.units)
        return {n: encode_ranges(join_ranges(found)) for n, found in units.items() if found}

    def _reach(self) -> None:
        for each in self.slices.values():
            for part in each.parts.values():
                if part.moved:
                    part.reach()

    def _by_all(self) -> dict[int, Progress]:
        """Return the progress of the claim "all", including what slices under way have finished."""
        self._reach()
        base = dict(self._base)
        for each in self.slices.values():
            _add(each, base)
        return base

    def _fold(self, of: Slice, others: dict[str, dict[int, Progress]]) -> None:
        for n, part in of.parts.items():
            units = undecided(part.units, part.outcomes.values())
            for claim in part.marks:
                fresh = {n: Progress(start) for n, start in self._starts.items()}
                own = others.setdefault(claim, fresh)
                partial = part.beyond[claim].partial if claim in part.beyond else {}
                outcomes = part.outcomes.get(claim, {})
                # A message that split rejected, and that is pending, is finished in no claim: the
                # next time, split may make sub-messages of this claim from it.
                finished = subtract(part.finished_by(claim), units)
                own[n] = own[n].merge(Progress(0, finished, partial, outcomes=outcomes))


def _add(of: Slice, base: dict[int, Progress]) -> None:
    for n, part in of.parts.items():
        known, messages = base[n], base[n].messages + part.messages
        base[n] = known.merge(Progress(0, part.finished, {}, messages, known.sub_messages))
