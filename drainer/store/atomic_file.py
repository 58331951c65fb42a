"""Files that are replaced as a whole, so that a crash leaves the old content or the new one."""

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

NEW = ".new"  # The ending of the name of a file that is not complete yet.


def open_new(path: Path) -> int:
    """Create a file, and return its descriptor.

    Only this user can read it, or also the group if the folder is shared with a group. Raises
    OSError, including when a file or a link of this name exists.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags | os.O_APPEND, 0o600)
    share_new(descriptor, path.parent)
    return descriptor


def prefix_of_new(path: Path) -> str:
    """Return the prefix of the names of new files that replace this file when they are complete."""
    return f".drainer-{crc32(os.fsencode(path.name)):08x}-"


def new_beside(path: Path) -> Path:
    """Return the path of a new file that replaces this file when it is complete.

    The name is random, so that no other user can put a link there beforehand.
    """
    return path.with_name(f"{prefix_of_new(path)}{token_hex(8)}{NEW}")


def write_whole(
    path: Path,
    data: bytes,
    replace: Callable[[Path, Path], object] = Path.replace,
    *,
    durable: bool = False,
) -> None:
    """Write a file so that a crash leaves either the old content or the new one.

    Args:
        replace: renames the new file to the path.
        durable: also sync the folder. Otherwise a loss of power may bring the old content back.

    Raises OSError. If the new file could not be written or renamed, the old one is still there.
    """
    new = new_beside(path)
    write_new(new, data, partial(replace, new, path), synced=True)
    if durable:
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_all(descriptor: int, data: bytearray) -> None:
    """Write all data. The bytes that were written are removed from ``data``.

    If a write takes only a part of the data, another one follows, which fails with the reason if
    the disk is full. Raises OSError. ``data`` then has the bytes that were not written.
    """
    while data:
        written = os.write(descriptor, data)
        if not written:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        del data[:written]


def write_new(new: Path, data: bytes, place: Callable[[], object], *, synced: bool = False) -> None:
    """Write a new file, then call ``place``, which moves or links it to its final name.

    If one of the two raises OSError, the new file is removed, and the error is raised again.
    """
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
