"""The sockets of drains: their folders, which only their user can enter, and their names."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from drainer.host.trust import NotTrusted, ensure_own
from drainer.store.place import PlanPlace

OURS = "drainer"
SUFFIX, PLAN = ".sock", ".plan"
LENGTH_MOST = 100  # The longest path of a socket, in bytes. Systems allow 104 or 108.
USERS, TMP = Path("/run/user"), Path("/tmp")


def socket_name(plan: PlanPlace) -> str:
    """Return the name of a drain's socket, which is a hash of the place of its plan.

    A relative path and an absolute one give the same name.
    """
    place = str(plan.resolve()) if isinstance(plan, Path) else plan
    return blake2b(os.fsencode(place), digest_size=10).hexdigest() + SUFFIX


def folders() -> list[Path]:
    """List the folders in which this user's sockets may lie. Some of them may not exist.

    There are several, because a drain and the process that steers it may run in different
    environments.
    """
    uid = os.geteuid()
    given = os.environ.get("XDG_RUNTIME_DIR")
    found = [Path(given)] if given else []
    found.append(USERS / str(uid))
    own = [each / OURS for each in found if owner_of(each) == uid]
    return [*dict.fromkeys(own), TMP / f"{OURS}-{uid}"]


def make_folder(folder: Path) -> None:
    """Make a folder for sockets. Raises OSError if that fails, or if it is another user's."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if owner_of(folder) != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    folder.chmod(0o700)


def sockets() -> Iterator[Path]:
    """Yield the sockets of this user's drains. Some may be left by drains that are dead."""
    for folder in folders():
        if owner_of(folder) == os.geteuid():
            with suppress(OSError):
                yield from sorted(path for path in folder.glob(f"*{SUFFIX}") if is_own_socket(path))


def link_to(plan: PlanPlace) -> Path:
    """Return the link by which this machine remembers a plan until its drain is done."""
    own = [folder for folder in folders() if owner_of(folder) == os.geteuid()]
    return (own or folders())[0] / f"{socket_name(plan).removesuffix(SUFFIX)}{PLAN}"


def remembered() -> Iterator[Path]:
    """Yield the links to plans, and remove those whose plans are gone."""
    for folder in folders():
        with suppress(OSError):
            for link in sorted(folder.glob(f"*{PLAN}")):
                if link.exists():
                    yield link
                else:
                    link.unlink()


def by_full_path(plan: Path) -> str:
    """Say by which path to name a plan that is not in this folder; empty if none is known.

    This machine must remember a plan of this name, and nobody else may be able to write it.
    """
    known = []
    for path in {link.resolve() for link in remembered() if link.resolve().name == plan.name}:
        with suppress(OSError, NotTrusted):
            ensure_own(path)
            known.append(shlex.quote(str(path)))
    return f"Name it by its full path: {' or '.join(sorted(known))}." if known else ""


def is_own_socket(path: Path) -> bool:
    """Return whether a path is a socket of this user. A link to one is not."""
    return owner_of(path, stat.S_ISSOCK) == os.geteuid()


def owner_of(path: Path, is_right: Callable[[int], bool] = stat.S_ISDIR) -> int | None:
    """Return the uid of the owner of a file or folder; None if it is missing or of another kind.

    ``is_right`` decides by the mode whether the kind is right. By default, it must be a folder.
    """
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_uid if is_right(found.st_mode) else None
