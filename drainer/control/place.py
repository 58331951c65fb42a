"""Where the sockets of drains are: in a folder of their user's alone, named by their plans."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from drainer.store.plan_file import PlanPlace

OURS = "drainer"
SUFFIX = ".sock"
LENGTH_MOST = 100  # of a socket's path; the system's limit is 104 or 108 bytes
_USERS, _TMP = Path("/run/user"), Path("/tmp")


def socket_name(plan: PlanPlace) -> str:
    """The same for each way to name a plan."""
    place = str(plan.resolve()) if isinstance(plan, Path) else plan
    return blake2b(os.fsencode(place), digest_size=10).hexdigest() + SUFFIX


def folders() -> list[Path]:
    """Where this user's may be, whether they exist or not; what begins a drain and what asks it
    need not have the same environment."""
    uid = os.geteuid()
    given = os.environ.get("XDG_RUNTIME_DIR")
    found = [Path(given)] if given else []
    found.append(_USERS / str(uid))
    own = [each / OURS for each in found if owner_of(each) == uid]
    return [*dict.fromkeys(own), _TMP / f"{OURS}-{uid}"]


def make_folder(folder: Path) -> None:
    """Raises OSError when it can't be made, or is not this user's alone."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if owner_of(folder) != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    folder.chmod(0o700)


def sockets() -> Iterator[Path]:
    """Those of this user's drains; root's are everybody's, in the folders of who they are."""
    found = dict.fromkeys(folders(), os.geteuid())
    if os.geteuid() == 0:
        found |= {path: _number(path.parent.name) for path in _USERS.glob(f"*/{OURS}")}
        found |= {path: _number(path.name[len(OURS) + 1 :]) for path in _TMP.glob(f"{OURS}-*")}
    for folder, uid in found.items():
        if owner_of(folder) == uid:
            with suppress(OSError):
                yield from sorted(folder.glob(f"*{SUFFIX}"))


def owner_of(folder: Path) -> int | None:
    """Whose folder it is; None for what is none, a link to one too, or can't be looked at."""
    try:
        found = folder.lstat()
    except OSError:
        return None
    return found.st_uid if stat.S_ISDIR(found.st_mode) else None


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else -1
