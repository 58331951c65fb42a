"""Ownership of files: what drainer trusts must be its user's own, or root's."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
import stat
import struct
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from drainer.errors import Refused

# Linux's posix_acl_xattr.h
ACL_USER, ACL_OWN_GROUP, ACL_GROUP, ACL_WRITE, ACL_HEADER_BYTES = 0x02, 0x04, 0x08, 0x02, 4


class NotOwn(Refused):
    """Raised when somebody else could have written a file; the text names the file and who."""


def read_regular(path: Path | str, *, dir_fd: int | None = None) -> bytes:
    """Read a file, whoever wrote it. Raises OSError; at once for a FIFO or a device."""
    with _open_regular(path, dir_fd) as stream:
        return stream.read()


def read_own(path: Path | str, *, dir_fd: int | None = None) -> bytes:
    """Read a file, if only its user or root could have written it.

    Checked on the file that was opened, so a link that is moved meanwhile changes nothing. A path
    in ``dir_fd`` must not be a link.

    Raises NotOwn, and OSError as ``read_regular`` does.
    """
    with _open_regular(path, dir_fd) as stream:
        ensure_own(path, stream.fileno())
        return stream.read()


def ensure_own(path: Path | str, descriptor: int) -> None:
    """Raises NotOwn when somebody else could have written the file or folder that is open."""
    reason = _not_own(descriptor)
    if reason:
        raise NotOwn(f"{path} {reason}", hint="Read it, then make a copy of your own.")


def ensure_new_files_own(folder: Path) -> None:
    """Raises NotOwn when a file that this user makes in a folder would not be this user's alone, as
    on some network and foreign file systems; OSError when none can be made."""
    with TemporaryFile(dir=folder) as probe:
        ensure_own(folder, probe.fileno())


def user_at_host(uid: int) -> str:
    """``ana@db1``: a user of this machine, as plans and logs name one."""
    return f"{user_name(uid)}@{socket.gethostname()}"


def user_name(uid: int) -> str:
    """``ana``; the number of a user without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _open_regular(path: Path | str, dir_fd: int | None) -> BinaryIO:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # or the open waits for a FIFO's writer
    if dir_fd is not None:
        flags |= os.O_NOFOLLOW
    descriptor = os.open(path, flags, dir_fd=dir_fd)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def _not_own(descriptor: int) -> str:
    """Reason why somebody else could have written it: ``belongs to …``, ``is writable by …``."""
    status = os.fstat(descriptor)
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to {_user(status.st_uid)}, not to {_user(os.geteuid())}"
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_IWOTH:
        return f"is writable by everyone (mode {mode:04o})"
    if not mode & stat.S_IWGRP:  # with an access list these bits are the most that it gives
        return ""
    listed = _access_list(descriptor)
    where = ", by its access list" if listed else f" (mode {mode:04o})"
    for tag, permissions, number in listed or [(ACL_OWN_GROUP, ACL_WRITE, 0)]:
        if not permissions & ACL_WRITE:
            continue
        if tag == ACL_USER and number not in (0, status.st_uid):
            return f"is writable by user {_user(number)}{where}"
        group = status.st_gid if tag == ACL_OWN_GROUP else number
        if tag in (ACL_OWN_GROUP, ACL_GROUP) and not _is_private(group, status.st_uid):
            return f"is writable by group {_group(group)}{where}"
    return ""


def _access_list(descriptor: int) -> list[tuple[int, int, int]]:
    """Tag, permissions and id of each entry of a POSIX access list, which Linux alone has."""
    if sys.platform != "linux":
        return []
    try:
        found = os.getxattr(descriptor, "system.posix_acl_access")
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return []
        raise
    return list(struct.iter_unpack("<HHI", found[ACL_HEADER_BYTES:]))


def _is_private(gid: int, uid: int) -> bool:
    """Whether a group is that of one user alone, as many systems make one for each."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return False
    members = {*group.gr_mem, *(each.pw_name for each in pwd.getpwall() if each.pw_gid == gid)}
    return group.gr_name == user.pw_name and members <= {user.pw_name}


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
