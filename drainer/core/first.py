"""Draining a priority class before the rest: a pass over the backlog that handles nothing else.

A drain is a series of passes: one for each priority class, and one for all that is left.

Order comes first: a sub-message that does not match the class holds back those that match and stand
behind it in one of its lanes. The lanes that are held back are kept in a filter of fixed size,
which errs only towards waiting. The filter is empty at the beginning of the backlog. So each run of
a pass reads from there again, and handles what is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.core.other_claims import ClassMap, OtherClaims, other_claims
from drainer.core.remainder import ReadSample, unread_subs
from drainer.message import Barrier, Message, SubMessage, Unsplit
from drainer.model.claims import ALL, ShardMap, class_selector
from drainer.model.listed import counted, listed
from drainer.model.order import Order, lanes_of
from drainer.model.plan import OffsetPlan
from drainer.model.priority import ClassStatus
from drainer.model.progress import (
    DONE,
    OTHERWISE,
    Counts,
    Outcome,
    OutcomeRanges,
    Progress,
    merge_outcomes,
)
from drainer.model.ranges import RangeSet, join_ranges
from drainer.model.settings import FailureSettings
from drainer.model.status import Status
from drainer.model.sub_messages import identify_or_reject
from drainer.policy.redrive import LeftAlone
from drainer.policy.rules import RuleFilter, Selection

# 16 MiB, but only the pages that are used take memory. With 2M lanes, 0.01% of the answers are
# wrong.
FILTER_BITS = 2**27
# The most ranges of outcomes that are kept, over all partitions. If there are more, the counts of
# messages are no longer exact, but those of sub-messages are.
FATES_MOST = 10_000
LENGTHS_MOST = 10_000  # The lanes whose lengths are counted.
_WHOLE = "0/1"  # The claim of shard 0 of 1, which has all sub-messages, as "all" does.


class KeyBloom:
    """A Bloom filter of lanes by partition. It may report a lane that was never added."""

    def __init__(self, bits: int = FILTER_BITS) -> None:
        self._mask = bits - 1
        self._bits = bytearray(bits // 8)

    def add(self, partition: int, lanes: Iterable[Hashable]) -> None:
        bits = self._bits
        for at in self._places(partition, lanes):
            bits[at >> 3] |= 1 << (at & 7)

    def has_any(self, partition: int, lanes: Iterable[Hashable]) -> bool:
        """Return whether one of these lanes was added. Rarely, the answer is wrongly True."""
        return any(
            all(self._bits[at >> 3] >> (at & 7) & 1 for at in self._places(partition, (lane,)))
            for lane in lanes
        )

    def _places(self, partition: int, lanes: Iterable[Hashable]) -> Iterable[int]:
        # Three bits for each lane, from a single hash (Kirsch and Mitzenmacher, 2006).
        mask = self._mask
        for lane in lanes:
            found = hash((partition, lane))
            one, step = found & mask, (found >> 32) & mask
            yield one
            yield (one + step) & mask
            yield (one + 2 * step) & mask


class LaneLengths:
    """Counts sub-messages by lane, and remembers the longest lanes, however many lanes there are.

    Lanes are forgotten that are short when there are too many to count (after Manku and Motwani,
    "Approximate Frequency Counts over Data Streams", 2002).
    """

    def __init__(self, most: int = LENGTHS_MOST) -> None:
        self._most, self._counts = most, Counter[Hashable]()
        self.total = 0

    def add(self, lanes: Iterable[Hashable]) -> None:
        self.total += 1
        for lane in lanes:
            self._counts[lane] += 1
        if len(self._counts) > self._most:
            self._counts = Counter(dict(self._counts.most_common(self._most // 2)))

    @property
    def share(self) -> float:
        """The share of all sub-messages that the longest lane has."""
        return max(self._counts.values(), default=0) / max(1, self.total)


class PriorityDispatcher(Dispatcher):
    """The dispatcher of one priority class: it takes in the sub-messages that match the class.

    The plan's progress of the claim "all" stays as it is, and so does the group's offset.
    """

    def __init__(
        self,
        plan: OffsetPlan,
        where: str,
        selects: Callable[[SubMessage], bool] | None,
        filter_bits: int = FILTER_BITS,
        rest_after_s: float = 0.0,
    ) -> None:
        self.where = where
        self._rest_after_s = rest_after_s
        self.claim = claim = class_selector(where)
        self._all = known = plan.account.claims[ALL]
        self._other_claims = {
            name: each for name, each in plan.account.others.items() if name != claim
        }
        order = Order(plan.terms.order)
        # On Spark, a drain with a single task keeps its progress in this claim, not in "all".
        whole = self._other_claims.get(_WHOLE, {})
        known_of_all = {
            n: each.merge(whole[n]) if n in whole else each for n, each in known.items()
        }
        before = {**self._other_claims, _WHOLE: known_of_all}
        own = plan.account.claims.get(claim, {})
        super().__init__(
            {
                number: Ledger(
                    known[number].watermark,
                    part.end,
                    _from(known[number].watermark, own.get(number)),
                    reports_outcomes=True,  # The pass that finishes a message needs them.
                )
                for number, part in plan.account.partitions.items()
            },
            order,
            plan.account.parked,
            RuleFilter.of(plan, selects),
            OtherClaims(before, ShardMap(order)),
            plan.account.parked_lanes,
        )
        self._selection, self.evaluates = Selection(where), True
        self._waits, self._lanes_of = KeyBloom(filter_bits), lanes_of(order)
        # Which messages have a sub-message that matches the class, whether finished or not.
        self.found = ClassMap({n: (each.watermark, each.end) for n, each in self.ledgers.items()})
        self._rest = LaneLengths()  # Of what later passes handle.
        # The number of sub-messages that do not match and are not finished, by partition.
        self.beside = Counter[int]()
        self._ends = {number: part.end for number, part in plan.account.partitions.items()}
        # Partitions that this pass does not read to their ends, because a barrier stands in them.
        self.cut: set[int] = set()
        self._outcomes = {number: each.outcomes for number, each in own.items()}
        self._rejected = {
            number: RangeSet(self._outcomes.get(number, {}).get(Outcome.UNSPLIT, ()))
            for number in self.ledgers
        }
        self._passed = dict.fromkeys(self.ledgers, 0)
        finished = [
            (n.messages.without_pending(), n.sub_messages.without_pending()) for n in known.values()
        ]
        self._base = tuple(map(Counts.sum, zip(*finished, strict=True)))
        for partition in self._shut:  # Everything in it is behind a barrier.
            self._cut(partition, self.ledgers[partition].position)

    @property
    def watermarks(self) -> dict[int, int]:
        return {number: progress.watermark for number, progress in self._all.items()}

    @property
    def holders(self) -> dict[int, int]:
        """Nothing, because no watermark moves while a class is drained."""
        return {}

    def wants(self, message: Message) -> bool:
        """Return whether to read a message.

        A message that this class has finished is read, too: its other sub-messages may hold some
        of the class back.
        """
        number = message.origin.stream
        ledger = self.ledgers[number]
        if ledger.position <= message.offset < ledger.end:
            if message.offset not in self._rejected[number]:
                return True
            # The message was given up as one unit, whatever it splits into now.
            self._passed[number] += 1
        ledger.reach(message.offset + 1)
        return False

    def deliver(self, message: Message, subs: Iterable[SubMessage]) -> None:
        number, offset = message.origin.stream, message.offset
        ledger = self.ledgers[number]
        sequence, keys = identify_or_reject(message, subs)
        finished, outcome = 0, DONE
        if offset < self._shared_below[number]:
            finished, outcome = self._finished_by_others(message, sequence)
        selected = self._selection.bits(sequence)
        # The map also notes a match that another claim has finished. Otherwise, if two classes
        # match a sub-message, each may leave it to the other's map, and then no map has it.
        self.found.add(number, offset, bool(selected))
        matching = selected & ~finished
        done = matching  # This changes below if the ledger wants the message.
        if matching and ledger.wants(offset):
            size = self._size_of(message, sequence)
            foreign = ((1 << len(sequence)) - 1) & ~matching
            done = ledger.deliver(message, keys, size, foreign, outcome) & matching
        else:
            ledger.reach(offset + 1)
            self._passed[number] += 1
        first = 0
        for sub in sequence:
            bit = 1 << sub.index
            if (done | finished) & bit:
                continue
            unsplit = isinstance(sub, Unsplit)
            if isinstance(sub, Barrier) and not unsplit:
                self._defer_all(sequence[sub.index + 1 :], matching & ~done)
                self._cut(number, offset + 1)
                break
            if isinstance(sub, LeftAlone):
                if matching & bit:
                    self._leave(sub)  # Another run may redrive it.
            elif not matching & bit:
                self._wait(sub)
                self.beside[number] += 1
            elif not unsplit and self._waits.has_any(number, self._lanes_of(sub)):
                self._defer(sub)
            else:
                first |= bit
        if first:
            self._let_in(message, sequence, ~first)

    def _is_plain(self, ledger: Ledger, messages: Sequence[Message]) -> bool:
        return False  # Each message is looked at: some of its sub-messages may not match.

    def messages_passed(self, number: int) -> int:
        return super().messages_passed(number) + self._passed[number]

    def claims(self) -> Mapping[str, Mapping[int, Progress]]:
        return {ALL: self._all, **self._other_claims, self.claim: self.progress()}

    def progress(self) -> dict[int, Progress]:
        return {
            number: replace(each, messages=Counts(), outcomes=self._outcomes_of(number, each))
            for number, each in super().progress().items()
        }

    def changes(self) -> dict[int, Progress]:
        found = super().changes()
        for number, each in found.items():
            self._outcomes[number] = self._outcomes_of(number, each)
        return {number: replace(each, messages=Counts()) for number, each in found.items()}

    def subs_finished(self, number: int) -> int:
        return super().subs_finished(number) + self._all[number].sub_messages.finished

    def complete_status(
        self, status: Status, plan: OffsetPlan, failures: FailureSettings
    ) -> Status:
        """Turn the status of a run that drains only this class into the status of the whole drain.

        What is left of the run is what is left of the class. Unless the drain ends with the class
        (``--only``), what is left for later passes is added to it.
        """
        status = super().complete_status(status, plan, failures)
        now, progress, all_classes = self.counts_of_class(), status.progress, plan.account.classes
        lefts = [part.sub_messages_left for part in progress.partitions]
        left = None if None in lefts else sum(filter(None, lefts)) - self.deferred
        # What is deferred stays in memory. Once that is full, the class waits for the rest.
        kept = sum(each.left_pending_bytes for each in self.ledgers.values())
        sample = self.remainder()
        to_keep = kept * (1 + sample.offsets_unread / max(1, sample.offsets_read))
        classes = tuple(
            ClassStatus(
                known.where,
                known.sub_messages + now,
                self.deferred,
                progress.eta_s if to_keep <= status.limits.buffer_bytes else None,
                cut=bool(self.cut) or not self.delivered,
                left=left,
            )
            if known.where == self.where
            else each
            for known, each in zip(all_classes.each, progress.classes, strict=True)
        )
        progress = replace(progress, classes=classes, only_classes=all_classes.only)
        if all_classes.only:
            last = sum(each.ended is None for each in classes) == 1
            eta_s = progress.eta_s if last else None
            return replace(status, progress=replace(progress, eta_s=eta_s))
        beside = self.left_beside()
        if beside is None:
            return replace(status, progress=replace(progress, eta_s=None))
        partitions = tuple(
            replace(
                part,
                sub_messages_left=(part.sub_messages_left or 0) + round(beside[part.partition]),
            )
            for part in progress.partitions
        )
        later = sum(beside.values()) + self.deferred
        rest_s = self._rest_s(status, later, sample.share, failures.rate)
        eta_s = progress.eta_s
        if eta_s is not None:
            eta_s = None if rest_s is None else eta_s + self._rest_after_s + rest_s
        return replace(status, progress=replace(progress, partitions=partitions, eta_s=eta_s))

    def _rest_s(
        self, status: Status, subs: float, share: float, rate: float | None
    ) -> float | None:
        """Estimate how long ``subs`` sub-messages of the rest take, at the latency of the class.

        ``share`` of them go to the handler.

        It assumes that all workers are busy, except for one that is all that its longest lane may
        have. The rest may take less time: during this pass, calls return late because the process
        is busy reading.
        """
        whole, recent = status.timing.latency, status.timing.latency_recent
        handled = self.counts_of_class().finished - self.rule_filter.taken_out
        if not handled or whole is None:
            return None
        calls = share * subs * whole.count / handled
        workers = min(status.limits.concurrency, 1 / max(self._rest.share, 1e-9))
        rest_s = calls * (recent or whole).mean_s / workers
        return max(rest_s, subs / rate) if rate else rest_s

    def left_beside(self) -> Mapping[int, float] | None:
        """Estimate by partition how many sub-messages are left for later passes.

        The result is None while nothing was read.
        """
        samples = {}
        for number, each in self.ledgers.items():
            known, subs = self._all[number], self.beside[number]
            if number in self.cut:  # Everything behind the barrier is left for later passes.
                subs += each.subs_read
            bounds = known.watermark, each.position, self._ends[number]
            samples[number] = ReadSample.of(bounds, known.finished, subs)
        unread = unread_subs(samples)
        return unread and {number: each + self.beside[number] for number, each in unread.items()}

    def unread(self) -> str:
        """Describe the offsets that were not read, and why. The text is empty if there are none."""
        found = []
        for number, end in self._ends.items():
            ledger, is_cut = self.ledgers[number], number in self.cut
            begin = ledger.end if is_cut else ledger.position
            if begin < end:
                why = "a barrier is before them" if is_cut else "too many before them wait"
                offsets = counted(end - begin, "offset")
                found.append(f"{offsets} of partition {number} from {begin} on, because {why}")
        return listed(found)

    def _samples(self) -> Mapping[int, ReadSample]:
        return {number: each.sample() for number, each in self.ledgers.items()}

    def tally(self) -> tuple[Counts, Counts]:
        """Count the sub-messages of this class. Messages are counted by the pass that ends them."""
        return self._base[0], self._base[1] + super().tally()[1]

    def counts(self) -> tuple[Counts, Counts]:
        return self._base[0], self._base[1] + super().counts()[1]

    def counts_of_class(self) -> Counts:
        """Count the class's sub-messages, in this run alone."""
        return super().tally()[1]

    def _outcomes_of(self, number: int, news: Progress) -> OutcomeRanges:
        """Return the outcomes of messages of which this class has finished a part.

        The pass that finishes the rest of a message needs its outcome. If there are too many, only
        the worst outcomes are kept.
        """
        outcomes = merge_outcomes((self._outcomes.get(number, {}), news.outcomes))
        room = FATES_MOST // len(self.ledgers)
        # Every message that ``split`` rejected is kept.
        kept = {o: outcomes[o] for o in (Outcome.UNSPLIT,) if outcomes.get(o)}
        for outcome in reversed(OTHERWISE):
            if found := outcomes.get(outcome, ())[:room]:
                kept[outcome] = found
                room -= len(found)
        return kept

    def _wait(self, sub: SubMessage) -> None:
        lanes = self._lanes_of(sub)
        self._waits.add(sub.message.origin.stream, lanes)
        self._rest.add(lanes)

    def _defer(self, sub: SubMessage) -> None:
        self._wait(sub)
        self.deferred += 1
        self._leave_pending(sub)

    def _defer_all(self, subs: Iterable[SubMessage], among: int) -> None:
        for sub in subs:
            if among >> sub.index & 1:
                self._defer(sub)

    def _cut(self, number: int, end: int) -> None:
        """End this pass over a partition: a barrier holds back everything from this offset on."""
        self.cut.add(number)
        self.ledgers[number].end = end


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of a drain: for a priority class, or for all that is left.

    Attributes:
        where: the expression of the class; None in the last pass, which is for all that is left.
        maps: the maps of the classes by selector, from earlier passes of this process.
        rest_after_s: the seconds that it takes to begin with the rest once the class is drained.
        given_up: how many sub-messages earlier passes of this run gave up.
    """

    where: str | None = None
    maps: dict[str, ClassMap] = field(default_factory=dict)
    rest_after_s: float = 0.0
    given_up: int = 0

    @property
    def is_last(self) -> bool:
        return self.where is None

    @property
    def done(self) -> str:
        """What the history of the drain says once this pass has done everything."""
        return "done" if self.where is None else f"done with the class {self.where}"

    def dispatcher(
        self,
        plan: OffsetPlan,
        selects: Callable[[SubMessage], bool] | None,
        behind: Set[int] = frozenset(),
        *,
        reports_outcomes: bool = False,
        follows: bool = False,
    ) -> Dispatcher:
        """Return a dispatcher that goes on from a plan.

        Args:
            selects: a sub-message for which this is false stays pending in this run.
            behind: partitions in which something before this run's backlog is unfinished.
            reports_outcomes: whether ledgers report the outcome of each message.
            follows: whether the ends move with the log, which they do only in the last pass.
        """
        if self.where is not None:
            first = PriorityDispatcher(plan, self.where, selects, rest_after_s=self.rest_after_s)
            self.maps[first.claim] = first.found
            return first
        progress = plan.account.claims[ALL]
        return Dispatcher(
            {
                n: Ledger(
                    *(part.start, part.end, progress[n]),
                    reports_outcomes=reports_outcomes,
                    follows=follows,
                )
                for n, part in plan.account.partitions.items()
            },
            Order(plan.terms.order),
            plan.account.parked,
            RuleFilter.of(plan, selects),
            other_claims(plan, self.maps),
            plan.account.parked_lanes,
            behind,
        )


def _from(start: int, known: Progress | None) -> Progress:
    """Return the progress of a class for a pass that begins at the offset ``start``.

    Its watermark is that offset. What the class has finished above it is in the ranges.
    """
    if known is None:
        return Progress(start)
    finished = RangeSet(join_ranges(((0, known.watermark), *known.finished)))
    partial = {offset: each for offset, each in known.partial.items() if offset >= start}
    above = tuple(finished.from_offset(start))
    return Progress(start, above, partial, outcomes=known.outcomes)
