"""Saved plans, wherever they are kept; a file is written whole and locked by one process.

Beside ``NAME`` lie ``NAME.journal-GENERATION`` while a drain runs, and ``.NAME.lock``.
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
from drainer.escape import command
from drainer.extensions import Extension, ensure_installed
from drainer.machine import describe_os, way_out
from drainer.model.account import clock
from drainer.model.listed import counted
from drainer.model.plan import OffsetPlan
from drainer.ownership import NotOwn, ensure_new_files_own, read_own, read_regular
from drainer.store.atomic_file import write_to_last
from drainer.store.journal import JournalRecords, Journals, not_written
from drainer.store.place import PlanPlace, kept, reached

READ_TRIES = 10  # of a plan that is written meanwhile


class NotOwnPlan(PlanRefused):
    """Raised when another user could have written a plan or its journal."""


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan as the file has it (``written``) and with all that was reported since (``plan``).

    ``records`` is how many records of its journal, and of its tasks, that adds. ``torn`` is set
    when one was lost or spoilt, or its journal, and left out with all behind it: ``left_out``
    counts the sub-messages that these are known to add. ``last_generation`` is the highest that the
    plan or a journal beside it has.
    """

    path: PlanPlace = field(compare=False)  # of one plan, absolute here and relative there
    written: OffsetPlan
    plan: OffsetPlan
    records: int
    torn: bool
    last_generation: int
    left_out: int = 0

    @property
    def repeats(self) -> list[str]:
        """A warning of what a resume handles again, besides the calls in flight."""
        if not self.torn:
            return []
        known = f", {counted(self.left_out, 'sub-message')} at least" if self.left_out else ""
        return [
            f"the journal of {self.path} is damaged or missing: a resume repeats what was done"
            f" after {clock(self.written.account.updated)} and is not in it{known}"
        ]


class SavedPlan(ABC):
    """One plan, in a file or an object. ``acquire`` it before writing, ``release`` it at the end.

    A place without locks and journals inherits what they do from here.
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
        """Report that it can be written. Raises PlanRefused when it can't."""

    @abstractmethod
    def acquire(self) -> None:
        """Keeps other processes off the plan, as far as its place can, until ``release`` or death.

        Raises PlanRefused.
        """

    @property
    @abstractmethod
    def owner(self) -> str:
        """A name that no other process has which works with this plan, while this one may live."""

    def ensure_free(self) -> None:  # noqa: B027
        """Ensure that no other process has the plan, and leave it as it was. Raises PlanRefused."""

    def release(self) -> None:  # noqa: B027
        """Lets go of the plan."""

    @abstractmethod
    def write(self, plan: OffsetPlan) -> None:
        """Writes the plan so that a crash leaves the old or the new one.

        Raises PlanNotWritten, with the old plan in place, or LockLost when another process wrote
        there.
        """

    def start_journal(self, drain_id: str, generation: int) -> None:  # noqa: B027
        """Begins a file for what ``append`` is given."""

    def append(self, record: Record) -> None:
        raise NotImplementedError

    def remove_journals(self) -> None:  # noqa: B027
        """Remove the journals, once the plan has all of their records."""

    @abstractmethod
    def archive(self, plan: OffsetPlan) -> PlanPlace:
        """Gives a finished drain's plan another name, so that a new one can have its name.

        ``plan`` is the plan with its journal folded in. Raises PlanRefused.
        """

    def load(self, *, allow_foreign: bool = False, alone: bool = False) -> LoadedPlan:
        """Load the plan, with its journal and with what tasks reported.

        ``alone`` leaves out what tasks reported, which is wherever the plan has it. So does
        ``allow_foreign``, which takes what other users may have written, to be shown to a person.

        Raises PlanRefused when there is no plan here, or it can't be trusted.
        """
        for _ in range(READ_TRIES):
            data = self._read(allow_foreign=allow_foreign)
            refused = None
            try:
                loaded = self._loaded(data, allow_foreign=allow_foreign, alone=alone)
            except PlanRefused as error:
                refused = error
            if self._read(allow_foreign=allow_foreign) == data:
                break  # or a drain that runs has folded journals in, before they were all read
        if refused is not None:
            raise refused
        return loaded

    def state_to_confirm(self, plan: OffsetPlan) -> str | None:
        """Location of the state that the plan alone names; None when a person named it, too.

        Raises UsageError when it can't be understood.
        """
        if plan.account.state is None or reached(plan.account.state.uri, self._named) is not None:
            return None
        return kept(plan.account.state.uri)

    def reaching(self, plan: OffsetPlan) -> OffsetPlan:
        """A plan whose state can be opened. Raises UsageError, and PlanRefused when no person has
        named its place."""
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
        """Ensure that the plan is what it was before it was acquired; None stands for no plan.

        Raises PlanRefused when another process has worked with it meanwhile.
        """
        found = self.load() if self.exists else None
        if found == seen:
            return
        if found and seen and found.written == seen.written and found.written.account.state:
            return  # tasks of a dead driver wrote on; they are yet to be fenced off
        what = "has appeared" if seen is None else "is gone" if found is None else "has changed"
        raise PlanRefused(
            f"{self.path} {what} meanwhile: another process uses it",
            hint="Repeat the command to see the new state.",
        )

    def rollback(self, first: OffsetPlan, aside: PlanPlace | None) -> None:
        """Removes the first plan of a drain that handled nothing; what was set aside returns.

        Leaves all as it is when something was handled.
        """
        if self.exists and self.load().plan != first:
            return
        self._rollback(aside)

    def _loaded(self, data: bytes, *, allow_foreign: bool, alone: bool) -> LoadedPlan:
        """A plan, with what lies beside it now."""
        naming = partial(raised_as, PlanRefused, about=f"{self.path}: ")
        with naming():
            written = OffsetPlan.decode(data)
        journals = self._journals_since(written, allow_foreign=allow_foreign)
        reported = [] if allow_foreign or alone else self._reported(written)
        plan = _merged(written, journals.records)
        left_out = 0
        with suppress(PlanRefused):  # they may be of another plan
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
        """Reports of tasks that the plan has not."""
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
    def _read(self, *, allow_foreign: bool) -> bytes: ...

    def _journals_since(self, written: OffsetPlan, *, allow_foreign: bool) -> JournalRecords:
        """Records that journals add to a plan."""
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
    """Sub-messages that are finished."""
    return plan.account.counts()[1].finished


def plan_at(place: PlanPlace, state: str | None = None) -> SavedPlan:
    """The plan at a place, whether there is one or not. A link to a plan is that plan.

    ``state`` is the location that a person gave for reports of its tasks.

    Raises UsageError or StateRefused when a URI is no good; ExtraMissing.
    """
    file: SavedPlan
    if isinstance(place, Path):
        is_link = place.is_symlink() and os.path.exists(place)  # noqa: PTH110
        file = PlanFile(place.resolve() if is_link else place)
    else:
        ensure_installed("spark", f"a plan at {place}")
        file = Extension.STORED_PLAN.load().StoredPlan(place)
    if state is not None:
        file.allow_state(state)
    return file


class PlanFile(SavedPlan):
    """One plan on disk."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._lock = filelock.FileLock(path.with_name(f".{path.name}.lock"), mode=0o600)
        self._journals = Journals(path)
        self._written = 0  # the generation of the last plan from here that is synced
        self._releases = 0  # so far: a write that was abandoned by then comes too late

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
        """Raises PlanRefused when another process of this machine has it, its folder can't be
        written, or new files there would not be this user's own: no resume would take them."""
        try:
            ensure_new_files_own(self._path.parent)
            self._lock.acquire(blocking=False)
        except NotOwn as error:
            raise PlanRefused(
                f"can't keep a plan private in {self._path.parent}: a new file there"
                f" {str(error).partition(' ')[2]}",
                hint="Name a folder on another file system with --plan.",
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
        """Name that only the process has which locked this very file, or the next after its death.

        Two machines or containers that have copies of a plan have different names, even with one
        host name.
        """
        lock = Path(self._lock.lock_file).stat()
        file = f"{this_machine()} {lock.st_dev} {lock.st_ino}"
        return blake2b(file.encode(errors="surrogateescape"), digest_size=8).hexdigest()

    @property
    def is_locked(self) -> bool:
        """Whether a process of this machine has the plan, as far as this user can look."""
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
        """Release the plan; its journal stays until the plan has folded it in."""
        self._releases += 1
        self._journals.close()
        if self._lock.is_locked:
            # Removed while still locked; a process that opened the old one meanwhile tries in vain.
            with suppress(OSError):
                Path(self._lock.lock_file).unlink()
            self._lock.release()

    def write(self, plan: OffsetPlan) -> None:
        """Write the plan and remove the journals that it has folded in.

        Raises PlanNotWritten when the disk or folder won't take it, or the plan was released
        meanwhile; PlanGone when the folder went with the plan.
        """
        releases = self._releases

        def take_place(new: Path, old: Path) -> None:
            if self._releases != releases:  # another process may have written by now
                raise OSError(ECANCELED, os.strerror(ECANCELED))
            new.replace(old)

        try:
            write_to_last(self._path, plan.encode(), take_place)
        except OSError as error:
            raise self._gone_or(not_written("plan", self.path, error), error) from error
        if self._releases == releases:  # else the journals there may be a later drain's
            self._written = plan.account.generation
            self._journals.remove(below=plan.account.generation)

    def start_journal(self, drain_id: str, generation: int) -> None:
        try:
            self._journals.start(drain_id, generation, self._written)
        except PlanNotWritten as error:
            raise self._gone_or(error, error.__cause__) from error.__cause__

    def _gone_or(self, error: DrainerError, cause: BaseException | None) -> DrainerError:
        """The error, unless its cause shows that the folder of a plan from here is gone."""
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

    def _read(self, *, allow_foreign: bool) -> bytes:
        read = read_regular if allow_foreign else read_own
        try:
            return read(self._path)
        except NotOwn as error:
            raise _not_own(self.path, error) from None
        except FileNotFoundError:
            raise no_plan(self.path) from None
        except OSError as error:
            raise PlanRefused(
                f"can't read the plan {self.path}: {describe_os(error)}",
                hint=way_out(error, "Make it a file that you can read and write."),
            ) from None

    def _journals_since(self, written: OffsetPlan, *, allow_foreign: bool) -> JournalRecords:
        try:
            return self._journals.since(written, read_regular if allow_foreign else read_own)
        except NotOwn as error:
            raise _not_own(self.path, error) from None


@cache
def this_machine() -> str:
    """Name of this machine since it was switched on, as far as process ids mean the same in it."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _not_own(path: PlanPlace, error: NotOwn) -> NotOwnPlan:
    return NotOwnPlan(
        f"{error}, and a plan names the brokers to connect to and the code to run",
        hint=f"Check it with `{command('plan show', path)}`. If it is right, make it yours with"
        f" `{command('plan take', path)}`.",
    )
