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

from drainer.host.trust import share_new

NEW = ".new"  # ends the name of a file that is not whole yet


def open_new(path: Path) -> int:
    """Make a file that this user alone can read, or the group that shares its folder.

    It follows no link, and takes nothing that was there. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags | os.O_APPEND, 0o600)
    share_new(descriptor, path.parent)
    return descriptor


def prefix_of_new(path: Path) -> str:
    """Return the prefix of the names of files that are to take the place of this one."""
    return f".drainer-{crc32(os.fsencode(path.name)):08x}-"


def new_beside(path: Path) -> Path:
    """Return the path of a new file that will take the place of this one.

    Nobody can foresee its name, and put a link there.
    """
    return path.with_name(f"{prefix_of_new(path)}{token_hex(8)}{NEW}")


def write_whole(
    path: Path, data: bytes, replace: Callable[[Path, Path], object] = Path.replace
) -> None:
    """Write a file so that a crash leaves either the old one or the new one.

    ``replace`` puts the new file in the place of the old one. If this raises OSError, the old file
    is still there.
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
    """Write a new file, and put it where it belongs. If this raises OSError, the file is gone."""
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
    """Write a file as ``write_whole`` does, so that a loss of power can't bring the old one back.

    The folder must be readable, because it is synced, too.
    """
    write_whole(path, data, replace)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
