"""Ports of an engine: a drain that is locked, messages, dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from drainer.core.dispatch import Dispatcher
from drainer.core.first import Pass
from drainer.core.merge import Record
from drainer.engine.control import Control, Settings
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import DrainerError
from drainer.handler import Retry, Writer, no_extras
from drainer.loading.loader import LoadedHandler
from drainer.message import Message, SubMessage
from drainer.model.plan import OffsetPlan
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.status import FailureStatus, Status, Summary
from drainer.policy.failures import Totals

Acknowledge = Callable[[DrainerError | None], None]
# What goes to the handler in one call: a SubMessage, or a Batch if the handler wants several.
CallInput = Any
# A call that may not begin, because the lease is over, is tried again after this time.
LEASE_RETRY_S = 0.1


class LeaseOver(Retry):
    """Raised in place of a call that may not begin now. It does not count as an attempt."""

    def __init__(self) -> None:
        super().__init__("another drain may be running", after=LEASE_RETRY_S)


class TimedOut(TimeoutError):
    """Raised for an attempt that took longer than it may."""

    letter_reason = "timeout"

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"handle took longer than --tune timeout={timeout_s:g}s")


class DeadLetters(Protocol):
    """Writer of dead letters (operations/letters.py)."""

    @property
    def trouble(self) -> str | None:
        """Reason why nothing is acknowledged; None while it is."""

    def send(self, sub: SubMessage, error: BaseException, acknowledge: Acknowledge) -> None:
        """Write a letter; call ``acknowledge``, from any thread, once it is safe or can't be."""

    def close(self, timeout_s: float) -> None:
        """Wait for what is not acknowledged yet, that long at most. Blocks."""


class Events(Protocol):
    """Reports of the parts of a pipeline, on its event loop, as it happens."""

    def halt(self, cause: BaseException) -> None:
        """Report that the drain can't go on."""

    def on_moved(self) -> None:
        """Report that something may start now, or nothing is left to do."""

    def on_idle(self) -> None:
        """Report that a worker found nothing to do: more could be delivered, or nothing is left."""

    def on_busy_loop(self, now_s: float) -> None:
        """Report that handlers keep the event loop from all that is due on it."""

    @property
    def awaits_more(self) -> bool:
        """Whether more is about to be delivered."""


class Grant(NamedTuple):
    """How many calls a drain may make at once, and by which settings it decides on failures, its
    share of the rate among them. While it may make no calls, nothing begins."""

    calls: int
    failures: FailureSettings


class Quota(Protocol):
    """A drain's share of the calls of several, when others decide that (spark/task/handling.py)."""

    def take(self) -> Grant:
        """Return what was granted last; called with each check."""

    def obeyed(self, in_flight: int, ready: int, work_done: tuple[int, int, int]) -> None:
        """Note that the drain works by what it took, with so many calls still in flight.

        ``ready`` is the number of lanes that wait for a call, ``work_done`` that of the pipeline.
        """


class Fetched(Protocol):
    """Some messages of one partition in their order, and the positions reached beside them."""

    @property
    def messages(self) -> Iterable[Message]: ...

    @property
    def reached(self) -> dict[int, int]: ...


class Source(Protocol):
    """Origin of messages (kafka/fetch.py)."""

    @property
    def trouble(self) -> str | None:
        """Reason why nothing arrives; None while messages flow."""

    @property
    def failure(self) -> DrainerError | None:
        """Error that ended it before the end of the backlog. RecordsDeleted comes once all that was
        read has been taken."""

    def start(self) -> None: ...

    def next_batch(self) -> Fetched | None: ...

    def stop(self) -> None: ...


class Committer(Protocol):
    """Commits offsets for the group and makes sure that no one else does (kafka/group.py)."""

    def check(self, topic_id: str) -> None: ...

    def commit(
        self, offsets: Mapping[int, int], expected: Mapping[int, Set[int | None]]
    ) -> dict[int, int]: ...


class NoCommitter:
    """Commits nothing, for a drain without a group of its own."""

    def check(self, topic_id: str) -> None:
        pass

    def commit(
        self, offsets: Mapping[int, int], expected: Mapping[int, Set[int | None]]
    ) -> dict[int, int]:
        return {}


class Lock(Protocol):
    """Lock that keeps other drains off the group (kafka/lock.py)."""

    @property
    def sure_until_s(self) -> float:
        """Time until which calls may start and offsets be committed, by ``Runtime.uptime``."""

    @property
    def lost(self) -> DrainerError | None:
        """Error by which the lock was lost."""


class PlanStore(Protocol):
    """Store of a plan: its file (store/plan_file.py), or a task's records (spark/records.py).

    What can't be written raises PlanNotWritten, or StateLost where it can't be reached.
    """

    @property
    def path(self) -> object:
        """Place of the plan, for people."""

    def start_journal(self, drain_id: str, generation: int) -> None: ...

    def append(self, record: Record) -> None: ...

    def write(self, plan: OffsetPlan) -> None: ...

    def remove_journals(self) -> None: ...


class Work(Protocol):
    """Part that an engine brings: where sub-messages come from, and where they are handled."""

    @property
    def look_s(self) -> float:
        """Seconds between two checks, and between two looks at requests."""

    async def start(self) -> None:
        """Start all that works, the checkpointer before anything is handled.

        Raises Refused when it can't, and ends what it has begun.
        """

    def pause(self, paused: bool) -> None:
        """Begin nothing while ``paused``; called again and again."""

    async def check(self) -> None:
        """Notice what happened elsewhere."""

    async def change(self, settings: Settings) -> None:
        """Work by these settings from now on."""

    async def wind_down(self, cause: BaseException | None, grace_s: float) -> BaseException | None:
        """Read and start nothing more; return when nothing is in a handler any longer, with the
        cause as it is known then."""

    async def close(self, cause: BaseException | None) -> BaseException | None:
        """Close the handlers; return the cause, with what went wrong by that."""

    async def forget(self) -> None:
        """Remove what the last plan on disk has made superfluous."""

    @property
    def running(self) -> int:
        """Sub-messages that are in the handler."""

    def failure_status(self) -> FailureStatus: ...

    def measure(self, plan: OffsetPlan) -> None:
        """Measure what happened since the last time; called about twice a second."""

    def status(self, plan: OffsetPlan) -> Status:
        """Return the status of a moment, with what only this engine knows."""

    def sum_up(self, summary: Summary) -> Summary:
        """Add to the summary what only this engine knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainContext:
    """A drain that was found safe, with its plan and its group locked: what every engine needs."""

    plan: OffsetPlan
    file: PlanStore
    handler: LoadedHandler
    control: Control
    committer: Committer
    lock: Lock
    # Gives the group's offsets; it may raise DrainerError.
    read_committed: Callable[[], Mapping[int, int | None]]
    # Called with the status about twice a second.
    observe: Callable[[Status], None] = lambda status: None
    # Called with a line on what is waited for while there is no status yet.
    print_line: Callable[[str], None] = lambda text: None
    # Called, from another thread, when a second signal stops the drain and the handler blocks the
    # event loop: nothing but ending the process helps. What finished is in the journal.
    give_up: Callable[[], None] = lambda: None
    # Checks other failure settings and makes what they need; it may block, and raises Refused.
    resolve: Callable[[FailureSettings], FailureSettings] = lambda failures: failures
    runtime: Runtime = THIS_PROCESS
    this_pass: Pass = field(default_factory=Pass)

    @property
    def options(self) -> dict[str, str]:
        """The handler's options, those of the plan among them."""
        return self.plan.terms.options_with(self.running.options)

    @property
    def running(self) -> LocalSettings:
        """The settings of this process, as they are by now."""
        return self.control.running


class CompleteStatus(Protocol):
    """Adds to a status what only the maker of a source or a writer knows."""

    def __call__(self, status: Status, *, over: bool) -> Status:
        """Return the status with that; ``over`` is set for the last one of a run."""


def as_it_is(status: Status, *, over: bool) -> Status:
    return status


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of a drain in this process beside its context; ``open_source(dispatcher, notify)``
    makes the source, whose thread calls ``notify`` when a batch waits. With ``is_split`` its
    messages were split where they were read: they are ``ShippedMessage``s."""

    open_source: Callable[[Dispatcher, Callable[[], None]], Source]
    open_letters: Callable[[str], DeadLetters] | None = None  # of a topic
    write_to: Callable[[str], Writer] | None = None  # for the handler
    # The properties of the client's file with a prefix, for the handler.
    extras: Callable[[str], Mapping[str, str]] = no_extras
    complete_status: CompleteStatus = as_it_is  # what those who made the ports add to a status
    is_split: bool = False
    totals: Callable[[], Totals] = Totals  # of all tasks of the drain, where there are others
    quota: Quota | None = None  # when others decide how many calls it may make at once
