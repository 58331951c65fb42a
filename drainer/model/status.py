"""The status of a running drain: what the live view, the log lines and the metrics show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from heapq import nlargest
from itertools import chain
from typing import Any, Protocol, Self, runtime_checkable

from drainer.errors import (
    EXIT_DEAD_LETTERS,
    EXIT_DONE,
    EXIT_UNRESUMABLE,
    DrainerError,
    Unresumable,
)
from drainer.model.account import NONE_PARKED, Event, ParkedLanes, clock
from drainer.model.codec import JsonRecord, Whole, builtins, convert
from drainer.model.deadline import DeadlineStatus
from drainer.model.hand_over import HandOver
from drainer.model.latency import Latency, merge_latencies
from drainer.model.listed import listed
from drainer.model.merging import merge, merged
from drainer.model.plan import OpenTransaction
from drainer.model.priority import ClassStatus
from drainer.model.progress import Counts
from drainer.model.ranges import Range
from drainer.model.rate_cap import CapsStatus
from drainer.model.resuming import Resuming
from drainer.model.settings import FailureSettings
from drainer.model.shown import Shown
from drainer.model.unhandled import RuleStatus
from drainer.text.escape import command

ERRORS_MOST = 50
DOUBLED_MOST = 20
HOTTEST = HELD_BACK_MOST = 5
NEARLY_ALL = 0.9999  # A share is at most this until everything is finished.


def least_of(times: Iterable[int | None]) -> int | None:
    """Return the earliest of the known times; None if none is known."""
    return min((each for each in times if each is not None), default=None)


def _tally(each: Iterable[Iterable[tuple[str, int]]]) -> tuple[tuple[str, int], ...]:
    counts = sum((Counter(dict(one)) for one in each), Counter[str]())
    return tuple(counts.items())


def _most_frequent(each: Iterable[Iterable[tuple[str, int]]]) -> tuple[tuple[str, int], ...]:
    return tuple(nlargest(ERRORS_MOST, _tally(each), key=lambda counted: counted[1]))


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
    messages_finished: Whole  # How many finished in all runs of this drain.
    sub_messages_finished: Whole = 0  # How many finished in all runs of this drain.
    sub_messages_left: int | None = None

    @property
    def complete(self) -> bool:
        return self.watermark >= self.end

    @property
    def left(self) -> int:
        """The number of offsets from the watermark to the end."""
        return max(0, self.end - self.watermark)

    @property
    def finished(self) -> int:
        """How many offsets are known to be finished. There may be more."""
        offsets = self.end - self.start
        return min(offsets, max(self.messages_finished, self.watermark - self.start))


def share_finished(partitions: Iterable[PartitionStatus]) -> float:
    """Return the share of a backlog that is finished, from 0 to 1. It is 1 only if all is finished.

    It is a share of the sub-messages, whose total is estimated from the messages read so far. While
    there is no estimate, it is a share of the offsets: those below the watermark, or the finished
    messages if there are more of them.
    """
    parts = tuple(partitions)
    if all(part.complete for part in parts):
        return 1.0
    lefts = [part.sub_messages_left for part in parts]
    done = sum(part.sub_messages_finished for part in parts)
    total = done + sum(filter(None, lefts))
    if None in lefts:
        done = sum(part.finished for part in parts)
        total = sum(part.end - part.start for part in parts)
    return min(done / total, NEARLY_ALL) if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class OutageStatus:
    """An outage that the drain waits out.

    Attributes:
        since: when it began.
        for_s: how long ago that was.
        halts: when the drain halts, unless the outage ends before.
        next_try_s: the time until the next call; None while one is under way.
    """

    since: datetime
    for_s: float
    halts: datetime
    next_try_s: float | None


def _first_to_halt(each: Iterable[OutageStatus | None]) -> OutageStatus | None:
    return min(filter(None, each), key=lambda outage: outage.halts, default=None)


@dataclass(frozen=True, slots=True)
class FailureStatus:
    """The failures of this run, and what the drain did about them.

    Attributes:
        failures: the number of attempts that failed.
        failed_sub_messages: the number of sub-messages that failed alone in a call.
        timeouts: the number of attempts that took too long. If the handler runs on threads, such an
            attempt may still succeed.
        retries: the number of further attempts that began after a delay, including those that the
            handler requested.
        waiting: the number of retries that are not due yet.
        parked_lanes: the number of lanes that wait for another run.
        late: the number of sub-messages whose thread goes on after their time was up.
        outages: how often the circuit breaker opened; ``in_outage`` tells whether it is open.
        outage: the outage that lasts, of the downstream or of this machine; None if there is none.
        errors: kinds of error texts with their counts, the most frequent first.
        error_types: classes of errors with their counts. They have no content of messages.
        doubled_letters: the number of dead letters that may be in their topic twice;
            ``doubled_first`` has the places of the first few.
        left_out_letters: the number of letters without their payload, because it was too large for
            the topic; ``left_out_oldest_ms`` is the earliest timestamp of their messages.
    """

    failures: int = merged(sum)
    retries: int = merged(sum)
    timeouts: int = merged(sum)
    waiting: int = merged(sum, present=True)
    parked_lanes: int = merged(sum, present=True)
    late: int = merged(sum, present=True)
    outages: int = merged(sum)
    errors: tuple[tuple[str, int], ...] = merged(_most_frequent, ())
    dead_letter_topic: str | None = None
    error_types: tuple[tuple[str, int], ...] = merged(_tally, ())
    in_outage: bool = merged(any, default=False, present=True)
    outage: OutageStatus | None = merged(_first_to_halt, None, present=True)
    given_up: int = merged(sum)  # How many sub-messages were given up, in all runs.
    # How many sub-messages were given up in this run, by the reason (policy/failures.py).
    given_up_by: tuple[tuple[str, int], ...] = merged(_tally, ())
    rate: float | None = None  # the limit on sub-messages started per second
    doubled_letters: int = merged(sum)
    doubled_first: tuple[str, ...] = merged(
        lambda each: tuple(chain.from_iterable(each))[:DOUBLED_MOST], ()
    )
    failed_sub_messages: int = merged(sum)
    left_out_letters: int = merged(sum)
    left_out_oldest_ms: int | None = merged(least_of, None)

    @classmethod
    def of(cls, settings: FailureSettings) -> FailureStatus:
        """Make the section of a drain with these settings in which nothing has failed yet."""
        return cls(dead_letter_topic=settings.dead_letter_topic, rate=settings.rate)


@dataclass(frozen=True, slots=True)
class AutoStatus:
    """The state of the search for the best concurrency, with ``--concurrency auto``.

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

    def in_words(self, now: datetime | None = None) -> str:
        """Return ``paused by ana@db1 at 18:32:07 until 18:42:07 (the database is slow)``."""
        until = "" if self.until is None else f" until {clock(self.until, now)}"
        reason = "" if self.event.reason is None else f" ({self.event.reason})"
        return f"paused by {self.event.by} at {clock(self.event.at, now)}{until}{reason}"


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a core: the shares of the time in which it was used, and was waited for.

    ``waited`` is 0 where the share is not known.
    """

    used: float = 0.0
    waited: float = 0.0


NO_LOAD, NO_COUNTS = Load(), Counts()


def _mean_load(each: Sequence[Load]) -> Load:
    parts = max(1, len(each))
    return Load(sum(one.used for one in each) / parts, sum(one.waited for one in each) / parts)


def _hottest(each: Iterable[tuple[tuple[str, int], ...]]) -> tuple[tuple[str, int], ...]:
    return tuple(nlargest(HOTTEST, chain.from_iterable(each), key=lambda lane: lane[1]))


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A message that holds the watermark of its partition back, while others finish.

    Attributes:
        key: the sub-key of its lane as a text, which is shortened and masked; None if no lane is
            known, for example because a later run handles it.
        before: how many sub-messages come before it in that lane.
        for_s: how long the watermark has stood.
        is_ready: whether it only waits for a worker, since others were read before it.
    """

    partition: Whole
    offset: Whole
    key: str | None
    before: int
    for_s: float
    is_ready: bool = False


def _waits_longest(held: HeldBack) -> tuple[int, int, bool]:
    return held.offset, -held.before, held.is_ready


def _least_offsets(each: Iterable[tuple[HeldBack, ...]]) -> tuple[HeldBack, ...]:
    """Keep the message of each partition that holds the watermark back over all tasks."""
    found: dict[int, HeldBack] = {}
    for one in chain.from_iterable(each):
        known = found.get(one.partition, one)
        found[one.partition] = min(known, one, key=_waits_longest)
    return tuple(found.values())


@runtime_checkable
class EngineStatus(Protocol):
    """The section of a status that an engine adds. Views show it, and must escape its texts."""

    def limit(self, status: Status) -> str | None:
        """Return in a few words what limits the drain, if only the engine can know; else None."""

    @property
    def facts(self) -> Sequence[tuple[str, str]]:
        """Labels with their values, for the live view and for lines of the log."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields that only this engine has, of limited size."""


@dataclass(frozen=True, slots=True)
class EngineReport:
    """The section of an engine in another process, as far as views show it."""

    limited_by: str | None = None
    facts: tuple[tuple[str, str], ...] = ()

    def limit(self, status: Status) -> str | None:
        return self.limited_by

    def as_json(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class LagStatus:
    """How far a drain that follows its log is behind it.

    ``messages`` are the offsets from the watermarks to the end of the log. ``seconds`` is the time
    since the log ended at the watermarks: everything that was written before then is done. It is
    None until the drain has caught up with where the log ended when the drain began.
    """

    messages: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class ProgressStatus:
    """The progress of a drain, its speed and its expected end.

    Rates are sub-messages per second.
    """

    messages: Counts = NO_COUNTS
    sub_messages: Counts = NO_COUNTS
    partitions: tuple[PartitionStatus, ...] = ()
    classes: tuple[ClassStatus, ...] = ()  # the priority classes, which go before the rest
    # Whether the drain ends with the classes, so that shares and times are of what they select.
    only_classes: bool = False
    rate_now: float = 0.0  # the mean of the last few seconds
    rate_average: float = 0.0  # the mean since this run began
    eta_s: float | None = None  # the time left; None while nothing is known to estimate it from
    # How many times as fast the last seconds were as the last minute, and at least 1. A deadline
    # is met only if the drain meets it at the pace of the last minute, too.
    quicker: float = 1.0
    lane_s: float | None = None  # the time that the hottest lane takes, at most ``eta_s``
    deadline: DeadlineStatus | None = None
    lag: LagStatus | None = None  # None unless the end of the backlog moves with the log

    @property
    def complete(self) -> bool:
        return self.lag is None and all(part.complete for part in self.partitions)

    @property
    def is_late(self) -> bool:
        """Whether the drain has a deadline, and is sure to miss it."""
        return self.deadline is not None and self.deadline.missed

    @property
    def turn(self) -> ClassStatus | None:
        """The priority class that is drained now; None while the rest is drained."""
        return next((each for each in self.classes if each.ended is None), None)


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """The work that is in the handler and in memory, and the limits on it.

    Attributes:
        in_flight: the mean number of sub-messages in the handler since the last status.
        busy: the mean number of busy workers since the last status; None if it equals
            ``in_flight``.
        concurrency: the current limit on calls.
        auto: the state of the search, if the drain finds the concurrency itself.
        lanes: the number of lanes in which a sub-message waits or runs.
        lanes_ready: the number of lanes that only wait for a worker.
        behind_barriers: the number of sub-messages that wait for a barrier, or are one.
        hottest: the sub-keys of the longest lanes as texts, which are shortened and masked, each
            with the number of sub-messages that wait in its lane.
        longest: the number of sub-messages in the longest lane, with the one that runs. If there
            are many lanes, only those with a long queue are counted.
        held_back: the messages that hold a watermark back, those with the longest time first, and
            those that only wait for a worker last. It
            has partitions whose watermark stands while others finish, but only a few of them.
        processor: the load of this process, or on Spark the mean load of each task.
    """

    in_flight: int = merged(sum, present=True)
    busy: int | None = merged(lambda each: sum(filter(None, each)), None, present=True)
    concurrency: int = 0
    auto: AutoStatus | None = None
    lanes: int = merged(sum, present=True)
    lanes_ready: int = merged(sum, present=True)
    behind_barriers: int = merged(sum, present=True)
    hottest: tuple[tuple[str, int], ...] = merged(_hottest, (), present=True)
    longest: int = merged(lambda each: max(each, default=0), present=True)
    held_back: tuple[HeldBack, ...] = merged(_least_offsets, (), present=True)
    buffered_bytes: int = merged(sum, present=True)
    buffer_bytes: int = 0
    processor: Load = merged(_mean_load, NO_LOAD, present=True)

    @property
    def workers_busy(self) -> int:
        return min(self.concurrency, self.in_flight if self.busy is None else self.busy)


@dataclass(frozen=True, slots=True)
class TimingStatus:
    """The times of this run.

    The latencies of the handler are None until an attempt has returned. ``p50_at_start_s`` is its
    median over about the first ten seconds; None before that.
    """

    elapsed_s: float = 0.0
    plan_age_s: float = 0.0  # The time since the plan was last written.
    p50_at_start_s: float | None = None
    latency: Latency | None = merged(merge_latencies, None)
    # The latency in about the last ten seconds.
    latency_recent: Latency | None = merged(merge_latencies, None, present=True)


@dataclass(frozen=True, slots=True)
class HealthStatus:
    """The disturbances of a drain.

    Attributes:
        trouble: the trouble that the drain waits out, such as a broker that does not answer.
        silent_s: for how long no broker has answered; None if that is not the trouble.
        is_kept_waiting: whether the drain reads nothing and begins no call until that is over.
        blocked_by: the line of an async handler that blocks the event loop most often.
        is_blocked: whether the handler blocks the event loop now.
    """

    trouble: str | None = None
    silent_s: float | None = None
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
class Status(Shown):
    """The state of a drain at one moment, in sections. ``plan`` is the place of its offset plan."""

    _page = "drainer.view.live:status_page"

    topic: str
    group: str
    plan: str
    progress: ProgressStatus
    limits: LimitStatus
    caps: CapsStatus = CapsStatus()
    failures: FailureStatus = FailureStatus()
    rules: RuleStatus = RuleStatus()
    timing: TimingStatus = TimingStatus()
    health: HealthStatus = HealthStatus()
    control: ControlStatus = ControlStatus()
    engine_status: EngineStatus | None = None  # a section with what only the engine knows

    @classmethod
    def merge(cls, passes: Sequence[Status]) -> Status:
        """Make one status of a drain's passes, which ran one after the other.

        Its counts and times cover all passes. Everything else is that of the last pass.
        """
        *before, last = passes
        elapsed_s = sum(each.timing.elapsed_s for each in passes)
        done = sum(each.progress.rate_average * each.timing.elapsed_s for each in passes)
        timing = replace(last.timing, elapsed_s=elapsed_s)
        failures = merge(last.failures, [last.failures], [each.failures for each in before])
        rules = merge(last.rules, [last.rules], [each.rules for each in before])
        return replace(
            last,
            progress=replace(last.progress, rate_average=done / elapsed_s if elapsed_s else 0.0),
            rules=rules,
            timing=merge(timing, [last.timing], [each.timing for each in before]),
            # What was given up is counted over all runs already.
            failures=replace(failures, given_up=last.failures.given_up),
        )

    def as_json(self) -> dict[str, Any]:
        """Return all fields of all sections in one object, without the names of the sections.

        The log, other processes and the JSON of a summary have this object.
        """
        found: dict[str, Any] = {"topic": self.topic, "group": self.group, "plan": self.plan}
        for name in SECTIONS:
            section = getattr(self, name)
            found |= {each.name: getattr(section, each.name) for each in fields(section)}
        if (engine := self.engine_status) is not None:
            texts = {"limited_by": engine.limit(self), "facts": engine.facts}
            found["engine_status"] = texts | engine.as_json()
        return builtins({"engine_status": None} | found)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Make a status from the object that ``as_json`` returns.

        Raises ValueError if ``body`` is not such an object.
        """
        found: dict[str, Any] = {name: convert(body, kind) for name, kind in SECTIONS.items()}
        found |= {name: convert(body.get(name), str) for name in ("topic", "group", "plan")}
        if (engine := body.get("engine_status")) is not None:
            found["engine_status"] = convert(engine, EngineReport)
        return cls(**found)


# The sections of a status that every engine has. No two of them have a field of the same name.
SECTIONS: dict[str, Any] = {
    "progress": ProgressStatus,
    "limits": LimitStatus,
    "caps": CapsStatus,
    "failures": FailureStatus,
    "rules": RuleStatus,
    "timing": TimingStatus,
    "health": HealthStatus,
    "control": ControlStatus,
}


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


CLASS_DONE = "class-done"  # A priority class is drained, and the rest is left for a resume.
# A priority class is drained, except for sub-messages that wait for the rest.
CLASS_WAITS = "class-waits"


@dataclass(frozen=True, slots=True)
class Summary(Shown):
    """The end of a drain, with its last status and an account of everything that was read."""

    _page = "drainer.view.summary:summary_page"

    last: Status
    status: str  # "done", "class-done", "class-waits", "empty", "interrupted", "halted", "failed"
    exit_code: int
    partitions: Mapping[int, PartitionResult]
    cause: DrainerError | None = None  # the error that stopped the drain, if one did
    parked: ParkedLanes = NONE_PARKED
    resuming: Resuming = Resuming()
    # The number of records that a redrive left alone, by the reason; None for other drains.
    left_alone: Mapping[str, int] | None = None
    # The time for which Kafka keeps the messages of letters that have no payload.
    originals_kept: str | None = None
    engine: str = "process"  # "process" or "spark"
    engine_counts: Mapping[str, int] = field(default_factory=dict)  # counts that the engine adds
    open_transactions: tuple[OpenTransaction, ...] = ()  # The backlog ends before these.
    history: tuple[Event, ...] = ()  # the events of the plan
    handler: tuple[str, ...] = ()  # options that name the handler; empty for an empty backlog
    connection: tuple[str, ...] = ()  # options that connect to the cluster of the drain
    barrier: str | None = None  # the expression of ``--barrier``
    commits: bool = True  # whether the drain commits offsets for the group
    hand_over: HandOver | None = None  # None if nobody asked for it
    unread: str = ""  # the offsets that a run of one class did not read, and why
    # When an earlier command ended the drain, so that this one did nothing; None if this one did.
    ended_before: str | None = None
    accepted: bool = False  # whether the exit code is 0 because dead letters are accepted

    @property
    def messages(self) -> Counts:
        return self.last.progress.messages

    @property
    def sub_messages(self) -> Counts:
        return self.last.progress.sub_messages

    @property
    def plan(self) -> str | None:
        """The place of the offset plan; None for an empty backlog, which has no plan."""
        return self.last.plan or None

    @property
    def to_go(self) -> int:
        """The number of offsets that are not known to be finished, including holes."""
        return sum(part.to_go for part in self.partitions.values())

    @property
    def reached_its_end(self) -> bool:
        """Whether the drain was not cut short, although some of it may be dead letters.

        A hand-over is watched only then, whatever exit code it gives.
        """
        return self.exit_code in (EXIT_DONE, EXIT_DEAD_LETTERS) or self.hand_over is not None

    @property
    def only_dead(self) -> bool:
        """Whether dead letters are all that keeps the exit code from being 0."""
        others = self.lost or self.sub_messages.failed or self.left_alone
        return self.exit_code == EXIT_DEAD_LETTERS and not others

    @property
    def resume(self) -> str | None:
        """The command that resumes the drain; None if all is done or a resume can't help."""
        over = self.reached_its_end or self.exit_code == EXIT_UNRESUMABLE
        if self.plan is None or (over and self.status != CLASS_DONE):
            return None
        more = () if self.cause is None else self.cause.resume_with
        return self.resuming.command(self.plan, more)

    @property
    def undo(self) -> str | None:
        """The command that puts the group back; None if nothing was committed or it can't help."""
        helpless = isinstance(self.cause, Unresumable) and not self.cause.undo
        if self.plan is None or not self.commits or helpless:
            return None
        return command("plan undo", self.plan)

    @property
    def begin_words(self) -> str:
        """Sentence that says where the group's consumers begin; empty if none are to be started."""
        if self.status != "done" or not self.commits or self.left_alone is not None:
            return ""
        places = [f"{part.committed} of partition {n}" for n, part in self.partitions.items()]
        begin = f"They begin at offset {listed(places)}."
        return f"Start the consumers of {self.last.group} now. {begin}"

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
        """Return the object that ``-o json`` prints: the last status, and how the drain ended."""
        own = {name: getattr(self, name) for name in _OF_THE_END}
        lists = {"parked_first": self.parked.shown(), "resume_needs": self.resuming.needs}
        hand_over = None if self.hand_over is None else self.hand_over.as_json()
        return self.last.as_json() | builtins(own) | lists | {"hand_over": hand_over}


_OF_THE_END = (
    *("status", "exit_code", "error", "hint", "resume", "undo", "conserved", "partitions", "plan"),
    *("handler", "commits", "engine", "engine_counts", "history", "left_alone"),
    *("originals_kept", "open_transactions", "ended_before"),
)
