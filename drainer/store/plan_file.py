"""The plan file: written whole or not at all, locked by one process, with its journals beside it.

Beside ``NAME`` lie ``NAME.journal-GENERATION`` while a drain runs, and ``.NAME.lock``.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

import filelock

from drainer.core.merge import Record
from drainer.errors import (
    DrainerError,
    PlanGone,
    PlanNotWritten,
    PlanRefused,
)
from drainer.escape import command
from drainer.extensions import Extension, ensure_installed
from drainer.model.plan import OffsetPlan
from drainer.ownership import NotOwn, ensure_new_files_own, read_own, read_regular
from drainer.store.atomic_file import write_to_last
from drainer.store.journal import not_written
from drainer.store.journals import JournalRecords, Journals
from drainer.store.place import PlanPlace
from drainer.store.saved_plan import NotOwnPlan, SavedPlan, no_plan


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
        file.named = (state, *file.named)
    return file


class PlanFile(SavedPlan):
    """One plan on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = filelock.FileLock(path.with_name(f".{path.name}.lock"), mode=0o600)
        self._journals = Journals(path)
        self._written = 0  # the generation of the last plan from here that is synced

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
        """Raises PlanRefused when another process of this machine holds it, its folder can't be
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
                f"can't write {error.filename or self._path.parent}: {error.strerror or error}",
                hint="Name a writable folder with --plan. If the lock is of another user's drain"
                " that has ended, remove the lock.",
            ) from None

    @property
    def owner(self) -> str:
        """A name that only the process has which holds this very file, or the next after its death.

        Two machines or containers that have copies of a plan have different names, even with one
        host name.
        """
        lock = Path(self._lock.lock_file).stat()
        file = f"{this_machine()} {lock.st_dev} {lock.st_ino}"
        return blake2b(file.encode(errors="surrogateescape"), digest_size=8).hexdigest()

    @property
    def is_locked(self) -> bool:
        """Whether a process of this machine holds the plan, as far as this user can look."""
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
        """Lets go of the plan; its journal stays until the plan has folded it in."""
        self._journals.close()
        if self._lock.is_locked:
            # Removed while still held; a process that opened the old one meanwhile tries in vain.
            with suppress(OSError):
                Path(self._lock.lock_file).unlink()
            self._lock.release()

    def write(self, plan: OffsetPlan) -> None:
        """Drops folded journals, too. Raises PlanNotWritten when the disk or folder won't take it,
        and PlanGone when the folder went with the plan."""
        try:
            write_to_last(self._path, plan.encode())
        except OSError as error:
            raise self._gone_or(not_written("plan", self.path, error), error) from error
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
                f"can't read the plan {self.path}: {error.strerror}",
                hint="Make it a file that you can read and write.",
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
