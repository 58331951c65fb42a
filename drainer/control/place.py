"""Folders of the sockets of drains. Only their user can enter them, and plans name the sockets."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from drainer.store.place import PlanPlace

OURS = "drainer"
SUFFIX = ".sock"
LENGTH_MOST = 100  # bytes of a socket's path; the system's limit is 104 or 108
USERS, TMP = Path("/run/user"), Path("/tmp")


def socket_name(plan: PlanPlace) -> str:
    """Return the name of a drain's socket. It is the same for each way to name the plan."""
    place = str(plan.resolve()) if isinstance(plan, Path) else plan
    return blake2b(os.fsencode(place), digest_size=10).hexdigest() + SUFFIX


def folders() -> list[Path]:
    """List the folders where this user's sockets may be, whether they exist or not.

    There are several, because a drain and a process that steers it may have different environments.
    """
    uid = os.geteuid()
    given = os.environ.get("XDG_RUNTIME_DIR")
    found = [Path(given)] if given else []
    found.append(USERS / str(uid))
    own = [each / OURS for each in found if owner_of(each) == uid]
    return [*dict.fromkeys(own), TMP / f"{OURS}-{uid}"]


def make_folder(folder: Path) -> None:
    """Make a folder for sockets. Raises OSError if it can't be made, or is another user's."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if owner_of(folder) != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    folder.chmod(0o700)


def sockets() -> Iterator[Path]:
    """Yield the sockets of this user's drains, whether a process still listens or not."""
    for folder in folders():
        if owner_of(folder) == os.geteuid():
            with suppress(OSError):
                yield from sorted(path for path in folder.glob(f"*{SUFFIX}") if is_own_socket(path))


def is_own_socket(path: Path) -> bool:
    """Whether a path is a socket of this user's, and no link to one."""
    return owner_of(path, stat.S_ISSOCK) == os.geteuid()


def owner_of(path: Path, is_right: Callable[[int], bool] = stat.S_ISDIR) -> int | None:
    """Return the uid of a folder's owner, or of what has another mode; None for anything else."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_uid if is_right(found.st_mode) else None
