"""The account of a drain that many tasks work on: what all claims finished, as one progress.

The driver of a drain on Spark owns it, and the checkpointer reads it as it reads a dispatcher.
While a task works, the account has only the mark below which the task has finished everything. So
its size depends on the waves, and not on what tasks finish in which order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


@dataclass(slots=True)
class DispatchedTask:
    """A task of a dispatch, with the parts of waves that it was given and what it has reported.

    Attributes:
        name: the number of the dispatch, and the number of the task in it.
        waves: by claim, the wave that the task has a part of.
        subs: the number of sub-messages that the task was given.
        left: by claim, the partitions that the task has not finished.
        counts: the account of its sub-messages by partition.
        unhandled: the counts of what it finished without a call of the handler.
        attempt, status: the newest attempt at the task, and the newest status of that attempt.
        reported_s: the time of its last report.
        ended: whether Spark has ended the task.
    """

    name: str
    waves: Mapping[str, int]
    subs: int
    left: dict[str, set[int]]
    counts: dict[int, Counts] = field(default_factory=dict)
    unhandled: Unhandled = field(default_factory=Unhandled)
    attempt: Attempt | None = None
    status: TaskStatus | None = None
    reported_s: float = 0.0
    ended: bool = False

    @property
    def unfinished(self) -> list[str]:
        """The claims whose parts are not done."""
        return [claim for claim, left in self.left.items() if left]

    @property
    def shards_left(self) -> tuple[Shard, ...]:
        """The shards whose parts are not done."""
        return tuple(sorted(map(Shard.parse, self.unfinished)))

    @property
    def share_done(self) -> float:
        """The share of the task's sub-messages that is finished, from 0 to 1."""
        return Counts.sum(self.counts.values()).finished / max(1, self.subs)

    @property
    def is_over(self) -> bool:
        """Whether the task is over, as the task itself or Spark has reported."""
        return self.ended or (self.status is not None and self.status.borrowed is None)

    @property
    def host(self) -> str:
        return self.status.host if self.status else ""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The parts of waves that one job handles. Later dispatches have higher numbers."""

    number: int
    tasks: tuple[DispatchedTask, ...]

    @property
    def waves(self) -> set[int]:
        """The numbers of the waves whose parts the dispatch has."""
        return {wave for task in self.tasks for wave in task.waves.values()}

    @property
    def name(self) -> str:
        return f"dispatch {self.number} of wave {', '.join(map(str, sorted(self.waves)))}"

    @property
    def busy(self) -> int:
        """The number of tasks with something left to handle. Some may still wait for a slot."""
        return sum(1 for task in self.tasks if task.unfinished)


ClaimPart = tuple[int, str]  # The number of a wave, and the claim that has a part of it.
Changes = dict[str, dict[int, Progress]]  # The progress by claim and partition.


@dataclass(slots=True)
class _WavePartition:
    """The part of a wave in one partition.

    Attributes:
        marks: by claim, the offset below which the claim has finished all of its sub-messages.
        left: the offsets of messages that some claim may not have finished.
        messages: the account of all messages.
        outcomes: by claim, the outcomes of messages that are left.
        units: the offsets of messages that ``split`` rejected.
        beyond: by claim, what it finished above its mark. Only claims whose dispatch ended early
            are in it.
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


@dataclass(slots=True)
class _Wave:
    """A wave of which some parts are not handled yet.

    Attributes:
        parts: the part of the wave in each partition.
        subs: the number of sub-messages by claim and partition.
        open: the claims whose dispatches have not ended.
    """

    parts: dict[int, _WavePartition]
    subs: Mapping[str, Mapping[int, int]]
    open: set[str]


class Aggregation:
    """Adds up what tasks have finished.

    The driver begins a wave, dispatches its parts, adds what tasks report, and ends the dispatch.
    Several dispatches and waves may be under way at once, but each claim goes through the waves one
    after the other. When all dispatches with parts of a wave have ended, the wave is folded into
    the account.

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
        self._waves: dict[int, _Wave] = {}
        self.dispatches: dict[int, Dispatch] = {}  # The dispatches under way, by number.
        self._next = 1  # The number of the next dispatch.
        # Whether the counts of a dispatch did not add up. If so, nothing may be committed.
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
            tuple(self.dispatches),
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
        ranges: Mapping[int, Range],
        delivered: Mapping[int, Sequence[Range]],
        subs: Mapping[str, Mapping[int, int]],
        units: Mapping[int, Sequence[Range]],
    ) -> None:
        """Begin a wave that was read. Its number is higher than those of earlier waves.

        Args:
            ranges: the offsets of the wave, by partition.
            delivered: the offsets of messages that were not finished before, by partition.
            subs: the number of sub-messages to handle, by claim and partition.
            units: the offsets of messages that ``split`` rejected, by partition.
        """
        parts = {}
        for n, (start, end) in ranges.items():
            left = delivered.get(n, ())
            read = count_offsets(left)
            of_others = (claim[n].outcomes for claim in self._others.values())
            parts[n] = _WavePartition(
                start,
                end,
                {claim: start for claim, of_claim in subs.items() if n in of_claim},
                left,
                Counts(read, pending=read),
                {ALL: merge_outcomes((self._base[n].outcomes, *of_others))},
                units.get(n, ()),
            )
        self._waves[number] = _Wave(parts, subs, set(subs))
        self._end_waves()

    def dispatch(self, tasks: Iterable[Iterable[ClaimPart]]) -> Dispatch:
        """Begin a dispatch that gives these parts of waves to tasks."""
        number, self._next = self._next, self._next + 1
        given = (self._given(f"{number}.{n}", parts) for n, parts in enumerate(tasks))
        self.dispatches[number] = dispatch = Dispatch(number, tuple(given))
        return dispatch

    def add_progress(self, task: DispatchedTask, head: Head) -> list[str]:
        """Add a record of a task; return the claims whose parts the task has completed by it.

        The counts of a record are those of all attempts so far, since each attempt goes on from the
        counts of the one before.
        """
        done = list[str]()
        for claim, marks in head.marks.items():
            parts, left = self._waves[task.waves[claim]].parts, task.left[claim]
            whole_before = not left
            for n, (_, mark) in marks.items():
                part = parts[n]
                if mark > part.marks[claim]:
                    part.marks[claim] = mark
                    part.moved = True
                if mark >= part.end:
                    left.discard(n)
            if not left and not whole_before:
                done.append(claim)
        for claim, by_partition in head.outcomes.items():
            parts = self._waves[task.waves[claim]].parts
            for n, outcomes in by_partition.items():
                parts[n].add_outcomes(claim, outcomes)
        self._note(task, head)
        return done

    def add_whole_record(self, task: DispatchedTask, record: TaskRecord) -> None:
        """Add everything that an ended task has reported, including what lies above its marks.

        If the state was removed, the record is empty and changes nothing.
        """
        self._note(task, record)
        for claim, changes in record.claims.items():
            parts = self._waves[task.waves[claim]].parts
            for n, progress in changes.items():
                parts[n].beyond[claim], parts[n].moved = progress, True
                parts[n].add_outcomes(claim, progress.outcomes)

    def ensure_conserved(self, dispatch: Dispatch) -> None:
        """Ensure that the tasks of a dispatch account for all that they were given.

        Raises AccountWrong, and then nothing may be committed.
        """
        for task in dispatch.tasks:
            counts = sum(task.counts.values(), Counts())
            if counts.read != task.subs or not counts.conserved:
                self.unbalanced = True
                raise account_wrong(
                    f"task {task.name} was given {task.subs:,} sub-messages and reports {counts}"
                )

    def end_dispatch(self, dispatch: Dispatch) -> None:
        """End a dispatch. Sub-messages that are pending now stay pending in this run."""
        del self.dispatches[dispatch.number]
        for task in dispatch.tasks:
            self._unhandled += task.unhandled
            for n, counts in task.counts.items():
                subs = self._base[n].sub_messages + counts
                self._base[n] = replace(self._base[n], sub_messages=subs)
            for claim, wave in task.waves.items():
                self._waves[wave].open.discard(claim)
        self._end_waves()

    def end(self) -> None:
        """End all waves when no dispatch is left.

        The plan needs no state from here on, since this account has all that tasks reported.
        """
        self._over = True
        for wave in self._waves.values():
            wave.open.clear()
        self._end_waves()

    def claims(self) -> Claims:
        """Return the progress of all claims, as a plan has it."""
        base, others = self._by_all(), {s: dict(claim) for s, claim in self._others.items()}
        for wave in self._waves.values():
            self._fold(wave, others)
        for n, counts in self._counted().items():
            base[n] = replace(base[n], sub_messages=base[n].sub_messages + counts)
        return {ALL: base, **ahead_of(others, base)}

    def counts(self) -> tuple[Counts, Counts]:
        """Return the counts of messages, and of sub-messages."""
        self._reach()
        messages = [each.messages for each in self._base.values()]
        messages += (each.messages for wave in self._waves.values() for each in wave.parts.values())
        return Counts.sum(messages), Counts.sum(self.sub_messages.values())

    @property
    def sub_messages(self) -> dict[int, Counts]:
        """The counts of sub-messages by partition."""
        counted = self._counted()
        return {n: e.sub_messages + counted.get(n, Counts()) for n, e in self._base.items()}

    def longest_lane(self) -> tuple[float, float]:
        """Estimate the longest lane from the shard that has the most sub-messages.

        Returns what is left of the lane in the waves under way, and its share of these waves.

        By so many more than the mean of the others, it has them from one lane.
        """
        divided = [wave for wave in self._waves.values() if len(wave.subs) > 1]
        subs = Counter[str]()
        for wave in divided:
            subs.update({claim: sum(each.values()) for claim, each in wave.subs.items()})
        if not subs:
            return 0.0, 0.0
        ((claim, most),) = subs.most_common(1)
        others = (subs.total() - most) / (len(subs) - 1)
        of_lane = sure_share(most, others) * (most - others) / most
        left = 0.0
        for wave in divided:
            for n, count in wave.subs.get(claim, {}).items():
                part = wave.parts[n]
                left += count * (part.end - part.marks[claim]) / (part.end - part.start)
        return of_lane * left, of_lane * most / subs.total()

    @property
    def left_pending(self) -> int:
        """The number of sub-messages that ended dispatches have left for a later run."""
        return sum(each.sub_messages.pending for each in self._base.values())

    def record(self) -> None:
        """Do nothing: a drain on Spark has no journal, because its tasks write records."""

    def unhandled(self) -> Unhandled:
        """Return the counts of what finished without being handled, in all runs and tasks."""
        return sum((task.unhandled for task in self.tasks), self._unhandled)

    @property
    def tasks(self) -> Iterator[DispatchedTask]:
        """The tasks of all dispatches."""
        return (task for dispatch in self.dispatches.values() for task in dispatch.tasks)

    def _given(self, name: str, parts: Iterable[ClaimPart]) -> DispatchedTask:
        waves = {claim: number for number, claim in parts}
        given = {claim: self._waves[number].subs[claim] for claim, number in waves.items()}
        subs = sum(sum(each.values()) for each in given.values())
        return DispatchedTask(name, waves, subs, {claim: set(n) for claim, n in given.items()})

    def _note(self, task: DispatchedTask, reported: Head | TaskRecord) -> None:
        task.counts |= reported.counts
        self.parked.update(reported.parked)
        if reported.unhandled is not None:
            task.unhandled = task.unhandled.merge(reported.unhandled)

    def _counted(self) -> dict[int, Counts]:
        """Return the counts of sub-messages of dispatches that have not ended, by partition."""
        counted: dict[int, Counts] = {}
        for task in self.tasks:
            count_in(counted, task.counts)
        return counted

    def _units(self) -> dict[int, str]:
        """Return the messages of open waves that ``split`` rejected, by partition."""
        units: dict[int, list[Range]] = {}
        for wave in self._waves.values():
            for n, part in wave.parts.items():
                units.setdefault(n, []).extend(part.units)
        return {n: encode_ranges(join_ranges(each)) for n, each in units.items() if each}

    def _reach(self) -> None:
        for wave in self._waves.values():
            for part in wave.parts.values():
                if part.moved:
                    part.reach()

    def _by_all(self) -> dict[int, Progress]:
        """Return the progress of the claim "all", including what open waves have finished."""
        self._reach()
        base = dict(self._base)
        for wave in self._waves.values():
            _add(wave, base)
        return base

    def _fold(self, wave: _Wave, others: Changes) -> None:
        for n, part in wave.parts.items():
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

    def _end_waves(self) -> None:
        """Fold the waves whose dispatches have all ended into the account."""
        for number, wave in sorted(self._waves.items()):
            if wave.open:
                continue
            for part in wave.parts.values():
                part.reach()
            _add(wave, self._base)
            self._fold(wave, self._others)
            del self._waves[number]
            self._others = ahead_of(self._others, self._base)


def _add(wave: _Wave, base: dict[int, Progress]) -> None:
    for n, part in wave.parts.items():
        known, messages = base[n], base[n].messages + part.messages
        base[n] = known.merge(Progress(0, part.finished, {}, messages, known.sub_messages))
