"""The checkpointer: writes what finished to the journal every few milliseconds, and to the plan at
each plan interval, and commits to the group what the plan holds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from drainer.core.merge import Record
from drainer.engine.loop import spawn
from drainer.engine.outcome import ended_by
from drainer.engine.ports import DrainContext
from drainer.errors import (
    CommitDelayed,
    DrainerError,
    GroupJoined,
    Interrupted,
    OffsetMoved,
    PlanNotWritten,
    StateLost,
)
from drainer.model.account import (
    NOBODY,
    Account,
    Event,
    EventKind,
    ParkedLanes,
    PartitionPlan,
    StateReference,
    clock,
)
from drainer.model.claims import Claims
from drainer.model.latency import Latency, merge_latencies
from drainer.model.listed import counted
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Counts
from drainer.model.resuming import Resuming
from drainer.model.settings import FailureSettings
from drainer.model.unhandled import Unhandled

# If a broker is slow to answer, the last commit is repeated up to COMMIT_TRIES times.
COMMIT_TRIES = 10
COMMIT_PAUSE_S = 1.0
POLL_S = 0.02
# Writing the journal may take JOURNAL_SHARE of the time, without the time in which the event loop
# waits for a core. So it is written less often on a slow disk, or where many processes share a
# core. That never makes the pause between two writes longer than JOURNAL_SLOWEST_S.
JOURNAL_SHARE = 0.03
JOURNAL_SLOWEST_S = 0.5
# The disk is slow if this many writes in a row were slow. A single one may have other reasons.
SLOW_WRITES = 3


class LiveAccount(Protocol):
    """Account of what a drain has finished: a ``Dispatcher``, or a sum over many tasks."""

    @property
    def parked(self) -> Set[str]: ...

    @property
    def parked_lanes(self) -> ParkedLanes: ...

    @property
    def state(self) -> StateReference | None:
        """Place where tasks write what the plan doesn't hold yet."""

    @property
    def watermarks(self) -> Mapping[int, int]: ...

    @property
    def unbalanced(self) -> bool:
        """Whether the account did not add up, so that nothing may be committed."""

    def counts(self) -> tuple[Counts, Counts]:
        """Counts of messages and of sub-messages."""

    def record(self) -> Record | None:
        """Return the journal record of what finished since the last one; None if nothing did."""

    def claims(self) -> Claims: ...

    def unhandled(self) -> Unhandled: ...


@dataclass(eq=False)
class Checkpointer:
    """Owns the plan of a running drain.

    The plan goes to the disk before its watermarks go to the group, so the group's offset is never
    past the plan on disk, nor before the last commit that this plan knows of.
    """

    context: DrainContext
    account: LiveAccount
    latency: Callable[[], Latency | None]  # Returns the latency of the handler in this run.
    failed: Callable[[BaseException], None]

    def __post_init__(self) -> None:
        context = self.context
        self._runtime = context.runtime
        self.plan = plan = context.plan
        self.trouble: str | None = None
        # This is False once it was seen that the group, or its topic, is not this drain's own.
        self.may_commit = True
        self.share_done = plan.account.share_done  # The drain notes it with each status.
        self.written_at = self._runtime.monotonic()
        self.written = plan
        self._file = context.file
        self._latency_before = plan.account.latency  # The latency of the handler in former runs.
        self._journal_interval_s = context.running.journal_interval_s
        # The journal is looked at next at ``_due_s``. It is written then if ``_usable_s`` has
        # reached ``_usable_due_s``, and in any case once it is ``_latest_s``.
        self._due_s = inf
        self._usable_due_s, self._latest_s = -inf, inf
        self._took_s = deque([0.0] * SLOW_WRITES, SLOW_WRITES)
        self._lock = context.lock
        self._call: asyncio.Future[None] | None = None  # The write that is under way.
        self._committing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()  # Set when the plan is to be written now.
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._file.start_journal(self.plan.terms.drain_id, self.plan.account.generation)
        self._due_s = self._runtime.monotonic() + self._journal_interval_s
        self._tasks = [
            spawn(self._keep_journal(), "journal", self.failed),
            spawn(self._keep_plan(), "plan", self.failed),
        ]

    async def stop(self) -> None:
        """End the periodic writing, after a write that is under way."""
        self._due_s = inf
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(PlanNotWritten, StateLost):  # The save that follows will raise it.
            self.note()
        # Cancelling a task does not end a write in its thread, nor a commit, which is its own task.
        under_way = [each for each in (self._call, self._committing) if each is not None]
        if under_way:
            await asyncio.wait(under_way)

    def note(self) -> None:
        """Write what finished into the journal. Raises PlanNotWritten."""
        record = self.account.record()
        if record is not None:
            self._file.append(replace(record, share_done=self.share_done))

    async def wait_until_written(self) -> None:
        """Return once the plan on disk has what the account has now.

        The periodic writing must have been started.
        """
        since = self.plan.account.generation  # A plan that is being written may lack some of it.
        while self.written.account.generation <= since:
            self._hurry.set()
            await asyncio.sleep(POLL_S)

    async def move_ends(self, partitions: Mapping[int, PartitionPlan]) -> None:
        """Move the end of the backlog, and return once the plan on disk has the new one.

        Nothing beyond the old end may finish before that.
        """
        self._update(self.plan.account.with_ends(partitions))
        await self.wait_until_written()

    def note_event(self, event: Event) -> None:
        """Put an event into the plan's history, which is written soon."""
        self._update(self.plan.account.with_event(event))
        self._hurry.set()

    def change(self, failures: FailureSettings, resuming: Resuming) -> None:
        """Put new failure settings into the plan, and what a resume has to repeat."""
        terms = replace(self.plan.terms, failures=failures)
        self.plan = OffsetPlan(terms, replace(self.plan.account, resuming=resuming))

    async def save(self, *, commit: bool = True) -> None:
        """Write the plan as things stand, then commit its watermarks.

        Raises PlanNotWritten, or what the committer raises if the group is no longer ours.
        """
        if self._call is not None:
            # After a stop that was cut short, an older plan may still be under way.
            await asyncio.wait((self._call,))
        self.note()
        account = replace(
            self.plan.account,
            generation=self.plan.account.generation + 1,
            updated=self._runtime.now(),
            claims=self.account.claims(),
            parked=tuple(sorted(self.account.parked)),
            parked_lanes=self.account.parked_lanes,
            latency=merge_latencies((self._latency_before, self.latency())),
            unhandled=self.account.unhandled(),
            state=self.account.state,
            share_done=self.share_done,
        )
        self._update(account)
        plan = self.plan
        self._file.start_journal(self.plan.terms.drain_id, self.plan.account.generation)
        self._call = self._runtime.blocking_call(self._file.write, plan)
        await asyncio.shield(self._call)
        self.written_at = self._runtime.monotonic()
        self.written = plan
        if commit:
            await self._commit()

    async def finish(self, *, commit: bool, forced: asyncio.Event, ended: Event) -> None:
        """Save for the last time: make the commit certain, and leave the plan without a journal.

        The event ``ended`` is put into the history, with the offsets that are then known to be
        committed. A commit that is delayed is repeated for a while, or until ``forced`` is set.

        Raises what ``save`` raises, and Interrupted if the commit is not certain.
        """
        refused, before = self._refused(), self.plan.account
        self._update(before.with_event(ended))
        try:
            await self.save(commit=commit and refused is None)
        except GroupJoined as error:
            # The last commit noted who has joined. The drain ends after that, and for that reason.
            joined = before.with_event(self.plan.account.history[-1])
            ended = replace(ended, details=(ended_by(error),))
            self._update(replace(self.plan.account, history=joined.with_event(ended).history))
            await self.save(commit=False)
            raise
        for _ in range(COMMIT_TRIES):
            if not commit or refused or self.trouble is None or forced.is_set():
                break
            await asyncio.sleep(COMMIT_PAUSE_S)
            await self._commit()
        stands = replace(ended, offsets=self.plan.account.committed)
        history = before.with_event(stands).history
        self._update(replace(self.plan.account, history=history))
        await self.save(commit=False)
        self._file.remove_journals()
        if commit and refused:  # A commit was refused while the drain stopped for another reason.
            raise refused
        if commit and self.trouble is not None:
            raise Interrupted(
                f"drainer wrote the plan, but could not commit the group's offsets: {self.trouble}",
                hint="Resume once the cluster answers: that commits them.",
            )

    def _refused(self) -> BaseException | None:
        """Return why a commit failed for good, if one did."""
        done = self._committing is not None and self._committing.done()
        return self._committing.exception() if self._committing and done else None

    async def _commit(self) -> None:
        """Commit the watermarks of the plan on the disk, which may be older than ``plan``."""
        account = self.written.account.with_committed(self.plan.account.committed)
        on_disk = OffsetPlan(self.plan.terms, account)
        try:
            written = await self._runtime.blocking_call(self._commit_plan, on_disk)
        except CommitDelayed as delay:
            self.trouble = str(delay)
            return
        except OffsetMoved as moved:
            self._note_committed(moved.left)
            raise
        except GroupJoined as joined:
            raise self._note_joined(joined) from joined
        self.trouble = None
        self._note_committed(written)

    def _note_joined(self, joined: GroupJoined) -> GroupJoined:
        """Note in the history who has joined the group, and return the error that counts it."""
        at, who = self._runtime.now(), str(joined)
        event = Event(at, EventKind.JOINED, NOBODY, details=(who,))
        self._update(self.plan.account.with_event(event))
        times = counted(self.plan.account.times_joined, "time")
        what = f"{who}. Consumers joined it {times} during this drain, last at {clock(at)}"
        return GroupJoined(what, hint=joined.hint)

    def _note_committed(self, written: Mapping[int, int]) -> None:
        if written:  # The plan may have changed while the commit was under way.
            self._update(self.plan.account.with_committed(written))

    def _update(self, account: Account) -> None:
        self.plan = OffsetPlan(self.plan.terms, account)

    def _commit_plan(self, plan: OffsetPlan) -> dict[int, int]:
        if self._lock.lost is not None:
            raise self._lock.lost
        if not self.may_commit:
            return {}
        if self._runtime.uptime() >= self._lock.sure_until_s:
            raise CommitDelayed(
                "the lock on the group is not confirmed, so drainer does not commit"
            )
        return self.context.commit(plan)

    def flush_if_due(self, now_s: float) -> None:
        """Write the journal if it is due. Busy handlers may keep the event loop from doing so in
        time."""
        if now_s < self._due_s:
            return
        interval_s = self._journal_interval_s
        self._due_s = now_s + interval_s
        begun_s = self._usable_s()
        if begun_s < self._usable_due_s and now_s < self._latest_s:
            return
        try:
            self.note()
        except DrainerError as error:
            self.failed(error)
            return
        written_s, ended_s = self._runtime.monotonic(), self._usable_s()
        self._took_s.append(ended_s - begun_s)
        pause_s = min(min(self._took_s) / JOURNAL_SHARE, JOURNAL_SLOWEST_S)
        self._due_s = written_s + max(interval_s, pause_s)
        self._usable_due_s = ended_s + pause_s
        self._latest_s = written_s + JOURNAL_SLOWEST_S

    def _usable_s(self) -> float:
        """Return the time of a clock that stands still while the event loop waits for a core."""
        _, waited_s = self._runtime.processor(False)
        return self._runtime.monotonic() - waited_s

    async def _keep_journal(self) -> None:
        while True:  # It goes on after a failure, to write what finishes while the drain stops.
            self.flush_if_due(self._runtime.monotonic())
            await asyncio.sleep(self._due_s - self._runtime.monotonic())

    async def _keep_plan(self) -> None:
        while True:
            with suppress(TimeoutError):
                # `wait_for` of Python 3.11 loses a cancellation that coincides with the event.
                async with asyncio.timeout(self.context.running.plan_interval_s):
                    await self._hurry.wait()
            self._hurry.clear()
            await self.save(commit=False)
            # The commit runs beside the saves: a broker that is slow to answer must not delay them.
            if self._committing is not None:
                if not self._committing.done():
                    continue
                self._committing.result()  # If the commit failed, this raises its error.
            self._committing = spawn(self._commit(), "commit", self.failed)
