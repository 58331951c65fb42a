"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def new_beside(path: Path) -> Path:
    """What is written first, until it takes the place of the file."""
    return path.with_name(f".{path.name}.new")


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file of its owner's so that a crash leaves the old or the new one.

    Raises OSError, with the old one in place.
    """
    new = new_beside(path)
    try:
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise


def write_to_last(path: Path, data: bytes) -> None:
    """As ``write_whole``, and no loss of power brings the old one back. The folder has to be
    readable."""
    write_whole(path, data)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
