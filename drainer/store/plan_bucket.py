"""A plan in an object store, so that the drain can go on when its machine is gone.

While a drain runs, the objects ``NAME.journal/DRAIN_ID/GENERATION-PIECE`` are beside its plan
``NAME``.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING

from drainer.core.merge import Record
from drainer.errors import DrainerError, PlanNotWritten, PlanUnready, StateLost, raised_as
from drainer.model.plan import OffsetPlan
from drainer.store.bucket import Bucket, open_bucket
from drainer.store.journal import FoundJournal, JournalPieces, JournalRecords, joined, records_since
from drainer.store.objects import check_uri
from drainer.store.place import STORES, PlanPlace
from drainer.store.saved_plan import SavedPlan, holder_of, no_plan

if TYPE_CHECKING:
    from obstore import UpdateVersion

TRY_FOR_S = 30.0  # Writing a plan is tried again for this long if the store fails.
TRY_AGAIN_S = 1.0
JOURNAL_INTERVAL_S = 1.5
# The store is in trouble if it has not taken a record this long after it was due.
SILENCE_S = 3.0
END_S = 5.0  # The end of a drain waits this long for a request that is under way.

_refusing = partial(raised_as, PlanUnready, StateLost, hint="Name another place with --plan.")


class BucketPlan(SavedPlan):
    """A plan at the URI of an object.

    Each write names the version that it replaces. So a process can't write the plan once another
    process has written it. It may still put pieces of its journal. They have the generation of its
    own plan or the next one. The first plan of the other process has a higher generation, so nobody
    reads these pieces.
    """

    journal_interval_s = JOURNAL_INTERVAL_S

    def __init__(self, uri: str) -> None:
        """Raises UsageError or StateRefused if the URI can't be used."""
        super().__init__(uri)
        check_uri(uri, STORES)
        place, mark, options = uri.partition("?")
        self._folder, _, self._name = place.rpartition("/")
        self._options = f"{mark}{options}"
        self._bucket = open_bucket(f"{self._folder}{self._options}")
        self._tag: UpdateVersion | None = None  # The version that was read or written last.
        # Plans that were sent after that version without an answer. The store may have them.
        self._unanswered: set[bytes] = set()
        self._owner = token_hex(8)
        self._written = 0  # The generation of the last plan that this object has written.
        self._pieces = JournalPieces()
        self._uploads: _Uploads | None = None

    @property
    def path(self) -> str:
        return self._uri(self._name)

    @property
    def exists(self) -> bool:
        with _refusing():
            return self._bucket.get(self._name) is not None

    @property
    def trouble(self) -> str | None:  # type: ignore[override]
        why = None if self._uploads is None else self._uploads.trouble
        return why and f"the journal waits for {self.path}: {why}"

    def check_writable(self) -> str:
        with _refusing():
            self._bucket.get(self._name)
        return f"{self._uri('')} is reachable"

    def acquire(self) -> None:
        with _refusing():
            self._bucket.ensure_create()
            self._bucket.ensure_replace()

    @property
    def owner(self) -> str:
        return self._owner

    def release(self) -> None:
        self._end_uploads()

    def write(self, plan: OffsetPlan) -> None:
        data, until_s = plan.encode(), time.monotonic() + TRY_FOR_S
        while True:
            try:
                self._replace(data)
            except StateLost as error:
                if time.monotonic() > until_s:
                    raise PlanNotWritten(str(error), hint=error.hint) from error
                time.sleep(TRY_AGAIN_S)
            else:
                self._written = plan.account.generation
                if self._uploads is not None:
                    self._uploads.merged_below = plan.account.generation
                return

    def start_journal(self, drain_id: str, generation: int) -> None:
        self._pieces.start(drain_id, generation, self._written)
        if self._uploads is None:
            self._uploads = _Uploads(self._bucket, self._journal(drain_id), self.journal_interval_s)

    def append(self, record: Record) -> None:
        if self._uploads is None:
            raise RuntimeError("the journal was not started")
        self._uploads.add(self._pieces.generation, self._pieces.lines(record))

    def remove_journals(self) -> None:
        self._end_uploads(drop=True)
        self._remove_journals()

    def archive(self, plan: OffsetPlan) -> str:
        """Copy the finished plan to another name, so that a new plan can take its place.

        Its journals stay until the new plan is written. Until then, the plan in its old place would
        lack their records without them.
        """
        aside = f"{self._name.removesuffix('.json')}.{plan.terms.drain_id}.json"
        with _refusing():
            self._bucket.put(aside, plan.encode())
        return self._uri(aside)

    def _rollback(self, aside: PlanPlace | None) -> None:
        self.remove_journals()
        with suppress(DrainerError):
            if aside is None:
                self._bucket.remove(self._name)
                return
            name = str(aside).partition("?")[0].rpartition("/")[2]
            found = self._bucket.get(name)
            if found is not None:
                self._replace(found)
                self._bucket.remove(name)

    def _replace(self, data: bytes) -> None:
        self._unanswered.add(data)
        tag = self._bucket.replace(self._name, data, self._tag)
        if tag is None:
            found = self._bucket.tagged(self._name)
            if found is not None and found[0] in self._unanswered:
                tag = self._bucket.replace(self._name, data, found[1])
            if tag is None and found is None and self._written:
                raise self.gone(f"the plan {self.path} was removed or moved")
            if tag is None:
                who = holder_of(found and found[0])
                raise self.taken(who, began=bool(self._written))
        self._tag = tag
        self._unanswered.clear()

    def _read(self) -> bytes:
        with _refusing():
            found = self._bucket.tagged(self._name)
        if found is None:
            raise no_plan(self.path, "Check the bucket and the name.")
        data, self._tag = found
        return data

    def _journals_since(self, written: OffsetPlan) -> JournalRecords:
        folder = self._journal(written.terms.drain_id)
        pieces: dict[int, dict[int, bytes]] = {}
        with _refusing():
            for name in self._bucket.children(folder):
                generation, _, number = name.partition("-")
                data = self._bucket.get(f"{folder}/{name}")
                if data is not None and generation.isdecimal() and number.isdecimal():
                    pieces.setdefault(int(generation), {})[int(number)] = data
        found = (
            FoundJournal(n, f"{folder}/{n}", partial(joined, each))
            for n, each in sorted(pieces.items())
        )
        return records_since(self.path, written, found, begun=False)

    def _journal(self, drain_id: str) -> str:
        return f"{self._name}.journal/{drain_id}"

    def _remove_journals(self) -> None:
        with suppress(StateLost):  # What is left there belongs to another drain or generation.
            self._bucket.remove(f"{self._name}.journal")

    def _end_uploads(self, *, drop: bool = False) -> None:
        uploads, self._uploads = self._uploads, None
        if uploads is not None:
            uploads.end(drop=drop)

    def _uri(self, name: str) -> str:
        return f"{self._folder}/{name}{self._options}"


class _Uploads:
    """Puts lines of journals into a bucket, in their order, from a thread of its own.

    One thread calls ``add`` and may set ``merged_below``: the plan in the bucket has the records of
    the journals of lower generations, so their pieces are removed.
    """

    def __init__(self, bucket: Bucket, folder: str, interval_s: float) -> None:
        self.merged_below = 0
        self._bucket, self._folder, self._interval_s = bucket, folder, interval_s
        # Generations, lines, and when they were added. Only the thread removes them.
        self._waiting: deque[tuple[int, bytes, float]] = deque()
        self._put: dict[int, int] = {}  # The number of pieces in the bucket, by generation.
        self._reason = "it does not answer"
        self._drops = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drainer-journal", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str | None:
        """The reason why lines are overdue; None while they are put in time."""
        with suppress(IndexError):
            if time.monotonic() - self._waiting[0][2] > self._interval_s + SILENCE_S:
                return self._reason
        return None

    def add(self, generation: int, lines: bytes) -> None:
        self._waiting.append((generation, lines, time.monotonic()))

    def end(self, *, drop: bool) -> None:
        """End the thread after one more attempt to put what waits, or without it if ``drop``."""
        self._drops = drop
        self._stopping.set()
        self._thread.join(END_S)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            self._turn()
        if not self._drops:
            self._turn()

    def _turn(self) -> None:
        try:
            while self._waiting and not self._drops:
                self._put_next()
            for generation in [each for each in self._put if each < self.merged_below]:
                numbers = range(1, self._put[generation] + 1)
                self._bucket.discard([self._piece(generation, number) for number in numbers])
                del self._put[generation]
        except StateLost as error:  # The lines still wait. The next turn tries them again.
            self._reason = str(error)

    def _put_next(self) -> None:
        """Put what waits of one generation as its next piece, unless the plan has it already."""
        generation, count, lines = self._waiting[0][0], 0, bytearray()
        while count < len(self._waiting) and self._waiting[count][0] == generation:
            lines += self._waiting[count][1]
            count += 1
        if generation >= self.merged_below:
            number = self._put.get(generation, 0) + 1
            self._bucket.put(self._piece(generation, number), bytes(lines))
            self._put[generation] = number
        for _ in range(count):
            self._waiting.popleft()

    def _piece(self, generation: int, number: int) -> str:
        return f"{self._folder}/{generation:08d}-{number:08d}"
