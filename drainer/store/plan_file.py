"""Plans in files. Only one process at a time may work with a plan.

While a drain runs, the files ``NAME.journal-GENERATION`` and ``.NAME.lock`` are beside its plan
``NAME``.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from errno import ECANCELED
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

from drainer.core.merge import Record
from drainer.errors import (
    DrainerError,
    PlanNotWritten,
    PlanRefused,
    PlanUnready,
    UsageError,
)
from drainer.host.os_errors import describe_os, way_out
from drainer.host.trust import NotTrusted, ensure_new_files_own, ensure_own, mode_of_new, read_own
from drainer.loading.extensions import Extension, ensure_installed
from drainer.model.plan import OffsetPlan
from drainer.store.atomic_file import write_whole
from drainer.store.journal import JournalRecords, Journals, not_written
from drainer.store.place import PlanPlace, is_in_topic
from drainer.store.saved_plan import SavedPlan, no_plan
from drainer.text.escape import command

if TYPE_CHECKING:
    from drainer.kafka.settings import ClientSettings


def plan_at(
    place: PlanPlace,
    state: str | None = None,
    client: Callable[[], ClientSettings] | None = None,
) -> SavedPlan:
    """Return the plan at a place, which may not exist yet. A link stands for the plan it names.

    ``state`` is the place that a person gave for the reports of Spark's tasks. ``client`` returns
    the settings of the client that a plan in a topic needs. It is not called for other plans.

    Raises UsageError or StateRefused if a URI can't be used, PlanRefused for a link that another
    user could have put there, ExtraMissing if the packages for object stores are missing, and what
    ``client`` raises.
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
    elif is_in_topic(place):
        if client is None:
            raise UsageError(
                f"{place} is in a topic, and nothing names its brokers",
                hint="Use a command that connects, with -b or --client-config.",
            )
        from drainer.store.plan_topic import TopicPlan  # noqa: PLC0415 - with librdkafka

        file = TopicPlan(place, client())
    else:
        ensure_installed("bucket", f"a plan at {place}")
        file = Extension.BUCKET_PLAN.load().BucketPlan(place)
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
            raise PlanUnready(
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
        return self.gone(f"the folder of the plan {self.path} was removed or moved")

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
            raise PlanUnready(str(error), hint="Name another file with --plan.") from error
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
