"""Saved plans, in files and in object stores. One process at a time has a plan.

While a drain runs, ``NAME.journal-GENERATION`` and ``.NAME.lock`` lie beside the file ``NAME``.
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
from drainer.store.atomic_file import write_to_last
from drainer.store.journal import JournalRecords, Journals, not_written
from drainer.store.place import PlanPlace, kept, reached
from drainer.text.escape import command

READ_TRIES = 10  # as often a plan is read again that a drain writes meanwhile


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan as it was written, and with all that was reported since.

    Attributes:
        path: two paths of one plan may differ, so it is not compared.
        written: the plan as the file has it.
        plan: the same with the records of its journals and of its Spark tasks.
        records: how many records that adds.
        torn: whether a record is lost or spoilt. All behind it is left out.
        last_generation: the highest generation of the plan and its journals.
        left_out: sub-messages that whole records behind the spoilt one would add.
    """

    path: PlanPlace = field(compare=False)
    written: OffsetPlan
    plan: OffsetPlan
    records: int
    torn: bool
    last_generation: int
    left_out: int = 0

    @property
    def repeats(self) -> list[str]:
        """A warning if a resume handles more again than the calls in flight."""
        if not self.torn:
            return []
        known = f", {counted(self.left_out, 'sub-message')} at least" if self.left_out else ""
        return [
            f"the journal of {self.path} is damaged or missing: a resume repeats what was done"
            f" after {clock(self.written.account.updated)} and is not in it{known}"
        ]


class SavedPlan(ABC):
    """One plan, in a file or an object. ``acquire`` it before writing, ``release`` it at the end.

    The methods of locks and journals do nothing here, for places that have none.
    """

    def __init__(self, *named: str) -> None:
        self._named = list(named)  # URIs that a person gave or agreed to

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
        """Return a sentence that the plan can be written. Raises PlanRefused if it can't."""

    @abstractmethod
    def acquire(self) -> None:
        """Keep other processes from the plan until ``release``, as far as its place can.

        Raises PlanRefused if another process has it, or if it can't be written.
        """

    @property
    @abstractmethod
    def owner(self) -> str:
        """A name for this process that no other one has which may work with the plan."""

    def ensure_free(self) -> None:  # noqa: B027
        """Ensure that no other process has the plan, without taking it. Raises PlanRefused."""

    def release(self) -> None:  # noqa: B027
        """Let other processes have the plan again."""

    @abstractmethod
    def write(self, plan: OffsetPlan) -> None:
        """Write the plan so that a crash leaves either the old one or the new one.

        Raises PlanNotWritten, with the old plan in place, or LockLost if another process has
        written the plan.
        """

    def start_journal(self, drain_id: str, generation: int) -> None:  # noqa: B027
        """Begin a journal, which ``append`` adds records to."""

    def append(self, record: Record) -> None:  # noqa: B027
        """Add a record of what finished to the journal."""

    def remove_journals(self) -> None:  # noqa: B027
        """Remove the journals, once the plan has all of their records."""

    @abstractmethod
    def archive(self, plan: OffsetPlan) -> PlanPlace:
        """Give a finished drain's plan another name, so that a new plan can have its name.

        ``plan`` is the plan with its journal folded in. Returns the new place. Raises PlanRefused.
        """

    def load(self, *, alone: bool = False) -> LoadedPlan:
        """Load the plan, with its journal and with what tasks reported.

        ``alone`` leaves out what tasks reported: a plan that a stranger sent may name any place.

        Raises PlanRefused when there is no plan here, or it can't be trusted.
        """
        for _ in range(READ_TRIES):
            data = self._read()
            refused = None
            try:
                loaded = self._loaded(data, alone=alone)
            except PlanRefused as error:
                refused = error
            if self._read() == data:
                # Otherwise a running drain has folded journals in before all of them were read.
                break
        if refused is not None:
            raise refused
        return loaded

    def state_to_confirm(self, plan: OffsetPlan) -> str | None:
        """Return the URI of the state, if the plan alone names it and no person does.

        Raises UsageError if the URI can't be understood.
        """
        if plan.account.state is None or reached(plan.account.state.uri, self._named) is not None:
            return None
        return kept(plan.account.state.uri)

    def reaching(self, plan: OffsetPlan) -> OffsetPlan:
        """Return a plan whose state can be opened, with the options that a person gave.

        Raises UsageError, and PlanRefused if no person has named the state's bucket.
        """
        if plan.account.state is None:
            return plan
        uri = reached(plan.account.state.uri, self._named)
        if uri is None:
            raise PlanRefused(
                f"{self.path} names a state at {kept(plan.account.state.uri)}, which drainer reads"
                " only with your consent",
                hint=f"Resume it and confirm: {command('resume', self.path)}",
            )
        state = replace(plan.account.state, uri=uri)
        return OffsetPlan(plan.terms, replace(plan.account, state=state))

    def ensure_unchanged(self, seen: LoadedPlan | None) -> None:
        """Ensure that the plan is what it was before it was acquired. None stands for no plan.

        Raises PlanRefused if another process has worked with it meanwhile.
        """
        found = self.load() if self.exists else None
        if found == seen:
            return
        if found and seen and found.written == seen.written and found.written.account.state:
            return  # tasks of a dead driver still write; this drain will fence them off
        what = "has appeared" if seen is None else "is gone" if found is None else "has changed"
        raise PlanRefused(
            f"{self.path} {what} meanwhile: another process uses it",
            hint="Repeat the command to see the new state.",
        )

    def rollback(self, first: OffsetPlan, aside: PlanPlace | None) -> None:
        """Take back the first plan of a drain that handled nothing; the one set aside returns.

        If something was handled, everything stays as it is.
        """
        if self.exists and self.load().plan != first:
            return
        self._rollback(aside)

    def _loaded(self, data: bytes, *, alone: bool) -> LoadedPlan:
        """Read a plan from bytes, and add what lies beside it now."""
        naming = partial(raised_as, PlanRefused, about=f"{self.path}: ")
        with naming():
            written = OffsetPlan.decode(data)
        journals = self._journals_since(written)
        reported = [] if alone else self._reported(written)
        plan = _merged(written, journals.records)
        left_out = 0
        with suppress(PlanRefused):  # these records may be of another plan
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
        """Read the reports of tasks that are not in the plan yet."""
        if written.account.state is None:
            return []
        try:
            state = self.reaching(written).account.state
            reports_since = Extension.SPARK_STATE.load().reports_since
            found: list[TaskReport] = reports_since(state, written.terms.drain_id)
        except (UsageError, StateRefused, StateLost) as error:
            raise PlanRefused(
                f"{self.path} names a state of its Spark tasks, but drainer can't read it: {error}",
                hint="Give this machine access to the state. If its store has a private endpoint,"
                " name it with --spark-conf drainer.state=URI. If it is lost, start again from the"
                " committed offset with `drainer run` and another --plan.",
            ) from error
        return found

    @abstractmethod
    def _read(self) -> bytes: ...

    def _journals_since(self, written: OffsetPlan) -> JournalRecords:
        """Return the records that journals add to a plan."""
        return JournalRecords([], [], torn=False, last_generation=written.account.generation)

    @abstractmethod
    def _rollback(self, aside: PlanPlace | None) -> None: ...


def no_plan(path: PlanPlace) -> PlanRefused:
    return PlanRefused(
        f"the plan {path} does not exist",
        hint="If it is lost, start again with `drainer run`. It starts at the committed offset, and"
        " repeats what is done above it.",
    )


def _merged(plan: OffsetPlan, records: Iterable[Record]) -> OffsetPlan:
    account = plan.account
    for record in records:
        account = account.merge(record.changes, record.parked, record.unhandled, record.claim)
    return OffsetPlan(plan.terms, account)


def _finished(plan: OffsetPlan) -> int:
    """Count the sub-messages of a plan that are finished."""
    return plan.account.counts()[1].finished


def plan_at(place: PlanPlace, state: str | None = None) -> SavedPlan:
    """Return the plan at a place, whether there is one or not. A link to a plan is that plan.

    ``state`` is the place that a person gave for the reports of Spark's tasks.

    Raises UsageError or StateRefused if a URI can't be used, PlanRefused for a link that another
    user could have put there, and ExtraMissing.
    """
    file: SavedPlan
    if isinstance(place, Path):
        is_link = place.is_symlink() and os.path.exists(place)  # noqa: PTH110
        if is_link:
            try:
                ensure_own(place)  # its own name counts, too, which nobody sees once it is resolved
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
    """A plan in a file, with its journals and its lock beside it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        lock = path.with_name(f".{path.name}.lock")
        self._lock = filelock.FileLock(lock, mode=mode_of_new(path.parent))
        self._journals = Journals(path)
        self._written = 0  # the generation of the last plan that this object has synced
        self._releases = 0  # how often it was released; a write that began before comes too late

    @property
    def path(self) -> Path:
        return self._path

    @property
    def exists(self) -> bool:
        return os.path.exists(self._path)  # noqa: PTH110 - Path's raises where it can't look

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

        Raises PlanRefused when another process of this machine has it, when its folder can't be
        written, or when no resume would trust what this user writes there.
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
                hint="Wait for it, or stop it with Ctrl-C. It then prints how to resume.",
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
        """A name that the process has which locked this very file, and the next after its death.

        Copies of a plan on two machines, or in two containers with one host name, have different
        names.
        """
        lock = Path(self._lock.lock_file).stat()
        file = f"{this_machine()} {lock.st_dev} {lock.st_ino}"
        return blake2b(file.encode(errors="surrogateescape"), digest_size=8).hexdigest()

    @property
    def is_locked(self) -> bool:
        """Whether a process of this machine has the plan, or this user can't know."""
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
        if Path(self._lock.lock_file).exists():
            self.acquire()
            self.release()

    def release(self) -> None:
        """Release the plan. Its journals stay until a plan has their records."""
        self._releases += 1
        self._journals.close()
        if self._lock.is_locked:
            # It is removed while it is locked, so that a process which has just opened it gets no
            # lock on a file that is gone.
            with suppress(OSError):
                Path(self._lock.lock_file).unlink()
            self._lock.release()

    def write(self, plan: OffsetPlan) -> None:
        """Write the plan, and remove the journals whose records it has.

        Raises PlanNotWritten if the file can't be written, or if the plan was released meanwhile;
        PlanGone if the folder is gone with the plan.
        """
        releases = self._releases

        def take_place(new: Path, old: Path) -> None:
            if self._releases != releases:  # another process may have written a newer plan
                raise OSError(ECANCELED, os.strerror(ECANCELED))
            new.replace(old)

        try:
            write_to_last(self._path, plan.encode(), take_place)
        except OSError as error:
            raise self._gone_or(not_written("plan", self.path, error), error) from error
        if self._releases == releases:  # otherwise the journals may be those of a later drain
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
    """Name the part of a machine in which a process id means one process, since its last boot."""
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
