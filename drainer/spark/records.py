"""A task's records: the journal and the plan of an engine that runs in a task, kept as objects.

Each is a ``TaskRecord``.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from drainer.core.claims import ALL
from drainer.core.plan import OffsetPlan
from drainer.core.progress import Progress, join_ranges
from drainer.errors import DrainerError, StateLost
from drainer.policy.rules.settings import RuleAccount
from drainer.spark.objects import Objects
from drainer.spark.streams import Streams
from drainer.store.journal import encode_line

# Between two records that have a status, at most, while ``beat`` is called. To an object store it
# goes with what finished, which comes more often: each record is a request.
STATUS_LOCAL_S, STATUS_REMOTE_S = 0.5, 2.5
TRY_FOR_S = 30.0  # how long an object store that takes nothing is tried again
TRY_AGAIN_S = 1.0
FLUSH_S = 60.0


class TaskRecords:
    """What one attempt reports: in place of a plan's file (``PlanStore``).

    Each ``append`` is an object. In a folder it is there on return; to an object store it goes from
    a thread, in order, and ``write`` waits for it.

    Attributes:
        path: for people.
        status: asked, by whoever calls ``append`` or ``beat``, for what the task shows of itself.
    """

    def __init__(
        self, objects: Objects, name: str, streams: Streams, starts: Mapping[int, int]
    ) -> None:
        self.path = f"{objects.uri}/{name}"
        self.status: Callable[[], Mapping[str, Any]] | None = None
        self._objects = objects
        self._name = name
        self._streams = streams
        self._starts = starts
        self._status_due_s = 0.0
        self._changed = threading.Condition()
        self._appended = 0  # records, whether they are there or on the way
        self._untaken: deque[tuple[str, bytes]] = deque()  # name and content
        self._over = False
        self._failure: DrainerError | None = None
        self._sender: threading.Thread | None = None
        self._begun_at: dict[int, int] = {}  # by generation, how many were appended before it
        self._last: Mapping[int, Progress] = {}  # whole progress that was reported

    def start_journal(self, drain_id: str, generation: int) -> None:
        """Hears that the engine has taken a snapshot; the journal of a task is one to its end."""
        with self._changed:
            self._begun_at = {generation: self._appended}

    def append(
        self,
        changes: Mapping[int, Progress],
        parked: Sequence[str] = (),
        ruled: RuleAccount | None = None,
    ) -> None:
        """Reports what finished, next time again if it raises PlanNotWritten or StateLost."""
        if not self._objects.is_local:
            self.hurry()
        self._tell(changes, parked, ruled, self._status_if_due())

    def beat(self) -> None:
        """Reports that the task lives, and how it is, when the last time was a while ago."""
        status = self._status_if_due()
        if status is not None:
            self._tell({}, status=status)

    def hurry(self) -> None:
        """The next record has a status."""
        self._status_due_s = 0.0

    def write(self, plan: OffsetPlan) -> None:
        """Makes sure that all is reported that this plan of the task's share holds.

        Raises PlanNotWritten or StateLost.
        """
        with self._changed:
            claim = plan.claims[ALL]
            newest = self._begun_at.get(plan.generation) == self._appended
            # What was appended since the plan's snapshot was taken knows more than it.
            if newest and claim != self._last:
                self._tell(claim, plan.parked, plan.ruled or None)
                self._last = claim
        self._flush()

    def remove_journals(self) -> None:
        """Nothing to be done: the driver removes what it has folded in."""

    def end(self, outcome: Mapping[str, Any]) -> None:
        """Says that the attempt is over; nothing is reported after that.

        Raises PlanNotWritten or StateLost.
        """
        with self._changed:
            self._over = True
            self._give("ended", encode_line(outcome))
        self._flush()

    def _status_if_due(self) -> Mapping[str, Any] | None:
        now_s = time.monotonic()
        if self.status is None or now_s < self._status_due_s:
            return None
        self._status_due_s = now_s + (STATUS_LOCAL_S if self._objects.is_local else STATUS_REMOTE_S)
        return self.status()

    def _from_start(self, changes: Mapping[int, Progress]) -> dict[int, Progress]:
        """Progress that says nothing of what lies below the task's share."""
        reported: dict[int, Progress] = {}
        for number, found in changes.items():
            start = self._starts.get(number)
            if start is not None:
                below = [(start, found.watermark)] if found.watermark > start else []
                ranges = join_ranges([*below, *found.finished])
                reported[number] = replace(found, watermark=0, finished=ranges)
            else:
                reported[number] = found
        return reported

    def _tell(
        self,
        changes: Mapping[int, Progress],
        parked: Sequence[str] = (),
        ruled: RuleAccount | None = None,
        status: Mapping[str, Any] | None = None,
    ) -> None:
        claims = self._streams.claims(self._from_start(changes))
        body: dict[str, Any] = {
            "claims": {
                selector: {n: found.as_json() for n, found in claim.items()}
                for selector, claim in claims.items()
            }
        }
        if parked:
            body["parked"] = parked
        if ruled is not None:
            body["ruled"] = self._streams.ruled(ruled)
        if status is not None:
            body["status"] = status
        line = encode_line(body)
        with self._changed:
            self._appended += 1
            self._give(f"{self._appended:08d}", line)

    def _give(self, name: str, line: bytes) -> None:
        self._untaken.append((f"{self._name}/{name}", line))
        if self._objects.is_local:
            self._put_all()
            return
        if self._sender is None:
            self._sender = threading.Thread(target=self._send, name="records", daemon=True)
            self._sender.start()
        self._changed.notify_all()
        self._raise_failure()

    def _put_all(self) -> None:
        # In order, and each as it was: a later one must not be there without an earlier one.
        while self._untaken:
            self._objects.put(*self._untaken[0], beside=True)
            self._untaken.popleft()

    def _send(self) -> None:
        failing_since_s: float | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._untaken or self._over)
                if not self._untaken:
                    return
                name, line = self._untaken[0]
            try:
                self._objects.put(name, line, beside=True)
            except DrainerError as error:
                now_s = time.monotonic()
                failing_since_s = now_s if failing_since_s is None else failing_since_s
                if now_s - failing_since_s >= TRY_FOR_S:
                    with self._changed:
                        self._failure = error
                        self._changed.notify_all()
                time.sleep(TRY_AGAIN_S)
                continue
            failing_since_s = None
            with self._changed:
                self._untaken.popleft()
                self._failure = None
                self._changed.notify_all()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _flush(self) -> None:
        with self._changed:
            if self._objects.is_local:
                self._put_all()
                return
            until_s = time.monotonic() + FLUSH_S
            while self._untaken:
                self._raise_failure()
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise StateLost(
                        f"the state at {self._objects.uri} takes nothing: no answer for"
                        f" {FLUSH_S:.0f} s",
                        hint="what is in it stays true; once it can be reached, resume",
                    )
                self._changed.wait(left_s)
