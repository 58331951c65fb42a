"""The journals beside a plan: one is appended to, older ones are yet to be folded in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from drainer.core.merge import Record
from drainer.errors import DrainerError, PlanNotWritten, PlanRefused
from drainer.model.plan import OffsetPlan
from drainer.store.atomic_file import prefix_of_new
from drainer.store.journal import Journal, read_journal


class JournalRecords(NamedTuple):
    """Records that journals add to a plan, in order.

    ``left_out`` are behind something that is lost. ``torn`` says that something is.
    ``last_generation`` is the highest that the plan or a journal has.
    """

    records: list[Record]
    left_out: list[Record]
    torn: bool
    last_generation: int


class Journals:
    """``PLAN.journal-GENERATION``, for each generation that the plan has not taken in."""

    def __init__(self, plan: Path) -> None:
        self._plan = plan
        self._prefix = f"{plan.name}.journal-"
        self._open: Journal | None = None
        self._not_begun: DrainerError | None = None

    def start(self, drain_id: str, generation: int, synced: int) -> None:
        """Begin the journal of what finishes after the snapshot for ``generation`` was taken.

        ``synced`` is the generation of the plan on disk. Raises PlanNotWritten when it can't be
        begun; the one before, if any, then continues.
        """
        before = self._open
        follows = 0 if before is None else before.reached
        path = self._plan.with_name(f"{self._prefix}{generation}")
        try:
            self._open = Journal(path, drain_id, follows, synced)
        except PlanNotWritten as error:
            self._not_begun = error
            raise
        if before is not None:
            before.close()

    def append(self, record: Record) -> None:
        """Raises PlanNotWritten when the disk is full, or was when the journal should begin."""
        if self._open is None:
            raise self._not_begun or RuntimeError("the journal was not started")
        self._open.append(record)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def remove(self, below: int | None = None) -> None:
        """Remove those that the plan has taken in, of generations below this one."""
        # One that can't be removed does no harm: the plan has its records.
        for generation, path in self._all():
            if below is None or generation < below:
                with suppress(OSError):
                    path.unlink()
        for path in self._beside(prefix_of_new(self._plan)):  # left by a process that was killed
            with suppress(OSError):
                path.unlink()

    def since(self, written: OffsetPlan, read: Callable[[Path], bytes]) -> JournalRecords:
        """Records that they add to the plan as it is written. Raises what ``read_journal`` raises.

        A journal is taken only when nothing of those before it is missing. After a loss of power
        something may be, and then the younger one may know of a sub-message and not of an earlier
        one of its lane: a resume would handle the two in the wrong order.
        """
        records: list[Record] = []
        left_out: list[Record] = []
        journals = self._all()
        last = max([written.account.generation, *(generation for generation, _ in journals)])
        reached, torn, gap, found = 0, False, False, False
        for generation, path in journals:
            if generation < written.account.generation:
                continue  # the plan has it; the process ended before removing it
            content = read_journal(path, read)
            head = content.head
            if head is not None and head.drain_id != written.terms.drain_id:
                continue  # of another drain that had its plan here
            torn = torn or content.torn
            if head is None:
                continue  # never begun
            if head.plan > written.account.generation and not gap:
                raise PlanRefused(
                    f"{self._plan} is older than its journal: it has generation"
                    f" {written.account.generation}, but {path.name} continues from {head.plan}",
                    hint="Put the newer plan back. If it is lost, start again with `drainer run`"
                    " and another --plan. It starts at the committed offset, and repeats what is"
                    " done above it.",
                )
            found = True
            gap = gap or (generation > written.account.generation and head.follows > reached)
            if gap:
                left_out += content.records
            else:
                records += content.records
                reached = head.follows + len(content.records)
            left_out += content.left_out
        torn = torn or gap or (written.account.running and not found)
        return JournalRecords(records, left_out, torn, last)

    def _all(self) -> list[tuple[int, Path]]:
        found = [
            (each.name.removeprefix(self._prefix), each) for each in self._beside(self._prefix)
        ]
        return sorted((int(number), path) for number, path in found if number.isdecimal())

    def _beside(self, prefix: str) -> list[Path]:
        try:
            return [path for path in self._plan.parent.iterdir() if path.name.startswith(prefix)]
        except OSError:
            return []
