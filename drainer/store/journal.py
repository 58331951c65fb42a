"""The journal: what has finished since the plan was last written, appended in small batches.

Beside a plan in a file, a journal is a file. Beside a plan in a bucket or a topic, it is numbered
pieces, each with some of its lines (``JournalPieces``).

Each record is a line: the CRC-32 of the rest in hex, a space, and JSON. The first line has the id
of the drain, the number of records that its process had appended to earlier journals, and the
generation of the plan that was on the disk when the journal began. Every other line has the
progress of a claim by partition, the lanes that were parked behind a dead letter since the line
before, the counts of sub-messages that were not handled, and the share of the backlog that was
finished by the last status.

A record that was written only in part, because of a crash or a full disk, fails its check. It and
the records after it don't count. Records only ever add progress, so reading one twice, or reading
one that the plan already has, changes nothing.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from drainer.core.merge import Record
from drainer.errors import DrainerError, PlanNotWritten, PlanRefused
from drainer.host.os_errors import describe_os, way_out
from drainer.host.trust import read_own
from drainer.model import codec
from drainer.model.claims import ALL
from drainer.model.codec import Kind, Whole
from drainer.model.formats import JOURNAL
from drainer.model.plan import OffsetPlan
from drainer.store.atomic_file import open_new, prefix_of_new, write_all
from drainer.store.place import PlanPlace


@dataclass(frozen=True, slots=True)
class JournalHead:
    """The first line of a journal.

    ``follows`` is the number of records in earlier journals of the same process. ``plan`` is the
    generation of a plan that was synced before the journal began. Raises PlanRefused for a
    ``format`` that this drainer does not read.
    """

    drain_id: str
    follows: Whole
    plan: Whole
    format: str = str(JOURNAL)

    def __post_init__(self) -> None:
        JOURNAL.ensure_read(self.format, PlanRefused)


@dataclass(frozen=True, slots=True)
class JournalContent:
    """The content of a journal.

    ``head`` is None if not even the first line is intact. ``torn`` is True if a record is damaged.
    That record and all records after it don't count. ``left_out`` has the intact ones after it.
    """

    head: JournalHead | None
    records: tuple[Record, ...]
    torn: bool
    left_out: tuple[Record, ...] = ()


class Journal:
    """One journal file, open for appending. A file of the same name is removed first.

    If the file can't be created, the constructor raises PlanNotWritten and leaves no file open.
    """

    def __init__(self, path: Path, drain_id: str, follows: int = 0, plan: int = 0) -> None:
        self.path = path
        self.reached = follows  # The number of records in this journal and in those before it.
        self._unwritten = bytearray()
        try:
            with suppress(FileNotFoundError):
                path.unlink()  # Another user may have put a link there.
            self._file = open_new(path)
        except OSError as error:
            raise not_written("journal", path, error) from error
        try:
            self._write(JournalHead(drain_id, follows, plan))
        except BaseException:
            os.close(self._file)
            raise

    def append(self, record: Record) -> None:
        """Write one record. It then survives a kill of this process, but not a loss of power.

        Raises PlanNotWritten when the disk is full. The next call then writes the rest of this
        record first, because a journal must not have a record without the records before it.
        """
        self.reached += 1
        self._write(record_body(record))

    def close(self) -> None:
        os.close(self._file)

    def _write(self, body: object) -> None:
        self._unwritten += encode_line(body)
        try:
            write_all(self._file, self._unwritten)
        except OSError as error:
            raise not_written("journal", self.path, error) from error


def read_journal(path: Path) -> JournalContent:
    """Read a journal up to the first damaged record.

    A file that does not exist counts as empty. Raises PlanRefused when it can't be read, and
    NotTrusted when another user could have written it.
    """
    try:
        lines = read_own(path).splitlines(keepends=True)
    except FileNotFoundError:  # A running drain has just merged it into the plan.
        lines = []
    except OSError as error:
        raise PlanRefused(
            f"can't read the journal {path}: {describe_os(error)}",
            hint=f"{way_out(error, 'Make it readable.')} Without it, drainer would repeat what was"
            " done since the plan was last written.",
        ) from None
    return parse_journal(lines)


def parse_journal(lines: Iterable[bytes]) -> JournalContent:
    """Return the content of a journal up to the first damaged line."""
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
    """Encode a body as a line with a checksum, which shows whether the line is complete."""
    text = codec.encode(body)
    return b"%08x %b\n" % (zlib.crc32(text), text)


def decode_line(line: bytes, kind: type[Kind]) -> Kind:
    """Decode a line. Raises ValueError if it is damaged, or has something else than a ``kind``."""
    checksum, _, text = line.partition(b" ")
    body = text.removesuffix(b"\n")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(body):
        raise ValueError("the line is torn")
    return codec.decode(body, kind)


def record_body(record: Record) -> dict[str, Any]:
    """Return a record as JSON. Empty parts are left out."""
    body: dict[str, Any] = {"changes": {n: p.as_json() for n, p in record.changes.items()}}
    if record.parked:
        body["parked"] = record.parked
    if record.unhandled is not None:
        body["unhandled"] = record.unhandled
    if record.claim != ALL:
        body["claim"] = record.claim
    if record.share_done is not None:
        body["share_done"] = record.share_done
    return body


def not_written(what: str, path: Path, error: OSError) -> PlanNotWritten:
    """Return the error for a plan or a journal (``what``) that can't be written."""
    return PlanNotWritten(
        f"can't write the {what} {path}: {describe_os(error)}",
        hint=f"{way_out(error, 'Make it writable.')} Then resume. The plan and its journal are"
        " valid, but what was done since the last write is repeated.",
    )


class JournalRecords(NamedTuple):
    """The records that journals add to a plan, in their order.

    ``torn`` is True if a record is damaged or missing, and ``left_out`` has the intact records
    after it. ``last_generation`` is the highest generation of the plan and its journals.
    """

    records: list[Record]
    left_out: list[Record]
    torn: bool
    last_generation: int


class FoundJournal(NamedTuple):
    """A journal beside a plan. ``name`` is for people, and ``read`` reads it."""

    generation: int
    name: str
    read: Callable[[], JournalContent]


def records_since(
    plan: PlanPlace, written: OffsetPlan, journals: Iterable[FoundJournal], *, begun: bool
) -> JournalRecords:
    """Return the records that journals, in the order of their generations, add to a written plan.

    A journal counts only if those before it are complete, which they may not be after a loss of
    power. Otherwise a later journal could say that a sub-message is finished, while the record of
    the one before it in its lane is lost, and a resume would handle the two in the wrong order.

    ``begun`` says whether a running drain has a journal before it handles anything. Otherwise there
    is none before its first record.

    Raises what reading a journal raises, and PlanRefused if the plan is an old copy.
    """
    records: list[Record] = []
    left_out: list[Record] = []
    last, reached = written.account.generation, 0
    torn = gap = found = False
    for generation, name, read in journals:
        last = max(last, generation)
        if generation < written.account.generation:
            continue  # The plan has its records, but the process ended before removing it.
        content = read()
        head = content.head
        if head is not None and head.drain_id != written.terms.drain_id:
            continue  # It belongs to another drain, whose plan had this name.
        torn = torn or content.torn
        if head is None:
            continue  # The process ended before it wrote anything.
        if head.plan > written.account.generation and not gap:
            raise PlanRefused(
                f"{plan} is older than its journal: it has generation"
                f" {written.account.generation}, but {name} continues from {head.plan}",
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
    torn = torn or gap or (begun and written.account.running and not found)
    return JournalRecords(records, left_out, torn, last)


class JournalPieces:
    """Makes the lines of one process's journals for a place that keeps them in numbered pieces.

    A journal has no piece before its first record, since a request costs more than a line in a
    file.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._reached = 0  # The number of records in the journals so far.
        self._head = b""  # The first line of the open journal, until it goes with the first record.

    def start(self, drain_id: str, generation: int, synced: int) -> None:
        """Begin the journal of a generation. ``synced`` is that of the plan that was written."""
        if self._head and self.generation == synced:
            # Nothing has finished since that plan, so its journal has no piece, and no reader can
            # know how many records came before.
            self._reached = 0
        self.generation = generation
        self._head = encode_line(JournalHead(drain_id, self._reached, synced))

    def lines(self, record: Record) -> bytes:
        """Return the lines that append a record to the journal."""
        head, self._head = self._head, b""
        self._reached += 1
        return head + encode_line(record_body(record))


def joined(pieces: Mapping[int, bytes]) -> JournalContent:
    """Return the content of a journal from its pieces, by their numbers, which begin with 1.

    A piece that is missing before others counts as a damaged record.
    """

    def lines() -> Iterator[bytes]:
        due = 1
        for number in sorted(pieces):
            if number != due:
                yield b""
            yield from pieces[number].splitlines(keepends=True)
            due = number + 1

    return parse_journal(lines())


class Journals:
    """The journals of one plan: a file ``PLAN.journal-GENERATION`` for each of its generations."""

    def __init__(self, plan: Path) -> None:
        self._plan = plan
        self._prefix = f"{plan.name}.journal-"
        self._open: Journal | None = None
        self._not_begun: DrainerError | None = None

    def start(self, drain_id: str, generation: int, synced: int) -> None:
        """Begin a journal for what finishes after the snapshot for ``generation`` was taken.

        ``synced`` is the generation of the plan on the disk. Raises PlanNotWritten if the journal
        can't be created. Records are then still appended to the journal before it.
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
        """Append a record to the open journal.

        Raises PlanNotWritten if the disk is full, or if no journal could be created yet.
        """
        if self._open is None:
            raise self._not_begun or RuntimeError("the journal was not started")
        self._open.append(record)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def remove(self, below: int | None = None) -> None:
        """Remove the journals of generations below this one, or all. The plan has their records.

        A journal that can't be removed does no harm.
        """
        for generation, path in self._all():
            if below is None or generation < below:
                with suppress(OSError):
                    path.unlink()
        # A process that was killed may have left incomplete plans behind.
        for path in self._beside(prefix_of_new(self._plan)):
            with suppress(OSError):
                path.unlink()

    def since(self, written: OffsetPlan) -> JournalRecords:
        """Return the records that journals add to the plan on the disk.

        Raises the errors of ``read_journal`` and of ``records_since``.
        """
        found = (FoundJournal(n, path.name, partial(read_journal, path)) for n, path in self._all())
        return records_since(self._plan, written, found, begun=True)

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
