"""The plan file: written whole or not at all, held by one process, read together with its journal.

Beside ``NAME`` lie ``NAME.journal-GENERATION`` while a drain runs, and ``.NAME.lock``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import filelock

from drainer.core.plan import OffsetPlan
from drainer.core.progress import Progress
from drainer.errors import PlanNotWritten, PlanRefused
from drainer.store.journal import Journal, read_journal


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan as the file has it (``written``) and with its journal added (``plan``)."""

    written: OffsetPlan
    plan: OffsetPlan
    journal_records: int
    journal_torn: bool


class PlanFile:
    """One plan on disk. Hold it (``with plan_file.hold():``) before writing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = filelock.FileLock(path.with_name(f".{path.name}.lock"), mode=0o600)
        self._journal: Journal | None = None

    def hold(self) -> None:
        """Keeps other processes of this machine off the plan, until ``release`` or death.

        Raises PlanRefused when another process holds it, or its folder can't be written.
        """
        try:
            self._lock.acquire(blocking=False)
        except filelock.Timeout:
            raise PlanRefused(
                f"another drainer process is working with {self.path}",
                hint="wait for it, or stop it with Ctrl-C: it will print how to resume",
            ) from None
        except OSError as error:
            raise PlanRefused(
                f"the plan can't be written in {self.path.parent}: {error.strerror or error}",
                hint="name a folder that you can write to with --plan",
            ) from None

    def release(self) -> None:
        """Lets go of the plan; its journal stays until the plan has folded it in."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._lock.is_locked:
            # Removed while still held; a process that opened the old one meanwhile tries in vain.
            with suppress(OSError):
                Path(self._lock.lock_file).unlink()
            self._lock.release()

    def load(self) -> LoadedPlan:
        """Raises PlanRefused when there is no plan here, or it can't be trusted."""
        try:
            written = OffsetPlan.decode(self.path.read_bytes())
        except FileNotFoundError:
            raise PlanRefused(
                f"there is no plan at {self.path}",
                hint="if it is lost, `drainer run` goes on safely from the group's committed"
                " offset; what had finished above it is handled again",
            ) from None
        except OSError as error:
            raise PlanRefused(f"the plan {self.path} can't be read: {error.strerror}") from None
        except PlanRefused as error:
            raise PlanRefused(f"{self.path}: {error}", hint=error.hint) from None
        plan, records, torn = written, 0, False
        for generation, path in self._journals():
            if generation < written.generation:
                continue  # the plan has it; the process ended before removing it
            content = read_journal(path)
            if content.drain_id not in (written.drain_id, None):
                continue  # of another drain that had its plan here
            for record in content.records:
                plan = plan.merge(record)
            records += len(content.records)
            torn = torn or content.torn
        plan.check()
        return LoadedPlan(written, plan, records, torn)

    def write(self, plan: OffsetPlan) -> None:
        """Writes the plan so that a crash leaves the old or the new one; drops folded journals.

        Raises PlanNotWritten, with the old plan in place, when the disk or folder won't take it.
        """
        new = self.path.with_name(f".{self.path.name}.new")
        try:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as stream:
                stream.write(plan.encode())
                stream.flush()
                os.fsync(stream.fileno())
            new.replace(self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            with suppress(OSError):
                new.unlink()
            raise PlanNotWritten(
                f"the plan {self.path} can't be written: {error.strerror or error}",
                hint="the plan on disk stays true with its journal; make room, then resume",
            ) from error
        for generation, path in self._journals():
            if generation < plan.generation:
                path.unlink(missing_ok=True)

    def start_journal(self, drain_id: str, generation: int) -> None:
        """Begins the journal of what finishes after the snapshot for ``generation`` was taken."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        self._journal = Journal(self._journal_path(generation), drain_id)

    def append(self, changes: Mapping[int, Progress]) -> None:
        """Adds what finished to the journal. Raises PlanNotWritten when the disk is full."""
        if self._journal is None:
            raise RuntimeError("the journal was not started")
        self._journal.append(changes)

    def remove_journals(self) -> None:
        for _, path in self._journals():
            path.unlink(missing_ok=True)

    def set_aside(self, drain_id: str) -> Path:
        """Renames a finished drain's plan, so that a new one can have its name."""
        aside = self.path.with_name(f"{self.path.name.removesuffix('.json')}.{drain_id}.json")
        self.path.rename(aside)
        self.remove_journals()
        return aside

    def _journal_path(self, generation: int) -> Path:
        return self.path.with_name(f"{self.path.name}.journal-{generation}")

    def _journals(self) -> list[tuple[int, Path]]:
        prefix = f"{self.path.name}.journal-"
        try:
            names = [path for path in self.path.parent.iterdir() if path.name.startswith(prefix)]
        except OSError:
            return []
        found = [(path.name.removeprefix(prefix), path) for path in names]
        return sorted((int(number), path) for number, path in found if number.isdecimal())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
