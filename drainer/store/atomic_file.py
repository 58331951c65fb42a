"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from errno import ENOSPC
from functools import partial
from pathlib import Path
from secrets import token_hex
from zlib import crc32

NEW = ".new"  # ends the name of what is not whole yet


def open_new(path: Path) -> int:
    """Makes a file of this user's alone: no link is followed, and nothing taken that was there.

    Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags | os.O_APPEND, 0o600)


def prefix_of_new(path: Path) -> str:
    """Prefix of the names of files that were to take the place of this one."""
    return f".drainer-{crc32(os.fsencode(path.name)):08x}-"


def new_beside(path: Path) -> Path:
    """Path to write what will take the place of a file, by a name that can't be foreseen."""
    return path.with_name(f"{prefix_of_new(path)}{token_hex(8)}{NEW}")


def write_whole(
    path: Path, data: bytes, replace: Callable[[Path, Path], object] = Path.replace
) -> None:
    """Write a file of its owner's so that a crash leaves the old or the new one.

    ``replace`` puts the new one in the place of the old one. Raises OSError, with the old one in
    place.
    """
    new = new_beside(path)
    write_new(new, data, partial(replace, new, path), synced=True)


def write_all(descriptor: int, data: bytearray) -> None:
    """Write all data, and remove from it what the disk has taken.

    When a write takes a part only, the next one fails with the reason. Raises OSError, with the
    rest left in ``data``.
    """
    while data:
        written = os.write(descriptor, data)
        if not written:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        del data[:written]


def write_new(new: Path, data: bytes, place: Callable[[], object], *, synced: bool = False) -> None:
    """Writes a new file, and puts it where it belongs. Raises OSError, without the new one."""
    try:
        descriptor = open_new(new)
        try:
            write_all(descriptor, bytearray(data))
            if synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        place()
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise


def write_to_last(
    path: Path, data: bytes, replace: Callable[[Path, Path], object] = Path.replace
) -> None:
    """Write a file as ``write_whole`` does, so that no loss of power brings the old one back.

    The folder has to be readable."""
    write_whole(path, data, replace)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
