"""Saved plans, in files and in object stores. Only one process at a time may work with a plan.

While a drain runs, the files ``NAME.journal-GENERATION`` and ``.NAME.lock`` are beside its plan
``NAME``.
"""

from __future__ import annotations

import fcntl
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from errno import ECANCELED
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path

import filelock

from drainer.core.merge import Record, TaskReport, fold
from drainer.errors import (
    DrainerError,
    PlanGone,
    PlanNotWritten,
    PlanRefused,
    StateLost,
    StateRefused,
    UsageError,
    raised_as,
)
from drainer.host.os_errors import describe_os, way_out
from drainer.host.trust import NotTrusted, ensure_new_files_own, ensure_own, mode_of_new, read_own
from drainer.loading.extensions import Extension, ensure_installed
from drainer.model.account import clock
from drainer.model.listed import counted
from drainer.model.plan import OffsetPlan
from drainer.store.atomic_file import write_whole
from drainer.store.journal import JournalRecords, Journals, not_written
from drainer.store.place import PlanPlace, uri_to_keep, uri_to_open
from drainer.text.escape import command

READ_TRIES = 10  # How often a plan is read if a drain keeps writing it.


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan as it was written, and with everything that was reported since.

    Attributes:
        path: where the plan is. It is not compared, because a plan may have several paths.
        written: the plan as the file has it.
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
    """One plan, in a file or an object. A process acquires it before it writes, and releases it.

    The methods for locks and journals do nothing unless a derived class has its own, because an
    object store has neither.
    """

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
        """Lock the plan for this process until ``release``, if it is in a place that has locks.

        Raises PlanRefused if another process has it, or if it can't be written.
        """

    @property
    @abstractmethod
    def owner(self) -> str:
        """A name for this process. No other process that could work with the plan has the same."""

    @property
    def is_locked(self) -> bool:
        """Whether a process is known to have acquired the plan. An object store has no locks."""
        return False

    def ensure_free(self) -> None:  # noqa: B027
        """Raise PlanRefused if another process has acquired the plan. It is not acquired here."""

    def release(self) -> None:  # noqa: B027
        """Let other processes acquire the plan again."""

    @abstractmethod
    def write(self, plan: OffsetPlan) -> None:
        """Write the plan so that a crash leaves either the old one or the new one.

        Raises PlanNotWritten, with the old plan in place, or LockLost if another process has
        written the plan.
        """

    def start_journal(self, drain_id: str, generation: int) -> None:  # noqa: B027
        """Begin a new journal, to which ``append`` adds records from then on."""

    def append(self, record: Record) -> None:  # noqa: B027
        """Append a record of what has finished to the journal."""

    def remove_journals(self) -> None:  # noqa: B027
        """Remove the journals. The caller has written a plan that has all of their records."""

    @abstractmethod
    def archive(self, plan: OffsetPlan) -> PlanPlace:
        """Rename the plan of a finished drain, so that a new plan can have its name.

        ``plan`` is this plan with the records of its journals. Returns the new place. Raises
        PlanRefused.
        """

    def load(self, *, without_reports: bool = False) -> LoadedPlan:
        """Load the plan with the records of its journals and the reports of its Spark tasks.

        The reports are left out with ``without_reports``, because a plan that a stranger sent may
        name any place for them.

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
        PlanRefused if another process has changed it.
        """
        found = self.load() if self.exists else None
        if found == seen:
            return
        if found and seen and found.written == seen.written and found.written.account.state:
            # Only the tasks of a driver that has died still write. This drain will fence them off.
            return
        what = "has appeared" if seen is None else "is gone" if found is None else "has changed"
        raise PlanRefused(
            f"{self.path} {what} in the meantime: another process uses it",
            hint="Repeat the command to see the new state.",
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

        The journal of a run that was killed is in the plan by now, so an empty one stands for it.
        If it was damaged, no journal does, and a resume warns as before.
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
        unread = UsageError, StateRefused, StateLost
        with raised_as(PlanRefused, *unread, about=about, hint=hint):
            state = self.with_reachable_state(written).account.state
            reports_since = Extension.SPARK_STATE.load().reports_since
            found: list[TaskReport] = reports_since(state, written.terms.drain_id)
        return found

    @abstractmethod
    def _read(self) -> bytes: ...

    def _journals_since(self, written: OffsetPlan) -> JournalRecords:
        """Return the records that journals add to the written plan."""
        return JournalRecords([], [], torn=False, last_generation=written.account.generation)

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


def plan_at(place: PlanPlace, state: str | None = None) -> SavedPlan:
    """Return the plan at a place, which may not exist yet. A link stands for the plan it names.

    ``state`` is the place that a person gave for the reports of Spark's tasks.

    Raises UsageError or StateRefused if a URI can't be used, PlanRefused for a link that another
    user could have put there, and ExtraMissing if the packages for object stores are missing.
    """
    file: SavedPlan
    if isinstance(place, Path):
        is_link = place.is_symlink() and os.path.isfile(place)  # noqa: PTH113
        if is_link:
            try:
                # Whoever can write the link decides which plan it names, so the link is checked,
                # too.
                ensure_own(place)
            except NotTrusted as error:
                raise _not_trusted(error) from None
        file = PlanFile(place.resolve() if is_link else place)
    else:
        ensure_installed("spark", f"a plan at {place}")
        file = Extension.STORED_PLAN.load().StoredPlan(place)
    if state is not None:
        file.allow_state(state)
    return file


class PlanFile(SavedPlan):
    """A plan in a file. Its journals and its lock are files beside it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        lock = path.with_name(f".{path.name}.lock")
        self._lock = filelock.FileLock(lock, mode=mode_of_new(path.parent))
        self._journals = Journals(path)
        self._written = 0  # The generation of the last plan that this object has written.
        # How often the plan was released. If that changes during a write, the write came too late.
        self._releases = 0

    @property
    def path(self) -> Path:
        return self._path

    @property
    def exists(self) -> bool:
        return os.path.exists(self._path)  # noqa: PTH110 - Path.exists() may raise

    def check_writable(self) -> str:
        folder = self._path.absolute().parent
        if not (os.access(folder, os.W_OK | os.X_OK) and folder.is_dir()):
            raise PlanRefused(
                f"can't write the plan in {folder}: not a folder, or no permission",
                hint="Name a writable folder with --plan.",
            )
        return f"{folder} is writable"

    def acquire(self) -> None:
        """Lock the plan for this process.

        Raises PlanRefused when another process on this machine has it, when its folder can't be
        written, or when a resume would not trust files that this user creates there.
        """
        try:
            ensure_new_files_own(self._path.parent)
            with suppress(FileNotFoundError):
                ensure_own(self._lock.lock_file)
            self._lock.acquire(blocking=False)
        except NotTrusted as error:
            raise PlanRefused(
                f"can't keep a plan in {self._path.parent}: {error}",
                hint="Name another folder with --plan.",
            ) from None
        except filelock.Timeout:
            raise PlanRefused(
                f"another drainer process uses {self.path}",
                hint=f"To see it: `{command('watch', self.path)}`. To end it: "
                f"`{command('stop', self.path)}`, which prints how to resume.",
            ) from None
        except OSError as error:
            raise PlanRefused(
                f"can't write {error.filename or self._path.parent}: {describe_os(error)}",
                hint=way_out(
                    error,
                    "Name a writable folder with --plan. If the lock is of another user's drain"
                    " that has ended, remove the lock.",
                ),
            ) from None

    @property
    def owner(self) -> str:
        """A name for the process that holds the lock of this file.

        If the process dies, the next one that locks the file gets the same name. Copies of a plan
        on two machines, or in two containers with the same host name, have different names.
        """
        lock = Path(self._lock.lock_file).stat()
        file = f"{this_machine()} {lock.st_dev} {lock.st_ino}"
        return blake2b(file.encode(errors="surrogateescape"), digest_size=8).hexdigest()

    @property
    def is_locked(self) -> bool:
        """Whether a process on this machine has the plan, or this user can't find out."""
        try:
            lock = os.open(self._lock.lock_file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock)
        return False

    def ensure_free(self) -> None:
        # A lock that a killed process has left stays, because its file is a part of ``owner``.
        if self.is_locked:
            self.acquire()
            self.release()

    def release(self) -> None:
        """Release the plan. Its journals stay until a plan with their records is written."""
        self._releases += 1
        self._journals.close()
        if self._lock.is_locked:
            # The file is removed while it is locked. Otherwise another process could lock it first,
            # and would then hold the lock of a file that is gone.
            with suppress(OSError):
                Path(self._lock.lock_file).unlink()
            self._lock.release()

    def write(self, plan: OffsetPlan) -> None:
        """Write the plan, and remove the journals whose records it has.

        Raises PlanNotWritten if the file can't be written, or if the plan was released during the
        write; PlanGone if the plan's folder was removed or moved.
        """
        releases = self._releases

        def take_place(new: Path, old: Path) -> None:
            if self._releases != releases:  # Another process may have written a newer plan.
                raise OSError(ECANCELED, os.strerror(ECANCELED))
            new.replace(old)

        try:
            write_whole(self._path, plan.encode(), take_place, durable=True)
        except OSError as error:
            raise self._gone_or(not_written("plan", self.path, error), error) from error
        if self._releases == releases:  # Otherwise the journals may belong to a later drain.
            self._written = plan.account.generation
            self._journals.remove(below=plan.account.generation)

    def start_journal(self, drain_id: str, generation: int) -> None:
        try:
            self._journals.start(drain_id, generation, self._written)
        except PlanNotWritten as error:
            raise self._gone_or(error, error.__cause__) from error.__cause__

    def _gone_or(self, error: DrainerError, cause: BaseException | None) -> DrainerError:
        """Return PlanGone if the cause shows that the plan's folder is gone, else the error."""
        if not (self._written and isinstance(cause, FileNotFoundError)):
            return error
        return PlanGone(
            f"the folder of the plan {self.path} was removed or moved",
            hint="If it was moved, resume the plan from there. If not, start again with `drainer"
            " run`. It starts at the committed offset, and repeats what is done above it.",
        )

    def append(self, record: Record) -> None:
        try:
            self._journals.append(record)
        except PlanNotWritten as error:
            raise self._gone_or(error, error.__cause__) from error.__cause__

    def remove_journals(self) -> None:
        self._journals.remove()

    def archive(self, plan: OffsetPlan) -> Path:
        stem = self._path.name.removesuffix(".json")
        aside = self._path.with_name(f"{stem}.{plan.terms.drain_id}.json")
        try:
            self.write(plan)
            self._path.rename(aside)
        except PlanNotWritten as error:
            raise PlanRefused(str(error), hint="Name another file with --plan.") from error
        except OSError as error:
            raise PlanRefused(
                f"can't rename the plan {self.path} to {aside.name}: {error.strerror}",
                hint="Name another file with --plan.",
            ) from None
        self._journals.remove()
        return aside

    def _rollback(self, aside: PlanPlace | None) -> None:
        self._journals.close()
        self._journals.remove()
        with suppress(OSError):
            if aside is None:
                self._path.unlink()
            else:
                Path(aside).rename(self._path)

    def _read(self) -> bytes:
        try:
            return read_own(self._path)
        except NotTrusted as error:
            raise _not_trusted(error) from None
        except FileNotFoundError:
            raise no_plan(self.path) from None
        except OSError as error:
            raise PlanRefused(
                f"can't read the plan {self.path}: {describe_os(error)}",
                hint=way_out(error, "Make it a file that you can read and write."),
            ) from None

    def _journals_since(self, written: OffsetPlan) -> JournalRecords:
        try:
            return self._journals.since(written)
        except NotTrusted as error:
            raise _not_trusted(error) from None


@cache
def this_machine() -> str:
    """Return a name for the part of this machine in which process ids are unique.

    The name changes with each boot, and differs between containers.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _not_trusted(error: NotTrusted) -> PlanRefused:
    return PlanRefused(
        f"{error}; a plan names the brokers to connect to and the code to run",
        hint="Read it. If it is right, copy it and its journals into a folder that only you can"
        " write, and resume the copy.",
    )
