"""The status of a running drain: what the live view, the log lines and the metrics show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from drainer.errors import EXIT_DEAD_LETTERS, EXIT_DONE, EXIT_UNRESUMABLE, DrainerError, Unresumable
from drainer.escape import command
from drainer.model.codec import JsonRecord, Whole, builtins
from drainer.model.event import Event, clock
from drainer.model.latency import Latency
from drainer.model.parked import NONE_PARKED, ParkedLanes
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Counts
from drainer.model.ranges import Range
from drainer.model.transaction import OpenTransaction
from drainer.policy.rules.rule_filter import RuleFilter


class Shown(str):
    """Text that stands for a sub-key of another process, and is shown as it is."""

    __slots__ = ()
    __repr__ = str.__str__


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition: fetched up to ``position``, finished up to ``watermark``, as offsets.

    ``sub_messages_left`` is an estimate, None until something was read.
    """

    partition: Whole
    start: Whole
    end: Whole
    position: Whole
    watermark: Whole
    committed: Whole | None
    messages_finished: Whole  # over all runs of this drain
    sub_messages_finished: Whole = 0  # the same
    sub_messages_left: int | None = None

    @property
    def complete(self) -> bool:
        return self.watermark >= self.end

    @property
    def left(self) -> int:
        """Offsets from the watermark to the end."""
        return max(0, self.end - self.watermark)


@dataclass(frozen=True, slots=True)
class FailureStatus:
    """What went wrong in this run, and what was done about it.

    ``failures`` counts attempts that failed, ``failed_sub_messages`` the sub-messages that had one
    alone in a call. ``timeouts`` counts attempts that took too long, of which a thread's may still
    succeed; ``retries`` further attempts that were granted, also to a handler that asked for one,
    ``waiting`` those that are not due yet. ``parked_lanes`` wait for another run. ``late`` counts
    sub-messages whose thread goes on after their time. ``outages`` counts how often the circuit
    breaker opened, and ``in_outage`` whether it is open. ``errors`` are (kind of text, count), the
    most frequent first; ``error_types`` (class, count), without any content.
    ``doubled_letters`` counts dead letters that may be in their topic twice, and ``doubled_first``
    has the places of the first few.
    """

    failures: int = 0
    retries: int = 0
    timeouts: int = 0
    waiting: int = 0
    parked_lanes: int = 0
    late: int = 0
    outages: int = 0
    errors: tuple[tuple[str, int], ...] = ()
    dead_letter_topic: str | None = None
    error_types: tuple[tuple[str, int], ...] = ()
    in_outage: bool = False
    given_up: int = 0  # dead, failed or parked, in all runs
    given_up_by: tuple[tuple[str, int], ...] = ()  # in this run, by the rule that applied
    rate: float | None = None  # sub-messages started per second, that was asked for
    doubled_letters: int = 0
    doubled_first: tuple[str, ...] = ()
    failed_sub_messages: int = 0

    @classmethod
    def sum(cls, each: Sequence[FailureStatus]) -> FailureStatus:
        """Of several parts of a drain; without topic and rate, which are of each of them."""
        errors, types, rules = Counter[str](), Counter[str](), Counter[str]()
        for one in each:
            errors.update(dict(one.errors))
            types.update(dict(one.error_types))
            rules.update(dict(one.given_up_by))
        return cls(
            **{name: sum(getattr(one, name) for one in each) for name in _COUNTED},
            errors=tuple(errors.most_common(ERRORS_MOST)),
            error_types=tuple(types.items()),
            given_up_by=tuple(rules.items()),
            in_outage=any(one.in_outage for one in each),
            doubled_first=tuple(place for one in each for place in one.doubled_first)[
                :DOUBLED_MOST
            ],
        )


_COUNTED = (
    *("failures", "retries", "timeouts", "waiting", "parked_lanes", "late", "outages"),
    *("given_up", "doubled_letters", "failed_sub_messages"),
)
ERRORS_MOST = 50
DOUBLED_MOST = 20


@dataclass(frozen=True, slots=True)
class AutoStatus:
    """Where a concurrency stands that a drain finds itself.

    ``limit`` is what it is now, ``most`` what it may become. ``settled`` is what was found last,
    None until something was; ``searching`` whether it is being looked for. ``why`` tells the last
    change.
    """

    limit: int
    most: int
    settled: int | None
    searching: bool
    why: str


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """What the rules took out, over all runs, by their names, and what the handler skipped, by its
    reasons (``skipped_for``).

    ``undecided`` counts, in this run, sub-messages that a rule could not be told of, and so did not
    take out; ``why`` is the first reason of each such rule.
    """

    skipped_by: Mapping[str, int] = field(default_factory=dict)
    undecided: Mapping[str, int] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    skipped_for: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rule_filter: RuleFilter) -> RuleStatus:
        return cls(
            dict(rule_filter.skipped_by),
            dict(rule_filter.undecided),
            dict(rule_filter.why_undecided),
            dict(rule_filter.skipped_for),
        )


@dataclass(frozen=True, slots=True)
class Paused(JsonRecord):
    """A pause: the event that began it, and when it ends by itself (ISO 8601), if it does."""

    event: Event
    until: str | None = None

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {clock(self.until)}"
        reason = "" if self.event.reason is None else f" ({self.event.reason})"
        return f"paused by {self.event.by} at {clock(self.event.at)}{until}{reason}"


@dataclass(frozen=True, slots=True)
class ClassStatus:
    """What is drained before the rest.

    ``where`` is its expression. ``sub_messages`` are those of all runs, ``held`` of these wait for
    the rest, for they stand behind some of it; ``cut`` says that some was not looked at. ``left``
    is about how many are yet to be drained before the rest, and ``eta_s`` until they are; both are
    None when that is unknown or not its turn. ``ended`` is when it was drained (ISO 8601).
    """

    where: str
    sub_messages: Counts
    held: int = 0
    eta_s: float | None = None
    ended: str | None = None
    cut: bool = False
    left: int | None = None

    @classmethod
    def of(cls, plan: OffsetPlan) -> tuple[ClassStatus, ...]:
        """Those that a plan knows, as it tells of them."""
        return tuple(
            cls(
                each.where,
                each.sub_messages + plan.class_counts(each.where),
                each.held,
                ended=each.ended,
                cut=each.cut,
            )
            for each in plan.classes.each
        )


@dataclass(frozen=True, slots=True)
class DeadlineStatus:
    """When all shall be drained, and whether it will be.

    ``left_s`` is until then. ``margin_s`` is by how much it will be met, or missed if below zero;
    None while nothing is known. ``missed`` says that it has looked so for long enough to be sure.
    """

    at: datetime
    left_s: float
    margin_s: float | None
    missed: bool = False

    @property
    def late(self) -> bool:
        return self.margin_s is not None and self.margin_s < 0


HELD_FROM = 0.9  # of a cap on average: then that is what held a run back


@dataclass(frozen=True, slots=True)
class CapStatus:
    """What the brokers' limits allow for at the mean size of messages now, of what is read or
    written, and how fast it went on average in this run. ``binds`` says that something waits for
    the cap."""

    messages_per_s: float
    bytes_per_s: float
    message_bytes: float
    average_per_s: float
    binds: bool

    @property
    def held(self) -> bool:
        """Whether it is what held the run back."""
        return self.average_per_s >= HELD_FROM * self.messages_per_s


@dataclass(frozen=True, slots=True)
class Load:
    """How much of a core is used, and waited for where that is known, as shares of the time."""

    used: float = 0.0
    waited: float = 0.0


NO_LOAD = Load()
Reads = TypeVar("Reads")
Row = tuple[tuple[str, ...], float | None]  # the values of its own labels; None: no value now


@dataclass(frozen=True, slots=True)
class Metric(Generic[Reads]):
    """A metric for Prometheus, and how it is read off a status or an engine's section.

    ``labels`` are its own, beside those that all have. ``kind`` is Prometheus' word.
    """

    name: str
    kind: str
    meaning: str
    rows: Callable[[Reads], Iterable[Row]]
    labels: tuple[str, ...] = ()

    @classmethod
    def gauge(cls, name: str, path: str, meaning: str) -> Metric[Reads]:
        """Of one value, which is at ``path``: attributes with dots between, any may be None."""
        return cls(f"drainer_{name}", "gauge", meaning, lambda found: (((), at(found, path)),))

    @classmethod
    def counter(cls, name: str, path: str, meaning: str) -> Metric[Reads]:
        """The same of what only rises."""
        total = f"drainer_{name}_total"
        return cls(total, "counter", meaning, lambda found: (((), at(found, path)),))


def at(found: Any, path: str) -> Any:
    """The attribute at a path with dots; None if one on the way is."""
    for name in path.split("."):
        found = None if found is None else getattr(found, name)
    return found


class EngineStatus(Protocol):
    """What an engine adds to a status, as each view shows it. Its texts may hold anything."""

    def limit(self, status: Status) -> str | None:
        """What only this engine knows of what limits it, in a few words; None for nothing."""

    @property
    def facts(self) -> Sequence[tuple[str, str]]:
        """Labels and their values, for the live view and for lines."""

    def as_json(self) -> dict[str, Any]:
        """For a line of the log, of bounded size."""

    @property
    def metrics(self) -> Sequence[Metric[Any]]:
        """They read this section."""


@dataclass(frozen=True, slots=True)
class Status:
    """A moment of a drain. Rates are sub-messages per second."""

    topic: str
    group: str
    elapsed_s: float
    messages: Counts
    sub_messages: Counts
    rate_now: float  # over the last few seconds
    rate_average: float  # since this run began
    eta_s: float | None  # None until there is something to tell it from
    running: int  # sub-messages in the handler, on average since the last status
    concurrency: int  # the limit now, when it is not fixed
    lanes: int  # sub-keys with something waiting or running
    lanes_ready: int  # lanes that only wait for a worker
    hottest: tuple[tuple[Hashable, int], ...]  # sub-key, sub-messages waiting in its lane
    buffered_bytes: int
    buffer_bytes: int
    plan_path: str
    partitions: tuple[PartitionStatus, ...]
    plan_age_s: float = 0.0  # since the plan was last written
    stopping: str | None = None  # why it is stopping, once it is
    failures: FailureStatus = FailureStatus()
    trouble: str | None = None  # what it is waiting out: a broker that doesn't answer, a commit
    blocked_by: str | None = None  # the line of an async handler that blocks the event loop
    latency: Latency | None = None  # the handler's, in this run; None until an attempt returned
    latency_recent: Latency | None = None  # of the last ten seconds or so
    auto: AutoStatus | None = None  # when the concurrency is not fixed
    rules: RuleStatus = RuleStatus()
    deadline: DeadlineStatus | None = None  # when there is one
    engine: EngineStatus | None = None  # what only the engine knows
    read_cap: CapStatus | None = None  # with --broker-limits
    write_cap: CapStatus | None = None
    paused: Paused | None = None
    asked: tuple[Event, ...] = ()  # by people, in this run: the last few
    asked_total: int = 0
    lane_s: float | None = None  # of ``eta_s``, what the hottest lane takes alone
    classes: tuple[ClassStatus, ...] = ()  # that come before the rest
    busy: int | None = None  # workers, on average like ``running``; None for as many
    processor: Load = NO_LOAD  # of this process, or of each task on average
    is_blocked: bool = False  # the event loop, by ``blocked_by``, now
    is_kept_waiting: bool = False  # by the trouble: nothing new comes, or begins

    @property
    def workers_busy(self) -> int:
        return min(self.concurrency, self.running if self.busy is None else self.busy)

    @property
    def turn(self) -> ClassStatus | None:
        """The class that is drained now; None when it is the rest."""
        return next((each for each in self.classes if each.ended is None), None)

    @property
    def in_trouble(self) -> bool:
        return self.trouble is not None


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """How one partition ended; ``committed`` was read back from the group.

    ``lost`` are offsets that were deleted before they were read, ``above`` counts those that are
    finished above the watermark.
    """

    start: int
    end: int
    watermark: int
    committed: int | None
    lost: tuple[Range, ...] = ()
    above: int = 0

    @property
    def to_go(self) -> int:
        """Offsets that are not known to be finished; holes are among them."""
        return max(0, self.end - self.watermark - self.above)


@dataclass(frozen=True, slots=True)
class Resuming:
    """What a resume needs that is not in the plan: options as they were given for this run, and
    the names of those whose values are not to be shown."""

    options: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def command(self, plan: str, more: tuple[str, ...] = ()) -> str:
        """The command, ready to be copied."""
        return command("resume", plan, options=(*more, *self.options))


CLASS_DONE = "class-done"  # and the rest is for a resume
CLASS_WAITS = "class-waits"  # the same, but some of the class waits for the rest


@dataclass(frozen=True, slots=True)
class Summary:
    """How a drain ended; reconciles what was read with what became of it."""

    status: str  # "done", "class-done", "class-waits", "empty", "interrupted", "halted", "failed"
    exit_code: int
    elapsed_s: float
    messages: Counts
    sub_messages: Counts
    partitions: dict[int, PartitionResult]
    plan: str | None
    sub_messages_per_s: float  # of this run
    resuming: Resuming = Resuming()
    cause: DrainerError | None = None  # what stopped it, when something did
    failures: FailureStatus = FailureStatus()
    parked: ParkedLanes = NONE_PARKED
    left_alone: Mapping[str, int] | None = None  # by a redrive: why, and how many records
    latency: Latency | None = None  # the handler's, in this run; None when no attempt returned
    auto: AutoStatus | None = None  # when the concurrency was not fixed
    blocked_by: str | None = None  # the line of an async handler that blocked the event loop
    rules: RuleStatus = RuleStatus()
    engine: str = "process"  # or "spark"
    engine_counts: Mapping[str, int] = field(default_factory=dict)  # what it adds to that
    read_cap: CapStatus | None = None  # with --broker-limits
    write_cap: CapStatus | None = None
    held: tuple[OpenTransaction, ...] = ()  # by open transactions that the backlog ends at
    history: tuple[Event, ...] = ()  # of the plan
    classes: tuple[ClassStatus, ...] = ()
    eta_s: float | None = None  # what the rest would have taken
    deadline: DeadlineStatus | None = None  # when there is one
    handler: str | None = None  # its reference; None for an empty backlog

    @property
    def to_go(self) -> int:
        """Offsets that are not known to be finished; holes are among them."""
        return sum(part.to_go for part in self.partitions.values())

    @property
    def resume(self) -> str | None:
        """The command that goes on with it; None when all is done, or no resume gets over it."""
        over = self.exit_code in (EXIT_DONE, EXIT_DEAD_LETTERS, EXIT_UNRESUMABLE)
        if self.plan is None or (over and self.status != CLASS_DONE):
            return None
        more = () if self.cause is None else self.cause.resume_with
        return self.resuming.command(self.plan, more)

    @property
    def undo(self) -> str | None:
        """The command that puts the group back, when that is the way out."""
        if self.plan is None or not isinstance(self.cause, Unresumable) or not self.cause.undo:
            return None
        return command("plan undo", self.plan)

    @property
    def error(self) -> str | None:
        return None if self.cause is None else str(self.cause)

    @property
    def hint(self) -> str | None:
        return None if self.cause is None else self.cause.hint

    @property
    def conserved(self) -> bool:
        """The law, for messages and sub-messages."""
        return self.messages.conserved and self.sub_messages.conserved

    @property
    def lost(self) -> dict[int, tuple[Range, ...]]:
        """By partition, offsets that were deleted before they were read: beside the account, for
        they were never delivered. Each is a record at most."""
        return {number: part.lost for number, part in self.partitions.items() if part.lost}

    def as_json(self) -> dict[str, Any]:
        """The object that ``-o json`` prints: its fields, with those of failures and rules."""
        found = builtins(replace(self, cause=None, resuming=Resuming(), parked=NONE_PARKED))
        found |= found.pop("failures") | found.pop("rules")
        for name in ("cause", "resuming", "parked"):
            del found[name]
        return found | {
            "parked_first": self.parked.shown(),
            "conserved": self.conserved,
            "resume": self.resume,
            "resume_needs": self.resuming.needs,
            "undo": self.undo,
            "error": self.error,
            "hint": self.hint,
        }
