"""The memory that cgroups allow this process, as in a container."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath


def memory_limit(root: Path = Path("/")) -> int | None:
    """Return the lowest memory limit of this process's cgroups, in bytes; None without a limit.

    ``root`` is the folder that has ``proc`` and ``sys``.
    """
    return min(_limits(root), default=None)


def _limits(root: Path) -> Iterator[int]:
    lines: list[str] = []
    with suppress(OSError):  # This system has no cgroups.
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    for line in lines:
        _, names, path = line.split(":", 2)
        # A version 2 hierarchy has no names. In version 1, each controller has a hierarchy.
        if not names:
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif names == "memory":
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # Limits of parents hold, too. A container may see its own cgroup at the root, while the
        # path is that on the host, or leads upwards out of what it sees.
        own = PurePosixPath(path.replace("/..", "") or "/")
        for folder in (own, *own.parents):
            # The file has "max" where there is no limit, and the root of version 2 has no file.
            with suppress(OSError, ValueError):
                yield int((base / folder.relative_to("/") / name).read_text(encoding="utf-8"))
