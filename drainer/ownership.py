"""Who could have written a file: what drainer trusts must be its user's own, or root's."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import stat
from pathlib import Path
from tempfile import TemporaryFile

from drainer.errors import Refused


class NotOwn(Refused):
    """Raised when somebody else could have written a file; the text names the file and who."""


def read_own(path: Path) -> bytes:
    """What a file says, if only its user or root could have written it.

    Asked of the file that was opened, so a link that is moved meanwhile changes nothing.

    Raises NotOwn, and OSError as any reading does.
    """
    with path.open("rb") as stream:
        insist_own(path, os.fstat(stream.fileno()))
        return stream.read()


def insist_own(path: Path, status: os.stat_result) -> None:
    """Raises NotOwn when ``status`` says that somebody else could have written what is there."""
    reason = not_own(status)
    if reason:
        raise NotOwn(f"{path} {reason}", hint="Read it, then make a copy of your own.")


def insist_new_files_own(folder: Path) -> None:
    """Raises NotOwn when a file that this user makes in a folder would not be this user's alone, as
    on some network and foreign file systems; OSError when none can be made."""
    with TemporaryFile(dir=folder) as probe:
        insist_own(folder, os.fstat(probe.fileno()))


def not_own(status: os.stat_result) -> str:
    """Why somebody else could have written it: ``belongs to …``, ``is writable by …``."""
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to {_user(status.st_uid)}, not to {_user(os.geteuid())}"
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_IWOTH:
        return f"is writable by everyone (mode {mode:04o})"
    if mode & stat.S_IWGRP and not _is_private(status.st_gid, status.st_uid):
        return f"is writable by group {_group(status.st_gid)} (mode {mode:04o})"
    return ""


def user_at_host(uid: int) -> str:
    """``ana@db1``: a user of this machine, as plans and logs name one."""
    return f"{user_name(uid)}@{socket.gethostname()}"


def user_name(uid: int) -> str:
    """``ana``; the number of a user without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _is_private(gid: int, uid: int) -> bool:
    """Whether a group is that of one user alone, as many systems make one for each."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _group(gid: int) -> str:
    try:
        return f"{grp.getgrgid(gid).gr_name} (gid {gid})"
    except KeyError:
        return f"gid {gid}"
