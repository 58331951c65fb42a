"""The journal: what finished since the plan was written, appended in small batches.

A line a record: the CRC-32 of the rest in hex, a space, JSON. The first names the drain and says
how many records its process had appended to earlier journals, and which generation of the plan was
on the disk by then. Each other one holds progress of a claim by partition, the lanes that were
parked behind a dead letter meanwhile, and what the rules did. A record torn by a crash or a full
disk fails its check and ends the journal. Records only ever add, so that reading one twice, or one
that the plan has already folded in, changes nothing.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from drainer.core.merge import Record
from drainer.errors import PlanNotWritten, PlanRefused
from drainer.model import codec
from drainer.model.claims import ALL
from drainer.model.codec import Whole
from drainer.ownership import read_own
from drainer.store.atomic_file import open_new

Kind = TypeVar("Kind")


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

    ``head`` is None when not even the first line is whole. ``torn`` says that a record was cut or
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
        self._untaken = b""
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
            written = os.write(self._file, self._untaken)
        except OSError as error:
            raise not_written("journal", self.path, error) from error
        self._untaken = self._untaken[written:]
        if self._untaken:
            raise not_written("journal", self.path, OSError("no space left on device"))


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
            f"can't read the journal {path}: {error.strerror or error}",
            hint="Make it readable. Without it, drainer would repeat what is done since the last"
            " plan.",
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
    if record.ruled is not None:
        body["ruled"] = record.ruled
    if record.claim != ALL:
        body["claim"] = record.claim
    return body


def not_written(what: str, path: Path, error: OSError) -> PlanNotWritten:
    """The error for a plan or journal that the disk or the folder does not take."""
    return PlanNotWritten(
        f"can't write the {what} {path}: {error.strerror or error}",
        hint="Make room, then resume. The plan and its journal are valid, but what was done since"
        " the last write repeats.",
    )
