"""The status of a running drain: what the live view, the log lines and the metrics show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, Protocol, runtime_checkable

from drainer.errors import EXIT_DEAD_LETTERS, EXIT_DONE, EXIT_UNRESUMABLE, DrainerError, Unresumable
from drainer.model.account import NONE_PARKED, Event, ParkedLanes, clock
from drainer.model.codec import JsonRecord, Whole, builtins
from drainer.model.deadline import DeadlineStatus
from drainer.model.latency import Latency, merge_latencies
from drainer.model.plan import OpenTransaction
from drainer.model.priority import ClassStatus
from drainer.model.progress import Counts
from drainer.model.ranges import Range
from drainer.model.rate_cap import CapStatus
from drainer.model.unhandled import RuleStatus
from drainer.text.escape import command


class Repr(str):
    """The repr of a sub-key of another process, shown as it is."""

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
    """Failures of this run, and what was done about them.

    ``failures`` counts attempts that failed, ``failed_sub_messages`` the sub-messages that had one
    alone in a call. ``timeouts`` counts attempts that took too long, of which a thread's may still
    succeed; ``retries`` further attempts that were granted, also to a handler that requested one,
    ``waiting`` those that are not due yet. ``parked_lanes`` wait for another run. ``late`` counts
    sub-messages whose thread goes on after their time. ``outages`` counts how often the circuit
    breaker opened, and ``in_outage`` whether it is open. ``errors`` are (kind of text, count), the
    most frequent first; ``error_types`` (class, count), without any content.
    ``doubled_letters`` counts dead letters that may be in their topic twice, and ``doubled_first``
    has the places of the first few. ``left_out_letters`` counts letters without payload, which was
    too large for the topic. ``left_out_oldest_ms`` is the earliest timestamp of their messages.
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
    rate: float | None = None  # the limit on sub-messages started per second
    doubled_letters: int = 0
    doubled_first: tuple[str, ...] = ()
    failed_sub_messages: int = 0
    left_out_letters: int = 0
    left_out_oldest_ms: int | None = None

    @property
    def past(self) -> FailureStatus:
        """The failures once its part of the drain is over: nothing waits there any more."""
        return replace(self, waiting=0, parked_lanes=0, late=0, in_outage=False)

    @classmethod
    def sum(cls, each: Sequence[FailureStatus]) -> FailureStatus:
        """The failures of several parts of a drain; topic and rate are left out."""

        def tally(name: str) -> Counter[str]:
            return sum((Counter(dict(getattr(one, name))) for one in each), Counter[str]())

        return cls(
            **{name: sum(getattr(one, name) for one in each) for name in _COUNTED},
            errors=tuple(tally("errors").most_common(ERRORS_MOST)),
            error_types=tuple(tally("error_types").items()),
            given_up_by=tuple(tally("given_up_by").items()),
            in_outage=any(one.in_outage for one in each),
            left_out_oldest_ms=least_of(one.left_out_oldest_ms for one in each),
            doubled_first=tuple(chain.from_iterable(one.doubled_first for one in each))[
                :DOUBLED_MOST
            ],
        )


_COUNTED = (
    *("failures", "retries", "timeouts", "waiting", "parked_lanes", "late", "outages"),
    *("given_up", "doubled_letters", "failed_sub_messages", "left_out_letters"),
)
ERRORS_MOST = 50
DOUBLED_MOST = 20


@dataclass(frozen=True, slots=True)
class AutoStatus:
    """State of a concurrency that a drain finds itself.

    ``limit`` is what it is now, ``most`` what it may become. ``settled`` is what was found last,
    None until something was; ``searching`` whether it is being looked for. ``why`` is the reason of
    the last change.
    """

    limit: int
    most: int
    settled: int | None
    searching: bool
    why: str


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
class Load:
    """Shares of the time that a core is used, and waited for where that is known."""

    used: float = 0.0
    waited: float = 0.0


NO_LOAD, NO_COUNTS = Load(), Counts()


@runtime_checkable
class EngineStatus(Protocol):
    """Section that an engine adds to a status, as each view shows it; texts may hold anything."""

    def limit(self, status: Status) -> str | None:
        """Return what limits it and only this engine knows, in a few words; None for nothing."""

    @property
    def facts(self) -> Sequence[tuple[str, str]]:
        """Labels and their values, for the live view and for lines."""

    def as_json(self) -> dict[str, Any]:
        """Text for a line of the log, of bounded size."""


@dataclass(frozen=True, slots=True)
class ProgressStatus:
    """Progress of a drain, its speed and its end. Rates are sub-messages per second."""

    messages: Counts = NO_COUNTS
    sub_messages: Counts = NO_COUNTS
    partitions: tuple[PartitionStatus, ...] = ()
    classes: tuple[ClassStatus, ...] = ()  # drained before the rest
    rate_now: float = 0.0  # over the last few seconds
    rate_average: float = 0.0  # since this run began
    eta_s: float | None = None  # None while there is nothing to estimate it from
    lane_s: float | None = None  # of ``eta_s``, what the hottest lane takes alone
    deadline: DeadlineStatus | None = None

    @property
    def complete(self) -> bool:
        return all(part.complete for part in self.partitions)

    @property
    def without_estimates(self) -> ProgressStatus:
        """Return the same without any estimate of the time that is left."""
        classes = tuple(replace(each, eta_s=None) for each in self.classes)
        return replace(self, eta_s=None, classes=classes)

    @property
    def turn(self) -> ClassStatus | None:
        """The class that is drained now; None when it is the rest."""
        return next((each for each in self.classes if each.ended is None), None)


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """Work in the handler and in memory, and the limits on it.

    ``running`` counts sub-messages in the handler, and ``busy`` workers, both on average since the
    last status; ``busy`` is None for as many. ``lanes`` are sub-keys with something waiting or
    running, ``lanes_ready`` those that only wait for a worker, and ``hottest`` the deepest ones,
    each with the sub-messages that wait in it.
    """

    running: int = 0
    busy: int | None = None
    concurrency: int = 0  # the limit now
    auto: AutoStatus | None = None  # when the concurrency is not fixed
    lanes: int = 0
    lanes_ready: int = 0
    hottest: tuple[tuple[Hashable, int], ...] = ()
    buffered_bytes: int = 0
    buffer_bytes: int = 0
    processor: Load = NO_LOAD  # of this process, or of each task on average
    read_cap: CapStatus | None = None  # with --broker-limits
    write_cap: CapStatus | None = None

    @property
    def workers_busy(self) -> int:
        return min(self.concurrency, self.running if self.busy is None else self.busy)


@dataclass(frozen=True, slots=True)
class TimingStatus:
    """Times of this run; latencies are the handler's, None until an attempt returned."""

    elapsed_s: float = 0.0
    plan_age_s: float = 0.0  # since the plan was last written
    latency: Latency | None = None
    latency_recent: Latency | None = None  # of the last ten seconds or so


@dataclass(frozen=True, slots=True)
class HealthStatus:
    """Disturbances of a drain: ``trouble`` is what it waits out, a broker that does not answer or a
    commit, and ``is_kept_waiting`` whether nothing new comes or begins meanwhile. ``blocked_by`` is
    the line of an async handler that blocks the event loop, and ``is_blocked`` whether it does now.
    """

    trouble: str | None = None
    is_kept_waiting: bool = False
    blocked_by: str | None = None
    is_blocked: bool = False

    @property
    def in_trouble(self) -> bool:
        return self.trouble is not None


@dataclass(frozen=True, slots=True)
class ControlStatus:
    """Requests of people: ``changes`` are the last few events in this run, of
    ``changes_total``. ``stopping`` is why the drain is stopping, once it is."""

    stopping: str | None = None
    paused: Paused | None = None
    changes: tuple[Event, ...] = ()
    changes_total: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """A moment of a drain, in sections."""

    topic: str
    group: str
    plan_path: str
    progress: ProgressStatus
    limits: LimitStatus
    failures: FailureStatus = FailureStatus()
    rules: RuleStatus = RuleStatus()
    timing: TimingStatus = TimingStatus()
    health: HealthStatus = HealthStatus()
    control: ControlStatus = ControlStatus()
    engine: EngineStatus | None = None  # what only the engine knows

    @classmethod
    def merge(cls, passes: Sequence[Status]) -> Status:
        """The status of a drain in passes, one after the other: what happened is of all of them,
        and how it stands is of the last."""
        *before, last = passes
        elapsed_s = sum(each.timing.elapsed_s for each in passes)
        done = sum(each.progress.rate_average * each.timing.elapsed_s for each in passes)
        past = (replace(each.failures.past, given_up=0) for each in before)  # it is of all runs
        latency = merge_latencies(each.timing.latency for each in passes)
        return replace(
            last,
            progress=replace(last.progress, rate_average=done / elapsed_s if elapsed_s else 0.0),
            timing=replace(last.timing, elapsed_s=elapsed_s, latency=latency),
            failures=replace(
                FailureStatus.sum([*past, last.failures]),
                dead_letter_topic=last.failures.dead_letter_topic,
                rate=last.failures.rate,
            ),
        )


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """End of one partition; ``committed`` was read back from the group.

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
    """Options that a resume needs and the plan lacks, as they were given for this run, and the
    names of those whose values are not to be shown."""

    options: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def command(self, plan: str, more: tuple[str, ...] = ()) -> str:
        """The command, ready to be copied."""
        return command("resume", plan, options=(*more, *self.options))


CLASS_DONE = "class-done"  # and the rest is for a resume
CLASS_WAITS = "class-waits"  # the same, but some of the class waits for the rest


@dataclass(frozen=True, slots=True)
class Summary:
    """End of a drain, and its last status; reconciles what was read with what became of it."""

    last: Status
    status: str  # "done", "class-done", "class-waits", "empty", "interrupted", "halted", "failed"
    exit_code: int
    partitions: Mapping[int, PartitionResult]
    cause: DrainerError | None = None  # what stopped it, when something did
    parked: ParkedLanes = NONE_PARKED
    resuming: Resuming = Resuming()
    ignored_letters: Mapping[str, int] | None = None  # by a redrive: why, and how many records
    originals_kept: str | None = None  # how long the messages of letters without payload are kept
    engine: str = "process"  # or "spark"
    engine_counts: Mapping[str, int] = field(default_factory=dict)  # what it adds to that
    open_transactions: tuple[OpenTransaction, ...] = ()  # that the backlog ends at
    history: tuple[Event, ...] = ()  # of the plan
    handler: tuple[str, ...] = ()  # options that name it; none for an empty backlog
    commits: bool = True  # whether the group's offsets moved with it
    unread: str = ""  # offsets that a run of one class did not read, and why

    @property
    def messages(self) -> Counts:
        return self.last.progress.messages

    @property
    def sub_messages(self) -> Counts:
        return self.last.progress.sub_messages

    @property
    def plan(self) -> str | None:
        """The place of the offset plan; None of an empty backlog, which has none."""
        return self.last.plan_path or None

    @property
    def to_go(self) -> int:
        """Offsets that are not known to be finished; holes are among them."""
        return sum(part.to_go for part in self.partitions.values())

    @property
    def resume(self) -> str | None:
        """The command that resumes it; None when all is done, or no resume gets over it."""
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
        """Whether the law of conservation holds, for messages and sub-messages."""
        return self.messages.conserved and self.sub_messages.conserved

    @property
    def lost(self) -> dict[int, tuple[Range, ...]]:
        """By partition, offsets that were deleted before they were read: beside the account, for
        they were never delivered. Each is a record at most."""
        return {number: part.lost for number, part in self.partitions.items() if part.lost}

    def as_json(self) -> dict[str, Any]:
        """The object that ``-o json`` prints."""
        found = {name: at(self, path or name) for name, path in _JSON.items()}
        return builtins(found | fields_of(self.last.failures) | fields_of(self.last.rules)) | {
            "parked_first": self.parked.shown(),
            "conserved": self.conserved,
            "resume": self.resume,
            "resume_needs": self.resuming.needs,
            "undo": self.undo,
            "error": self.error,
            "hint": self.hint,
        }


# The fields of a summary's JSON before those of failures and rules, each with where it is.
_JSON = {
    "status": "",
    "exit_code": "",
    "elapsed_s": "last.timing.elapsed_s",
    "messages": "",
    "sub_messages": "",
    "partitions": "",
    "plan": "",
    "sub_messages_per_s": "last.progress.rate_average",
    "left_alone": "ignored_letters",
    "originals_kept": "",
    "latency": "last.timing.latency",
    "auto": "last.limits.auto",
    "blocked_by": "last.health.blocked_by",
    "engine": "",
    "engine_counts": "",
    "read_cap": "last.limits.read_cap",
    "write_cap": "last.limits.write_cap",
    "held": "open_transactions",
    "history": "",
    "classes": "last.progress.classes",
    "eta_s": "last.progress.eta_s",
    "deadline": "last.progress.deadline",
    "handler": "",
    "commits": "",
}


def least_of(times: Iterable[int | None]) -> int | None:
    """Return the earliest of the known times; None if none is known."""
    return min((each for each in times if each is not None), default=None)


def at(found: Any, path: str) -> Any:
    """The attribute at a path with dots; None if one on the way is."""
    for name in path.split("."):
        found = None if found is None else getattr(found, name)
    return found


def fields_of(section: Any) -> dict[str, Any]:
    """The fields of a section, by name."""
    return {each.name: getattr(section, each.name) for each in fields(section)}
