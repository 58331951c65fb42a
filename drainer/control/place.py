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
    given = os.environ.get("XDG_RUNTIME_DIR")
    found = [Path(given)] if given else []
    found.append(USERS / str(os.geteuid()))
    own = [each / OURS for each in found if is_own(each)]
    return [*dict.fromkeys(own), TMP / f"{OURS}-{os.geteuid()}"]


def make_folder(folder: Path) -> None:
    """Make a folder for sockets. Raises OSError if that fails, or if it is another user's."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not is_own(folder):
        raise PermissionError(f"{folder} belongs to another user")
    folder.chmod(0o700)


def sockets() -> Iterator[Path]:
    """Yield the sockets of this user's drains. Some may be left by drains that are dead."""
    for folder in filter(is_own, folders()):
        with suppress(OSError):
            found = sorted(folder.glob(f"*{SUFFIX}"))
            yield from (path for path in found if is_own(path, stat.S_ISSOCK))


def link_to(plan: PlanPlace) -> Path:
    """Return the link by which this machine remembers a plan until its drain is done."""
    folder = next(filter(is_own, folders()), folders()[0])
    return folder / f"{socket_name(plan).removesuffix(SUFFIX)}{PLAN}"


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


def is_own(path: Path, is_right: Callable[[int], bool] = stat.S_ISDIR) -> bool:
    """Return whether a path is this user's, and of the right kind, which a link to one is not.

    ``is_right`` decides by the mode whether the kind is right. By default, it must be a folder.
    """
    with suppress(OSError):
        found = path.lstat()
        return is_right(found.st_mode) and found.st_uid == os.geteuid()
    return False
