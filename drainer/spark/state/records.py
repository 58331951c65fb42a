"""A task's records: the journal and the plan of an engine that runs in a task, kept as objects.

A driver reads while the drain runs how far the task is, and how it is. What finished beyond that
is read once the task is over.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

from drainer.core.merge import Record, TaskRecord
from drainer.errors import DrainerError, StateLost
from drainer.message import Stream
from drainer.model import codec
from drainer.model.claims import ALL, Claims
from drainer.model.codec import Whole
from drainer.model.latency import Latency
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Counts, Outcome, OutcomeRanges, Progress, merge_outcomes
from drainer.model.ranges import Range, Ranges, join_ranges
from drainer.model.status import NO_LOAD, FailureStatus, Load
from drainer.model.unhandled import Unhandled
from drainer.spark.state.objects import Objects
from drainer.spark.state.sharding import Sharding
from drainer.store.journal import encode_line

# Between two records that have a status, at most, while ``beat`` is called. To an object store it
# goes with what finished, which comes more often: each record is a request.
STATUS_LOCAL_S, STATUS_REMOTE_S = 0.5, 2.5
TRY_FOR_S = 30.0  # how long an object store that takes nothing is tried again
TRY_AGAIN_S = 1.0
FLUSH_S = 60.0

FIRST = "00000000"  # record: what an attempt goes on from
ENDED = "ended"
_NONE = Counts()


class Borrowed(NamedTuple):
    """Report of a task on what it has borrowed."""

    seen: int = 0  # the number of the grants that it obeys; 0 before the first
    in_flight: int = 0
    ready: int = 0  # lanes that only wait for a call
    done: int = 0  # sub-messages that calls have done, since it began
    calls: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Status of a task; the fields are those of ``Status``, and what it has ``borrowed``, None
    once it is over. It means nothing to a resume."""

    host: str = ""
    running: int = 0
    lanes: int = 0
    lanes_ready: int = 0
    hottest: tuple[tuple[str, int], ...] = ()
    buffered_bytes: int = 0
    trouble: str | None = None
    latency: Latency | None = None
    latency_recent: Latency | None = None
    undecided: Mapping[str, int] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    failures: FailureStatus = field(default_factory=FailureStatus)
    borrowed: Borrowed | None = None
    began_s: float = 0.0  # as in ``Totals``
    busy: int = 0
    processor: Load = NO_LOAD


class Head(msgspec.Struct, omit_defaults=True, frozen=True):
    """A record as the driver reads it.

    ``marks`` are by claim and partition: where the task's share begins, and up to which offset it
    has finished all of it; ``beyond`` is what it finished beyond that, not decoded. ``fates`` are
    those of ``Progress``, the other fields those of ``TaskRecord``. A ``whole`` record has all that
    those before it have.
    """

    marks: dict[str, dict[Whole, Range]] = {}
    counts: dict[Whole, Counts] = {}
    fates: dict[str, dict[Whole, dict[Outcome, Ranges]]] = {}
    parked: tuple[str, ...] = ()
    unhandled: Unhandled | None = None
    status: TaskStatus | None = None
    whole: bool = False
    beyond: msgspec.Raw = msgspec.Raw()

    def decoded(self) -> TaskRecord:
        """The record with all of its progress. Raises ValueError when that makes no sense."""
        raw = self.beyond
        beyond = codec.decode(bytes(raw), dict[str, dict[Whole, Progress]]) if raw else {}
        claims: dict[str, dict[int, Progress]] = {}
        for selector, marks in self.marks.items():
            above, fates = beyond.get(selector, {}), self.fates.get(selector, {})
            claims[selector] = {}
            for number, (start, mark) in marks.items():
                found = above.get(number, Progress(0))
                below = [(start, mark)] if start < mark else []
                finished = join_ranges([*below, *found.finished])
                own = Progress(0, finished, found.partial, fates=fates.get(number, {}))
                claims[selector][number] = own
        return TaskRecord(claims, self.counts, self.parked, self.unhandled)


def encode_record(
    record: TaskRecord, starts: Claims, status: TaskStatus | None = None, *, whole: bool = False
) -> bytes:
    """A record as a line, for ``Head``. It leaves out what lies before the task's share, which
    begins at ``starts``: something there may be pending for a lane that is parked."""
    marks: dict[str, dict[int, Range]] = {}
    fates: dict[str, dict[int, dict[str, str]]] = {}
    beyond: dict[str, dict[int, dict[str, Any]]] = {}
    for selector, changes in record.claims.items():
        marks[selector] = {}
        for number, found in changes.items():
            start = starts[selector][number].watermark
            marks[selector][number] = start, max(start, found.watermark)
            body = found.as_json()
            if "fates" in body:
                fates.setdefault(selector, {})[number] = body["fates"]
            if body["finished"] or body["partial"]:
                above = {"watermark": 0, "finished": body["finished"], "partial": body["partial"]}
                beyond.setdefault(selector, {})[number] = above
    head = {
        "marks": marks,
        "counts": record.counts,
        "fates": fates,
        "parked": record.parked,
        "unhandled": record.unhandled,
        "status": status,
        "whole": whole,
        "beyond": beyond,
    }
    return encode_line({name: body for name, body in head.items() if body})


class TaskRecords:
    """Reports of one attempt: in place of a plan's file (``PlanStore``). It has to report first
    what it goes on from.

    Each ``append`` is an object. In a folder it is there on return; to an object store it goes from
    a thread, in order, and ``write`` waits for it.
    """

    def __init__(
        self, objects: Objects, name: str, streams: Sharding, starts: Mapping[int, int]
    ) -> None:
        self.path = f"{objects.uri}/{name}"  # for people
        # Called, by whoever calls ``append`` or ``beat``, for what the task shows of itself.
        self.status: Callable[[], TaskStatus | None] | None = None
        self._objects = objects
        self._name = name
        self._streams = streams
        self._starts = streams.claims({n: Progress(start) for n, start in starts.items()})
        self._counts: dict[int, Counts] = {}  # by partition, with those of earlier attempts
        self._counted: dict[int, Counts] = {}  # by stream, of this one
        self._fates: dict[int, OutcomeRanges] = {}  # by stream, all that were reported
        self._status_due_s = 0.0
        self._changing = threading.RLock()
        self._appended = 0  # records, whether they are there or on the way
        self._untaken: deque[tuple[str, bytes]] = deque()  # name and content
        self._failing_since_s: float | None = None
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="records")
        self._sending: Future[None] | None = None
        self._begun_at = (-1, 0)  # generation of the plan, and how many were appended before it
        self._last: Mapping[int, Progress] = {}  # whole progress that was reported

    def go_on_from(self, earlier: TaskRecord) -> None:
        """Repeat what earlier attempts reported: from here on only this one counts.

        Raises PlanNotWritten or StateLost.
        """
        self._counts = {n: each.without_pending() for n, each in earlier.counts.items()}
        claims = {
            selector: {n: self._starts[selector][n].merge(found) for n, found in claim.items()}
            for selector, claim in earlier.claims.items()
        }
        streams = self._streams.changes(earlier.claims)
        self._fates = {stream: found.fates for stream, found in streams.items()}
        again = replace(earlier, claims=claims, counts=self._counts)
        line = encode_record(again, self._starts, whole=True)
        with self._changing:
            self._give(FIRST, line)

    def start_journal(self, drain_id: str, generation: int) -> None:
        """Note that the engine has taken a snapshot; the journal of a task is one to its end."""
        with self._changing:
            self._begun_at = generation, self._appended

    def append(self, record: Record) -> None:
        """Reports what finished, next time again if it raises PlanNotWritten or StateLost."""
        if not self._objects.is_local:
            self.hurry()
        self._report(record, self._status_if_due())

    def beat(self) -> None:
        """Reports that the task lives, and how it is, when the last time was a while ago."""
        status = self._status_if_due()
        if status is not None:
            self._report(Record({}), status)

    def hurry(self) -> None:
        """The next record has a status."""
        self._status_due_s = 0.0

    def write(self, plan: OffsetPlan) -> None:
        """Makes sure that all is reported that this plan of the task's share holds.

        Raises PlanNotWritten or StateLost.
        """
        with self._changing:
            account = plan.account
            newest = self._begun_at == (account.generation, self._appended)
            # What was appended since the plan's snapshot was taken knows more than it.
            if newest and account.claims[ALL] != self._last:
                self._last = account.claims[ALL]
                all_of_it = Record(self._last, account.parked, account.unhandled or None)
                self._report(all_of_it, whole=True)
        self._flush()

    def remove_journals(self) -> None:
        """Nothing to be done: the driver removes what it has folded in."""

    def end(self) -> None:
        """Report that the attempt is over; nothing is reported after that.

        Raises PlanNotWritten or StateLost.
        """
        try:
            with self._changing:
                self._give(ENDED, encode_line({}))
            self._flush()
        finally:
            self._sender.shutdown(wait=False)

    def _status_if_due(self) -> TaskStatus | None:
        now_s = time.monotonic()
        if self.status is None or now_s < self._status_due_s:
            return None
        self._status_due_s = now_s + (STATUS_LOCAL_S if self._objects.is_local else STATUS_REMOTE_S)
        return self.status()

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
                if found.fates:
                    known = self._fates.get(stream, {})
                    self._fates[stream] = merge_outcomes((known, found.fates))
            if whole:
                changes = {
                    stream: replace(found, fates=self._fates.get(stream, {}))
                    for stream, found in changes.items()
                }
            reported = TaskRecord(
                self._streams.claims(changes),
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
            before.result()  # or what it failed by

    def _put_all(self) -> None:
        # In order, and each as it was: a later one must not be there without an earlier one.
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
