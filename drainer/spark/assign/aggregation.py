"""The account of a drain that many tasks work on: what all claims finished, as one progress.

The driver of a drain on Spark owns it, and the checkpointer reads it as it reads a dispatcher.
While tasks work on parts of waves, it knows how far they are, and not what they finished beyond
that. So its size depends on the waves, and not on how many holes tasks leave in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drainer.core.merge import TaskRecord, count_in, undecided
from drainer.errors import account_wrong
from drainer.model.account import ParkedLanes, StateReference
from drainer.model.claims import ALL, Claims
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
from drainer.spark.assign.dispatch import Dispatch, DispatchedTask
from drainer.spark.state.records import Head
from drainer.store.place import kept

ClaimPart = tuple[int, str]  # the number of a wave, and the claim that has a part of it
Changes = dict[str, dict[int, Progress]]  # by claim and partition


@dataclass(slots=True)
class _WavePartition:
    """The part of a wave in one partition.

    Attributes:
        marks: by claim, the offset up to which it has finished all that it has.
        left: the messages that some claim may not have finished.
        messages: the account of all messages.
        fates: by claim, the outcomes of messages that are left.
        units: the messages that ``split`` rejected.
        beyond: by claim, what it finished beyond its mark, if its dispatch ended before that was
            all.
        finished: the offsets that all claims have finished.
        moved: whether a mark has moved since ``reach``.
    """

    start: int
    end: int
    marks: dict[str, int]
    left: Sequence[Range]
    messages: Counts
    fates: dict[str, OutcomeRanges]
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

    def add_fates(self, claim: str, fates: OutcomeRanges) -> None:
        """Merge outcomes of a claim's messages, some of which may be known already."""
        self.fates[claim] = merge_outcomes((self.fates.get(claim, {}), fates))

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
        fates = merge_outcomes(self.fates.values())
        for outcome in reversed(OTHERWISE):  # The worst outcome of a message counts.
            found = intersect(ended, fates.get(outcome, ()))
            counts[outcome.value] = count_offsets(found)
            ended = subtract(ended, found)
        self.messages += Counts(0, count_offsets(ended), pending=-over, **counts)
        self.fates = {
            claim: {outcome: subtract(ranges, self.finished) for outcome, ranges in each.items()}
            for claim, each in self.fates.items()
        }


@dataclass(slots=True)
class _Wave:
    """A wave of which some parts are not handled yet.

    Attributes:
        parts: what it has in each partition.
        subs: the number of sub-messages by claim and partition.
        open: the claims whose dispatches have not ended.
    """

    parts: dict[int, _WavePartition]
    subs: Mapping[str, Mapping[int, int]]
    open: set[str]


class Aggregation:
    """Adds up what tasks have finished.

    The driver begins a wave, dispatches its parts, adds what tasks report, and ends the dispatch.
    Several dispatches and waves may be under way at once, but a claim has its waves one after the
    other. A wave is folded into the account when all dispatches with parts of it have ended.

    Args:
        uri, epoch: the place and the epoch of the state that the tasks write to.
    """

    def __init__(self, plan: OffsetPlan, uri: str, epoch: int) -> None:
        self._uri = kept(uri)
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
        self.dispatches: dict[int, Dispatch] = {}  # under way, by number
        self._next = 1  # the number of the next dispatch
        # Whether a dispatch did not add up. Nothing may be committed then.
        self.unbalanced = False

    @property
    def complete(self) -> bool:
        return all(self._base[n].watermark >= end for n, end in self._ends.items())

    @property
    def state(self) -> StateReference | None:
        """The reference to the tasks' state, with what ``claims`` and ``unhandled`` have of it."""
        if self._over:
            return None
        return StateReference(
            self._uri,
            self._epoch,
            self._next,
            tuple(self.dispatches),
            self._counted(),
            self._unhandled_by_tasks(),
            self._units(),
        )

    @property
    def watermarks(self) -> dict[int, int]:
        """The watermarks by partition, as far as they are known now."""
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
            units: the messages among these that ``split`` rejected, by partition.
        """
        parts = {}
        for n, (start, end) in ranges.items():
            left = delivered.get(n, ())
            read = count_offsets(left)
            before = (self._base[n].fates, *(claim[n].fates for claim in self._others.values()))
            parts[n] = _WavePartition(
                start,
                end,
                {claim: start for claim, of_claim in subs.items() if n in of_claim},
                left,
                Counts(read, pending=read),
                {ALL: merge_outcomes(before)},
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
        """Add what a task has reported since the last time; return the claims whose parts it has
        completed by that.

        The counts are of all that the task did. A later attempt goes on from the counts of earlier
        ones, whose records are not read any more.
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
        for claim, by_partition in head.fates.items():
            parts = self._waves[task.waves[claim]].parts
            for n, fates in by_partition.items():
                parts[n].add_fates(claim, fates)
        self._note(task, head)
        return done

    def add_whole_record(self, task: DispatchedTask, record: TaskRecord) -> None:
        """Add all that a task has reported, even beyond its marks. The task is over.

        If the state was removed, the record is empty and changes nothing.
        """
        self._note(task, record)
        for claim, changes in record.claims.items():
            parts = self._waves[task.waves[claim]].parts
            for n, progress in changes.items():
                parts[n].beyond[claim], parts[n].moved = progress, True
                parts[n].add_fates(claim, progress.fates)

    def ensure_conserved(self, dispatch: Dispatch) -> None:
        """Ensure that a dispatch adds up. Raises AccountWrong, after which nothing of it may be
        committed."""
        for task in dispatch.tasks:
            counts = sum(task.counts.values(), Counts())
            if counts.read != task.subs or not counts.conserved:
                self.unbalanced = True
                raise account_wrong(
                    f"task {task.name} was given {task.subs:,} sub-messages and reports {counts}"
                )

    def end_dispatch(self, dispatch: Dispatch) -> None:
        """End a dispatch. Its sub-messages that are pending stay so in this run."""
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
        """End all waves, when no dispatch is left. The plan needs no state from here on, since all
        that tasks reported is in this account."""
        self._over = True
        for wave in self._waves.values():
            wave.open.clear()
        self._end_waves()

    def claims(self) -> Claims:
        """Return the progress as the plan has it."""
        base, others = self._by_all(), {s: dict(claim) for s, claim in self._others.items()}
        for wave in self._waves.values():
            self._fold(wave, others)
        for n, counts in self._counted().items():
            base[n] = replace(base[n], sub_messages=base[n].sub_messages + counts)
        return {ALL: base, **_ahead_of(others, base)}

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

    @property
    def left_pending(self) -> int:
        """The number of sub-messages that dispatches have left for a later run."""
        return sum(each.sub_messages.pending for each in self._base.values())

    def record(self) -> None:
        """Return nothing for the journal: the records of the tasks are the journal."""

    def unhandled(self) -> Unhandled:
        """Return the counts of what finished without being handled, over all runs and tasks."""
        return self._unhandled + self._unhandled_by_tasks()

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

    def _unhandled_by_tasks(self) -> Unhandled:
        return sum((task.unhandled for task in self.tasks), Unhandled())

    def _reach(self) -> None:
        for wave in self._waves.values():
            for part in wave.parts.values():
                if part.moved:
                    part.reach()

    def _by_all(self) -> dict[int, Progress]:
        """Return the progress of the claim "all", with the messages of open waves."""
        self._reach()
        base = dict(self._base)
        for wave in self._waves.values():
            _add(wave, base)
        return base

    def _fold(self, wave: _Wave, others: Changes) -> None:
        for n, part in wave.parts.items():
            units = undecided(part.units, part.fates.values())
            for claim in part.marks:
                fresh = {n: Progress(start) for n, start in self._starts.items()}
                own = others.setdefault(claim, fresh)
                partial = part.beyond[claim].partial if claim in part.beyond else {}
                fates = part.fates.get(claim, {})
                # A claim has finished nothing of a unit that is left: the message may split into
                # sub-messages of the claim the next time.
                finished = subtract(part.finished_by(claim), units)
                own[n] = own[n].merge(Progress(0, finished, partial, fates=fates))

    def _end_waves(self) -> None:
        """Fold in the waves of which no dispatch is left."""
        for number, wave in sorted(self._waves.items()):
            if wave.open:
                continue
            for part in wave.parts.values():
                part.reach()
            _add(wave, self._base)
            self._fold(wave, self._others)
            del self._waves[number]
            self._others = _ahead_of(self._others, self._base)


def _add(wave: _Wave, base: dict[int, Progress]) -> None:
    for n, part in wave.parts.items():
        known, messages = base[n], base[n].messages + part.messages
        base[n] = known.merge(Progress(0, part.finished, {}, messages, known.sub_messages))


def _ahead_of(claims: Changes, base: Mapping[int, Progress]) -> Changes:
    """Return the claims that have finished something above the watermarks of the claim "all"."""
    return {
        selector: claim
        for selector, claim in claims.items()
        if any(progress.end > base[n].watermark for n, progress in claim.items())
    }
