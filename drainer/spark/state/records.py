"""The records of a task: objects that stand in for the plan and journal of the engine in the task.

While the task runs, the driver reads two things from its records: the mark below which it has
finished everything, and its status. What it finished above the mark is read after its end.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from drainer.core.merge import Record, TaskRecord
from drainer.errors import DrainerError, StateLost
from drainer.model import codec
from drainer.model.claims import ALL, Claims, Stream, claims_of, streams_of
from drainer.model.codec import Whole
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Counts, Outcome, OutcomeRanges, Progress, merge_outcomes
from drainer.model.ranges import Range, Ranges, join_ranges
from drainer.model.status import FailureStatus, LimitStatus, TimingStatus
from drainer.model.unhandled import RuleStatus, Unhandled
from drainer.store.journal import encode_line
from drainer.store.objects import Objects

# ``beat`` reports the status again after this time. In an object store each record is a request, so
# there every record of what finished has the status, too.
STATUS_LOCAL_S, STATUS_REMOTE_S = 0.5, 2.5
TRY_FOR_S = 30.0  # A record is offered to an object store for this long if the store fails.
TRY_AGAIN_S = 1.0
FLUSH_S = 60.0

FIRST = "00000000"  # The record with what earlier attempts finished.
ENDED = "ended"
_NONE = Counts()


class Borrowed(NamedTuple):
    """A task's report on the calls that it has borrowed.

    Attributes:
        seen: the number of the newest grants that the task has seen; 0 before the first.
        in_flight: the number of calls that are in the handler, or may still begin.
        ready: the number of lanes that wait only for a call.
        done, calls, failed: how many sub-messages the task has done, how many calls succeeded, and
            how many attempts failed, since the task began.
    """

    seen: int = 0
    in_flight: int = 0
    ready: int = 0
    done: int = 0
    calls: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The status of a task, which a resume does not need: sections of its engine's ``Status``.

    Attributes:
        trouble: the reason why the task waits, such as an outage; None if it does not.
        borrowed: what the task has borrowed; None once it is over.
        began_s: when the latest successful call began, as in ``Totals``.
        failure: the error by which the task has ended, as JSON; None if there is none.
        interrupted: whether the attempt was interrupted, so that Spark may repeat it.
    """

    host: str = ""
    limits: LimitStatus = LimitStatus()
    failures: FailureStatus = FailureStatus()
    rules: RuleStatus = RuleStatus()
    timing: TimingStatus = TimingStatus()
    trouble: str | None = None
    borrowed: Borrowed | None = None
    began_s: float = 0.0
    failure: Mapping[str, str | None] | None = None
    interrupted: bool = False


StatusOf = Callable[[], TaskStatus | None]


class Head(msgspec.Struct, omit_defaults=True, frozen=True):
    """A record as the driver reads it. Fields without a description are those of ``TaskRecord``.

    Attributes:
        marks: by claim and partition, the offset where the task's share begins, and the offset
            below which the task has finished all of its share.
        outcomes: outcomes of messages by claim and partition, as ``Progress`` has them.
        whole: whether the record repeats everything that the records before it have.
        beyond: what the task has finished above its marks, as JSON that is not decoded yet.
    """

    marks: dict[str, dict[Whole, Range]] = {}
    counts: dict[Whole, Counts] = {}
    outcomes: dict[str, dict[Whole, dict[Outcome, Ranges]]] = {}
    parked: tuple[str, ...] = ()
    unhandled: Unhandled | None = None
    status: TaskStatus | None = None
    whole: bool = False
    beyond: msgspec.Raw = msgspec.Raw()

    def decoded(self) -> TaskRecord:
        """Return the record with all of its progress, decoded. Raises ValueError."""
        raw = self.beyond
        beyond = codec.decode(bytes(raw), dict[str, dict[Whole, Progress]]) if raw else {}
        claims: dict[str, dict[int, Progress]] = {}
        for selector, marks in self.marks.items():
            above, outcomes = beyond.get(selector, {}), self.outcomes.get(selector, {})
            claims[selector] = {}
            for number, (start, mark) in marks.items():
                found = above.get(number, Progress(0))
                below = [(start, mark)] if start < mark else []
                finished = join_ranges([*below, *found.finished])
                own = Progress(0, finished, found.partial, outcomes=outcomes.get(number, {}))
                claims[selector][number] = own
        return TaskRecord(claims, self.counts, self.parked, self.unhandled)


def encode_record(
    record: TaskRecord, starts: Claims, status: TaskStatus | None = None, *, whole: bool = False
) -> bytes:
    """Return a record as a line that ``Head`` can read.

    Offsets before ``starts``, where the task's share begins, are left out: what a parked lane has
    there may still be pending.
    """
    marks: dict[str, dict[int, Range]] = {}
    outcomes: dict[str, dict[int, dict[str, str]]] = {}
    beyond: dict[str, dict[int, dict[str, Any]]] = {}
    for selector, changes in record.claims.items():
        marks[selector] = {}
        for number, found in changes.items():
            start = starts[selector][number].watermark
            marks[selector][number] = start, max(start, found.watermark)
            body = found.as_json()
            if "outcomes" in body:
                outcomes.setdefault(selector, {})[number] = body["outcomes"]
            if body["finished"] or body["partial"]:
                above = {"watermark": 0, "finished": body["finished"], "partial": body["partial"]}
                beyond.setdefault(selector, {})[number] = above
    head = {
        "marks": marks,
        "counts": record.counts,
        "outcomes": outcomes,
        "parked": record.parked,
        "unhandled": record.unhandled,
        "status": status,
        "whole": whole,
        "beyond": beyond,
    }
    return encode_line({name: body for name, body in head.items() if body})


class TaskRecords:
    """The reports of one attempt at a task. To the engine they are its ``PlanStore``.

    The first report repeats what earlier attempts finished. Each ``append`` then creates one more
    object. In a folder, the object exists when the call returns. For an object store, a thread
    sends the objects in order, and ``write`` waits until all of them have been sent.

    Args:
        name: the name of the attempt among the objects.
        starts: by stream, the offset at which the task's share begins.
        status: returns the status of the task. It is called in the thread that calls ``append`` or
            ``beat``.
    """

    trouble: str | None = None  # A task in trouble loses its lease.

    def __init__(
        self, objects: Objects, name: str, starts: Mapping[int, int], status: StatusOf
    ) -> None:
        self.path = f"{objects.uri}/{name}"  # Errors and views show this.
        self._objects = objects
        self._name = name
        self._status = status
        self._starts = claims_of({n: Progress(start) for n, start in starts.items()})
        self._counts: dict[int, Counts] = {}  # By partition, the counts of all attempts.
        self._counted: dict[int, Counts] = {}  # By stream, the counts of this attempt.
        self._outcomes: dict[int, OutcomeRanges] = {}  # By stream, all outcomes that were reported.
        self._status_due_s = 0.0
        self._changing = threading.RLock()
        self._appended = 0  # The number of records so far.
        self._untaken: deque[tuple[str, bytes]] = deque()  # Names and contents of objects to write.
        self._failing_since_s: float | None = None
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="records")
        self._sending: Future[None] | None = None
        # The generation of the newest plan, and the number of records when its snapshot was taken.
        self._begun_at = (-1, 0)
        self._last: Mapping[int, Progress] = {}  # The last whole progress that was reported.

    def go_on_from(self, earlier: TaskRecord) -> None:
        """Report what earlier attempts finished, and wait until that is written.

        From then on, their own reports don't count. Before that, a late one still would, and this
        attempt may be about to do the same again. Raises PlanNotWritten or StateLost.
        """
        self._counts = {n: each.without_pending() for n, each in earlier.counts.items()}
        claims = {
            selector: {n: self._starts[selector][n].merge(found) for n, found in claim.items()}
            for selector, claim in earlier.claims.items()
        }
        streams = streams_of(earlier.claims)
        self._outcomes = {stream: found.outcomes for stream, found in streams.items()}
        again = replace(earlier, claims=claims, counts=self._counts)
        line = encode_record(again, self._starts, whole=True)
        with self._changing:
            self._give(FIRST, line)
        self._flush()

    def start_journal(self, drain_id: str, generation: int) -> None:
        """Note that the engine has taken a snapshot of its plan. All plans of a task have the same
        journal."""
        with self._changing:
            self._begun_at = generation, self._appended

    def append(self, record: Record) -> None:
        """Report what finished.

        If this raises PlanNotWritten or StateLost, the next call writes the record again.
        """
        self._report(record, self._status_if_due(at_once=not self._objects.is_local))

    def beat(self, *, at_once: bool = False) -> None:
        """Report the status of the task if that is due, or ``at_once``."""
        if (status := self._status_if_due(at_once=at_once)) is not None:
            self._report(Record({}), status)

    def write(self, plan: OffsetPlan) -> None:
        """Ensure that the records have everything that this plan of the task has.

        Raises PlanNotWritten or StateLost.
        """
        with self._changing:
            account = plan.account
            newest = self._begun_at == (account.generation, self._appended)
            # Records that were appended after the snapshot of the plan know more than the plan.
            if newest and account.claims[ALL] != self._last:
                self._last = account.claims[ALL]
                all_of_it = Record(self._last, account.parked, account.unhandled or None)
                self._report(all_of_it, whole=True)
        self._flush()

    def remove_journals(self) -> None:
        """Do nothing: the driver removes the records that it has taken in."""

    def end(self) -> None:
        """Report that the attempt is over. Nothing may be reported after that.

        Raises PlanNotWritten or StateLost.
        """
        try:
            with self._changing:
                self._give(ENDED, encode_line({}))
            self._flush()
        finally:
            self._sender.shutdown(wait=False)

    def _status_if_due(self, *, at_once: bool) -> TaskStatus | None:
        now_s = time.monotonic()
        if now_s < self._status_due_s and not at_once:
            return None
        self._status_due_s = now_s + (STATUS_LOCAL_S if self._objects.is_local else STATUS_REMOTE_S)
        return self._status()

    def _report(
        self, record: Record, status: TaskStatus | None = None, *, whole: bool = False
    ) -> None:
        changes = record.changes
        with self._changing:
            for stream, found in changes.items():
                number, before = Stream(stream).partition, self._counted.get(stream, _NONE)
                news = found.sub_messages - before
                self._counts[number] = self._counts.get(number, _NONE) + news
                self._counted[stream] = found.sub_messages
                if found.outcomes:
                    known = self._outcomes.get(stream, {})
                    self._outcomes[stream] = merge_outcomes((known, found.outcomes))
            if whole:
                changes = {
                    stream: replace(found, outcomes=self._outcomes.get(stream, {}))
                    for stream, found in changes.items()
                }
            reported = TaskRecord(
                claims_of(changes),
                {n: self._counts[n] for n in {Stream(stream).partition for stream in changes}},
                record.parked,
                record.unhandled,
            )
            line = encode_record(reported, self._starts, status, whole=whole)
            self._appended += 1
            self._give(f"{self._appended:08d}", line)

    def _give(self, name: str, line: bytes) -> None:
        self._untaken.append((f"{self._name}/{name}", line))
        if self._objects.is_local:
            self._put_all()
            return
        before, self._sending = self._sending, self._sender.submit(self._put_all)
        if before is not None and before.done():
            before.result()  # It raises the error that the thread raised.

    def _put_all(self) -> None:
        # Records are written in order: no record may exist without those before it.
        while self._untaken:
            try:
                self._objects.put(*self._untaken[0], beside=True)
            except DrainerError:
                now_s = time.monotonic()
                self._failing_since_s = self._failing_since_s or now_s
                if self._objects.is_local or now_s - self._failing_since_s >= TRY_FOR_S:
                    raise
                time.sleep(TRY_AGAIN_S)
            else:
                self._failing_since_s = None
                self._untaken.popleft()

    def _flush(self) -> None:
        if self._objects.is_local:
            with self._changing:
                self._put_all()
            return
        try:
            self._sender.submit(self._put_all).result(FLUSH_S)
        except TimeoutError:
            raise StateLost(
                f"can't write to the state at {self._objects.uri}: no answer for {FLUSH_S:.0f} s",
                hint="Resume once it is reachable. The plan and the state are valid.",
            ) from None
