"""The port to a saved plan, wherever it is kept, and what all places have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from drainer.core.merge import Record, TaskReport, fold
from drainer.errors import (
    DrainerError,
    LockLost,
    PlanGone,
    PlanRefused,
    PlanUnready,
    StateLost,
    StateRefused,
    UsageError,
    raised_as,
)
from drainer.loading.extensions import Extension
from drainer.model.account import EventKind, clock
from drainer.model.listed import counted
from drainer.model.plan import OffsetPlan
from drainer.model.settings import JOURNAL_INTERVAL_S
from drainer.store.journal import JournalRecords
from drainer.store.place import PlanPlace, uri_to_keep, uri_to_open

READ_TRIES = 10  # How often a plan is read if a drain keeps writing it.


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan as it was written, and with everything that was reported since.

    Attributes:
        path: where the plan is. It is not compared, because a plan may have several paths.
        written: the plan as its place has it.
        plan: the plan with the records of its journals and of its Spark tasks.
        records: the number of records that ``plan`` has and ``written`` has not.
        torn: whether a record is damaged or missing. The records after it are left out.
        last_generation: the highest generation of the plan and its journals.
        left_out: the number of sub-messages that finished according to records that are left out.
    """

    path: PlanPlace = field(compare=False)
    written: OffsetPlan
    plan: OffsetPlan
    records: int
    torn: bool
    last_generation: int
    left_out: int = 0

    @property
    def warnings(self) -> list[str]:
        """A warning, if a resume will repeat more than the calls that were in flight."""
        if not self.torn:
            return []
        known = f", {counted(self.left_out, 'sub-message')} at least" if self.left_out else ""
        return [
            f"the journal of {self.path} is damaged or missing: a resume repeats what was done"
            f" after {clock(self.written.account.updated)} and is not in it{known}"
        ]


class SavedPlan(ABC):
    """One plan, in a file, a bucket or a topic. A process acquires it, and releases it at the end.

    A process reads the plan, and then writes over what it has read or written last, and over
    nothing else. What finishes between two writes, it appends to a journal beside the plan.

    The methods for locks do nothing unless a derived class has its own, because buckets and topics
    have none. There, the lock on the group keeps other drains away. If a process was killed, a
    resume waits until its lock on the group has expired.

    Attributes:
        journal_interval_s: the seconds between two writes to the journal, at least.
        makes: what ``acquire`` will create, for the preview; None if everything is there.
        trouble: the reason why the place takes no more of the journal; None while it does.
    """

    journal_interval_s = JOURNAL_INTERVAL_S
    makes: str | None = None
    trouble: str | None = None

    def __init__(self, *named: str) -> None:
        self._named = list(named)  # The URIs that a person gave or agreed to.

    def allow_state(self, uri: str) -> None:
        """Allow reading a state in the bucket of this URI, which a person gave or agreed to."""
        self._named.insert(0, uri)

    @property
    @abstractmethod
    def path(self) -> PlanPlace: ...

    @property
    @abstractmethod
    def exists(self) -> bool: ...

    @abstractmethod
    def check_writable(self) -> str:
        """Return a sentence which says that the plan can be written.

        Raises PlanRefused if it can't be.
        """

    @abstractmethod
    def acquire(self) -> None:
        """Lock the plan for this process until ``release``, if its place has locks.

        Raises PlanRefused if another process has it, or if it can't be written.
        """

    @property
    @abstractmethod
    def owner(self) -> str:
        """A name for this process. No other process that could work with the plan has the same."""

    @property
    def is_locked(self) -> bool:
        """Whether a process is known to have acquired the plan. Only a file has a lock."""
        return False

    def ensure_free(self) -> None:  # noqa: B027
        """Raise PlanRefused if another process has acquired the plan. This acquires nothing."""

    def release(self) -> None:  # noqa: B027
        """Let other processes acquire the plan again."""

    @abstractmethod
    def write(self, plan: OffsetPlan) -> None:
        """Write the plan so that a crash leaves either the old one or the new one.

        Raises PlanNotWritten, with the old plan in place. If another process has the plan, raises
        PlanRefused at the first write of this process, and LockLost later.
        """

    @abstractmethod
    def start_journal(self, drain_id: str, generation: int) -> None:
        """Begin a new journal, to which ``append`` adds records from then on."""

    @abstractmethod
    def append(self, record: Record) -> None:
        """Append a record of what has finished to the journal.

        It is written within ``journal_interval_s``, or later while there is ``trouble``. A journal
        never has a record without the records before it. Raises PlanNotWritten.
        """

    @abstractmethod
    def remove_journals(self) -> None:
        """Remove the journals. The caller has written a plan that has all of their records."""

    @abstractmethod
    def archive(self, plan: OffsetPlan) -> PlanPlace:
        """Rename the plan of a finished drain, so that a new plan can have its name.

        ``plan`` is this plan with the records of its journals. Returns the new place. Raises
        PlanRefused.
        """

    def load(self, *, without_reports: bool = False) -> LoadedPlan:
        """Load the plan with the records of its journals and the reports of its Spark tasks.

        With ``without_reports``, the reports are left out. A plan that a stranger has sent may name
        any place for them.

        Raises PlanRefused when there is no plan here, or when it can't be trusted.
        """
        for _ in range(READ_TRIES):
            data = self._read()
            refused = None
            try:
                loaded = self._loaded(data, without_reports=without_reports)
            except PlanRefused as error:
                refused = error
            # If the plan has changed, a running drain may have merged journals into it and removed
            # them before they were read here.
            if self._read() == data:
                break
        if refused is not None:
            raise refused
        return loaded

    def state_to_confirm(self, plan: OffsetPlan) -> str | None:
        """Return the URI of the plan's state, if only the plan names it and no person did.

        Raises UsageError if the URI can't be understood.
        """
        state = plan.account.state
        if state is None or uri_to_open(state.uri, self._named) is not None:
            return None
        return uri_to_keep(state.uri)

    def with_reachable_state(self, plan: OffsetPlan) -> OffsetPlan:
        """Return the plan with the URI of its state completed by the options that a person gave.

        Raises UsageError if a URI can't be understood, and PlanRefused if no person has named the
        bucket of the state.
        """
        state = plan.account.state
        if state is None:
            return plan
        uri = uri_to_open(state.uri, self._named)
        if uri is None:
            raise PlanRefused(
                f"{self.path} names a state at {uri_to_keep(state.uri)}, which drainer reads"
                " only with your consent",
                hint=f"Resume it and confirm: `{plan.account.resuming.command(self.path)}`",
            )
        account = replace(plan.account, state=replace(state, uri=uri))
        return OffsetPlan(plan.terms, account)

    def ensure_unchanged(self, seen: LoadedPlan | None) -> None:
        """Ensure that the plan has not changed since it was loaded as ``seen``.

        The caller loads it before it acquires it. ``seen`` is None if there was no plan. Raises
        PlanUnready if another process has changed it.
        """
        found = self.load() if self.exists else None
        if found == seen:
            return
        if found and seen and found.written == seen.written and found.written.account.state:
            # Only the tasks of a driver that has died still write. This drain will fence them off.
            return
        what = "has appeared" if seen is None else "is gone" if found is None else "has changed"
        who = holder(found.plan) if found else "another process uses it"
        raise PlanUnready(
            f"{self.path} {what} in the meantime: {who}",
            hint="Repeat the command to see the new state.",
        )

    def taken(self, who: str, *, began: bool) -> DrainerError:
        """Return the error for a plan that another process has. ``who`` says which one.

        ``began`` says whether this process has written the plan before.
        """
        kind = LockLost if began else PlanUnready
        hint = "Find where it runs, and let it end, or stop it there."
        return kind(f"another process has the plan {self.path}: {who}", hint=hint)

    def gone(self, how: str) -> PlanGone:
        """Return the error for a plan that somebody has removed or moved while this drain runs."""
        return PlanGone(
            how,
            hint="If it was moved, resume the plan from there. If not, start again with `drainer"
            " run`. It starts at the committed offset, and repeats what is done above it.",
        )

    def rollback(self, first: OffsetPlan, aside: PlanPlace | None) -> None:
        """Remove the first plan of a drain that handled nothing, and bring back the archived one.

        ``aside`` is where the plan before it was archived. If the drain has handled something,
        nothing is changed.
        """
        if self.exists and self.load().plan != first:
            return
        self._rollback(aside)

    def restore(self, before: LoadedPlan, written: OffsetPlan) -> None:
        """Write the plan ``before`` again, if nothing was handled since one was ``written``.

        If a run was killed, ``before`` has the records of its journal, so a new and empty journal
        replaces that one. If that one was damaged, there is no new one, and a resume warns as
        before.
        """
        generation = written.account.generation
        account = replace(before.plan.account, state=None, generation=generation)
        with suppress(DrainerError):  # The caller has an error to report already.
            if self.load().plan != written:
                return
            self.write(OffsetPlan(before.plan.terms, account))
            if account.running and not before.torn:
                self.start_journal(written.terms.drain_id, generation)

    def _loaded(self, data: bytes, *, without_reports: bool) -> LoadedPlan:
        """Decode a plan, and add the records of the journals and reports that it has now."""
        naming = partial(raised_as, PlanRefused, about=f"{self.path}: ")
        with naming():
            written = OffsetPlan.decode(data)
        journals = self._journals_since(written)
        reported = [] if without_reports else self._reported(written)
        plan = _merged(written, journals.records)
        left_out = 0
        with suppress(PlanRefused):  # These records may belong to another plan.
            more = _merged(plan, journals.left_out)
            left_out = _finished(more) - _finished(plan)
        if plan.account.state is not None:
            plan = fold(plan, [each.record for each in reported])
        with naming():
            plan.account.check()
        return LoadedPlan(
            self.path,
            written,
            plan,
            len(journals.records) + sum(each.count for each in reported),
            journals.torn or any(each.torn for each in reported),
            journals.last_generation,
            max(0, left_out),
        )

    def _reported(self, written: OffsetPlan) -> list[TaskReport]:
        """Read the reports of Spark tasks that are not in the plan yet."""
        if written.account.state is None:
            return []
        about = f"{self.path} names a state of its Spark tasks, but drainer can't read it: "
        hint = (
            "Give this machine access to the state. If its store has a private endpoint, name it"
            " with --spark-conf drainer.state=URI. If it is lost, start again from the committed"
            " offset with `drainer run` and another --plan."
        )
        lost = raised_as(PlanUnready, StateLost, about=about, hint=hint)
        with lost, raised_as(PlanRefused, UsageError, StateRefused, about=about, hint=hint):
            state = self.with_reachable_state(written).account.state
            reports_since = Extension.SPARK_STATE.load().reports_since
            found: list[TaskReport] = reports_since(state, written.terms.drain_id)
        return found

    @abstractmethod
    def _read(self) -> bytes: ...

    @abstractmethod
    def _journals_since(self, written: OffsetPlan) -> JournalRecords:
        """Return the records that journals add to the written plan."""

    @abstractmethod
    def _rollback(self, aside: PlanPlace | None) -> None: ...


def no_plan(path: PlanPlace, meant: str = "") -> PlanRefused:
    """Return the error for a plan that does not exist. ``meant`` says which one may be meant."""
    found = meant or (
        "Run this in the drain's folder, or give the full path of the plan: `drainer ps` lists the"
        " drains of this machine."
    )
    return PlanRefused(
        f"the plan {path} does not exist",
        hint=f"{found} If the plan is lost, start again with `drainer run`. It starts at the"
        " committed offset, and repeats what is done above it.",
    )


def holder(plan: OffsetPlan) -> str:
    """Say who began the last run of a drain, from where and when."""
    runs = (EventKind.BEGUN, EventKind.RESUMED)
    last = next((each for each in reversed(plan.account.history) if each.what in runs), None)
    return "another drain runs" if last is None else f"{last.by} has it since {clock(last.at)}"


def holder_of(data: bytes | None) -> str:
    """Say who has a plan by its bytes; None stands for a plan that is gone."""
    with suppress(PlanRefused):
        return "somebody has removed it" if data is None else holder(OffsetPlan.decode(data))
    return "somebody has changed it"


def _merged(plan: OffsetPlan, records: Iterable[Record]) -> OffsetPlan:
    account = plan.account
    for record in records:
        account = account.merge(record.changes, record.parked, record.unhandled, record.claim)
        if record.share_done is not None:
            account = replace(account, share_done=record.share_done)
    return OffsetPlan(plan.terms, account)


def _finished(plan: OffsetPlan) -> int:
    """Return the number of sub-messages that a plan has as finished."""
    return plan.account.counts()[1].finished
