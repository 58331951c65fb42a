"""A plan in a compacted topic of the cluster that the drain reads from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from secrets import token_hex

from drainer.core.merge import Record
from drainer.errors import (
    DrainerError,
    PlanGone,
    PlanNotWritten,
    PlanRefused,
    PlanUnready,
    Refused,
    TopicMissing,
    Unresumable,
    raised_as,
)
from drainer.host.os_errors import user_at_host
from drainer.kafka.compacted import IF_GONE, CompactedTopic
from drainer.kafka.settings import ClientSettings
from drainer.model.account import clock
from drainer.model.formats import PLAN_TOPIC
from drainer.model.plan import OffsetPlan
from drainer.store.journal import FoundJournal, JournalPieces, JournalRecords, joined, records_since
from drainer.store.place import PlanPlace, topic_and_name
from drainer.store.plan_log import SLOTS, Bid, KeyedRecord, Owner, PlanLog, Snapshot
from drainer.store.saved_plan import READ_TRIES, SavedPlan, holder_of, no_plan


class TopicPlan(SavedPlan):
    """A plan in a topic. ``store/plan_log.py`` has its records, and why one process owns it.

    The bid is made with the first write, when the drain has the lock on its group. An earlier
    bid would stop a healthy drain whose plan somebody else resumes by mistake.
    """

    def __init__(self, uri: str, settings: ClientSettings) -> None:
        """Raises UsageError if the URI names no plan."""
        super().__init__(uri)
        self._uri, self._settings = uri, settings
        topic, name = topic_and_name(uri)
        self._topic, self._log = CompactedTopic(settings, topic), PlanLog(name)
        self._owner = token_hex(8)
        self._own: Owner | None = None  # This process, once it has won the plan.
        # What this process has read of the plan. The bid fails if the plan has changed since.
        self._known: object = None
        # The number of the last write, that of the last one which succeeded, and its generation.
        self._writes = self._whole = self._written = 0
        # A generation, and the number of its pieces so far.
        self._pieces, self._sent = JournalPieces(), (0, 0)
        # Why a piece of the journal was not written. The next append raises it.
        self._failed: BaseException | None = None

    @property
    def path(self) -> str:
        return self._uri

    @property
    def exists(self) -> bool:
        try:
            return self._read_on() is not None
        except TopicMissing:
            return False

    @property
    def trouble(self) -> str | None:  # type: ignore[override]
        why = self._topic.trouble
        return why and f"the plan waits for topic {self._topic.name}: {why}"

    def check_writable(self) -> str:
        shape, topic = self._topic.shape(), f"topic {self._topic.name}"
        if shape.exists:
            return f"{topic} is {shape}"
        self.makes = f"{topic}: {shape}"
        return f"{topic} can be created"

    def acquire(self) -> None:
        self._topic.make()

    @property
    def owner(self) -> str:
        return self._owner

    def release(self) -> None:
        self._topic.close()
        self._own, self._known, self._writes, self._whole = None, None, 0, 0

    def write(self, plan: OffsetPlan) -> None:
        """Write the plan, and then ensure that no other process has bid for it."""
        with self._writing():
            own = self._own or self._won()
            # If the last write failed, this one must not replace the only complete plan.
            self._writes += 1 if self._writes == self._whole else SLOTS
            self._topic.write(self._log.parts(own, self._writes, plan.encode()))
            self._read_on()
        self._ensure_own(own)
        self._whole = self._writes
        self._written = plan.account.generation
        self._bury(self._log.tombstones(own, below=self._written))

    def start_journal(self, drain_id: str, generation: int) -> None:
        self._pieces.start(drain_id, generation, self._written)
        self._sent = generation, 0

    def append(self, record: Record) -> None:
        if self._own is None:
            raise RuntimeError("the plan was not written")
        self._sent = generation, number = self._sent[0], self._sent[1] + 1
        lines = self._pieces.lines(record)
        piece = self._log.piece(self._own, generation, number, lines)
        self._topic.send(*piece).add_done_callback(self._note_failure)
        if (failed := self._failed) is not None:
            # The piece that is missing makes a gap, which the next plan closes.
            self._failed = None
            raise failed

    def remove_journals(self) -> None:
        if self._own is not None:
            self._bury(self._log.tombstones(self._own))

    def archive(self, plan: OffsetPlan) -> str:
        """Copy the finished plan to another name, so that a new plan can take its place."""
        aside = TopicPlan(f"{self._uri}.{plan.terms.drain_id}", self._settings)
        try:
            if aside.exists:  # A process that has died may have begun this.
                aside.load()
            aside.write(plan)
        except PlanNotWritten as error:
            raise PlanUnready(str(error), hint="Name another place with --plan.") from error
        finally:
            aside.release()
        return aside.path

    def _rollback(self, aside: PlanPlace | None) -> None:
        if aside is None:
            if self._own is not None:
                self._bury(self._log.tombstones(self._own, whole=True))
            return
        with suppress(DrainerError):  # The caller has an error to report already.
            former = TopicPlan(str(aside), self._settings)
            plan = former.load().written
            self.write(plan)
            former.write(plan)  # Only its owner may remove it.
            former._rollback(None)
            former.release()

    def _read(self) -> bytes:
        try:
            found = self._read_on()
        except TopicMissing:
            found = None
        if found is None:
            raise no_plan(self._uri, "Check the brokers, the topic and the name.")
        return found.data

    def _journals_since(self, written: OffsetPlan) -> JournalRecords:
        snapshot = self._log.snapshot
        assert snapshot is not None, "the plan was read from it"
        self._known = self._log.version
        found = (
            FoundJournal(n, f"its journal {n}", partial(joined, pieces))
            for n, pieces in self._log.journals(snapshot.owner).items()
        )
        return records_since(self._uri, written, found, begun=False)

    def _read_on(self) -> Snapshot | None:
        """Read to the end of the log, and return the plan that counts; None if there is none.

        Raises TopicMissing, and PlanGone or PlanRefused if the topic was recreated or lost records.
        """
        gone = PlanRefused if self._own is None else PlanGone
        with raised_as(
            gone, Unresumable, about=f"the plan {self._uri} may be gone: ", hint=IF_GONE
        ):
            for _ in range(READ_TRIES):
                for record in self._topic.read_on():
                    self._log.take(KeyedRecord(*record))
                if not self._log.is_cut:
                    break  # Otherwise it is being replaced now.
        return self._log.snapshot

    def _won(self) -> Owner:
        """Bid for the plan, and return this process as its owner.

        Raises PlanUnready if another process was first, or has written the plan meanwhile.
        """
        if not self._log.epoch:
            self._read_on()
        own = Owner(self._log.epoch + 1, token_hex(8))  # A bid is never written twice.
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        bid = Bid(str(PLAN_TOPIC), user_at_host(os.geteuid()), now)
        self._topic.write([self._log.bidding(own, bid)])
        self._read_on()
        self._ensure_own(own)
        if self._log.version != self._known:
            found = self._log.snapshot
            raise self.taken(holder_of(found and found.data), began=False)
        self._own = own
        return own

    def _ensure_own(self, own: Owner) -> None:
        """Raise LockLost or PlanUnready unless this process has the highest epoch."""
        winner = self._log.winner(self._log.epoch)
        if winner != own:
            who = "its bid was removed"
            if winner is not None:
                bid = self._log.bid(winner)
                who = f"{bid.by} has it since {clock(bid.at)}"
            raise self.taken(who, began=bool(self._writes))

    def _bury(self, tombstones: Iterator[KeyedRecord]) -> None:
        """Begin to write tombstones. One that gets lost does no harm: the next owner writes it."""
        for record in list(tombstones):
            self._topic.send(*record)

    def _note_failure(self, written: Future[None]) -> None:
        self._failed = self._failed or written.exception()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise PlanNotWritten if the topic can't be read back."""
        try:
            yield
        except PlanRefused:
            raise
        except Refused as error:
            raise PlanNotWritten(str(error), hint=error.hint) from error
