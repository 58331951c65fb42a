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
    """The repr of a sub-key in another process. Its own repr is the same text, without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The status of one partition.

    It is fetched up to the offset ``position``, and finished up to the offset ``watermark``.
    ``sub_messages_left`` is an estimate; it is None until something was read.
    """

    partition: Whole
    start: Whole
    end: Whole
    position: Whole
    watermark: Whole
    committed: Whole | None
    messages_finished: Whole  # in all runs of this drain
    sub_messages_finished: Whole = 0  # in all runs of this drain
    sub_messages_left: int | None = None

    @property
    def complete(self) -> bool:
        return self.watermark >= self.end

    @property
    def left(self) -> int:
        """The number of offsets from the watermark to the end."""
        return max(0, self.end - self.watermark)


@dataclass(frozen=True, slots=True)
class FailureStatus:
    """The failures of this run, and what the drain did about them.

    Attributes:
        failures: the number of attempts that failed.
        failed_sub_messages: the number of sub-messages that failed alone in a call.
        timeouts: the number of attempts that took too long. If the handler runs on threads, such an
            attempt may still succeed.
        retries: the number of further attempts that were granted, also at the handler's request.
        waiting: the number of retries that are not due yet.
        parked_lanes: the number of lanes that wait for another run.
        late: the number of sub-messages whose thread goes on after their time was up.
        outages: how often the circuit breaker opened; ``in_outage`` tells whether it is open.
        errors: kinds of error texts with their counts, the most frequent first.
        error_types: classes of errors with their counts. They have no content of messages.
        doubled_letters: the number of dead letters that may be in their topic twice;
            ``doubled_first`` has the places of the first few.
        left_out_letters: the number of letters without their payload, because it was too large for
            the topic; ``left_out_oldest_ms`` is the earliest timestamp of their messages.
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
        """The failures of a part of the drain that is over, so nothing waits there any more."""
        return replace(self, waiting=0, parked_lanes=0, late=0, in_outage=False)

    @classmethod
    def sum(cls, each: Sequence[FailureStatus]) -> FailureStatus:
        """Add up the failures of several parts of a drain, without dead-letter topic and rate."""

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
    """The state of a concurrency that a drain finds itself.

    Attributes:
        limit: the current concurrency.
        most: the highest concurrency that the drain may try.
        settled: the concurrency that the last search found; None until a search has ended.
        searching: whether a search is under way.
        why: the reason for the last change.
    """

    limit: int
    most: int
    settled: int | None
    searching: bool
    why: str


@dataclass(frozen=True, slots=True)
class Paused(JsonRecord):
    """A pause of a drain: the event that began it, and the time at which it ends by itself.

    ``until`` is in ISO 8601. It is None for a pause that does not end by itself.
    """

    event: Event
    until: str | None = None

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {clock(self.until)}"
        reason = "" if self.event.reason is None else f" ({self.event.reason})"
        return f"paused by {self.event.by} at {clock(self.event.at)}{until}{reason}"


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a core: the shares of the time in which it was used, and was waited for.

    ``waited`` is 0 where the share is not known.
    """

    used: float = 0.0
    waited: float = 0.0


NO_LOAD, NO_COUNTS = Load(), Counts()


@runtime_checkable
class EngineStatus(Protocol):
    """The section of a status that an engine adds. Views show it, and must escape its texts."""

    def limit(self, status: Status) -> str | None:
        """Return in a few words what limits the drain, if only the engine can know; else None."""

    @property
    def facts(self) -> Sequence[tuple[str, str]]:
        """Labels with their values, for the live view and for lines of the log."""

    def as_json(self) -> dict[str, Any]:
        """Return the section as an object of limited size, for JSON lines of the log."""


@dataclass(frozen=True, slots=True)
class ProgressStatus:
    """The progress of a drain, its speed and its expected end.

    Rates are sub-messages per second.
    """

    messages: Counts = NO_COUNTS
    sub_messages: Counts = NO_COUNTS
    partitions: tuple[PartitionStatus, ...] = ()
    classes: tuple[ClassStatus, ...] = ()  # the priority classes, which go before the rest
    rate_now: float = 0.0  # the mean of the last few seconds
    rate_average: float = 0.0  # the mean since this run began
    eta_s: float | None = None  # the time left; None while nothing is known to estimate it from
    lane_s: float | None = None  # the time that the hottest lane takes, at most ``eta_s``
    deadline: DeadlineStatus | None = None

    @property
    def complete(self) -> bool:
        return all(part.complete for part in self.partitions)

    @property
    def without_estimates(self) -> ProgressStatus:
        """The progress without any estimate of the time that is left."""
        classes = tuple(replace(each, eta_s=None) for each in self.classes)
        return replace(self, eta_s=None, classes=classes)

    @property
    def turn(self) -> ClassStatus | None:
        """The priority class that is drained now; None while the rest is drained."""
        return next((each for each in self.classes if each.ended is None), None)


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """The work that is in the handler and in memory, and the limits on it.

    Attributes:
        running: the mean number of sub-messages in the handler since the last status.
        busy: the mean number of busy workers since the last status; None if it equals ``running``.
        concurrency: the current limit on calls.
        auto: the state of the search, if the drain finds the concurrency itself.
        lanes: the number of lanes in which a sub-message waits or runs.
        lanes_ready: the number of lanes that only wait for a worker.
        hottest: the longest lanes, each with the number of sub-messages that wait in it.
        processor: the load of this process, or on Spark the mean load of each task.
        read_cap, write_cap: the caps that --broker-limits sets.
    """

    running: int = 0
    busy: int | None = None
    concurrency: int = 0
    auto: AutoStatus | None = None
    lanes: int = 0
    lanes_ready: int = 0
    hottest: tuple[tuple[Hashable, int], ...] = ()
    buffered_bytes: int = 0
    buffer_bytes: int = 0
    processor: Load = NO_LOAD
    read_cap: CapStatus | None = None
    write_cap: CapStatus | None = None

    @property
    def workers_busy(self) -> int:
        return min(self.concurrency, self.running if self.busy is None else self.busy)


@dataclass(frozen=True, slots=True)
class TimingStatus:
    """The times of this run.

    The latencies of the handler are None until an attempt has returned.
    """

    elapsed_s: float = 0.0
    plan_age_s: float = 0.0  # since the plan was last written
    latency: Latency | None = None
    latency_recent: Latency | None = None  # the latency in about the last ten seconds


@dataclass(frozen=True, slots=True)
class HealthStatus:
    """The disturbances of a drain.

    Attributes:
        trouble: what the drain waits for to pass, such as a broker that does not answer.
        is_kept_waiting: whether the drain reads nothing and begins no call until then.
        blocked_by: the line of an async handler that blocks the event loop most often.
        is_blocked: whether the handler blocks the event loop now.
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
    """What users requested of a running drain.

    Attributes:
        stopping: the reason why the drain is stopping; None while it is not.
        paused: the current pause; None while the drain is not paused.
        changes: the last few events in this run.
        changes_total: the number of all events in this run.
    """

    stopping: str | None = None
    paused: Paused | None = None
    changes: tuple[Event, ...] = ()
    changes_total: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a drain at one moment, in sections."""

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
    engine: EngineStatus | None = None  # a section with what only the engine knows

    @classmethod
    def merge(cls, passes: Sequence[Status]) -> Status:
        """Make one status of a drain's passes, which ran one after the other.

        Its counts and times cover all passes. Everything else is that of the last pass.
        """
        *before, last = passes
        elapsed_s = sum(each.timing.elapsed_s for each in passes)
        done = sum(each.progress.rate_average * each.timing.elapsed_s for each in passes)
        # ``given_up`` of the last pass already counts all passes and runs.
        past = (replace(each.failures.past, given_up=0) for each in before)
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
    """The end of the drain in one partition.

    Attributes:
        committed: the group's offset, which was read back from the broker.
        lost: the offsets that were deleted before they were read.
        above: the number of offsets above the watermark that are finished.
    """

    start: int
    end: int
    watermark: int
    committed: int | None
    lost: tuple[Range, ...] = ()
    above: int = 0

    @property
    def to_go(self) -> int:
        """The number of offsets that are not known to be finished, including holes."""
        return max(0, self.end - self.watermark - self.above)


@dataclass(frozen=True, slots=True)
class Resuming:
    """The options that a resume needs and that the plan does not keep.

    ``options`` are as they were given for this run. ``needs`` has the names of options whose values
    must not be shown.
    """

    options: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def command(self, plan: str, more: tuple[str, ...] = ()) -> str:
        """Return the command that resumes the drain, in a form that can be copied to a shell."""
        return command("resume", plan, options=(*more, *self.options))


CLASS_DONE = "class-done"  # A priority class is drained, and the rest is left for a resume.
# A priority class is drained, except for sub-messages that wait for the rest.
CLASS_WAITS = "class-waits"


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of a drain, with its last status and an account of everything that was read."""

    last: Status
    status: str  # "done", "class-done", "class-waits", "empty", "interrupted", "halted", "failed"
    exit_code: int
    partitions: Mapping[int, PartitionResult]
    cause: DrainerError | None = None  # the error that stopped the drain, if one did
    parked: ParkedLanes = NONE_PARKED
    resuming: Resuming = Resuming()
    # The number of records that a redrive left alone, by the reason; None for other drains.
    ignored_letters: Mapping[str, int] | None = None
    # The time for which Kafka keeps the messages of letters that have no payload.
    originals_kept: str | None = None
    engine: str = "process"  # "process" or "spark"
    engine_counts: Mapping[str, int] = field(default_factory=dict)  # counts that the engine adds
    open_transactions: tuple[OpenTransaction, ...] = ()  # those at which the backlog ends
    history: tuple[Event, ...] = ()  # the events of the plan
    handler: tuple[str, ...] = ()  # options that name the handler; empty for an empty backlog
    commits: bool = True  # whether the drain commits offsets for the group
    unread: str = ""  # the offsets that a run of one class did not read, and why

    @property
    def messages(self) -> Counts:
        return self.last.progress.messages

    @property
    def sub_messages(self) -> Counts:
        return self.last.progress.sub_messages

    @property
    def plan(self) -> str | None:
        """The place of the offset plan; None for an empty backlog, which has no plan."""
        return self.last.plan_path or None

    @property
    def to_go(self) -> int:
        """The number of offsets that are not known to be finished, including holes."""
        return sum(part.to_go for part in self.partitions.values())

    @property
    def resume(self) -> str | None:
        """The command that resumes the drain; None if all is done or a resume can't help."""
        over = self.exit_code in (EXIT_DONE, EXIT_DEAD_LETTERS, EXIT_UNRESUMABLE)
        if self.plan is None or (over and self.status != CLASS_DONE):
            return None
        more = () if self.cause is None else self.cause.resume_with
        return self.resuming.command(self.plan, more)

    @property
    def undo(self) -> str | None:
        """The command that resets the group; None if that would not help."""
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
        """Whether every message and every sub-message that was read is accounted for."""
        return self.messages.conserved and self.sub_messages.conserved

    @property
    def lost(self) -> dict[int, tuple[Range, ...]]:
        """The offsets that were deleted before they were read, by partition.

        The account does not count them, because they were never delivered. Each offset stands for
        at most one record.
        """
        return {number: part.lost for number, part in self.partitions.items() if part.lost}

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``-o json`` prints."""
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


# The first fields of a summary's JSON, each with the path of the attribute that it shows. An empty
# path stands for the attribute of the same name. The fields of failures and rules follow these.
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
    """Return the attribute at a path with dots; None if an attribute on the way is None."""
    for name in path.split("."):
        found = None if found is None else getattr(found, name)
    return found


def fields_of(section: Any) -> dict[str, Any]:
    """Return the fields of a section by their names."""
    return {each.name: getattr(section, each.name) for each in fields(section)}
