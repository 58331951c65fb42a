"""The journal: what finished since the plan was written, appended in small batches.

Each record is a line: the CRC-32 of the rest in hex, a space, and JSON. The first line names the
drain, how many records its process had appended to earlier journals, and which generation of the
plan was on the disk by then. Each other line holds progress of a claim by partition, the lanes that
were parked behind a dead letter meanwhile, and the counts of what was not
handled.

A record that a crash or a full disk has torn fails its check, and ends the journal. Records only
ever add something. So nothing changes if one is read twice, or was in the plan already.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from drainer.core.merge import Record
from drainer.errors import DrainerError, PlanNotWritten, PlanRefused
from drainer.host.os_errors import describe_os, way_out
from drainer.host.trust import read_own
from drainer.model import codec
from drainer.model.claims import ALL
from drainer.model.codec import Kind, Whole
from drainer.model.plan import OffsetPlan
from drainer.store.atomic_file import open_new, prefix_of_new, write_all


@dataclass(frozen=True, slots=True)
class JournalHead:
    """The first line of a journal.

    ``follows`` is the number of records in earlier journals of the same process. ``plan`` is the
    generation of a plan that was synced before the journal began.
    """

    drain_id: str
    follows: Whole
    plan: Whole


@dataclass(frozen=True, slots=True)
class JournalContent:
    """Content of a journal file.

    ``head`` is None if not even the first line is whole. ``torn`` is set if a record is cut or
    spoilt. That record and all behind it don't count; ``left_out`` has those of them that are
    whole.
    """

    head: JournalHead | None
    records: tuple[Record, ...]
    torn: bool
    left_out: tuple[Record, ...] = ()


class Journal:
    """One journal file, open for appending. It takes the place of whatever was there.

    If it can't be begun, the constructor raises PlanNotWritten and leaves no file open.
    """

    def __init__(self, path: Path, drain_id: str, follows: int = 0, plan: int = 0) -> None:
        self.path = path
        self.reached = follows  # records in this journal and in those before it
        self._untaken = bytearray()
        try:
            with suppress(FileNotFoundError):
                path.unlink()  # whatever is there, such as a link of another user
            self._file = open_new(path)
        except OSError as error:
            raise not_written("journal", path, error) from error
        try:
            self._write(JournalHead(drain_id, follows, plan))
        except BaseException:
            os.close(self._file)
            raise

    def append(self, record: Record) -> None:
        """Write one record. From then on it survives this process, but not a loss of power.

        Raises PlanNotWritten when the disk is full. The next call then writes the rest of this
        record first, because no record may be there without the ones before it.
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


def read_journal(path: Path) -> JournalContent:
    """Read a journal up to the first record that does not check, or that makes no sense.

    A file that is gone counts as empty. Raises PlanRefused when it can't be read, and NotTrusted
    when another user could have written it.
    """
    try:
        lines = read_own(path).splitlines(keepends=True)
    except FileNotFoundError:  # a running drain has folded it into the plan meanwhile
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
    """Encode a body as a line that shows whether it is whole."""
    text = codec.encode(body)
    return b"%08x %b\n" % (zlib.crc32(text), text)


def decode_line(line: bytes, kind: type[Kind]) -> Kind:
    """Decode a line. Raises ValueError if it is cut, spoilt, or something else."""
    checksum, _, text = line.partition(b" ")
    body = text.removesuffix(b"\n")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(body):
        raise ValueError("the line is torn")
    return codec.decode(body, kind)


def record_body(record: Record) -> dict[str, Any]:
    """Return the JSON of a record's line."""
    body: dict[str, Any] = {"changes": {n: p.as_json() for n, p in record.changes.items()}}
    if record.parked:
        body["parked"] = record.parked
    if record.unhandled is not None:
        body["unhandled"] = record.unhandled
    if record.claim != ALL:
        body["claim"] = record.claim
    return body


def not_written(what: str, path: Path, error: OSError) -> PlanNotWritten:
    """Make the error for a plan or a journal that can't be written."""
    return PlanNotWritten(
        f"can't write the {what} {path}: {describe_os(error)}",
        hint=f"{way_out(error, 'Make it writable.')} Then resume. The plan and its journal are"
        " valid, but what was done since the last write repeats.",
    )


class JournalRecords(NamedTuple):
    """Records that journals add to a plan, in order.

    ``torn`` is set if something is lost, and ``left_out`` has the records behind it.
    ``last_generation`` is the highest generation of the plan and its journals.
    """

    records: list[Record]
    left_out: list[Record]
    torn: bool
    last_generation: int


class Journals:
    """Journals of one plan: a file ``PLAN.journal-GENERATION`` for each generation."""

    def __init__(self, plan: Path) -> None:
        self._plan = plan
        self._prefix = f"{plan.name}.journal-"
        self._open: Journal | None = None
        self._not_begun: DrainerError | None = None

    def start(self, drain_id: str, generation: int, synced: int) -> None:
        """Begin the journal of what finishes after the snapshot for ``generation`` was taken.

        ``synced`` is the generation of the plan on the disk. If the journal can't be begun, this
        raises PlanNotWritten, and the journal before it continues.
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
        """Write a record. Raises PlanNotWritten if the disk is full, or was at the last start."""
        if self._open is None:
            raise self._not_begun or RuntimeError("the journal was not started")
        self._open.append(record)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def remove(self, below: int | None = None) -> None:
        """Remove journals whose records the plan has: those of generations below this one."""
        # A journal that can't be removed does no harm, because the plan has its records.
        for generation, path in self._all():
            if below is None or generation < below:
                with suppress(OSError):
                    path.unlink()
        for path in self._beside(prefix_of_new(self._plan)):  # a killed process left these
            with suppress(OSError):
                path.unlink()

    def since(self, written: OffsetPlan) -> JournalRecords:
        """Return the records that journals add to the plan on the disk.

        A journal counts only if nothing is missing in those before it. After a loss of power
        something may be. The younger journal may then have a sub-message, but not the one before it
        in its lane, and a resume would handle the two in the wrong order.

        Raises what ``read_journal`` raises, and PlanRefused if the plan is an old copy.
        """
        records: list[Record] = []
        left_out: list[Record] = []
        journals = self._all()
        last = max([written.account.generation, *(generation for generation, _ in journals)])
        reached, torn, gap, found = 0, False, False, False
        for generation, path in journals:
            if generation < written.account.generation:
                continue  # the plan has its records; the process ended before it could remove it
            content = read_journal(path)
            head = content.head
            if head is not None and head.drain_id != written.terms.drain_id:
                continue  # it is of another drain that had its plan here
            torn = torn or content.torn
            if head is None:
                continue  # its process ended before it wrote anything
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
