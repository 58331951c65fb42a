"""The state of a drain on Spark: the messages of its driver to the tasks, and the tasks' reports.

It consists of objects below ``DRAIN_ID/``. Each of them is written once, except ``control``, which
the driver of the epoch writes again and again:

    epochs/EPOCH                          a driver has begun this epoch, which ends all earlier ones
    EPOCH/control                         the driver's newest message: beat, reason to stop, totals
    EPOCH/reads                           a task has opened the handler and reached Kafka
    EPOCH/SLICE/submitted                 the driver that reads this slice
    EPOCH/SLICE/span-NUMBER               the manifest of a span of the slice, by its first reader
    EPOCH/SLICE/TASK/share                what the driver gives the task, which may begin with it
    EPOCH/handlers/ID/begun               the process that opens the handler
    EPOCH/handlers/ID/ended               the handler is closed there, with the error if that failed
    EPOCH/SLICE/TASK/ATTEMPT/begun        the process that makes this attempt at a task
    EPOCH/SLICE/TASK/ATTEMPT/00000000     what earlier attempts finished; they no longer count
    EPOCH/SLICE/TASK/ATTEMPT/00000001     the records of the attempt, whose numbers have no gap
    EPOCH/SLICE/TASK/ATTEMPT/ended        the attempt is over

Each object holds one line with its checksum, in the format of a journal's lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote
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
    raised_as,
)
from drainer.loading.extensions import ensure_installed
from drainer.model.account import StateReference
from drainer.model.codec import Kind, Whole
from drainer.model.formats import STATE
from drainer.model.plan import OffsetPlan
from drainer.model.settings import FailureSettings
from drainer.policy.failures import Totals
from drainer.spark.state.folder import Folder
from drainer.spark.state.lease import LeaseTimes, Process, is_dead, this_process
from drainer.spark.state.records import ENDED, Head, StatusOf, TaskRecords
from drainer.spark.state.webhdfs import WebHdfs
from drainer.store.journal import decode_line, encode_line
from drainer.store.objects import STATES, WEBHDFS, Objects, check_uri
from drainer.store.place import PlanPlace, is_folder, is_in_topic, split_uri, topic_and_name

JOURNAL_LOCAL_S, JOURNAL_REMOTE_S = 0.05, 1.5  # A task writes its records at this interval.
# Who waits for an object, such as a task for its share, looks for it at this interval.
LOOK_LOCAL_S, LOOK_REMOTE_S = 0.02, 1.0
# drainer lists new attempts in an object store at this interval, because each listing is a request.
LIST_S = 5.0
REQUESTS_AT_ONCE = 16  # One process makes this many requests to an object store at once.

EPOCHS, CONTROL, BEGUN, READS = "epochs", "control", "begun", "reads"
SUBMITTED, SPAN, SHARE = "submitted", "span", "share"

Share = tuple[int, int, int]  # The epoch, the slice and the task.


@dataclass(frozen=True, slots=True)
class Epoch:
    """The epoch of one driver: a unique name of the driver, and the times of its tasks' lease.

    Raises PlanRefused for a ``format`` that this drainer does not read.
    """

    driver: str
    times: LeaseTimes
    format: str = str(STATE)

    def __post_init__(self) -> None:
        STATE.ensure_read(self.format, PlanRefused)


@dataclass(frozen=True, slots=True)
class QuotaGrant:
    """The number of calls that each task may have in flight, by the task's name.

    ``total`` is the number that the driver lends to all tasks together. ``number`` rises whenever
    the grants change.
    """

    number: Whole = 0
    total: Whole = 0
    calls: Mapping[str, Whole] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DriverControl:
    """The message of the driver of an epoch to its tasks.

    Attributes:
        beat: a number that rises while the driver is sure of its lock.
        stop: the reason why all tasks have to end; None if they don't have to.
        lent: the calls that the driver lends to each task.
        totals: the work of all tasks together, as far as the driver knows.
        failures: failure settings that replace those with which the tasks began.
    """

    beat: Whole = 0
    stop: str | None = None
    lent: QuotaGrant = field(default_factory=QuotaGrant)
    totals: Totals = field(default_factory=Totals)
    failures: FailureSettings | None = None


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """One attempt at what a task of a slice was given.

    ``number`` rises from one attempt to the next: it is Spark's id of the attempt.
    """

    epoch: int
    slice: int
    task: int
    number: int

    @property
    def share(self) -> Share:
        """The epoch, slice and task. All attempts at the same task have the same share."""
        return self.epoch, self.slice, self.task

    @property
    def borrower(self) -> str:
        """The name under which the driver lends calls to all attempts at the same task."""
        return f"{self.slice}.{self.task}"

    @property
    def name(self) -> str:
        return f"{self.epoch}/{self.slice}/{self.task}/{self.number}"

    def __str__(self) -> str:
        return f"attempt {self.number} at task {self.task} of slice {self.slice}"


class TaskInput(NamedTuple):
    """The share of a partition that a task is given.

    Attributes:
        start, end: the offsets ``[start, end)`` of the slice.
        subs: the number of the sub-messages of the task's shard.
        checksum: a checksum that tells which sub-messages they are.
    """

    start: Whole
    end: Whole
    subs: Whole
    checksum: Whole


@dataclass(frozen=True, slots=True)
class TaskShare:
    """What the driver gives a task of a slice. The task may begin when it finds this.

    Attributes:
        given: its share of each partition. If there is none, the task has nothing to do.
        parked: the lanes that are parked.
        behind: the partitions in which something before the slice is unfinished, for barriers.
    """

    given: Mapping[Whole, TaskInput] = field(default_factory=dict)
    parked: tuple[str, ...] = ()
    behind: tuple[Whole, ...] = ()


def state_beside(plan: PlanPlace) -> str:
    """Return the place beside a plan where its state is if nobody names another place."""
    if is_in_topic(plan):  # A topic can't hold the state, so that is in the current folder.
        plan = Path(topic_and_name(plan)[1])
    if isinstance(plan, Path):
        return str(plan.with_name(f"{plan.name}.state").absolute())
    place, mark, options = plan.partition("?")
    return f"{place}.state{mark}{options}"


def reports_since(reference: StateReference, drain_id: str) -> list[TaskReport]:
    """Read the reports of the slices that a plan does not have, or only has in part.

    Raises UsageError, StateRefused or StateLost if they can't be read.
    """
    state = State.open(reference.uri, drain_id)
    newest = state.epoch()
    # This also refuses a state whose format is newer.
    if newest is None or state.times(newest) is None:
        raise StateLost(f"{state.uri} has no state of this drain")
    shares = [share for share in state.shares() if not reference.has_taken(*share[:2])]
    return state.reports_of(shares)


@dataclass(slots=True)
class _Followed:
    """The newest attempt at a share, and how many of its records were read."""

    attempt: Attempt | None = None
    read: int = 0


def open_objects(uri: str) -> Objects:
    """Return the objects at a path, a ``file://`` URI, or the URI of an object store.

    Nothing is made there. Raises UsageError if the URI can't be understood or holds credentials;
    StateRefused if the place can't be used; ExtraMissing.
    """
    check_uri(uri, STATES)
    parts = split_uri(uri)
    if is_folder(uri):
        return Folder(Path(unquote(parts.path) if parts.scheme == "file" else uri))
    if parts.scheme == WEBHDFS:
        return WebHdfs(uri)
    ensure_installed("bucket", f"a state at {parts.scheme}://")
    from drainer.store.bucket import open_bucket  # noqa: PLC0415 - of the extra

    return open_bucket(uri)


class State:
    """The objects of one drain.

    Every method that reads or writes raises StateLost if the place can't be reached, and
    PlanNotWritten if it takes no more.
    """

    def __init__(self, objects: Objects, drain_id: str) -> None:
        self.objects = objects
        self.drain_id = drain_id
        self.uri = objects.uri
        self.journal_interval_s = JOURNAL_LOCAL_S if objects.is_local else JOURNAL_REMOTE_S
        self.look_s = LOOK_LOCAL_S if objects.is_local else LOOK_REMOTE_S
        self._followed: dict[Share, _Followed] = {}
        self._listed_s = -inf  # The time at which attempts at all shares were last looked for.

    @classmethod
    def open(cls, uri: str, drain_id: str) -> State:
        """Return the state of a drain at a URI. Raises the same errors as ``open_objects``."""
        return cls(open_objects(uri), drain_id)

    # --- drivers ---

    def epoch(self) -> int | None:
        """Return the epoch of the newest driver; None before the first, or after ``remove``."""
        return max(self._numbers(EPOCHS), default=None)

    def begin_epoch(self, epoch: int, times: LeaseTimes) -> bool:
        """Begin an epoch, which ends all earlier ones; return False if another driver has begun it.

        Raises StateRefused if the place would let two drivers begin the same epoch.
        """
        self.objects.ensure_create()
        return self._create(f"{EPOCHS}/{epoch}", Epoch(uuid4().hex, times))

    def times(self, epoch: int) -> LeaseTimes | None:
        """Return the times of the tasks' lease in an epoch; None if there is no such epoch."""
        found = self._body(f"{EPOCHS}/{epoch}", Epoch)
        return None if found is None else found.times

    def control(self, epoch: int) -> DriverControl | None:
        """Return the newest message of an epoch's driver; None before the first."""
        return self._body(f"{epoch}/{CONTROL}", DriverControl)

    def set_control(self, epoch: int, control: DriverControl) -> None:
        """Write the message of an epoch's driver. If the state was removed, it stays removed."""
        name = self._name(f"{epoch}/{CONTROL}")
        self.objects.put(name, encode_line(control), beside=control.beat > 0)

    def ensure_epoch(self, epoch: int) -> None:
        """Raise LockLost if a newer driver has taken over, or the state was removed."""
        newest = self.epoch()
        if newest is None:
            raise LockLost(_GONE, hint=_NOTHING)
        if newest > epoch:
            raise LockLost(
                f"another driver took over the drain (epoch {newest}; this task has epoch {epoch})",
                hint=_NOTHING,
            )

    # --- slices, and who handles what of them ---

    def submit(self, epoch: int, number: int) -> None:
        """Note that a query for a slice is about to begin. Its readers write beside this note."""
        self.objects.put(self._name(f"{epoch}/{number}/{SUBMITTED}"), encode_line(this_process()))

    def add_span(self, epoch: int, number: int, span: int, manifest: Kind) -> Kind:
        """Write the manifest of a span of a slice, and return that of its first reader.

        If Spark has lost what the first one read, it lets another one read the span again.
        """
        name = f"{epoch}/{number}/{SPAN}-{span}"
        if self.objects.create(self._name(name), encode_line(manifest), beside=True):
            return manifest
        first = self._body(name, type(manifest))
        if first is None:
            raise LockLost(_GONE, hint=_NOTHING)
        return first

    def spans(self, epoch: int, number: int, kind: type[Kind], known: dict[int, Kind]) -> None:
        """Add the manifests of a slice that are not known yet to ``known``, by span."""
        for name in self.objects.children(self._name(f"{epoch}/{number}")):
            word, _, span = name.partition("-")
            if word == SPAN and int(span) not in known:
                found = self._body(f"{epoch}/{number}/{name}", kind)
                if found is not None:
                    known[int(span)] = found

    def give(self, epoch: int, number: int, shares: Mapping[int, TaskShare]) -> None:
        """Give tasks of a slice their shares, by the number of the task."""

        def write(task: int) -> None:
            self._create(f"{epoch}/{number}/{task}/{SHARE}", shares[task])

        self._map(write, list(shares))

    def share(self, share: Share) -> TaskShare | None:
        """Return what the driver gives a task; None while it has to wait for that."""
        return self._body(f"{'/'.join(map(str, share))}/{SHARE}", TaskShare)

    # --- what tasks report ---

    def begin(
        self, attempt: Attempt, starts: Mapping[int, int], status: StatusOf = lambda: None
    ) -> TaskRecords:
        """Begin an attempt, and return its records, which take ``starts`` and ``status``.

        Before the attempt handles anything, it must call ``await_earlier_attempts``.

        Raises LockLost if a newer driver has taken over; StateRefused if the attempt has begun
        before.
        """
        self.ensure_epoch(attempt.epoch)
        if not self._create(f"{attempt.name}/{BEGUN}", this_process()):
            raise StateRefused(
                f"{attempt} has begun before", hint="This is a bug in drainer: report it."
            )
        return TaskRecords(self.objects, self._name(attempt.name), starts, status)

    def attempts(self, share: Share | None = None) -> list[Attempt]:
        """Return the attempts that have begun, sorted: the attempts at one share, or all."""
        shares = self.shares() if share is None else [share]
        return [
            Attempt(*each, n) for each in shares for n in self._numbers("/".join(map(str, each)))
        ]

    def await_earlier_attempts(self, attempt: Attempt, times: LeaseTimes) -> TaskRecord:
        """Wait until all earlier attempts at the same share are over; return what they finished.

        An attempt is over when it has reported its end, when its process is dead, or when so much
        time has passed since this call that its lease has ended and its calls are cut off
        (``Lease``). Records that it writes later don't count, since the first record of the new
        attempt replaces them.

        Raises LockLost if a later attempt or driver takes over.
        """
        earlier = [a for a in self.attempts(attempt.share) if a.number < attempt.number]
        self._wait(earlier, boottime_s(), times, lambda: self.ensure_newest(attempt))
        return self.report(attempt.share).record

    def await_earlier_drivers(self, epoch: int, since_s: float, times: LeaseTimes) -> None:
        """Wait until all attempts of earlier epochs are over.

        ``since_s`` is a time by ``boottime_s`` after the beginning of this epoch.
        """
        earlier = [a for a in self.attempts() if a.epoch < epoch]
        self._wait(earlier, since_s, times, lambda: None)

    def attempts_are_over(self, below: int) -> bool:
        """Return whether all attempts of epochs below this one are known to be over."""
        return all(self._is_over(each) for each in self.attempts() if each.epoch < below)

    def ensure_newest(self, attempt: Attempt) -> None:
        """Raise LockLost if a newer driver or attempt has taken over, or if nothing is left to do
        because the slice was removed."""
        self.ensure_epoch(attempt.epoch)
        newest = max(self.attempts(attempt.share), default=attempt)
        if newest > attempt:
            raise LockLost(f"another attempt took over; this is {attempt}", hint=_NOTHING)
        # Objects are removed one by one: that of the epoch may be the last.
        if not self._has(f"{attempt.name}/{BEGUN}"):
            raise LockLost(_GONE, hint=_NOTHING)

    def report(self, share: Share) -> TaskReport:
        """Return everything that was reported of one share, as one record.

        Only the reports of one attempt count: the newest that has written its first record, which
        has what earlier attempts finished.
        """
        torn = False
        for attempt in reversed(self.attempts(share)):
            names = self.objects.children(self._name(attempt.name))
            records: list[TaskRecord] = []
            # The records are read backwards, up to one that is whole, which is the last one if the
            # task has ended.
            for number in range(max(map(int, filter(str.isdecimal, names)), default=-1), -1, -1):
                try:
                    head = decode_line(self._record(attempt, number) or b"", Head)
                    records.append(head.decoded())
                    if head.whole:
                        return TaskReport(merged(reversed(records)), len(records), torn)
                except ValueError:  # A damaged record does not count, nor do those after it.
                    records, torn = [], True
        return TaskReport(TaskRecord(), 0, torn)

    def reports_of(self, shares: Sequence[Share]) -> list[TaskReport]:
        """Return the report of each of these shares."""
        return self._map(self.report, shares)

    def shares(self) -> list[Share]:
        """Return the shares at which an attempt has begun, sorted."""
        return [
            (epoch, number, task)
            for epoch in self._numbers("")
            for number in self._numbers(str(epoch))
            for task in self._numbers(f"{epoch}/{number}")
        ]

    # --- what a driver follows ---

    def news(self, shares: Sequence[Share], wait_s: float = inf) -> list[tuple[Attempt, Head]]:
        """Return the records that the newest attempts at these shares have written since the last
        call, in order.

        To save requests to an object store, a call reads at most one record of each attempt there,
        and looks for newer attempts only now and then. Later calls return the rest.

        A newer attempt waits for up to ``wait_s``, and then does again what is not reported. So if
        this process stands still for as long, it does not know whether what it has read counts.
        Then this returns nothing, and the next call looks for newer attempts.
        """
        followed = {share: self._followed.get(share) or _Followed() for share in shares}
        self._followed = followed
        unsure, local = shares, self.objects.is_local
        if not local and boottime_s() < self._listed_s + LIST_S:
            unsure = [share for share in shares if followed[share].attempt is None]
        else:
            self._listed_s = boottime_s()
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
        found = self._map(read_new, places)
        if boottime_s() - self._listed_s >= wait_s:
            return news
        for (attempt, each), records in zip(begun, found, strict=True):
            for record in records:
                try:
                    news.append((attempt, decode_line(record, Head)))
                except ValueError:
                    raise self._spoilt(f"{attempt.name}/{each.read:08d}") from None
                each.read += 1
        return news

    # --- where handlers are open ---

    def opening(self, epoch: int) -> str:
        """Note that a process is about to open the handler; return a name to give to ``closed``.

        Raises LockLost or Interrupted if the drain is over.
        """
        self.ensure_epoch(epoch)
        control = self.control(epoch)
        if control is not None and control.stop is not None:
            raise Interrupted(control.stop)
        name = f"{epoch}/handlers/{uuid4().hex}"
        self._create(f"{name}/{BEGUN}", this_process())
        return name

    def report_reading(self, epoch: int) -> None:
        """Report that a task has opened the handler and reached Kafka."""
        self._create(f"{epoch}/{READS}", this_process())

    def is_reading(self, epoch: int) -> bool:
        """Return whether a task has reported that it reads."""
        return self._has(f"{epoch}/{READS}")

    def closed(self, name: str, failure: str | None) -> None:
        """Report that the handler of this name is closed. ``failure`` is why closing it failed."""
        line = encode_line({"failure": failure})
        self.objects.put(self._name(f"{name}/{ENDED}"), line, beside=True)

    def handlers(self, epoch: int) -> tuple[int, list[str]]:
        """Return how many handlers are open in living processes, and the reasons why others could
        not be closed."""
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
        """Return the error for a state that the driver and the tasks don't share.

        ``what`` says what one of them can't see. Its {} stands for the place.
        """
        return StateRefused(
            f"{what.format(self.uri)}: it must be the same place on all machines",
            hint="Set drainer.state to a place that all executors and this machine reach: s3://,"
            " gs://, abfs://, or a folder mounted everywhere.",
        )

    # --- what is removed ---

    def remove_slice(self, epoch: int, number: int) -> None:
        """Remove all of a slice. The plan on disk must have its tasks' reports."""
        self.objects.remove(self._name(f"{epoch}/{number}"))

    def remove(self, plan: PlanPlace | None = None) -> None:
        """Remove the state. The epochs are removed first, so that tasks which still run end.

        If the state is a folder beside the ``plan``, and is empty after that, it is removed, too.
        """
        self.objects.remove(self._name(EPOCHS))
        self.objects.remove(self.drain_id)
        if plan is not None and self.uri == state_beside(plan):
            with suppress(OSError):
                Path(self.uri).rmdir()

    def _wait(
        self, left: list[Attempt], since_s: float, times: LeaseTimes, check: Callable[[], object]
    ) -> None:
        while True:
            check()
            left = [attempt for attempt in left if not self._is_over(attempt)]
            left_s = since_s + times.wait_s - boottime_s()
            if not left or left_s <= 0:
                return
            time.sleep(min(times.look_s, left_s))

    def has_ended(self, attempt: Attempt) -> bool:
        """Return whether an attempt has reported its end.

        An attempt that fails reports its end as well. One that is killed can't.
        """
        return self._has(f"{attempt.name}/{ENDED}")

    def _is_over(self, attempt: Attempt) -> bool:
        return self.has_ended(attempt) or self._is_dead(attempt.name)

    def _is_dead(self, name: str) -> bool:
        begun = self._body(f"{name}/{BEGUN}", Process)
        return begun is not None and is_dead(begun)

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
_GONE = "the drain's state is gone: the drain is over, or runs elsewhere"


def take_over(
    plan: OffsetPlan, path: PlanPlace, print_line: Callable[[str], None]
) -> Callable[[], None]:
    """Wait until all tasks of the former driver of a plan have ended. The plan has a state.

    The caller holds the plan and the lock on its group. It must load the tasks' reports after this
    call, since the tasks may have reported more.

    Return a function that removes the reports, for when the plan on disk has them. Raises
    PlanRefused or StateRefused if the tasks can't be ended.
    """
    assert plan.account.state is not None
    about = "can't stop tasks of the former driver: "
    hint = "Let this process write there, then repeat the command. Nothing was touched."
    with raised_as(StateRefused, PlanNotWritten, StateLost, about=about, hint=hint):
        state = State.open(plan.account.state.uri, plan.terms.drain_id)
        former = state.epoch()
        times = None if former is None else state.times(former)
        if former is None or times is None:
            raise PlanRefused(f"the state at {state.uri} is gone")
        epoch = max(former, plan.account.state.epoch) + 1
        while not state.begin_epoch(epoch, times):
            epoch += 1  # Another driver has begun this epoch. The next epoch ends that driver, too.
        since_s = boottime_s()
        if not state.attempts_are_over(below=epoch):
            print_line("waiting until the tasks of the former driver have ended")
        state.await_earlier_drivers(epoch, since_s, times)

    def forget() -> None:
        try:
            state.remove(path)
        except StateLost as error:
            print_line(f"can't remove the state at {state.uri}, which is no longer needed: {error}")

    return forget
