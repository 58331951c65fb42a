"""The one rule for files that drainer trusts: who else could have put them there.

Plans, profiles, client files and handlers decide which brokers get a login and which code runs. So
drainer asks two questions about such a file, in this module alone:

1. Could another user have put it there? drainer looks at each name on the way to it. In a folder
   that others can write, sticky or not, a name must belong to this user or to root. Each name is
   opened from the folder that drainer has looked at, because others may swap folders meanwhile.
2. Is it a record of drainer's own, such as a plan? Then the file itself must belong to this user or
   to root, wherever it lies. So root resumes only what root began.

A shared folder is the exception to both: it is setgid, its group can write it, and this user is in
that group. Operators who share a folder trust one another. Root trusts no group.

A file that everyone can write is never read. Nothing is asked about what lies on a read-only mount,
because nobody can write there: Kubernetes mounts ConfigMaps and Secrets in this way. The names on
the way to the mount count as everywhere, since a link may lead to a mount that its owner controls.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import EINVAL, ELOOP
from pathlib import Path
from stat import S_ISDIR, S_ISFIFO, S_ISGID, S_ISLNK, S_ISREG, S_ISVTX, S_IWGRP, S_IWOTH
from tempfile import NamedTemporaryFile
from typing import BinaryIO, NamedTuple

from drainer.errors import Refused

ROOT = Path("/")
LINKS_MOST = 40  # As Linux does, drainer follows this many symbolic links on the way to a file.
# These flags open a name, whether it is a link or not. On Linux, O_PATH needs no right to read it.
_O_PATH = getattr(os, "O_PATH", 0)
_LINKS_TOO = os.O_NOFOLLOW if _O_PATH else getattr(os, "O_SYMLINK", 0)
LOOK = os.O_CLOEXEC | os.O_NONBLOCK | _O_PATH | _LINKS_TOO
PRIVATE, SHARED, SHARED_FOLDER = 0o600, 0o660, 0o2770


class NotTrusted(Refused):
    """Raised when another user could have written a file, or could have put it where it is."""


def read_trusted(path: Path | str) -> bytes:
    """Read a file that a person or a plan names, if no other user could have put it there.

    A pipe of this user's own is read as well, so that a shell's ``<(vault read …)`` works.

    Raises NotTrusted, and OSError for a file that can't be read or is not a regular file.
    """
    if _is_own_pipe(Path(path).stat()):
        with Path(path).open("rb") as stream:
            if _is_own_pipe(os.fstat(stream.fileno())):
                return stream.read()
    with _opened(path, own=False) as stream:
        return stream.read()


def read_own(path: Path | str) -> bytes:
    """Read a record of drainer's own, after the check of ``ensure_own``.

    Raises the same errors as ``read_trusted``, and also refuses a pipe.
    """
    with _opened(path, own=True) as stream:
        return stream.read()


def ensure_trusted(path: Path | str) -> None:
    """Ensure that no other user could have written a file, or put it where it is.

    This is for a file that code outside of this module opens. Raises NotTrusted and OSError.
    """
    with _looked_at(path, own=False):
        pass


def ensure_own(path: Path | str) -> None:
    """Ensure that a file or folder is this user's or root's, or in a folder that a group shares.

    The group must be one of this user's. This is for a file that code outside of this module opens.
    Raises NotTrusted and OSError.
    """
    with _looked_at(path, own=True):
        pass


def ensure_new_files_own(folder: Path) -> None:
    """Ensure that drainer will trust a file that it makes in a folder.

    Some network and foreign file systems give new files to another user, or let everyone write
    them. Raises NotTrusted, and OSError if no file can be made.
    """
    with NamedTemporaryFile(dir=folder, prefix=".drainer-") as probe:
        ensure_own(probe.name)


def mode_of_new(folder: Path) -> int:
    """Return the mode of a file that drainer makes in a folder: private, or for a group.

    In a folder that a group shares, any operator of the group may resume a drain.
    """
    with suppress(OSError):  # Whoever makes the file reports the error.
        if _is_for_a_group(folder.stat()):
            return SHARED
    return PRIVATE


def share_new(descriptor: int, folder: Path) -> None:
    """Set the mode of a new file to that of ``mode_of_new``, which the umask may have reduced.

    The file stays private if it does not have the folder's group, as on some file systems. If root
    makes the file, the group may only read it, because root resumes a drain only from files that
    nobody else could have written.
    """
    with suppress(OSError):  # Whoever writes to the file reports a folder that is gone.
        mode = mode_of_new(folder)
        if mode != PRIVATE and os.fstat(descriptor).st_gid == folder.stat().st_gid:
            os.fchmod(descriptor, mode if os.geteuid() else mode & ~S_IWGRP)


def make_folder(folder: Path) -> None:
    """Make a folder for this user alone, or for the group that shares its parent folder.

    Raises FileExistsError and any other OSError.
    """
    folder.mkdir(0o700)
    if _is_for_a_group(folder.parent.stat()):
        folder.chmod(SHARED_FOLDER)


def _is_own_pipe(status: os.stat_result) -> bool:
    return S_ISFIFO(status.st_mode) and status.st_uid == os.geteuid()


def _opened(path: Path | str, *, own: bool) -> BinaryIO:
    """Open the very file that was found to be trusted, even if its name now leads to another."""
    with _looked_at(path, own=own, regular=True) as descriptor:
        # What was opened with O_PATH can't be read. This opens the same file once more.
        return Path(f"/dev/fd/{descriptor}").open("rb")


@contextmanager
def _looked_at(path: Path | str, *, own: bool, regular: bool = False) -> Iterator[int]:
    """Provide the descriptor of a file, once it and all names on the way to it are trusted."""
    is_file = True
    with suppress(OSError):  # The look at the names reports what is wrong.
        # The links of pipes and sockets in /proc lead to no name that could be looked at.
        is_file = S_ISREG(Path(path).stat().st_mode)
    try:
        if regular and not is_file:
            raise OSError(EINVAL, "not a regular file")
        with ExitStack() as opened:
            way = _way(Path(path), opened)
            file, folder = way[-1], way[-2:][0].status
            if regular and not S_ISREG(file.status.st_mode):
                raise OSError(EINVAL, "not a regular file")
            is_foreign = own and not _is_own(file.status, folder)
            all_write = file.status.st_mode & S_IWOTH
            if (is_foreign or all_write) and not _is_read_only(file.descriptor):
                why = f"is writable by everyone (mode {file.status.st_mode & 0o7777:04o})"
                if is_foreign:
                    why = f"belongs to {_user(file.status)}, not to {_user(os.geteuid())}"
                raise _not_trusted(f"{path} {why}")
            yield file.descriptor
    except OSError as error:  # An error of a name that was opened from its folder lacks the path.
        raise OSError(error.errno, error.strerror, str(path)) from None


class _Name(NamedTuple):
    """A name on the way to a file, as it was when it was opened."""

    path: Path
    descriptor: int
    status: os.stat_result


def _way(path: Path, opened: ExitStack) -> list[_Name]:
    """Open each name on the way to a file; return the folders that lead to the file, and the file.

    If a folder can be written by everyone and is not sticky, everyone can swap a name in it for
    another one. Nobody gains anything by that while this function works, because it opens each name
    relative to the folder that it opened before. A link is opened too, and then the names of its
    target.

    Raises NotTrusted if another user could have put a name where it is, and OSError.
    """

    def look(name: Path, folder: int | None = None) -> _Name:
        try:  # O_DIRECTORY makes an automounter mount the folder. O_PATH alone does not.
            descriptor = os.open(name.name or name, LOOK | os.O_DIRECTORY, dir_fd=folder)
        except NotADirectoryError:
            descriptor = os.open(name.name, LOOK, dir_fd=folder)
        opened.callback(os.close, descriptor)
        return _Name(name, descriptor, os.fstat(descriptor))

    way, links = [look(ROOT)], 0
    left = [*reversed(path.absolute().parts[1:])]
    while left:
        name, folder = left.pop(), way[-1]
        if name == "..":
            way = way[:-1] or way
            continue
        entry = look(folder.path / name, folder.descriptor)
        others_write = folder.status.st_mode & (S_IWGRP | S_IWOTH)
        if others_write and not (
            _is_own(entry.status, folder.status) or _is_read_only(folder.descriptor)
        ):
            user = _user(entry.status)
            raise _not_trusted(f"{entry.path} belongs to {user}, and others can write its folder")
        if not S_ISLNK(entry.status.st_mode):
            way.append(entry)
            continue
        if (links := links + 1) > LINKS_MOST:
            raise OSError(ELOOP, os.strerror(ELOOP))
        # Linux reads the link that was looked at; macOS can only read what has its name now.
        link = ("", entry) if LOOK & _O_PATH else (name, folder)
        target = Path(os.readlink(link[0], dir_fd=link[1].descriptor))
        if target.is_absolute():
            way = way[:1]
        left += reversed(target.parts[target.is_absolute() :])
    return way


def _is_read_only(descriptor: int) -> bool:
    return bool(os.statvfs(descriptor).f_flag & os.ST_RDONLY)


def _is_own(status: os.stat_result, folder: os.stat_result) -> bool:
    """Return whether a file or folder with this status is this user's or root's, or is shared.

    It is shared if a group shares the folder in which it lies, and this user is in that group or
    owns that folder. Root takes nothing that is only shared.
    """
    me = os.geteuid()
    if status.st_uid in (me, 0):
        return True
    groups = {os.getegid(), *os.getgroups()}
    is_member = folder.st_gid in groups or folder.st_uid == me
    return me != 0 and is_member and _is_for_a_group(folder)


def _is_for_a_group(folder: os.stat_result) -> bool:
    """Return whether a group shares a folder. In a sticky folder, nobody could replace a plan."""
    mode = folder.st_mode
    return S_ISDIR(mode) and mode & (S_ISGID | S_IWGRP | S_ISVTX | S_IWOTH) == S_ISGID | S_IWGRP


def _not_trusted(text: str) -> NotTrusted:
    return NotTrusted(text, hint="Read it, then copy it into a folder that only you can write.")


def _user(status: os.stat_result | int) -> str:
    uid = status if isinstance(status, int) else status.st_uid
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
