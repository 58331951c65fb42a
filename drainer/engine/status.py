"""The status of a running drain: what the live view, the log lines and the metrics show."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from drainer.core.forecast.deadline import Outlook
from drainer.core.latency import Latency
from drainer.core.progress import Counts
from drainer.core.rules.sieve import Sieve
from drainer.errors import DrainerError


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition: fetched up to ``position``, finished up to ``watermark``, as offsets."""

    partition: int
    start: int
    end: int
    position: int
    watermark: int
    committed: int | None
    messages_finished: int  # over all runs of this drain

    @property
    def complete(self) -> bool:
        return self.watermark >= self.end


@dataclass(frozen=True, slots=True)
class FailureStatus:
    """What went wrong in this run, and what was done about it.

    ``failures`` counts attempts that failed, ``timeouts`` among them; ``retries`` further attempts
    that were granted, ``waiting`` those that are not due yet. ``parked_lanes`` wait for another
    run. ``late`` counts sub-messages whose thread goes on after their time. ``outages`` counts how
    often the circuit breaker opened, and ``in_outage`` whether it is open. ``errors`` are (text,
    count), the most frequent first; ``error_types`` (class, count), without any content.
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
    given_up: int = 0  # dead, skipped or parked for failing


@dataclass(frozen=True, slots=True)
class AutoStatus:
    """Where a concurrency stands that a drain finds itself.

    ``limit`` is what it is now, ``most`` what it may become. ``settled`` is what was found last,
    None until something was; ``searching`` whether it is being looked for. ``why`` tells the last
    change, and ``best_per_s`` the sub-messages per second at what was found.
    """

    limit: int
    most: int
    settled: int | None
    searching: bool
    why: str
    best_per_s: float | None

    def as_json(self) -> dict[str, object]:
        best = self.best_per_s
        return {
            "auto": True,
            "limit": self.limit,
            "most": self.most,
            "settled": self.settled,
            "best_sub_messages_per_s": None if best is None else round(best, 1),
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """What the rules took out, over all runs, by their names.

    ``undecided`` counts, in this run, sub-messages that a rule could not be told of, and so did not
    take out; ``why`` is the first reason of each such rule.
    """

    skipped_by: Mapping[str, int] = field(default_factory=dict)
    dead_by: Mapping[str, int] = field(default_factory=dict)
    undecided: Mapping[str, int] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, sieve: Sieve) -> RuleStatus:
        return cls(
            dict(sieve.skipped_by),
            dict(sieve.dead_by),
            dict(sieve.undecided),
            dict(sieve.why_undecided),
        )

    def as_json(self) -> dict[str, object]:
        return {
            "skipped_by": dict(self.skipped_by),
            "dead_by": dict(self.dead_by),
            "undecided": {
                name: {"count": count, "first": self.why.get(name)}
                for name, count in self.undecided.items()
            },
        }


@dataclass(frozen=True, slots=True)
class DeadlineStatus:
    """When all shall be drained, and whether it will be. ``warning`` is the outlook when it became
    sure that it won't; None until then."""

    at: datetime
    outlook: Outlook
    warning: Outlook | None = None


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

    def as_json(self) -> dict[str, object]:
        return {
            "messages_per_s": round(self.messages_per_s, 1),
            "bytes_per_s": round(self.bytes_per_s),
            "message_bytes": round(self.message_bytes),
            "average_messages_per_s": round(self.average_per_s, 1),
            "held_back": self.held,
        }


ENDED = "ended"  # of a task


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One of Spark's tasks, by what it said last.

    Attributes:
        claim: which sub-keys are its own, as "2/8", or "all".
        wave: the number of the wave that it works on.
        attempt: how often Spark has begun it, from 1.
        host: where it runs.
        state: what it does, in a word: reading, waiting, handling, ended.
        running: sub-messages in the handler.
        lanes: sub-keys with something waiting or running.
        ready: lanes that only wait for a worker.
        finished: sub-messages, in this attempt.
        rate: sub-messages per second, over the last few seconds.
        quiet_s: since its last word.
        straggler: whether the others wait for it.
    """

    claim: str
    wave: int
    attempt: int
    host: str
    state: str
    running: int
    lanes: int
    ready: int
    finished: int
    rate: float
    quiet_s: float
    straggler: bool = False

    def as_json(self) -> dict[str, object]:
        return {
            "claim": self.claim,
            "wave": self.wave,
            "attempt": self.attempt,
            "host": self.host,
            "state": self.state,
            "in_flight": self.running,
            "lanes": self.lanes,
            "lanes_ready": self.ready,
            "finished": self.finished,
            "sub_messages_per_s": round(self.rate, 1),
            "quiet_s": round(self.quiet_s, 3),
            "straggler": self.straggler,
        }


@dataclass(frozen=True, slots=True)
class WaveStatus:
    """The wave that is handled: the ``number``-th, of about ``of`` (None while nobody can tell).

    0 is none yet, while the first is read.

    ``ahead`` says whether the next one is being read, or waits; ``seconds`` since this one began.
    """

    number: int
    of: int | None = None
    ahead: bool = False
    seconds: float = 0.0

    def as_json(self) -> dict[str, object]:
        return {
            "number": self.number,
            "of": self.of,
            "ahead": self.ahead,
            "seconds": round(self.seconds, 3),
        }


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
    running: int  # sub-messages in the handler
    concurrency: int  # the limit now, when it is not fixed
    lanes: int  # sub-keys with something waiting or running
    lanes_ready: int  # lanes that only wait for a worker
    hottest: tuple[tuple[Hashable, int], ...]  # sub-key, sub-messages waiting in its lane
    buffered_bytes: int
    buffer_bytes: int
    plan_path: str
    plan_age_s: float  # since the plan was last written
    partitions: tuple[PartitionStatus, ...]
    stopping: str | None = None  # why it is stopping, once it is
    failures: FailureStatus = FailureStatus()
    trouble: str | None = None  # what it is waiting out: a broker that doesn't answer, a commit
    latency: Latency | None = None  # the handler's, in this run; None until an attempt returned
    latency_recent: Latency | None = None  # of the last ten seconds or so
    auto: AutoStatus | None = None  # when the concurrency is not fixed
    rules: RuleStatus = RuleStatus()
    deadline: DeadlineStatus | None = None  # when there is one
    tasks: tuple[TaskStatus, ...] = ()  # of Spark, in the order of their claims
    wave: WaveStatus | None = None  # on Spark
    read_cap: CapStatus | None = None  # with --limits
    write_cap: CapStatus | None = None


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """How one partition ended; ``committed`` was read back from the group."""

    start: int
    end: int
    watermark: int
    committed: int | None


@dataclass(frozen=True, slots=True)
class Summary:
    """How a drain ended; reconciles what was read with what became of it."""

    status: str  # "done", "empty", "interrupted" or "halted"
    exit_code: int
    elapsed_s: float
    messages: Counts
    sub_messages: Counts
    partitions: dict[int, PartitionResult]
    plan: str | None
    sub_messages_per_s: float  # of this run
    cause: DrainerError | None = None  # what stopped it, when something did
    failures: FailureStatus = FailureStatus()
    left_alone: Mapping[str, int] | None = None  # by a redrive: why, and how many records
    latency: Latency | None = None  # the handler's, in this run; None when no attempt returned
    auto: AutoStatus | None = None  # when the concurrency was not fixed
    rules: RuleStatus = RuleStatus()
    engine: str = "process"  # or "spark"
    waves: int | None = None  # that were handled in this run, on Spark
    tasks: int | None = None  # that handled at once, on Spark
    read_cap: CapStatus | None = None  # with --limits
    write_cap: CapStatus | None = None

    @property
    def error(self) -> str | None:
        return None if self.cause is None else str(self.cause)

    @property
    def hint(self) -> str | None:
        return None if self.cause is None else self.cause.hint

    @property
    def conserved(self) -> bool:
        """The law: read = done + dead + skipped + pending, for messages and sub-messages."""
        return self.messages.conserved and self.sub_messages.conserved

    def as_json(self) -> dict[str, object]:
        """The object that ``--json`` prints."""
        found: dict[str, object] = {
            "status": self.status,
            "exit_code": self.exit_code,
            "elapsed_s": round(self.elapsed_s, 3),
            "engine": self.engine,
            "waves": self.waves,
            "tasks": self.tasks,
            "messages": self.messages.as_json(),
            "sub_messages": self.sub_messages.as_json(),
            "sub_messages_per_s": round(self.sub_messages_per_s, 1),
            "partitions": {
                str(number): {
                    "start": part.start,
                    "end": part.end,
                    "watermark": part.watermark,
                    "committed": part.committed,
                }
                for number, part in self.partitions.items()
            },
            "plan": self.plan,
            "failures": self.failures.failures,
            "retries": self.failures.retries,
            "timeouts": self.failures.timeouts,
            "outages": self.failures.outages,
            "parked_lanes": self.failures.parked_lanes,
            "dead_letter_topic": self.failures.dead_letter_topic,
            "errors": [{"error": text, "count": n} for text, n in self.failures.errors],
            "latency": None if self.latency is None else self.latency.as_json(),
            **self.rules.as_json(),
        }
        if self.read_cap is not None:
            found["read_cap"] = self.read_cap.as_json()
        if self.write_cap is not None:
            found["write_cap"] = self.write_cap.as_json()
        if self.auto is not None:
            found["concurrency"] = self.auto.as_json()
        if self.left_alone is not None:
            found["left_alone"] = dict(self.left_alone)
        if self.cause is not None:
            found |= {"error": self.error, "hint": self.hint}
        return found
