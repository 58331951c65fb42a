"""Ports: what an engine needs from outside, and what it offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from drainer.core.dispatch import Dispatcher
from drainer.core.first import Pass
from drainer.core.merge import Record
from drainer.engine.control import Control, Settings
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import DrainerError, GroupJoined
from drainer.handler import Retry, Writer, no_extras
from drainer.loading.loader import LoadedHandler
from drainer.message import Message, SubMessage
from drainer.model.account import PartitionPlan
from drainer.model.plan import OffsetPlan
from drainer.model.resuming import Resuming
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
    """The writer of dead letters (operations/letters.py)."""

    @property
    def trouble(self) -> str | None:
        """The reason why no letter is acknowledged; None while letters are."""

    def send(self, sub: SubMessage, error: BaseException, acknowledge: Acknowledge) -> None:
        """Write a letter. Any thread calls ``acknowledge`` once it is safe, or can't be written."""

    def close(self, timeout_s: float) -> None:
        """Block until all letters are acknowledged, but no longer than this."""


class Events(Protocol):
    """What the parts of a pipeline report to it, on its event loop."""

    def halt(self, cause: BaseException) -> None:
        """Report that the drain can't go on."""

    def on_moved(self) -> None:
        """Report that something may start now, or that nothing may be left to do."""

    def on_idle(self) -> None:
        """Report that a worker has nothing to do, so that more is delivered, or the drain ends."""

    def on_busy_loop(self, now_s: float) -> None:
        """Report that handlers keep the event loop busy, while other work is due on it."""

    @property
    def awaits_more(self) -> bool:
        """Whether more is about to be delivered."""


class Quota(Protocol):
    """The share of all calls that a driver lends to a task (spark/task/handling.py)."""

    def take(self) -> tuple[int, FailureSettings]:
        """Return what the driver has granted last. A drain asks with each of its checks.

        The grant is how many calls the task may make at once, and the failure settings to use. With
        0 calls nothing begins. The rate in the settings is the share of this task.
        """

    def obeyed(self, in_flight: int, ready: int, work_done: tuple[int, int, int]) -> None:
        """Note that the task obeys the grant that it took last.

        ``in_flight`` is how many calls are still in flight. ``ready`` is how many lanes wait for a
        call. ``work_done`` is the pipeline's property of this name.
        """


class Fetched(Protocol):
    """Some messages of one partition in order, and the positions up to which all was read."""

    @property
    def messages(self) -> Iterable[Message]: ...

    @property
    def reached(self) -> dict[int, int]: ...


class Source(Protocol):
    """The source of messages (kafka/fetch.py)."""

    @property
    def trouble(self) -> str | None:
        """The reason why no messages arrive; None while they do."""

    @property
    def failure(self) -> DrainerError | None:
        """The error that ended the source before the end of the backlog; None if none did.

        RecordsDeleted comes only once everything that was read has been taken.
        """

    def start(self) -> None: ...

    def next_batch(self) -> Fetched | None: ...

    def stop(self) -> None: ...


class MovingLog(Protocol):
    """The log of a drain that follows it (kafka/following.py)."""

    def ends(self) -> Mapping[int, PartitionPlan]:
        """Look up where the log ends now, also in partitions that were added to the topic.

        It blocks. Raises BrokerUnreachable when no answer comes, and other errors of drainer.
        """

    def read_to(self, partitions: Mapping[int, PartitionPlan]) -> None:
        """Let the source read up to the ends of these partitions."""

    def finish(self) -> None:
        """Let the source end where it may read to now."""


class Lock(Protocol):
    """The lock that keeps other drains off the group (kafka/lock.py)."""

    @property
    def sure_until_s(self) -> float:
        """Until when calls may start and offsets may be committed, by ``Runtime.uptime``."""

    @property
    def silence(self) -> tuple[str, float] | None:
        """The brokers that do not answer, and since when by ``Runtime.uptime``; None if they do."""

    @property
    def lost(self) -> DrainerError | None:
        """The error by which the lock was lost; None while the drain has it."""


class PlanStore(Protocol):
    """Where the plan and its journal are kept: a file, or the records of a task on Spark.

    Methods that write raise PlanNotWritten, or StateLost if the store can't be reached.
    """

    @property
    def path(self) -> object:
        """The place of the plan, for people."""

    @property
    def trouble(self) -> str | None:
        """The reason why the journal can't be written now; None while it can."""

    def start_journal(self, drain_id: str, generation: int) -> None: ...

    def append(self, record: Record) -> None: ...

    def write(self, plan: OffsetPlan) -> None: ...

    def remove_journals(self) -> None: ...


class Work(Protocol):
    """The part of a drain that differs by engine: where it reads, and where it handles."""

    @property
    def look_s(self) -> float:
        """The seconds between two checks, and between two looks for requests."""

    async def start(self) -> None:
        """Start everything. The checkpointer starts before anything is handled.

        Raises Refused if it can't start, after it has ended what it had begun.
        """

    def pause(self, paused: bool) -> None:
        """Begin nothing while ``paused``. It is called at each check."""

    async def check(self) -> None:
        """Look for what happened elsewhere."""

    async def change(self, settings: Settings) -> None:
        """Apply new settings to what happens from now on.

        Raises Refused if one of them would have no effect any more. Then all stay as they are.
        """

    async def wind_down(self, cause: BaseException | None, grace_s: float) -> BaseException | None:
        """Read and start nothing more, and wait until no call is in flight, up to ``grace_s``.

        Return the cause of the end, as far as it is known by then.
        """

    async def close(self, cause: BaseException | None) -> BaseException | None:
        """Close the handlers, and return the cause of the end, joined with any error of that."""

    async def forget(self) -> None:
        """Remove what nobody needs any more, once the last plan is on the disk."""

    @property
    def running(self) -> int:
        """The number of sub-messages in the handler."""

    def failure_status(self) -> FailureStatus: ...

    def measure(self, plan: OffsetPlan) -> None:
        """Measure what happened since the last call. It is called about twice a second."""

    def status(self, plan: OffsetPlan) -> Status:
        """Return the status of this moment. It has all that only this engine knows."""

    def sum_up(self, summary: Summary) -> Summary:
        """Add to the summary what only this engine knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainContext:
    """What every engine needs of a drain that was found safe, and whose group is locked."""

    plan: OffsetPlan
    file: PlanStore
    handler: LoadedHandler
    control: Control
    lock: Lock
    # Returns the group's offsets. It may raise DrainerError.
    read_committed: Callable[[], Mapping[int, int | None]]
    # Commits what a plan has as finished, and makes sure that nobody else commits for the group
    # (kafka/committer.py). Returns the committed offsets by partition.
    commit: Callable[[OffsetPlan], dict[int, int]] = lambda plan: {}
    # Shows a status. It is called about twice a second.
    observe: Callable[[Status], None] = lambda status: None
    # Prints a line that says what the drain waits for, before there is a status.
    print_line: Callable[[str], None] = lambda text: None
    # Ends the process. A thread calls this if the handler blocks the event loop when the second
    # signal comes, because nothing else helps in that case. The journal has what is finished.
    give_up: Callable[[], None] = lambda: None
    # Checks new failure settings, and creates what they need, such as a topic. It may block, and
    # raises Refused.
    resolve: Callable[[FailureSettings], FailureSettings] = lambda failures: failures
    # Returns what a resume has to repeat of the options of this run, as they are now.
    resuming: Callable[[], Resuming] = Resuming
    runtime: Runtime = THIS_PROCESS
    this_pass: Pass = field(default_factory=Pass)

    @property
    def options(self) -> dict[str, str]:
        """The handler's options, including those of the plan."""
        return self.plan.terms.options_with(self.running.options)

    @property
    def running(self) -> LocalSettings:
        """The current settings of this process."""
        return self.control.running

    def waits_after(self, cause: BaseException | None) -> bool:
        """Return whether a pass that ended by this cause goes on once the group is empty again."""
        wanted = self.running.wait_for_group_s > 0 and self.control.stopped is None
        return wanted and type(cause) is GroupJoined


@dataclass(frozen=True, slots=True)
class Ports:
    """What a drain in this process needs in addition to its context.

    Attributes:
        open_source: makes the source of messages for a dispatcher. The source's thread calls the
            second argument when a batch waits.
        open_letters: makes the writer of dead letters to a topic; None without Kafka.
        write_to: makes a writer to a topic, for the handler.
        extras: returns the properties of the client's file that have a prefix, for the handler.
        complete_status: adds to a status what only the maker of these ports knows. The second
            argument is True for the last status of a run.
        is_split: whether messages were split where they were read. They are ``ShippedMessage``s.
        totals: returns what all tasks of the drain have done, if it has several.
        quota: how many calls this task may make at once; None if it is the whole drain.
        log: the log that the drain follows; None if its backlog is frozen.
    """

    open_source: Callable[[Dispatcher, Callable[[], None]], Source]
    open_letters: Callable[[str], DeadLetters] | None = None
    write_to: Callable[[str], Writer] | None = None
    extras: Callable[[str], Mapping[str, str]] = no_extras
    complete_status: Callable[[Status, bool], Status] = lambda status, over: status
    is_split: bool = False
    totals: Callable[[], Totals] = Totals
    quota: Quota | None = None
    log: MovingLog | None = None
