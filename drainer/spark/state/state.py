"""The state of a drain on Spark: its driver's messages to tasks, and their reports.

Below ``DRAIN_ID/`` lie objects, each created once and whole, but for ``control``, which the driver
of its epoch alone writes again:

    epochs/EPOCH                          from then on the epochs before it are over
    EPOCH/control                         beat, why to stop, how the drain fares
    EPOCH/DISPATCH/TASK/ATTEMPT/begun     who it is
    EPOCH/DISPATCH/TASK/ATTEMPT/00000000  what it goes on from; earlier attempts count no more
    EPOCH/DISPATCH/TASK/ATTEMPT/00000001  … records, with nothing left out in between
    EPOCH/DISPATCH/TASK/ATTEMPT/ended     that it does no more

Each line in them is a line of a journal, with its checksum.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from drainer.core.merge import TaskRecord, TaskReport, merged
from drainer.engine.runtime import boottime_s
from drainer.errors import (
    Interrupted,
    LockLost,
    PlanNotWritten,
    PlanRefused,
    StateLost,
    StateRefused,
)
from drainer.model.account import StateReference
from drainer.model.codec import Kind, Whole
from drainer.model.plan import OffsetPlan
from drainer.model.settings import FailureSettings
from drainer.policy.failures import Totals
from drainer.spark.state.lease import LeaseTimes, Process, is_dead, this_process
from drainer.spark.state.objects import Objects
from drainer.spark.state.records import ENDED, Head, TaskRecords
from drainer.spark.state.sharding import Sharding
from drainer.store.journal import decode_line, encode_line
from drainer.store.place import PlanPlace

JOURNAL_LOCAL_S, JOURNAL_REMOTE_S = 0.05, 1.5  # between two records of a task
LIST_S = 5.0  # between two looks for new attempts, in an object store that is read sparingly
REQUESTS_AT_ONCE = 16  # questions to an object store at the same time

EPOCHS, CONTROL, BEGUN, READS = "epochs", "control", "begun", "reads"

Share = tuple[int, int, int]  # epoch, dispatch, task


@dataclass(frozen=True, slots=True)
class Epoch:
    """Epoch of one driver: its unique name, and the times of its tasks' lease."""

    driver: str
    times: LeaseTimes


@dataclass(frozen=True, slots=True)
class QuotaGrant:
    """Calls of ``total`` that each task may have in flight; ``number`` rises with changes."""

    number: Whole = 0
    total: Whole = 0
    calls: Mapping[str, Whole] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DriverControl:
    """Message of the driver of an epoch to its tasks.

    ``stop`` is why all are to end, ``totals`` what all of them did, as far as it knows.
    ``failures`` are other settings than they began with.
    """

    beat: Whole = 0
    stop: str | None = None
    lent: QuotaGrant = field(default_factory=QuotaGrant)
    totals: Totals = field(default_factory=Totals)
    failures: FailureSettings | None = None


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """One try at what a task of a dispatch was given.

    ``number`` rises from one to the next; what it counts is its owner's business.
    """

    epoch: int
    dispatch: int
    task: int
    number: int

    @property
    def share(self) -> Share:
        """Epoch, dispatch and task, which all attempts at the same have in common."""
        return self.epoch, self.dispatch, self.task

    @property
    def borrower(self) -> str:
        """The name under which concurrency is lent to it, and to other tries at the same."""
        return f"{self.dispatch}.{self.task}"

    @property
    def name(self) -> str:
        return f"{self.epoch}/{self.dispatch}/{self.task}/{self.number}"

    def __str__(self) -> str:
        return f"attempt {self.number} at task {self.task} of dispatch {self.dispatch}"


def state_beside(plan: PlanPlace) -> str:
    """Place of the state of a plan, unless another is named."""
    if isinstance(plan, Path):
        return str(plan.with_name(f"{plan.name}.state").absolute())
    place, mark, options = plan.partition("?")
    return f"{place}.state{mark}{options}"


def reports_since(reference: StateReference, drain_id: str) -> list[TaskReport]:
    """Read what tasks reported of dispatches that a plan has not, or not all of.

    Raises UsageError, StateRefused or StateLost when it can't be had.
    """
    state = State.open(reference.uri, drain_id)
    if state.epoch() is None:
        raise StateLost(f"{state.uri} has no state of this drain")
    shares = [share for share in state.shares() if not reference.has_taken(*share[:2])]
    return state.reports_of(shares)


@dataclass(slots=True)
class _Followed:
    """Position in the records of a share, of the last attempt that has begun at it."""

    attempt: Attempt | None = None
    read: int = 0


class State:
    """The objects of one drain. All that reads or writes raises StateLost, or PlanNotWritten."""

    def __init__(self, objects: Objects, drain_id: str) -> None:
        self.objects = objects
        self.drain_id = drain_id
        self.uri = objects.uri
        self.journal_interval_s = JOURNAL_LOCAL_S if objects.is_local else JOURNAL_REMOTE_S
        self._followed: dict[Share, _Followed] = {}
        self._list_due_s = 0.0

    @classmethod
    def open(cls, uri: str, drain_id: str) -> State:
        """Makes nothing there. Raises UsageError or StateRefused when the URI can't be used."""
        return cls(Objects.open(uri), drain_id)

    # --- drivers ---

    def epoch(self) -> int | None:
        """Epoch of the newest driver; None when there was none, or the state was removed."""
        return max(self._numbers(EPOCHS), default=None)

    def begin_epoch(self, epoch: int, times: LeaseTimes) -> bool:
        """Ends all earlier epochs; False when there is such a one already.

        Raises StateRefused where two drivers could both begin one.
        """
        self.objects.ensure_create()
        return self._create(f"{EPOCHS}/{epoch}", Epoch(uuid4().hex, times))

    def times(self, epoch: int) -> LeaseTimes | None:
        """Return the times that the driver of an epoch chose."""
        found = self._body(f"{EPOCHS}/{epoch}", Epoch)
        return None if found is None else found.times

    def control(self, epoch: int) -> DriverControl | None:
        """Return the message of an epoch's driver; None before the first."""
        return self._body(f"{epoch}/{CONTROL}", DriverControl)

    def set_control(self, epoch: int, control: DriverControl) -> None:
        """Write the control of an epoch that has begun; a removed state stays removed."""
        name = self._name(f"{epoch}/{CONTROL}")
        self.objects.put(name, encode_line(control), beside=control.beat > 0)

    def ensure_epoch(self, epoch: int) -> None:
        """Raises LockLost when a newer driver has taken over, or the state was removed."""
        newest = self.epoch()
        if newest is None:
            raise LockLost(
                "the drain's state is gone: the drain is over, or runs elsewhere", hint=_NOTHING
            )
        if newest > epoch:
            raise LockLost(
                f"another driver took the drain over (epoch {newest}; this task has epoch {epoch})",
                hint=_NOTHING,
            )

    # --- what tasks report ---

    def begin(self, attempt: Attempt, streams: Sharding, starts: Mapping[int, int]) -> TaskRecords:
        """Begins an attempt, whose streams begin at ``starts``; it is to ``revoke_lease`` before it
        handles anything.

        Raises LockLost when it is not to begin any more, StateRefused when it has begun before.
        """
        self.ensure_epoch(attempt.epoch)
        if not self._create(f"{attempt.name}/{BEGUN}", this_process()):
            raise StateRefused(
                f"{attempt} has begun before", hint="This is a bug in drainer: report it."
            )
        return TaskRecords(self.objects, self._name(attempt.name), streams, starts)

    def attempts(self, share: Share | None = None) -> list[Attempt]:
        """Attempts that have begun, sorted; of one share or of all."""
        shares = self.shares() if share is None else [share]
        return [
            Attempt(*each, n) for each in shares for n in self._numbers("/".join(map(str, each)))
        ]

    def revoke_lease(self, attempt: Attempt, times: LeaseTimes) -> TaskRecord:
        """Waits until all earlier attempts at the same share are over; gives what they finished.

        They are when they have ended, their process is dead, or so much time has passed since this
        call that no call of theirs goes on (``Lease``). What they might still write after that
        counts no more: this one, which has begun, repeats what it goes on from.

        Raises LockLost when a later attempt or driver has taken over.
        """
        earlier = [a for a in self.attempts(attempt.share) if a.number < attempt.number]
        self._wait(earlier, boottime_s(), times, lambda: self.ensure_newest(attempt))
        return self.report(attempt.share).record

    def revoke_epochs(self, below: int, since_s: float, times: LeaseTimes) -> None:
        """Waits until no attempt of an epoch below this one does anything any more.

        ``since_s`` is when this one had begun, by ``boottime_s``.
        """
        earlier = [a for a in self.attempts() if a.epoch < below]
        self._wait(earlier, since_s, times, lambda: None)

    def at_rest(self, below: int) -> bool:
        """Whether ``revoke_epochs`` has no attempt to wait for."""
        return all(self._is_over(each) for each in self.attempts() if each.epoch < below)

    def ensure_newest(self, attempt: Attempt) -> None:
        """Raises LockLost when a newer driver or attempt has taken over.

        Of a dispatch that was removed nothing is left to be done, so there is no attempt at it.
        """
        self.ensure_epoch(attempt.epoch)
        newest = max(self.attempts(attempt.share), default=None)
        if newest != attempt or not self._has(f"{attempt.name}/{BEGUN}"):
            raise LockLost(f"another attempt took over; this is {attempt}", hint=_NOTHING)

    def report(self, share: Share) -> TaskReport:
        """All that was reported of one share, as one record: by the last attempt that has reported
        what it goes on from."""
        torn = False
        for attempt in reversed(self.attempts(share)):
            names = self.objects.children(self._name(attempt.name))
            records: list[TaskRecord] = []
            # Backwards, to the last one that has all: a task that has come to rest ends with it.
            for number in range(max(map(int, filter(str.isdecimal, names)), default=-1), -1, -1):
                try:
                    head = decode_line(self._record(attempt, number) or b"", Head)
                    records.append(head.decoded())
                    if head.whole:
                        return TaskReport(merged(reversed(records)), len(records), torn)
                except ValueError:  # nor does anything behind it count
                    records, torn = [], True
        return TaskReport(TaskRecord(), 0, torn)

    def reports_of(self, shares: Sequence[Share]) -> list[TaskReport]:
        """The same of each of these."""
        return self._map(self.report, shares)

    def shares(self) -> list[Share]:
        """Every share that an attempt has begun at, sorted."""
        return [
            (epoch, dispatch, task)
            for epoch in self._numbers("")
            for dispatch in self._numbers(str(epoch))
            for task in self._numbers(f"{epoch}/{dispatch}")
        ]

    # --- what a driver follows ---

    def news(self, epoch: int, dispatches: Mapping[int, int]) -> list[tuple[Attempt, Head]]:
        """Return the records since the last call, of the last attempts that have begun, in order.

        They are of the dispatches of these numbers, of so many tasks each. An object store is read
        for the next record of each attempt alone, and seldom for second attempts; the rest comes
        with a later call.
        """
        shares = [(epoch, number, n) for number, tasks in dispatches.items() for n in range(tasks)]
        followed = {share: self._followed.get(share) or _Followed() for share in shares}
        self._followed = followed
        unsure, local = shares, self.objects.is_local
        if not local and boottime_s() < self._list_due_s:
            unsure = [share for share in shares if followed[share].attempt is None]
        else:
            self._list_due_s = boottime_s() + LIST_S
        for share, attempts in zip(unsure, self._map(self.attempts, unsure), strict=True):
            if attempts and attempts[-1] != followed[share].attempt:
                followed[share].attempt, followed[share].read = attempts[-1], 0

        def read_new(of: tuple[Attempt, int]) -> list[bytes]:
            attempt, number = of
            found: list[bytes] = []
            while (local or not found) and (data := self._record(attempt, number + len(found))):
                found.append(data)
            return found

        begun = [(each.attempt, each) for each in followed.values() if each.attempt is not None]
        places = [(attempt, each.read) for attempt, each in begun]
        news: list[tuple[Attempt, Head]] = []
        for (attempt, each), records in zip(begun, self._map(read_new, places), strict=True):
            for record in records:
                try:
                    news.append((attempt, decode_line(record, Head)))
                except ValueError:
                    raise self._spoilt(f"{attempt.name}/{each.read:08d}") from None
                each.read += 1
        return news

    # --- where handlers are open ---

    def opening(self, epoch: int) -> str:
        """A process is about to open the handler; gives the name to report when it is closed.

        Raises LockLost or Interrupted when the drain is over.
        """
        self.ensure_epoch(epoch)
        control = self.control(epoch)
        if control is not None and control.stop is not None:
            raise Interrupted(control.stop)
        name = f"{epoch}/handlers/{uuid4().hex}"
        self._create(f"{name}/{BEGUN}", this_process())
        return name

    def report_reading(self, epoch: int) -> None:
        """Report that a task reads: its handler is open, and it has reached Kafka."""
        self._create(f"{epoch}/{READS}", this_process())

    def is_reading(self, epoch: int) -> bool:
        """Whether a task reads, or has read."""
        return self._has(f"{epoch}/{READS}")

    def closed(self, name: str, failure: str | None) -> None:
        """The handler of that name is closed; ``failure`` is why that failed, if it did."""
        line = encode_line({"failure": failure})
        self.objects.put(self._name(f"{name}/{ENDED}"), line, beside=True)

    def handlers(self, epoch: int) -> tuple[int, list[str]]:
        """Return how many are open in processes that live, and why some failed to close."""
        still_open, failures = 0, list[str]()
        for child in self.objects.children(self._name(f"{epoch}/handlers")):
            name = f"{epoch}/handlers/{child}"
            ended = self._body(f"{name}/{ENDED}", dict[str, str | None])
            if ended is not None:
                failures += filter(None, ended.values())
            elif not self._is_dead(name):
                still_open += 1
        return still_open, failures

    def not_shared(self, what: str) -> StateRefused:
        """Error for a state that is not the same place for all."""
        return StateRefused(
            f"{what.format(self.uri)}: it must be the same place on all machines",
            hint="Set drainer.state to a place that all executors and this machine reach: s3://,"
            " gs://, abfs://, or a folder mounted everywhere.",
        )

    # --- and the end ---

    def remove_dispatch(self, epoch: int, dispatch: int) -> None:
        """Removes what tasks reported of a dispatch, when the plan on disk has it."""
        self.objects.remove(self._name(f"{epoch}/{dispatch}"))

    def remove(self, plan: PlanPlace | None = None) -> None:
        """Removes all of the drain, its epochs first: a task that still runs ends by that.

        The folder that is beside its ``plan`` goes too, if nothing else is in it.
        """
        self.objects.remove(self._name(EPOCHS))
        self.objects.remove(self.drain_id)
        if plan is not None and self.uri == state_beside(plan):
            with suppress(OSError):
                Path(self.uri).rmdir()

    def _wait(
        self,
        earlier: Sequence[Attempt],
        since_s: float,
        times: LeaseTimes,
        check: Callable[[], object],
    ) -> None:
        left = list(earlier)
        while True:
            check()
            left = [attempt for attempt in left if not self._is_over(attempt)]
            left_s = since_s + times.wait_s - boottime_s()
            if not left or left_s <= 0:
                return
            time.sleep(min(times.look_s, left_s))

    def has_ended(self, attempt: Attempt) -> bool:
        """Whether an attempt reported its end, as one that fails does; one that is killed can't."""
        return self._has(f"{attempt.name}/{ENDED}")

    def _is_over(self, attempt: Attempt) -> bool:
        return self.has_ended(attempt) or self._is_dead(attempt.name)

    def _is_dead(self, name: str) -> bool:
        begun = self._body(f"{name}/{BEGUN}", Process)
        return begun is not None and is_dead(begun)  # or it is on the way: time will show

    def _record(self, attempt: Attempt, number: int) -> bytes | None:
        return self.objects.get(self._name(f"{attempt.name}/{number:08d}"))

    def _has(self, name: str) -> bool:
        return self.objects.get(self._name(name)) is not None

    def _map(self, question: Callable[[Any], Any], about: Sequence[Any]) -> list[Any]:
        if self.objects.is_local or len(about) < 2:
            return [question(each) for each in about]
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="state") as threads:
            return list(threads.map(question, about))

    def _numbers(self, prefix: str) -> list[int]:
        names = self.objects.children(self._name(prefix) if prefix else self.drain_id)
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def _body(self, name: str, kind: type[Kind]) -> Kind | None:
        data = self.objects.get(self._name(name))
        if data is None:
            return None
        try:
            return decode_line(data, kind)
        except ValueError as error:
            raise self._spoilt(name) from error

    def _create(self, name: str, body: object) -> bool:
        return self.objects.create(self._name(name), encode_line(body))

    def _name(self, name: str) -> str:
        return f"{self.drain_id}/{name}"

    def _spoilt(self, name: str) -> StateLost:
        return StateLost(
            f"{self.uri}/{self._name(name)} is damaged: drainer did not write it",
            hint="Find out what else writes there. The plan is valid, and so are the reports before"
            " this one.",
        )


_NOTHING = "Do nothing here."


def take_over(
    plan: OffsetPlan, path: PlanPlace, print_line: Callable[[str], None]
) -> Callable[[], None]:
    """Makes sure that no task of a former driver does anything any more, for a plan with a state.

    The plan and the lock on its group are to be held. What the tasks reported is to be loaded again
    after this: there may be more since it was looked at.

    Gives what removes all of that, once the plan on disk has it. Raises PlanRefused or
    StateRefused when they can't be reached.
    """
    assert plan.account.state is not None
    try:
        state = State.open(plan.account.state.uri, plan.terms.drain_id)
        former = state.epoch()
        times = None if former is None else state.times(former)
        if former is None or times is None:
            raise PlanRefused(f"the state at {state.uri} is gone")
        epoch = max(former, plan.account.state.epoch) + 1
        while not state.begin_epoch(epoch, times):
            epoch += 1  # another driver's, which is over by this
        since_s = boottime_s()
        if not state.at_rest(below=epoch):
            print_line("waiting until the tasks of the former driver have ended")
        state.revoke_epochs(epoch, since_s, times)
    except (PlanNotWritten, StateLost) as error:
        raise StateRefused(
            f"can't stop tasks of the former driver: {error}",
            hint="Let this process write there, then repeat the command. Nothing was touched.",
        ) from error

    def forget() -> None:
        try:
            state.remove(path)
        except StateLost as error:
            print_line(f"can't remove the state at {state.uri}, which is no longer needed: {error}")

    return forget
