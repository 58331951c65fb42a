"""The account of a drain that many tasks work on: what each claim finished, as one progress.

The driver of a Spark drain owns it. The checkpointer reads it as it reads a
dispatcher. It never holds more than is reported of the waves that are under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drainer.core.claims import ALL, Claims, end_of, joins_of
from drainer.core.merge import StateReference, TaskRecord, count_in
from drainer.core.parked import ParkedLanes
from drainer.core.plan import OffsetPlan
from drainer.core.progress import (
    OTHERWISE,
    Counts,
    Fates,
    Progress,
    Range,
    count,
    intersect,
    join_fates,
    join_ranges,
    subtract,
)
from drainer.errors import account_wrong
from drainer.policy.rules.settings import RuleAccount, asked_beyond, greater

Part = tuple[int, str]  # what one claim has of a wave, by the number of that
Changes = dict[str, dict[int, Progress]]  # by claim and partition


@dataclass(frozen=True, slots=True)
class WaveAccount:
    """What was read of the backlog, for tasks to handle.

    Attributes:
        number: rises from wave to wave.
        ranges: the offsets ``[start, end)`` by partition.
        delivered: the offsets of messages that were not finished before, by partition.
        subs: sub-messages that are to be handled, by claim and partition.
    """

    number: int
    ranges: Mapping[int, Range]
    delivered: Mapping[int, Sequence[Range]]
    subs: Mapping[str, Mapping[int, int]]


@dataclass(slots=True)
class _Wave:
    """One that is under way."""

    told: WaveAccount
    now: Changes
    open: set[str]  # claims whose parts are not over


@dataclass(slots=True)
class _Task:
    """What one task of a deal was given, and has reported."""

    parts: Mapping[str, int]  # the number of the wave, by claim
    subs: Mapping[str, int]  # that it was given, by claim
    attempt: int = 0
    left: dict[str, set[int]] = field(default_factory=dict)  # partitions, by claim
    counted: Changes = field(default_factory=dict)
    ruled: RuleAccount = field(default_factory=RuleAccount)


class Aggregation:
    """Begin a wave, deal its parts, take in what tasks finished, and end the deal.

    Deals and waves may be under way side by side; of one claim the waves come in their order. A
    wave is folded in when all deals that have parts of it have ended. ``uri`` and ``epoch`` are
    those of the state that the tasks write to.
    """

    def __init__(self, plan: OffsetPlan, uri: str, epoch: int) -> None:
        self._uri = uri
        self._epoch = epoch
        self._over = False
        self._base = dict(plan.claims[ALL])
        self._others = {
            selector: dict(claim) for selector, claim in plan.claims.items() if selector != ALL
        }
        self._starts = {n: progress.watermark for n, progress in self._base.items()}
        self._ends = {n: part.end for n, part in plan.partitions.items()}
        self.parked = set(plan.parked)
        self.parked_lanes = ParkedLanes(0, plan.parked_lanes.of(self.parked))
        self._ruled = plan.ruled
        self._limited = plan.rules.limit_per_key is not None
        self._asked: dict[int, list[Range]] = {}  # that waves which ended have asked the limit
        self._waves: dict[int, _Wave] = {}
        self._deals: dict[int, tuple[_Task, ...]] = {}
        self._next = 1  # deal
        self._seen: tuple[dict[int, Progress], Changes] | None = None
        self.doubtful = False  # whether a deal did not add up: nothing is to be committed then

    @property
    def complete(self) -> bool:
        return all(self._base[n].watermark >= end for n, end in self._ends.items())

    @property
    def state(self) -> StateReference | None:
        """Where the tasks write, and what of that is in ``claims`` and ``ruled``."""
        if self._over:
            return None
        counted: dict[str, dict[int, Counts]] = {}
        for task in self._tasks:
            count_in(counted, TaskRecord(task.counted))
        return StateReference(
            self._uri,
            self._epoch,
            self._next,
            tuple(sorted(self._deals)),
            counted,
            self._own_rules().numbers,
            tuple(joins_of(claim for wave in self._waves.values() for claim in wave.now)),
        )

    def tasks_are_over(self) -> None:
        """From here on there is no state: all that they reported is here."""
        self._over = True

    @property
    def watermarks(self) -> dict[int, int]:
        """By partition, as far as is known now."""
        return {n: progress.watermark for n, progress in self._view()[0].items()}

    def begin(self, wave: WaveAccount) -> None:
        """Raises ValueError when one of this number is under way."""
        if wave.number in self._waves:
            raise ValueError(f"wave {wave.number} is under way")
        now = {
            selector: {n: Progress(wave.ranges[n][0]) for n in subs}
            for selector, subs in wave.subs.items()
        }
        self._waves[wave.number] = _Wave(wave, now, set(now))
        self._end_waves()

    def deal(self, number: int, tasks: Sequence[Iterable[Part]]) -> None:
        """Parts of waves are given to tasks; ``number`` rises."""
        self._deals[number] = tuple(self._given(parts) for parts in tasks)
        self._next = number + 1

    def take(
        self, deal: int, task: int, told: TaskRecord, attempt: int = 0, newest: int = 0
    ) -> list[Part]:
        """What a task finished since the last time; gives the parts that are done by that.

        The counts are of all that it did. A later attempt goes on from the counts of earlier ones,
        so these are not asked any more; and what they finished late it does again, so it alone
        says that a part is done. ``newest`` is the last attempt that has begun. Nor is a task of a
        deal that has ended asked: an attempt that was given up has woken up.
        """
        if deal not in self._deals:
            return []
        self._seen = None
        share, done = self._deals[deal][task], list[Part]()
        share.attempt = max(share.attempt, attempt, newest)
        late = attempt < share.attempt
        for selector, changes in told.claims.items():
            number = share.parts[selector]
            wave = self._waves.get(number)
            if wave is None:
                continue  # it was folded in
            now = wave.now[selector]
            left = share.left.setdefault(selector, set(now))
            whole_before = not left
            for n, progress in changes.items():
                before = now[n]
                now[n] = merged = before.merge(progress)
                if late:
                    now[n] = replace(
                        merged, messages=before.messages, sub_messages=before.sub_messages
                    )
                elif _is_whole(progress, wave.told.ranges[n]):
                    left.discard(n)
            if not left and not whole_before:
                done.append((number, selector))
            share.counted.setdefault(selector, {}).update(now)
        self.parked.update(told.parked)
        if not late and told.ruled is not None:
            known = self._ruled.counts  # a task may report all of them again
            news = {key: n for key, n in told.ruled.counts.items() if n > known.get(key, 0)}
            share.ruled = share.ruled.merge(replace(told.ruled, counts=news))
        return done

    def finished_in(self, deal: int, task: int) -> Counts:
        """Sub-messages of a task that is under way."""
        tasks = self._deals.get(deal)
        counted = {} if tasks is None else tasks[task].counted
        return sum(map(_counts_of, counted.values()), Counts())

    def expected(self, deal: int, task: int) -> int:
        """Sub-messages that a task which is under way was given."""
        tasks = self._deals.get(deal)
        return 0 if tasks is None else sum(tasks[task].subs.values())

    def insist_conserved(self, deal: int) -> None:
        """Raises AccountWrong when a deal does not add up: nothing of it may be committed."""
        for task in self._deals[deal]:
            for selector, expected in task.subs.items():
                counts = _counts_of(task.counted.get(selector, {}))
                if counts.read != expected or not counts.conserved:
                    self.doubtful = True
                    raise account_wrong(
                        f"claim {selector} was given {expected:,} sub-messages and reports {counts}"
                    )

    def end_deal(self, deal: int) -> None:
        """What is pending of it stays so in this run."""
        tasks = self._deals.pop(deal)
        for task in tasks:
            self._ruled += task.ruled
            for selector, number in task.parts.items():
                if number in self._waves:
                    self._waves[number].open.discard(selector)
        self._end_waves()

    def end(self) -> None:
        """Ends all that is under way."""
        for deal in list(self._deals):
            self.end_deal(deal)
        for wave in self._waves.values():
            wave.open.clear()
        self._end_waves()

    def claims(self) -> Claims:
        """What the plan holds."""
        base, others = self._view()
        now = {selector for wave in self._waves.values() for selector in wave.now}
        said = {s: claim for s, claim in others.items() if s in now or self._says_more(base, claim)}
        return {ALL: base, **said}

    def counts(self) -> tuple[Counts, Counts]:
        """Messages and sub-messages."""
        messages, subs = Counts(), Counts()
        for claim in self.claims().values():
            for progress in claim.values():
                messages, subs = messages + progress.messages, subs + progress.sub_messages
        return messages, subs

    def changes(self) -> Mapping[int, Progress]:
        """Nothing: what the tasks wrote down is the journal."""
        return {}

    def newly_parked(self) -> list[str]:
        return []

    def newly_ruled(self) -> RuleAccount | None:
        return None

    def ruled(self) -> RuleAccount:
        """What the rules did, over all runs and tasks."""
        ruled = self._ruled + self._own_rules()
        below = dict(ruled.asked_below)
        for number, ranges in self._asked_by_all(ruled).items():
            for start, end in ranges:
                if start <= below.get(number, self._starts[number]):
                    below[number] = max(end, below.get(number, 0))
        return replace(ruled, asked_below=below, asked_by=asked_beyond(below, (ruled.asked_by,)))

    @property
    def _tasks(self) -> Iterable[_Task]:
        return (task for tasks in self._deals.values() for task in tasks)

    def _given(self, parts: Iterable[Part]) -> _Task:
        waves = {selector: number for number, selector in parts}
        return _Task(
            waves,
            {
                selector: sum(self._waves[number].told.subs[selector].values())
                for selector, number in waves.items()
            },
        )

    def _own_rules(self) -> RuleAccount:
        return sum((task.ruled for task in self._tasks), RuleAccount())

    def _asked_by_all(self, ruled: RuleAccount) -> dict[int, tuple[Range, ...]]:
        """Offsets of which the limit was asked about everything, whatever claim it falls in."""
        if not self._limited:
            return {}
        asked = {n: list(ranges) for n, ranges in self._asked.items()}
        for wave in self._waves.values():
            for number, (start, end) in wave.told.ranges.items():
                told = (
                    greater(ruled.asked_below, ruled.asked_by.get(selector, {})).get(number, 0)
                    for selector, now in wave.now.items()
                    if number in now
                )
                below = min(told, default=end)
                if below > start:
                    asked.setdefault(number, []).append((start, min(below, end)))
        return {n: join_ranges(ranges) for n, ranges in asked.items()}

    def _view(self) -> tuple[dict[int, Progress], Changes]:
        """The claim "all", and the others, with what is under way."""
        if self._seen is None:
            base, others = dict(self._base), {s: dict(claim) for s, claim in self._others.items()}
            for wave in self._waves.values():
                self._fold(wave, base, others)
            self._seen = base, others
        return self._seen

    def _fold(self, wave: _Wave, base: dict[int, Progress], others: Changes) -> None:
        for selector, now in wave.now.items():
            claim = others.setdefault(selector, {n: Progress(s) for n, s in self._starts.items()})
            for number, progress in now.items():
                before, begun = claim[number], wave.told.ranges[number][0]
                finished = join_ranges([(begun, progress.watermark), *progress.finished])
                claim[number] = before.merge(
                    Progress(
                        before.watermark,
                        tuple(each for each in finished if each[0] < each[1]),
                        progress.partial,
                        sub_messages=before.sub_messages + progress.sub_messages,
                        fates=_open_fates(base[number], progress.fates),
                    )
                )
        for number, bounds in wave.told.ranges.items():
            reported = [now[number] for now in wave.now.values() if number in now]
            finished = _finished_by_all(reported, bounds)
            known = base[number]
            messages = self._messages(wave.told.delivered.get(number, ()), finished, number, others)
            base[number] = known.merge(
                Progress(
                    known.watermark, finished, {}, known.messages + messages, known.sub_messages
                )
            )

    def _messages(
        self, delivered: Sequence[Range], finished: Sequence[Range], number: int, others: Changes
    ) -> Counts:
        ended = intersect(delivered, finished)
        read, over = count(delivered), count(ended)
        claims = (claim[number].fates for claim in others.values())
        fates = join_fates((self._base[number].fates, *claims))
        counts = {}
        for outcome in reversed(OTHERWISE):  # the worst first
            found = intersect(ended, fates.get(outcome, ()))
            counts[outcome.value] = count(found)
            ended = subtract(ended, found)
        return Counts(read, count(ended), pending=read - over, **counts)

    def _end_waves(self) -> None:
        """Folds in those of which nothing is under way any more."""
        for number, wave in sorted(self._waves.items()):
            if wave.open:
                continue
            if self._limited:
                self._asked = {n: list(r) for n, r in self._asked_by_all(self.ruled()).items()}
            self._fold(wave, self._base, self._others)
            del self._waves[number]
            for selector, now in wave.now.items():  # accounts are those of "all" from here on
                for n, progress in now.items():
                    base, claim = self._base[n], self._others[selector]
                    subs = base.sub_messages + progress.sub_messages
                    self._base[n] = replace(base, sub_messages=subs)
                    left = claim[n].sub_messages - progress.sub_messages
                    claim[n] = replace(claim[n], sub_messages=left)
            self._others = {s: c for s, c in self._others.items() if self._says_more(self._base, c)}
        self._seen = None

    def _says_more(self, base: Mapping[int, Progress], claim: Mapping[int, Progress]) -> bool:
        return any(end_of(p) > base[n].watermark for n, p in claim.items())


def _is_whole(told: Progress, bounds: Range) -> bool:
    """Whether a task has told that it is past these offsets, whatever others finished of them."""
    start, end = bounds
    return any(first <= start and end <= last for first, last in told.finished)


def _counts_of(claim: Mapping[int, Progress]) -> Counts:
    return sum((p.sub_messages for p in claim.values()), Counts())


def _open_fates(base: Progress, fates: Fates) -> Fates:
    """Without messages whose account is settled."""
    settled = ((0, base.watermark), *base.finished)
    return {outcome: tuple(subtract(ranges, settled)) for outcome, ranges in fates.items()}


def _finished_by_all(reported: Sequence[Progress], bounds: Range) -> tuple[Range, ...]:
    start, end = bounds
    finished: Sequence[Range] = (bounds,) if start < end else ()
    for progress in reported:
        own = ((start, progress.watermark), *progress.finished)
        finished = intersect(finished, [each for each in own if each[0] < each[1]])
    return tuple(finished)
