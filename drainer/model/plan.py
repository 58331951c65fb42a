"""The offset plan: the file that a drain is resumed from, and what must be true of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any

import msgspec

from drainer.errors import PlanRefused, UsageError
from drainer.model import codec
from drainer.model.claims import ALL, Claims, class_of, class_selector, joins_of
from drainer.model.classes import PriorityClasses
from drainer.model.codec import JsonRecord, Whole
from drainer.model.event import Event, EventKind
from drainer.model.failures import FailureSettings
from drainer.model.joins import Joins
from drainer.model.latency import Latency
from drainer.model.order import Order
from drainer.model.parked import NONE_PARKED, ParkedLanes
from drainer.model.predicate import Predicate
from drainer.model.progress import Counts, Progress
from drainer.model.ranges import Range, Ranges, RangeSet, encode_ranges, join_ranges, subtract
from drainer.model.rate_cap import CapCurve
from drainer.model.redrive import RedriveSettings
from drainer.model.rules import RuleAccount, RuleSettings

FORMAT = "drainer-plan/5"
EVENTS_FIRST, EVENTS_LAST = 100, 900  # of a history

_DrainId = Annotated[str, msgspec.Meta(pattern=r"^[\w-]+\Z")]  # names a folder, too
_Isolation = Annotated[str, msgspec.Meta(pattern=r"^read_(un)?committed\Z")]
_Order = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(order.value for order in Order)})\Z")]

_DAMAGED_HINT = (
    "Restore the file, or start again from the committed offset with `drainer run` and another"
    " --plan. Nothing was touched."
)


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The frozen backlog of one partition, and what this drain did to the group's offset there.

    ``prior`` is the committed offset before the drain (for undo), None when there was none.
    ``committed`` is the last one that the drain knows it wrote. ``lost`` are offsets that were
    deleted before they were read, and that a person let the drain go past: none of them is in the
    account, for none was delivered.
    """

    start: Whole
    end: Whole
    prior: Whole | None
    committed: Whole | None
    leader_epoch: Whole | None = None
    lost: Ranges = ()


@dataclass(frozen=True, slots=True)
class StateReference(JsonRecord):
    """Where the tasks of a drain write, and what of it the plan holds.

    Everything of epochs before ``epoch`` is in the plan, and of deals below ``next`` that are not
    ``open``. Of the others any part may be: ``counted`` is what the plan's accounts hold of their
    records, by partition, and ``ruled`` what its account of rules counts of them. ``joins`` are
    those that claims of waves under way name. ``units`` are messages of these waves that ``split``
    rejected, by partition: most claims go past one without having anything of it.
    """

    uri: str
    epoch: Whole
    next: Whole
    open: tuple[Whole, ...] = ()
    counted: Mapping[Whole, Counts] = field(default_factory=dict)
    ruled: RuleAccount = field(default_factory=RuleAccount)
    joins: tuple[Whole, ...] = ()
    units: Mapping[Whole, str] = field(default_factory=dict)

    def holds(self, epoch: int, deal: int) -> bool:
        """Whether all that tasks of this deal told is in the plan, and not to be added again."""
        if epoch != self.epoch:
            return epoch < self.epoch
        return deal < self.next and deal not in self.open


@dataclass(frozen=True, slots=True)
class OffsetPlan(JsonRecord):
    """Everything that a resume needs, and never a secret.

    ``topic_partitions`` is how many the topic had when the drain was planned.
    ``generation`` counts the writings of the plan; journals are named by it. ``claims`` holds for
    each selector over sub-keys the progress by partition: "all" what is finished and the account of
    all messages, others what is finished beyond that. ``joins`` are those that claims name, by
    number: they are in the plan before a task works by them. Times are ISO 8601 in UTC. ``parked``
    are the lanes (``repr`` of their keys) that wait behind a dead letter, in later runs too.
    ``parked_lanes`` tells of those and of all others that the last run left. ``redrive`` is there
    when the topic is one of dead letters, which the handler gets as what they were. ``latency`` is
    the handler's, over all runs. ``ruled`` is what ``rules`` did, those of earlier runs among them.
    ``state`` is where tasks write what they finish, and is there while a drain has tasks.
    ``handler_code`` is a digest of the handler's code when the drain last began, None when unknown.
    ``limits`` is what the brokers tolerate, which caps what is read and written. ``history`` has
    all events, or of very many the first and the last. ``classes`` are drained before the rest.
    """

    drain_id: _DrainId
    created: str
    updated: str
    generation: Whole
    cluster_id: str
    bootstrap_servers: str
    client_config: str | None
    isolation: _Isolation
    topic: str
    topic_id: str
    topic_partitions: Whole
    group: str
    handler: str
    order: _Order
    partitions: Mapping[Whole, PartitionPlan]
    claims: Claims
    joins: Mapping[Whole, Joins] = field(default_factory=dict)
    failures: FailureSettings = field(default_factory=FailureSettings)
    parked: tuple[str, ...] = ()
    parked_lanes: ParkedLanes = NONE_PARKED
    redrive: RedriveSettings | None = None
    latency: Latency | None = None
    rules: RuleSettings = field(default_factory=RuleSettings)
    ruled: RuleAccount = field(default_factory=RuleAccount)
    state: StateReference | None = None
    limits: CapCurve | None = None
    handler_code: str | None = None
    history: tuple[Event, ...] = ()
    classes: PriorityClasses = field(default_factory=PriorityClasses)

    def watermark(self, partition: int) -> int:
        """The offset that is safe to commit."""
        return self.claims[ALL][partition].watermark

    @property
    def watermarks(self) -> dict[int, int]:
        return {partition: self.watermark(partition) for partition in self.partitions}

    @property
    def others(self) -> Claims:
        """The claims beside "all"."""
        return {selector: claim for selector, claim in self.claims.items() if selector != ALL}

    @property
    def committed(self) -> dict[int, int | None]:
        """By partition, the last offset that the drain knows the group to be at."""
        return {partition: part.committed for partition, part in self.partitions.items()}

    def noting(self, event: Event) -> OffsetPlan:
        """The plan with one more event; of very many those in the middle go."""
        newest = self.history[EVENTS_FIRST:][-(EVENTS_LAST - 1) :]
        return replace(self, history=(*self.history[:EVENTS_FIRST], *newest, event))

    def begun(self) -> OffsetPlan:
        """The plan with a claim for the class that is next."""
        if self.classes.next is None:
            return self
        claim = {n: Progress(progress.watermark) for n, progress in self.claims[ALL].items()}
        return replace(self, claims={class_selector(self.classes.next): claim, **self.claims})

    def shared(self, partition: int) -> bool:
        """Whether one of them says something above the watermark."""
        watermark = self.watermark(partition)
        return any(claim[partition].end > watermark for claim in self.others.values())

    def finished_above(self, partition: int) -> int:
        """How many offsets above the watermark are known to be finished."""
        if self.shared(partition):
            return 0  # by all claims: the watermark alone is certain
        return sum(end - start for start, end in self.claims[ALL][partition].finished)

    def to_go(self, partition: int) -> int:
        """How many offsets are not known to be finished: holes are among them."""
        left = self.partitions[partition].end - self.watermark(partition)
        return max(0, left - self.finished_above(partition))

    @property
    def complete(self) -> bool:
        return all(self.watermark(n) >= part.end for n, part in self.partitions.items())

    @property
    def running(self) -> bool:
        """Whether the last run did not note how it ended: then a journal belongs to the plan."""
        ends = (EventKind.ENDED, EventKind.UNDONE, EventKind.TAKEN)
        return bool(self.history) and self.history[-1].what not in ends

    @property
    def lost(self) -> dict[int, tuple[Range, ...]]:
        """By partition, what was deleted before it was read; only where something was."""
        return {number: part.lost for number, part in self.partitions.items() if part.lost}

    @property
    def log_ends(self) -> dict[int, tuple[int, int | None]]:
        """By partition, the end of the backlog and the leader's epoch when it was planned."""
        return {n: (part.end, part.leader_epoch) for n, part in self.partitions.items()}

    def gaps(self, log_starts: Mapping[int, int]) -> dict[int, tuple[Range, ...]]:
        """By partition, what is pending before the offset that its log starts at now."""
        found = {}
        for number, part in self.partitions.items():
            known = self.claims[ALL][number]
            gone = ((known.watermark, min(log_starts[number], part.end)),)
            if left := subtract(gone, known.finished):
                found[number] = left
        return found

    def past(self, gaps: Mapping[int, tuple[Range, ...]]) -> OffsetPlan:
        """The plan that goes on behind these, and names them as lost."""
        return replace(
            self,
            partitions={
                number: replace(part, lost=join_ranges((*part.lost, *gaps.get(number, ()))))
                for number, part in self.partitions.items()
            },
            claims={
                selector: {
                    number: progress.merge(replace(progress, finished=gaps[number]))
                    if number in gaps
                    else progress
                    for number, progress in claim.items()
                }
                for selector, claim in self.claims.items()
            },
        )

    def counts(self) -> tuple[Counts, Counts]:
        """Messages and sub-messages over all partitions."""
        messages, subs = Counts(), Counts()
        for claim in self.claims.values():
            for progress in claim.values():
                messages, subs = messages + progress.messages, subs + progress.sub_messages
        return messages, subs

    @property
    def conserved(self) -> bool:
        """Whether the account adds up, of each claim and partition; if not, nobody may resume."""
        progress = [each for claim in self.claims.values() for each in claim.values()]
        return all(each.messages.conserved and each.sub_messages.conserved for each in progress)

    def settled(self) -> OffsetPlan:
        """The plan without what is pending, all accounts in that of "all", and in those of
        classes, too."""
        others = self.others
        classes = tuple(
            replace(each, sub_messages=each.sub_messages + self.class_counts(each.where).settled())
            for each in self.classes.each
        )
        known = {
            number: replace(
                progress,
                messages=progress.messages.settled(),
                sub_messages=sum(
                    (claim[number].sub_messages.settled() for claim in others.values()),
                    progress.sub_messages.settled(),
                ),
            )
            for number, progress in self.claims[ALL].items()
        }
        emptied = {
            selector: {n: replace(progress, sub_messages=Counts()) for n, progress in claim.items()}
            for selector, claim in others.items()
        }
        return replace(
            self, claims={ALL: known, **emptied}, classes=replace(self.classes, each=classes)
        )

    def class_counts(self, where: str) -> Counts:
        """The account of a class's sub-messages since the plan was settled."""
        claim = self.claims.get(class_selector(where), {})
        return Counts.sum((Counts(), *(each.sub_messages for each in claim.values())))

    def merge(
        self,
        later: Mapping[int, Progress],
        parked: Iterable[str] = (),
        ruled: RuleAccount | None = None,
        claim: str = ALL,
    ) -> OffsetPlan:
        """The plan with later records of one of its claims added (see ``Progress.merge``)."""
        if claim not in self.claims:
            raise _refuse(f"its journal is of claim {claim}, and it has none")
        known = self.claims[claim]
        merged = {n: p.merge(later[n]) if n in later else p for n, p in known.items()}
        return replace(
            self,
            claims={**self.claims, claim: merged},
            parked=tuple(sorted({*self.parked, *parked})),
            ruled=self.ruled if ruled is None else self.ruled.merge(ruled),
        )

    def without_joins(self) -> OffsetPlan:
        """The plan without those that no claim names, nor any of a wave under way."""
        named = self._joins_named()
        return replace(self, joins={n: each for n, each in self.joins.items() if n in named})

    def _joins_named(self) -> set[int]:
        under_way = () if self.state is None else self.state.joins
        return joins_of((*self.others, *self.ruled.asked_by)).union(under_way)

    def check(self) -> None:
        """Raises PlanRefused when the plan contradicts itself or the laws."""
        if ALL not in self.claims:
            raise _refuse(f"it has no claim {ALL!r}")
        try:
            missing = self._joins_named() - self.joins.keys()
        except ValueError as error:
            raise _refuse(str(error)) from None
        if missing:
            raise _refuse(f"claims name joins {min(missing)}, and it has none of that number")
        self._check_classes()
        for selector, claim in self.claims.items():
            if set(claim) != set(self.partitions):
                raise _refuse(f"claim {selector!r} has not the same partitions as the plan")
            where = "" if selector == ALL else f"claim {selector}, "
            for number, progress in claim.items():
                _check_progress(f"{where}partition {number}", self.partitions[number], progress)
                if selector != ALL and progress.messages != Counts():
                    raise _refuse(f"{where}partition {number}: messages are counted in {ALL!r}")
        for number, part in self.partitions.items():
            if part.lost and not (
                part.start <= part.lost[0][0] and part.lost[-1][1] <= self.watermark(number)
            ):
                raise _refuse(f"partition {number}: what is lost is not below the watermark")
            if part.committed is not None and part.committed > self.watermark(number):
                raise _refuse(
                    f"partition {number}: offset {part.committed} was committed, past the"
                    f" watermark {self.watermark(number)}"
                )
        _, subs = self.counts()
        skipped, reasons = self.ruled.skipped_by.values(), self.ruled.skipped_for.values()
        if sum(skipped) + sum(reasons) > subs.skipped:
            raise _refuse("rules have skipped more than was")

    def _check_classes(self) -> None:
        wheres = [each.where for each in self.classes.each]
        if len(set(wheres)) < len(wheres):
            raise _refuse("it names a class twice")
        try:
            for where in (*wheres, *map(class_of, self.claims)):
                if where is not None:
                    Predicate(where)
        except UsageError as error:
            raise _refuse(f"it has a class that can't be understood: {error}") from None

    def encode(self) -> bytes:
        """The file's bytes: indented JSON with a digest over all of it.

        Raises PlanRefused when a name in it is not UTF-8.
        """
        body = self.as_json()
        try:
            whole = codec.encode({**body, "digest": _digest(body)})
        except UnicodeEncodeError as error:
            raise PlanRefused(
                f"can't write the plan: a name, path or expression is not UTF-8: {error}",
                hint="Give the group, the handler, its path, rules and classes in UTF-8.",
            ) from error
        return msgspec.json.format(whole) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> OffsetPlan:
        """Raises PlanRefused when the bytes are no plan, or not the plan that was written."""
        try:
            body = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _refuse(f"it is not JSON: cut short, or not a plan ({error})") from None
        if not isinstance(body, dict) or "format" not in body:
            raise _refuse("it is JSON, but not an offset plan")
        if body["format"] != FORMAT:
            raise _refuse(f"it has format {body['format']!r}; this drainer reads {FORMAT!r}")
        digest = body.pop("digest", None)
        try:
            plan = cls.from_json(body)
        except ValueError as error:
            raise _refuse(f"a field is missing or wrong: {error}") from None
        if digest != _digest(body):
            raise _refuse("it was edited or damaged: its digest does not match its content")
        written = codec.encode(plan.as_json())
        if body != msgspec.json.decode(written):  # 5 and 5.0 are one number
            raise _refuse("it has other fields than drainer writes")
        plan.check()
        return plan

    def as_json(self) -> dict[str, Any]:
        """The plan as the file has it, without the digest."""
        body = {"format": FORMAT} | {each.name: getattr(self, each.name) for each in fields(self)}
        body["partitions"] = {
            number: asdict(part) | {"lost": encode_ranges(part.lost)}
            for number, part in self.partitions.items()
        }
        body["claims"] = {
            selector: {number: progress.as_json() for number, progress in claim.items()}
            for selector, claim in self.claims.items()
        }
        return codec.builtins(body)


def _check_progress(where: str, part: PartitionPlan, progress: Progress) -> None:
    if not part.start <= progress.watermark <= max(part.start, part.end):
        raise _refuse(
            f"{where}: watermark {progress.watermark} is outside [{part.start}, {part.end}]"
        )
    if progress.finished and progress.finished[0][0] < progress.watermark:
        raise _refuse(f"{where}: finished ranges begin below the watermark {progress.watermark}")
    if progress.finished and progress.finished[-1][1] > part.end:
        raise _refuse(f"{where}: finished ranges go past the end {part.end}")
    finished = RangeSet(progress.finished)
    for offset in sorted(progress.partial):
        if not progress.watermark <= offset < part.end or offset in finished:
            raise _refuse(f"{where}: offset {offset} is pending in part and finished at once")
    accounts = (progress.messages, progress.sub_messages)
    if not all(account.possible for account in accounts):
        raise _refuse(f"{where}: a count is below zero")


def _refuse(reason: str) -> PlanRefused:
    return PlanRefused(f"the plan is damaged: {reason}", hint=_DAMAGED_HINT)


def _digest(body: Mapping[str, Any]) -> str:
    text = msgspec.json.encode(body, order="sorted")
    return f"sha256:{hashlib.sha256(text).hexdigest()}"
