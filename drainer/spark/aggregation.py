"""The account of a drain that many tasks work on: what each claim finished, as one progress.

The driver of a Spark drain owns it. The checkpointer reads it as it reads a
dispatcher. It never holds more than is reported of one stretch of the backlog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from drainer.core.claims import ALL, Claims, end_of
from drainer.core.merge import StateReference, account_of, of_claim
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


@dataclass(frozen=True, slots=True)
class WaveSlice:
    """What one set of tasks handles before the next one begins.

    Attributes:
        number: rises from stretch to stretch.
        ranges: the offsets ``[start, end)`` by partition.
        claims: of the tasks; together they have every sub-key.
        delivered: the offsets of messages that were not finished before, by partition.
        subs: sub-messages that are to be handled, by claim.
    """

    number: int
    ranges: Mapping[int, Range]
    claims: tuple[str, ...]
    delivered: Mapping[int, Sequence[Range]]
    subs: Mapping[str, int]


class Aggregation:
    """Begin a stretch, take in what its tasks finished, and end it; then the next.

    ``uri`` and ``epoch`` are those of the state that the tasks write to.
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
        self._wave = 1  # what tasks reported of lower ones is folded in
        self._stretch: WaveSlice | None = None
        self._now: dict[str, dict[int, Progress]] = {}
        self._attempts: dict[str, int] = {}
        self._ruled_now: dict[str, RuleAccount] = {}
        self.doubtful = False  # whether a stretch did not add up: nothing is to be committed then

    @property
    def complete(self) -> bool:
        return all(self._base[n].watermark >= end for n, end in self._ends.items())

    @property
    def state(self) -> StateReference | None:
        """Where the tasks write, and what of that is in ``claims`` and ``ruled``."""
        if self._over:
            return None
        counted = {
            selector: {n: account_of(selector, p) for n, p in now.items()}
            for selector, now in self._now.items()
        }
        return StateReference(
            self._uri, self._epoch, self._wave, counted, self._own_rules().numbers
        )

    def tasks_are_over(self) -> None:
        """From here on there is no state: all that they reported is here."""
        self._over = True

    @property
    def watermarks(self) -> dict[int, int]:
        """By partition, as far as is known now."""
        return {n: progress.watermark for n, progress in self._whole().items()}

    def begin(self, stretch: WaveSlice) -> None:
        """Raises ValueError when one is under way."""
        if self._stretch is not None:
            raise ValueError("a stretch is under way")
        self._stretch = stretch
        self._wave = stretch.number
        self._attempts = {}
        self._now = {
            claim: {n: Progress(start) for n, (start, _) in stretch.ranges.items()}
            for claim in stretch.claims
        }
        self._ruled_now = {}

    def take(
        self,
        claim: str,
        changes: Mapping[int, Progress],
        parked: Iterable[str] = (),
        ruled: RuleAccount | None = None,
        attempt: int = 0,
        stretch: int | None = None,
    ) -> None:
        """What a task finished since the last time; its counts are of all that it did.

        A later attempt goes on from the counts of earlier ones, so these are not asked any more.
        Nor is a task of another ``stretch`` than the one under way: that one is over, and an
        attempt which nobody waited for has woken up.
        """
        if self._stretch is None or stretch not in (None, self._stretch.number):
            return
        now, late = self._now[claim], attempt < self._attempts.get(claim, attempt)
        for number, progress in changes.items():
            before = now[number]
            now[number] = merged = before.merge(progress)
            if late:
                now[number] = replace(
                    merged, messages=before.messages, sub_messages=before.sub_messages
                )
        self.parked.update(parked)
        if late:
            return
        self._attempts[claim] = attempt
        if ruled is not None:
            known = self._ruled.counts  # a task may report all of them again
            news = {key: n for key, n in ruled.counts.items() if n > known.get(key, 0)}
            so_far = self._ruled_now.get(claim, RuleAccount())
            self._ruled_now[claim] = so_far.merge(replace(ruled, counts=news))

    def behind(self, ranges: Mapping[int, Range]) -> frozenset[int]:
        """The partitions in which something before these ranges is not finished, and stays so."""
        return frozenset(n for n, (start, _) in ranges.items() if self._base[n].watermark < start)

    def finished_in(self, claim: str) -> Counts:
        """Sub-messages of a claim in this stretch."""
        return sum((p.sub_messages for p in self._now.get(claim, {}).values()), Counts())

    def expected(self, claim: str) -> int:
        """Sub-messages that a claim was given in this stretch."""
        return 0 if self._stretch is None else self._stretch.subs.get(claim, 0)

    def missing(self) -> str | None:
        """What of the stretch is not accounted for; None when each sub-message is."""
        assert self._stretch is not None
        for claim in self._stretch.claims:
            counts, expected = self.finished_in(claim), self._stretch.subs.get(claim, 0)
            if counts.read != expected or not counts.conserved:
                return f"claim {claim} was given {expected:,} sub-messages and reports {counts}"
        return None

    def end(self) -> None:
        """Folds the stretch in; what is pending of it stays so in this run."""
        claims = self._merged()
        self._base = self._whole()
        self._ruled = self.ruled()
        self._others = {
            selector: {n: replace(p, sub_messages=Counts()) for n, p in claim.items()}
            for selector, claim in claims.items()
            if selector != ALL and self._says_more(claim)
        }
        for selector, now in self._now.items():
            if selector == ALL:
                continue  # which is in it
            for number, progress in now.items():
                base = self._base[number]
                counted = base.sub_messages + progress.sub_messages
                self._base[number] = replace(base, sub_messages=counted)
        self._wave += self._stretch is not None
        self._stretch = None
        self._now = {}
        self._ruled_now = {}

    def claims(self) -> Claims:
        """What the plan holds."""
        claims = self._merged()
        claims[ALL] = self._whole()
        return {
            selector: claim
            for selector, claim in claims.items()
            if selector == ALL or self._says_more(claim) or selector in self._now
        }

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
        below = greater(ruled.asked_below, self._asked_by_all())
        return replace(ruled, asked_below=below, asked_by=asked_beyond(below, (ruled.asked_by,)))

    def _own_rules(self) -> RuleAccount:
        accounts = (of_claim(claim, ruled) for claim, ruled in self._ruled_now.items())
        return sum(accounts, RuleAccount())

    def _asked_by_all(self) -> dict[int, int]:
        """Below which offsets every task of the stretch has asked the limit; those before it had
        all been asked about."""
        stretch = self._stretch
        if stretch is None or len(self._ruled_now) < len(stretch.claims):
            return {}
        reported = [account.asked_below for account in self._ruled_now.values()]
        below = {n: min(each.get(n, 0) for each in reported) for n in stretch.ranges}
        return {n: offset for n, offset in below.items() if offset}

    def _whole(self) -> dict[int, Progress]:
        """The base with what all claims of the stretch have finished."""
        stretch = self._stretch
        if stretch is None:
            return dict(self._base)
        whole = dict(self._base)
        undivided = self._now.get(ALL, {})
        for number, bounds in stretch.ranges.items():
            reported = [self._now[claim][number] for claim in stretch.claims]
            finished = _finished_by_all(reported, bounds)
            base = self._base[number]
            own = undivided.get(number)
            if own is None:
                own, messages = Progress(0), self._messages(number, finished, reported)
            else:
                messages = own.messages
            messages = base.messages + messages
            subs = base.sub_messages + own.sub_messages
            whole[number] = base.merge(
                Progress(base.watermark, finished, own.partial, messages, subs, own.fates)
            )
        return whole

    def _messages(
        self, number: int, finished: Sequence[Range], reported: Sequence[Progress]
    ) -> Counts:
        assert self._stretch is not None
        delivered = self._stretch.delivered.get(number, ())
        ended = intersect(delivered, finished)
        read, over = count(delivered), count(ended)
        before = (claim[number].fates for claim in self._others.values())
        fates = join_fates((self._base[number].fates, *before, *(p.fates for p in reported)))
        counts = {}
        for outcome in reversed(OTHERWISE):  # the worst first
            found = intersect(ended, fates.get(outcome, ()))
            counts[outcome.value] = count(found)
            ended = subtract(ended, found)
        return Counts(read, count(ended), pending=read - over, **counts)

    def _merged(self) -> dict[str, dict[int, Progress]]:
        """The claims with the stretch added to what they said before."""
        merged = {selector: dict(claim) for selector, claim in self._others.items()}
        for selector, now in self._now.items():
            if selector == ALL:
                continue
            known = merged.setdefault(selector, {n: Progress(s) for n, s in self._starts.items()})
            for number, progress in now.items():
                assert self._stretch is not None
                begun = self._stretch.ranges[number][0]
                finished = join_ranges([(begun, progress.watermark), *progress.finished])
                before = known[number]
                known[number] = before.merge(
                    Progress(
                        before.watermark,
                        tuple(each for each in finished if each[0] < each[1]),
                        progress.partial,
                        sub_messages=progress.sub_messages,
                        fates=self._open_fates(number, progress.fates),
                    )
                )
        return merged

    def _open_fates(self, number: int, fates: Fates) -> Fates:
        """Without messages whose account is settled."""
        base = self._base[number]
        settled = ((0, base.watermark), *base.finished)
        return {outcome: tuple(subtract(ranges, settled)) for outcome, ranges in fates.items()}

    def _says_more(self, claim: Mapping[int, Progress]) -> bool:
        return any(end_of(p) > self._base[n].watermark for n, p in claim.items())


def _finished_by_all(reported: Sequence[Progress], bounds: Range) -> tuple[Range, ...]:
    start, end = bounds
    finished: Sequence[Range] = (bounds,) if start < end else ()
    for progress in reported:
        own = ((start, progress.watermark), *progress.finished)
        finished = intersect(finished, [each for each in own if each[0] < each[1]])
    return tuple(finished)


def insist_conserved(aggregation: Aggregation) -> None:
    """Raises AccountWrong when a stretch does not add up: nothing of it may be committed."""
    missing = aggregation.missing()
    if missing is not None:
        aggregation.doubtful = True
        raise account_wrong(missing)
