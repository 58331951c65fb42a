"""The account of a drain, which has its progress and its history, and the laws of accounts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from drainer.errors import PlanRefused, UsageError
from drainer.model.claims import ALL, Claims, Shard, class_of, class_selector
from drainer.model.codec import JsonRecord, Share, Whole
from drainer.model.latency import Latency
from drainer.model.listed import clock_time
from drainer.model.predicate import Predicate
from drainer.model.priority import NO_CLASSES, PriorityClasses
from drainer.model.progress import Counts, Progress
from drainer.model.ranges import Range, Ranges, RangeSet, join_ranges, subtract
from drainer.model.resuming import Resuming
from drainer.model.unhandled import Unhandled
from drainer.text.escape import SCREEN, encodable
from drainer.text.mask import mask_text, masking


def clock(at: str, now: datetime | None = None) -> str:
    """Return the local time of an event, such as ``18:32:07``; ``at`` itself if it has none.

    Its day is named if that is not the day of ``now``.
    """
    with suppress(ValueError, OverflowError):  # A plan from elsewhere may have any text there.
        return clock_time(datetime.fromisoformat(at), now or datetime.now(UTC), "%H:%M:%S")
    return at


# A history that is too long keeps this many of its first and of its last events.
EVENTS_FIRST, EVENTS_LAST = 100, 900
DETAILS_MOST = 1_000  # An event keeps this many details.
NOBODY = ""  # Who did what a drain does by itself, such as the end of a pause of limited time.
# The first words of the details of a run's end, apart from "done".
ENDS = ("halted", "interrupted", "stopped", "failed")


class EventKind(StrEnum):
    """What a person or a drain did."""

    BEGUN = "begun"
    RESUMED = "resumed"
    CHANGED = "changed"
    PAUSED = "paused"
    UNPAUSED = "unpaused"
    # The drain was done with a priority class or a wait, and began with what follows.
    WENT_ON = "went on"
    JOINED = "consumers joined"  # The group got members while the drain was running.
    ENDED = "ended"
    HANDED_OVER = "handed over"  # Consumers went on where the drain had ended.
    UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class Event(JsonRecord):
    """One entry of a drain's history."""

    at: str  # The time, in ISO 8601 with an offset.
    what: EventKind
    by: str  # The person that the drain ran for, or who requested it, as "user@host"; or NOBODY.
    reason: Annotated[str, Meta(max_length=SCREEN)] | None = None
    # Texts for people: the rules that the drain began with, each setting that changed, or how it
    # ended.
    details: tuple[str, ...] = ()
    # The group's offsets after the event, by partition. It is empty if the event moved no offset.
    offsets: Mapping[Whole, Whole | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.at)
        # drainer never writes longer texts. If a file has one, it is cut here, so that the event
        # differs from the file and the plan is refused.
        object.__setattr__(self, "by", encodable(self.by)[:SCREEN])
        details = (encodable(each)[:SCREEN] for each in self.details[:DETAILS_MOST])
        object.__setattr__(self, "details", tuple(details))

    def __str__(self) -> str:
        """Return ``changed by ana@db1: concurrency 500 → 50 (the database is slow)``."""
        details = f": {', '.join(self.details)}" if self.details else ""
        why = "" if self.reason is None else f" ({self.reason})"
        by = "" if self.by == NOBODY else f" by {self.by}"
        return f"{self.what}{by}{details}{why}"


def last_end(history: Sequence[Event]) -> Event | None:
    """Return the event with which the last run of a history ended; None if there is none."""
    return next((each for each in reversed(history) if each.what is EventKind.ENDED), None)


NAMED_MOST = 1_000  # A plan names this many parked lanes, and counts the others.
SHOWN_MOST = 20  # A person is shown this many parked lanes.
KEY_LENGTH = 1_000  # This many characters are kept of a lane's name.
_Short = Annotated[str, Meta(max_length=KEY_LENGTH)]


@dataclass(frozen=True, slots=True)
class ParkedLane:
    """A parked lane, and the sub-message that parked it."""

    # The ``repr`` of its sub-key, or ``partition N`` if a barrier holds back a whole partition.
    key: _Short
    # The place of the sub-message that failed, as topic/partition/offset[index]. It is still the
    # first pending one of its lane, unless it became a dead letter.
    place: _Short
    error: _Short

    def shown(self) -> dict[str, str]:
        """Return the lane in the form that a person is shown. It is masked if masking is on."""
        error = self.error.partition(":")[0] if masking() else self.error
        return {"key": mask_text(self.key), "place": self.place, "error": error}


@dataclass(frozen=True, slots=True)
class ParkedLanes(JsonRecord):
    """Lanes that a run left parked: the number, and the first of them by name."""

    total: Whole = 0
    first: Annotated[tuple[ParkedLane, ...], Meta(max_length=NAMED_MOST)] = ()

    def of(self, keys: Iterable[str]) -> tuple[ParkedLane, ...]:
        """Return the lanes that are named here and have one of these keys."""
        known = {key[:KEY_LENGTH] for key in keys}
        return tuple(lane for lane in self.first if lane.key in known)

    def shown(self) -> list[dict[str, str]]:
        """Return the lanes that a person is shown. They are masked if masking is on."""
        return [lane.shown() for lane in self.first[:SHOWN_MOST]]

    @property
    def more(self) -> int:
        """The number of lanes that ``shown`` leaves out."""
        return max(0, self.total - len(self.first[:SHOWN_MOST]))

    def merge(self, later: ParkedLanes) -> ParkedLanes:
        """Add the lanes that another task left, or this one left later. Each is named once.

        ``later`` has the total of both.
        """
        lanes: dict[str, ParkedLane] = {}
        for lane in (*self.first, *later.first):
            lanes.setdefault(lane.key, lane)
        return ParkedLanes(later.total, tuple(lanes.values())[:NAMED_MOST])


NONE_PARKED = ParkedLanes()


_DAMAGED_HINT = (
    "Restore the file, or start again from the committed offset with `drainer run` and another"
    " --plan. Nothing was touched."
)


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The backlog of one partition, and what this drain did to the group's offset there.

    The backlog is frozen, but a drain that follows its log moves the end.

    Attributes:
        prior: the group's offset before the drain, which ``plan undo`` restores; None if there was
            none.
        committed: the last offset that the drain knows to be committed.
        leader_epoch: the leader's epoch when the end was looked up.
        lost: offsets that were deleted before they were read, and that the drain went past: because
            a person accepted that, or because the partition was added to the topic and had lost
            them when it joined the drain. These lie before ``start``. The account does not count
            them, because they were never delivered.
    """

    start: Whole
    end: Whole
    prior: Whole | None
    committed: Whole | None
    leader_epoch: Whole | None = None
    lost: Ranges = ()

    @property
    def before(self) -> int:
        """The offset to which ``plan undo`` moves the group."""
        return self.start if self.prior is None else self.prior


@dataclass(frozen=True, slots=True)
class StateReference(JsonRecord):
    """The place where Spark tasks record their progress, and which records the plan has taken in.

    Each driver of the drain works in an epoch of its own, in which it numbers the slices of the
    backlog. The plan has all records of earlier epochs. Of this epoch, it has all records of the
    slices below ``next``, except those in ``open``, which have not ended. Of an open or a later
    slice, the plan may have some records.

    Attributes:
        uri: the place of the records.
        counted: the counts that the plan's account has from open slices, by partition.
        unhandled: the counts by name that the plan's account has from open slices.
        units: messages that ``split`` rejected in slices that are under way, by partition. Most
            claims have no part of such a message, so they report it as finished before its outcome
            is decided.
    """

    uri: str
    epoch: Whole
    next: Whole
    open: tuple[Whole, ...] = ()
    counted: Mapping[Whole, Counts] = field(default_factory=dict)
    unhandled: Unhandled = field(default_factory=Unhandled)
    units: Mapping[Whole, str] = field(default_factory=dict)

    def has_taken(self, epoch: int, number: int) -> bool:
        """Return whether the plan has all records of a slice. If so, they must not be added."""
        if epoch != self.epoch:
            return epoch < self.epoch
        return number < self.next and number not in self.open


@dataclass(frozen=True, slots=True)
class Account(JsonRecord):
    """What has happened in a drain.

    Attributes:
        updated: when the plan was written, in ISO 8601 and UTC.
        generation: how often the plan was written. Its journals have this number in their names.
        claims: the progress by selector and partition. The claim "all" has what is finished, and
            the counts of all messages. Other claims have what is finished beyond that.
        parked: the lanes that wait behind a dead letter, in later runs too, by the ``repr`` of
            their keys.
        parked_lanes: these lanes, and all others that the last run left parked, with the facts.
        latency: the latency of the handler over all runs.
        unhandled: the sub-messages that finished without being handled, over all runs.
        state: where tasks write what they finish; None while the drain has no tasks.
        history: all events. If there are too many, it has the first and the last of them.
        classes: the priority classes, which are drained before the rest.
        resuming: what a resume has to repeat of the options of the last run.
        share_done: the share of the backlog that was finished by the last status of the last run,
            from 0 to 1; None if it had none.
        times_joined: how often consumers have joined the group while the drain was running, over
            all runs. The history may have dropped some of these events.
    """

    updated: str
    generation: Whole
    partitions: Mapping[Whole, PartitionPlan]
    claims: Claims
    parked: tuple[str, ...] = ()
    parked_lanes: ParkedLanes = NONE_PARKED
    latency: Latency | None = None
    unhandled: Unhandled = field(default_factory=Unhandled)
    state: StateReference | None = None
    history: tuple[Event, ...] = ()
    classes: PriorityClasses = NO_CLASSES
    resuming: Resuming = Resuming()
    share_done: Share | None = None
    times_joined: Whole = 0

    def watermark(self, partition: int) -> int:
        """Return the offset of a partition that is safe to commit."""
        return self.claims[ALL][partition].watermark

    @property
    def watermarks(self) -> dict[int, int]:
        return {partition: self.watermark(partition) for partition in self.partitions}

    @property
    def others(self) -> Claims:
        """The claims other than "all"."""
        return {selector: claim for selector, claim in self.claims.items() if selector != ALL}

    @property
    def committed(self) -> dict[int, int | None]:
        """The last offset that the drain knows to be committed, by partition."""
        return {partition: part.committed for partition, part in self.partitions.items()}

    def with_committed(self, offsets: Mapping[int, int | None]) -> Account:
        """Return the account with these committed offsets. Other partitions keep theirs."""
        partitions = {
            number: replace(part, committed=offsets.get(number, part.committed))
            for number, part in self.partitions.items()
        }
        return replace(self, partitions=partitions)

    def with_ends(self, found: Mapping[int, PartitionPlan]) -> Account:
        """Return the account whose backlog ends where the partitions in ``found`` end.

        A partition that the account does not have is added, with nothing finished.
        """
        partitions = {n: self.partitions.get(n, new) for n, new in found.items()}
        moved = {
            n: replace(part, end=found[n].end, leader_epoch=found[n].leader_epoch)
            for n, part in partitions.items()
        }
        fresh = {n: Progress(part.start) for n, part in found.items()}
        claims = {selector: {**fresh, **claim} for selector, claim in self.claims.items()}
        return replace(self, partitions={**self.partitions, **moved}, claims=claims)

    def with_event(self, event: Event) -> Account:
        """Return the account with one more event. If there are too many, it drops some between the
        first and the last."""
        newest = self.history[EVENTS_FIRST:][-(EVENTS_LAST - 1) :]
        history = (*self.history[:EVENTS_FIRST], *newest, event)
        joined = self.times_joined + (event.what is EventKind.JOINED)
        return replace(self, history=history, times_joined=joined)

    def begun(self) -> Account:
        """Return the account with a claim for the priority class that is next."""
        if self.classes.next is None:
            return self
        claim = {n: Progress(progress.watermark) for n, progress in self.claims[ALL].items()}
        return replace(self, claims={class_selector(self.classes.next): claim, **self.claims})

    def next_generation(self, at: str) -> Account:
        """Return the account for the next run or pass, which reads again what is pending."""
        # The new generation is past that of every journal that may lie beside the plan. A save
        # begins a journal before it writes the plan.
        later = replace(self.without_pending(), updated=at, generation=self.generation + 2)
        return later.begun()

    def shared(self, partition: int) -> bool:
        """Return whether a claim other than "all" has finished something above the watermark."""
        watermark = self.watermark(partition)
        return any(claim[partition].end > watermark for claim in self.others.values())

    def finished_above(self, partition: int) -> int:
        """Count the offsets above the watermark that are known to be finished."""
        if self.shared(partition):
            return 0  # No claim alone knows whether all claims have finished an offset.
        return sum(end - start for start, end in self.claims[ALL][partition].finished)

    def to_go(self, partition: int) -> int:
        """Count the offsets that are not known to be finished, including holes."""
        left = self.partitions[partition].end - self.watermark(partition)
        return max(0, left - self.finished_above(partition))

    @property
    def complete(self) -> bool:
        return all(self.watermark(n) >= part.end for n, part in self.partitions.items())

    @property
    def running(self) -> bool:
        """Whether the last run did not note how it ended. If so, the plan has a journal."""
        ends = (EventKind.ENDED, EventKind.HANDED_OVER, EventKind.UNDONE)
        return bool(self.history) and self.history[-1].what not in ends

    @property
    def last_end(self) -> Event | None:
        """The event with which the last run ended; None if it did not note one."""
        return None if self.running else last_end(self.history)

    @property
    def undone(self) -> Event | None:
        """The event by which the group was put back; None if it was not, or the drain went on."""
        last = self.history[-1] if self.history else None
        return last if last is not None and last.what is EventKind.UNDONE else None

    @property
    def how_ended(self) -> str:
        """How the last run ended, in a word. A drain that still runs counts as killed here."""
        if self.undone is not None:
            return "undone"
        if self.running or self.complete:
            return "killed" if self.running else "done"
        word = "" if self.last_end is None else _how(self.last_end)
        return word if word in ENDS else "stopped"

    @property
    def over(self) -> Event | None:
        """The event with which the drain ended because all that was asked of it is done.

        It is None if the last run was cut short or still runs, or if the group was put back.
        """
        end = self.last_end if self.undone is None else None
        is_all = self.complete or self.classes.stops
        return end if end is not None and is_all and _how(end) not in ENDS else None

    @property
    def gave_up(self) -> int:
        """How many sub-messages were given up, apart from those that a rule diverted."""
        return self.counts()[1].given_up - self.unhandled.dead_by_request

    def last_run(self, now: datetime) -> str:
        """Return how the last run ended: ``ended at 17:06, halted: 3 lanes are parked``."""
        end = self.undone or self.last_end
        at = self.updated if end is None else end.at
        with suppress(ValueError, OverflowError):  # A plan from elsewhere may have any text there.
            at = clock_time(datetime.fromisoformat(at), now)
        if end is None:
            return f"was killed, or still runs elsewhere; its plan was last written at {at}"
        why = "" if end.reason is None else f" ({end.reason})"
        if end is self.undone:
            return f"was undone at {at}{why}; a resume commits again what is done"
        return f"ended at {', '.join((at, *end.details))}{why}"

    @property
    def lost(self) -> dict[int, tuple[Range, ...]]:
        """The offsets that were deleted before they were read, by partition if it has any."""
        return {number: part.lost for number, part in self.partitions.items() if part.lost}

    @property
    def log_ends(self) -> dict[int, tuple[int, int | None]]:
        """The end of the backlog, and the leader's epoch when it was looked up, by partition."""
        return {n: (part.end, part.leader_epoch) for n, part in self.partitions.items()}

    def gaps(self, log_starts: Mapping[int, int]) -> dict[int, tuple[Range, ...]]:
        """Return the pending offsets that are no longer in the log, by partition. ``log_starts``
        has the offset at which each log starts now."""
        found = {}
        for number, part in self.partitions.items():
            known = self.claims[ALL][number]
            gone = ((known.watermark, min(log_starts[number], part.end)),)
            if left := subtract(gone, known.finished):
                found[number] = left
        return found

    def past(self, gaps: Mapping[int, tuple[Range, ...]]) -> Account:
        """Return the account that continues behind these gaps, and has them as lost."""
        return replace(
            self,
            partitions={
                number: replace(part, lost=join_ranges((*part.lost, *gaps.get(number, ()))))
                for number, part in self.partitions.items()
            },
            claims={
                selector: {
                    number: progress.merge(replace(progress, finished=gaps.get(number, ())))
                    for number, progress in claim.items()
                }
                for selector, claim in self.claims.items()
            },
        )

    def counts(self) -> tuple[Counts, Counts]:
        """Count messages and sub-messages over all partitions."""
        messages, subs = Counts(), Counts()
        for claim in self.claims.values():
            for progress in claim.values():
                messages, subs = messages + progress.messages, subs + progress.sub_messages
        return messages, subs

    @property
    def conserved(self) -> bool:
        """Whether the account of each claim and partition adds up. If not, it can't be resumed."""
        progress = [each for claim in self.claims.values() for each in claim.values()]
        return all(each.messages.conserved and each.sub_messages.conserved for each in progress)

    def without_pending(self) -> Account:
        """Return the account with no pending sub-messages, and with the counts of all claims in
        the claim "all". The counts of classes have those of their claims, too."""
        others = self.others
        known = {
            number: replace(
                progress,
                messages=progress.messages.without_pending(),
                sub_messages=sum(
                    (claim[number].sub_messages.without_pending() for claim in others.values()),
                    progress.sub_messages.without_pending(),
                ),
            )
            for number, progress in self.claims[ALL].items()
        }
        emptied = {
            selector: {n: replace(progress, sub_messages=Counts()) for n, progress in claim.items()}
            for selector, claim in others.items()
        }
        classes = self.classes.with_counts_of(self.claims)
        return replace(self, claims={ALL: known, **emptied}, classes=classes)

    def merge(
        self,
        later: Mapping[int, Progress],
        parked: Iterable[str] = (),
        unhandled: Unhandled | None = None,
        claim: str = ALL,
    ) -> Account:
        """Return the account with later records of one of its claims (see ``Progress.merge``)."""
        if claim not in self.claims:
            raise damaged(f"its journal is of claim {claim}, and it has none")
        known = self.claims[claim]
        merged = {n: p.merge(later[n]) if n in later else p for n, p in known.items()}
        return replace(
            self,
            claims={**self.claims, claim: merged},
            parked=tuple(sorted({*self.parked, *parked})),
            unhandled=self.unhandled if unhandled is None else self.unhandled.merge(unhandled),
        )

    def check(self) -> None:
        """Ensure that the account obeys the laws. Raises PlanRefused if it does not."""
        if ALL not in self.claims:
            raise damaged(f"it has no claim {ALL!r}")
        try:
            for selector in self.others:
                if class_of(selector) is None:
                    Shard.parse(selector)
        except ValueError as error:
            raise damaged(str(error)) from None
        self._check_options()
        for selector, claim in self.claims.items():
            if set(claim) != set(self.partitions):
                raise damaged(f"claim {selector!r} does not have the same partitions as the plan")
            where = "" if selector == ALL else f"claim {selector}, "
            for number, progress in claim.items():
                _check_progress(f"{where}partition {number}", self.partitions[number], progress)
                if selector != ALL and progress.messages != Counts():
                    raise damaged(f"{where}partition {number}: messages are counted in {ALL!r}")
        for number, part in self.partitions.items():
            if part.lost and part.lost[-1][1] > self.watermark(number):
                raise damaged(f"partition {number}: what is lost is not below the watermark")
            if part.committed is not None and part.committed > self.watermark(number):
                raise damaged(
                    f"partition {number}: offset {part.committed} was committed, past the"
                    f" watermark {self.watermark(number)}"
                )
        _, subs = self.counts()
        if not self.unhandled.is_part_of(subs):
            raise damaged("more was skipped or diverted by name than was skipped or died at all")

    def _check_options(self) -> None:
        if self.resuming != self.resuming.to_keep():
            raise damaged("it has options for a resume that drainer does not keep")
        wheres = [each.where for each in self.classes.each]
        if len(set(wheres)) < len(wheres):
            raise damaged("it names a class twice")
        try:
            for where in (*wheres, *map(class_of, self.claims)):
                if where is not None:
                    Predicate(where)
        except UsageError as error:
            raise damaged(f"it has a class that can't be understood: {error}") from None


def _how(end: Event) -> str:
    """Return the first word of how a run ended; one of ``ENDS`` if it was cut short."""
    return re.split(r"\W", "".join(end.details))[0]


def _check_progress(where: str, part: PartitionPlan, progress: Progress) -> None:
    if not part.start <= progress.watermark <= max(part.start, part.end):
        raise damaged(
            f"{where}: watermark {progress.watermark} is outside [{part.start}, {part.end}]"
        )
    if progress.finished and progress.finished[0][0] < progress.watermark:
        raise damaged(f"{where}: finished ranges begin below the watermark {progress.watermark}")
    if progress.finished and progress.finished[-1][1] > part.end:
        raise damaged(f"{where}: finished ranges go past the end {part.end}")
    finished = RangeSet(progress.finished)
    for offset in sorted(progress.partial):
        if not progress.watermark <= offset < part.end or offset in finished:
            raise damaged(f"{where}: offset {offset} is pending in part and finished at once")
    accounts = (progress.messages, progress.sub_messages)
    if not all(account.possible for account in accounts):
        raise damaged(f"{where}: a count is below zero")


def damaged(reason: str) -> PlanRefused:
    """Return the error for a plan whose content makes no sense."""
    return PlanRefused(f"the plan is damaged: {reason}", hint=_DAMAGED_HINT)
