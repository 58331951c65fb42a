"""Errors by which the operating system reports that this machine lacks something, and hints."""

from __future__ import annotations

import errno
import os
import pwd
import resource
import socket
import stat
from collections import Counter
from contextlib import suppress
from typing import TypeGuard

# How many descriptor numbers are tried at least and at most.
NUMBERS_LEAST, NUMBERS_MOST = 1 << 10, 1 << 16

_WAYS_OUT = {
    errno.EMFILE: "Close what the handler leaves open, or raise the limit with `ulimit -n`",
    errno.ENFILE: "Find the process that opens so many files, or raise fs.file-max",
    errno.ENOMEM: "Free memory",
    errno.ENOSPC: "Make room",
    errno.EDQUOT: "Make room, or have your quota raised",
    errno.EFBIG: "Make room, or raise the limit of a file's size with `ulimit -f`",
    errno.EIO: "Check the disk: the kernel's log has its errors",
    errno.EROFS: "Mount the file system writable",
}
_KINDS = {stat.S_IFSOCK: "sockets", stat.S_IFREG: "files", stat.S_IFIFO: "pipes"}


def describe_os(error: OSError) -> str:
    """Describe an error. If the process has too many open files, the text counts them by kind."""
    text = error.strerror or str(error)
    return f"{text} ({_descriptors()})" if error.errno == errno.EMFILE else text


def way_out(error: BaseException, otherwise: str) -> str:
    """Return the hint for an error: ``otherwise`` unless the machine lacks something.

    ``otherwise`` is the hint for errors of the place itself, such as a missing right.
    """
    return f"{_WAYS_OUT[error.errno or 0]}." if is_of_machine(error) else otherwise


def is_of_machine(error: BaseException) -> TypeGuard[OSError]:
    """Return whether this machine lacks something, so that no message or service is to blame."""
    # Libraries raise OSErrors whose ``errno`` is not a number, or not even hashable.
    return isinstance(error, OSError) and type(error.errno) is int and error.errno in _WAYS_OUT


def user_at_host(uid: int) -> str:
    """Name a user of this machine as plans and logs do: ``ana@db1``."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return f"{name}@{socket.gethostname()}"


def _descriptors() -> str:
    # Each number is tried, because listing /proc/self/fd would need a descriptor.
    most, kinds = resource.getrlimit(resource.RLIMIT_NOFILE)[0], Counter[str]()
    for number in range(min(max(most, NUMBERS_LEAST), NUMBERS_MOST)):
        with suppress(OSError):
            kinds[_KINDS.get(stat.S_IFMT(os.fstat(number).st_mode), "others")] += 1
    counted = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    return f"of at most {most:,} this process has {kinds.total():,} open: {counted}"
