"""Places of the sockets of drains: in a folder of their user alone, named by their plans."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from drainer.store.place import PlanPlace

OURS = "drainer"
SUFFIX = ".sock"
DRAINS_MOST = 200  # of a user that are looked at: each takes a thread
LENGTH_MOST = 100  # of a socket's path; the system's limit is 104 or 108 bytes
USERS, TMP = Path("/run/user"), Path("/tmp")


def socket_name(plan: PlanPlace) -> str:
    """The same for each way to name a plan."""
    place = str(plan.resolve()) if isinstance(plan, Path) else plan
    return blake2b(os.fsencode(place), digest_size=10).hexdigest() + SUFFIX


def folders() -> list[Path]:
    """Folders where this user's may be, whether they exist or not: a drain and a process that
    steers it need not have the same environment."""
    uid = os.geteuid()
    given = os.environ.get("XDG_RUNTIME_DIR")
    found = [Path(given)] if given else []
    found.append(USERS / str(uid))
    own = [each / OURS for each in found if owner_of(each) == uid]
    return [*dict.fromkeys(own), TMP / f"{OURS}-{uid}"]


def make_folder(folder: Path) -> None:
    """Raises OSError when it can't be made, or is not this user's alone."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if owner_of(folder) != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    folder.chmod(0o700)


def folders_of_users() -> Iterator[tuple[Path, int]]:
    """Folders that may hold sockets of this user's drains, with its uid; root gets those of all
    users, each owned by the user that it is named after."""
    found = dict.fromkeys(folders(), os.geteuid())
    if os.geteuid() == 0:
        found |= {path: _number(path.parent.name) for path in USERS.glob(f"*/{OURS}")}
        found |= {path: _number(path.name[len(OURS) + 1 :]) for path in TMP.glob(f"{OURS}-*")}
    return ((folder, uid) for folder, uid in found.items() if owner_of(folder) == uid)


def sockets() -> Iterator[tuple[Path, int]]:
    """Sockets in the folders of users, with the uid of their user, who owns them; no links."""
    for folder, uid in folders_of_users():
        with suppress(OSError), os.scandir(folder) as entries:
            for path in sorted(Path(each) for each in islice(entries, DRAINS_MOST)):
                if path.suffix == SUFFIX and owner_of(path, stat.S_ISSOCK) == uid:
                    yield path, uid


def owner_of(path: Path, is_right: Callable[[int], bool] = stat.S_ISDIR) -> int | None:
    """The uid of a folder's owner, or of what has another mode. None for all else, a link to one
    among it, and for what can't be looked at."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_uid if is_right(found.st_mode) else None


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else -1
