"""The journal: what finished since the plan was written, appended in small batches.

A line a record: the CRC-32 of the rest in hex, a space, JSON. The first names the drain,
how many records its process had appended to earlier journals, and which generation of the plan was
on the disk by then. Each other one holds progress of a claim by partition, the lanes that were
parked behind a dead letter meanwhile, and the counts of what was not handled. A record torn by a
crash or a full disk fails its check and ends the journal. Records only ever add, so that reading
one twice, or one that the plan has already folded in, changes nothing.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from drainer.core.merge import Record
from drainer.errors import DrainerError, PlanNotWritten, PlanRefused
from drainer.machine import describe_os, way_out
from drainer.model import codec
from drainer.model.claims import ALL
from drainer.model.codec import Kind, Whole
from drainer.model.plan import OffsetPlan
from drainer.ownership import read_own
from drainer.store.atomic_file import open_new, prefix_of_new, write_all


@dataclass(frozen=True, slots=True)
class JournalHead:
    """The first line of a journal.

    The first record is the one after ``follows`` others, in journals before this one. ``plan`` is
    the generation of a plan that was synced before it began.
    """

    drain_id: str
    follows: Whole
    plan: Whole


@dataclass(frozen=True, slots=True)
class JournalContent:
    """Content of a journal file.

    ``head`` is None when not even the first line is whole. ``torn`` is set when a record was cut or
    spoilt, and left out with all behind it: of these, ``left_out`` are whole.
    """

    head: JournalHead | None
    records: tuple[Record, ...]
    torn: bool
    left_out: tuple[Record, ...] = ()


class Journal:
    """One journal file, open for appending; a new one takes the place of what was there.

    Raises PlanNotWritten, and leaves no file open, when it can't be begun.
    """

    def __init__(self, path: Path, drain_id: str, follows: int = 0, plan: int = 0) -> None:
        self.path = path
        self.reached = follows  # records in this one and those before it
        self._untaken = bytearray()
        try:
            with suppress(FileNotFoundError):
                path.unlink()  # whatever it is, and whoever put it there
            self._file = open_new(path)
        except OSError as error:
            raise not_written("journal", path, error) from error
        try:
            self._write(JournalHead(drain_id, follows, plan))
        except BaseException:
            os.close(self._file)
            raise

    def append(self, record: Record) -> None:
        """Writes one record; it survives this process from then on (not a loss of power).

        Raises PlanNotWritten when the disk takes no more. What it did not take goes first the next
        time: a later record must not be there without an earlier one.
        """
        self.reached += 1
        self._write(record_body(record))

    def close(self) -> None:
        os.close(self._file)

    def _write(self, body: object) -> None:
        self._untaken += encode_line(body)
        try:
            write_all(self._file, self._untaken)
        except OSError as error:
            raise not_written("journal", self.path, error) from error


def read_journal(path: Path, read: Callable[[Path], bytes] = read_own) -> JournalContent:
    """Reads up to the first record that does not check, or that makes no sense.

    A file that is gone is empty. Raises PlanRefused when it is there and can't be read, NotOwn when
    ``read`` does.
    """
    try:
        lines = read(path).splitlines(keepends=True)
    except FileNotFoundError:  # the drain that wrote it runs, and has folded it in
        lines = []
    except OSError as error:
        raise PlanRefused(
            f"can't read the journal {path}: {describe_os(error)}",
            hint=f"{way_out(error, 'Make it readable.')} Without it, drainer would repeat what is"
            " done since the last plan.",
        ) from None
    head: JournalHead | None = None
    records: list[Record] = []
    left_out: list[Record] = []
    torn = False
    for line in lines:
        try:
            if head is None and not torn:
                head = decode_line(line, JournalHead)
            else:
                (left_out if torn else records).append(decode_line(line, Record))
        except ValueError:
            torn = True
    return JournalContent(head, tuple(records), torn, tuple(left_out))


def encode_line(body: object) -> bytes:
    """A body as a line that shows whether it is whole."""
    text = codec.encode(body)
    return b"%08x %b\n" % (zlib.crc32(text), text)


def decode_line(line: bytes, kind: type[Kind]) -> Kind:
    """Raises ValueError when the line is cut or spoilt, or is something else."""
    checksum, _, text = line.partition(b" ")
    body = text.removesuffix(b"\n")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(body):
        raise ValueError("the line is torn")
    return codec.decode(body, kind)


def record_body(record: Record) -> dict[str, Any]:
    """JSON of a record's line."""
    body: dict[str, Any] = {"changes": {n: p.as_json() for n, p in record.changes.items()}}
    if record.parked:
        body["parked"] = record.parked
    if record.unhandled is not None:
        body["unhandled"] = record.unhandled
    if record.claim != ALL:
        body["claim"] = record.claim
    return body


def not_written(what: str, path: Path, error: OSError) -> PlanNotWritten:
    """The error for a plan or journal that the disk or the folder does not take."""
    return PlanNotWritten(
        f"can't write the {what} {path}: {describe_os(error)}",
        hint=f"{way_out(error, 'Make it writable.')} Then resume. The plan and its journal are"
        " valid, but what was done since the last write repeats.",
    )


class JournalRecords(NamedTuple):
    """Records that journals add to a plan, in order.

    ``left_out`` are behind something that is lost. ``torn`` is set when something is.
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
