"""The journal: what finished since the plan was written, appended in small batches.

A line a record: the CRC-32 of the rest in hex, a space, JSON. The first names the drain; each other
one holds progress by partition. A record torn by a crash or a full disk fails its check and ends
the journal. Records only ever add, so that reading one twice, or one that the plan has already
folded in, changes nothing.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from drainer.core.plan import decode_progress, encode_progress
from drainer.core.progress import Progress
from drainer.errors import PlanNotWritten


@dataclass(frozen=True, slots=True)
class JournalContent:
    """What a journal file holds; ``torn`` says that its last record was cut and left out."""

    drain_id: str | None
    records: tuple[Mapping[int, Progress], ...]
    torn: bool


class Journal:
    """One journal file, open for appending; a new one empties what was there."""

    def __init__(self, path: Path, drain_id: str) -> None:
        self.path = path
        try:
            self._file = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise _not_written(path, error) from error
        self._write({"drain_id": drain_id})

    def append(self, changes: Mapping[int, Progress]) -> None:
        """Writes one record; it survives this process from then on (not a loss of power).

        Raises PlanNotWritten when the disk takes no more.
        """
        self._write({str(number): encode_progress(found) for number, found in changes.items()})

    def close(self) -> None:
        os.close(self._file)

    def _write(self, body: Mapping[str, Any]) -> None:
        text = orjson.dumps(body)
        line = b"%08x %b\n" % (zlib.crc32(text), text)
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise _not_written(self.path, error) from error
        if written != len(line):
            raise _not_written(self.path, OSError("no space left on device"))


def read_journal(path: Path) -> JournalContent:
    """Reads up to the first record that does not check."""
    drain_id: str | None = None
    records: list[Mapping[int, Progress]] = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True)):
        checksum, _, text = line.partition(b" ")
        body = text.removesuffix(b"\n")
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(body):
            return JournalContent(drain_id, tuple(records), torn=True)
        content = orjson.loads(body)
        if number == 0:
            drain_id = content["drain_id"]
        else:
            records.append({int(n): decode_progress(p) for n, p in content.items()})
    return JournalContent(drain_id, tuple(records), torn=False)


def _not_written(path: Path, error: OSError) -> PlanNotWritten:
    return PlanNotWritten(
        f"the journal {path} can't be written: {error.strerror or error}",
        hint="what is in the plan and the journal stays true; make room, then resume",
    )
