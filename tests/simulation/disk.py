"""A disk in memory that knows what was synced: the process may end between any two writes and in
the middle of one, and the power may be lost, and with it whatever was not synced."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path, PosixPath
from random import Random
from typing import ClassVar, Self

from simulation.world import World

FOLDER = "/disk"
_STALE = bytes.maketrans(b"0123456789", b"1234567890")
PAGE = 64  # small, so that what is written here takes several


class File:
    __slots__ = ("data", "number", "synced")

    def __init__(self, number: int) -> None:
        self.number = number  # the later, the higher
        self.data = b""
        self.synced = b""


Change = dict[str, File | None]  # of names in the folder; it is kept or lost as a whole


class Disk:
    """One folder of files. It has the face of the module ``os``, as far as the store uses it."""

    O_RDONLY, O_WRONLY, O_CREAT = os.O_RDONLY, os.O_WRONLY, os.O_CREAT
    O_TRUNC, O_APPEND, O_CLOEXEC = os.O_TRUNC, os.O_APPEND, os.O_CLOEXEC
    fsencode = staticmethod(os.fsencode)
    O_EXCL, O_NOFOLLOW = os.O_EXCL, os.O_NOFOLLOW
    R_OK, W_OK, X_OK = os.R_OK, os.W_OK, os.X_OK

    def __init__(self, world: World, pause: Callable[[str], None]) -> None:
        self.files: dict[str, File] = {}
        self.room: int | None = None  # bytes until it is full
        self.unwritten_s: dict[str, float] = {}  # files, since something did not fit into them
        self._world = world
        self._pause = pause  # how long an operation takes, where it may take its time
        self._random = world.random("disk")
        self._durable: dict[str, File] = {}
        self._changes: list[Change] = []  # of the folder since it was synced
        self._open: dict[int, str | File] = {}
        self._next_descriptor = 100
        self._made = 0
        self._names = 0

    def open(
        self, path: Path | str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        name = _name(path)
        if name == "":
            return self._opened(FOLDER)
        self._step(f"disk open {name}")
        file = self.files.get(name)
        if file is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
            if self.room is not None and self.room <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            self._made += 1
            file = File(self._made)
            self._change({name: file})
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "File exists", name)
        elif flags & os.O_TRUNC:
            file.data = b""
        return self._opened(file)

    def write(self, descriptor: int, data: bytes) -> int:
        file = self._open[descriptor]
        assert isinstance(file, File)
        half = partial(self._write, file, data[: self._random.randrange(len(data) + 1)])
        what = "append" if file.data else "write"
        if file.data and sum(".journal-" in name for name in self.files) > 1:
            what = "append beside"  # another journal, which a plan that is being written folds in
        self._step(f"disk {what} {len(data)} to {self._named(file)}", half)
        written = self._write(file, data)
        if written == len(data):
            self.unwritten_s.pop(self._named(file), None)
        return written

    def fsync(self, descriptor: int) -> None:
        file = self._open[descriptor]
        if isinstance(file, File):
            self._step(f"disk sync {self._named(file)}")
            file.synced = file.data
        else:
            self._step("disk sync folder")
            self.sync_folder()

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def access(self, path: Path | str, mode: int) -> bool:
        return True

    @property
    def path(self) -> Disk:
        """Stand-in for ``os.path``, as far as it is used."""
        return self

    def exists(self, path: Path | str) -> bool:
        return _name(path) in self.files

    def unforeseen(self, size: int) -> str:
        """Stands in for ``secrets.token_hex``: the same in each run of a simulation."""
        self._names += 1
        return f"{self._names}"

    # What paths do.

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        return self.files[name].data

    def rename(self, name: str, new: str) -> None:
        self._step(f"disk rename {name} to {new}")
        self._change({new: self.files[name], name: None})

    def unlink(self, path: Path | str, dir_fd: int | None = None) -> None:
        name = _name(path)
        self._step(f"disk remove {name}")
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        self._change({name: None})
        self.unwritten_s.pop(name, None)

    # What the world does.

    def synced(self, name: str) -> bytes | None:
        """Contents that a file surely has after a loss of power; None when it may be gone."""
        file = self._durable.get(name)
        return None if file is None or not file.synced else file.synced

    def sync_folder(self) -> None:
        """The names of all files are safe."""
        self._durable = dict(self.files)
        self._changes.clear()

    def forget_process(self) -> None:
        """The process that had files open is gone."""
        self._open.clear()

    def lose_power(self, random: Random) -> None:
        """Keeps what was synced, and of the rest what chance leaves: of each file a part, or of the
        youngest journal all and of the others nothing."""
        youngest = random.random() < 0.3
        kept = 1.0 if youngest else random.choice([0.0, 0.5, 0.9, 1.0])
        self.files = dict(self._durable)
        lost: set[str] = set()
        for change in self._changes:  # a later one of a name is not there without the earlier
            if lost.isdisjoint(change) and random.random() < kept:
                self._apply(change)
            else:
                lost |= change.keys()
        self._changes.clear()
        journals = [file for name, file in self.files.items() if ".journal-" in name]
        last = max(journals, key=lambda file: file.number, default=None)
        for file in self.files.values():
            if not youngest:
                file.data = _survivor(file, random)
            elif file is not last:
                file.data = file.synced
            file.synced = file.data
        self._durable = dict(self.files)

    def _opened(self, what: str | File) -> int:
        self._next_descriptor += 1
        self._open[self._next_descriptor] = what
        return self._next_descriptor

    def _write(self, file: File, data: bytes) -> int:
        if self.room is not None:
            if len(data) > self.room:
                self.unwritten_s.setdefault(self._named(file), self._world.now_s)
            if data and self.room <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            data = data[: self.room]
            self.room -= len(data)
        file.data += data
        return len(data)

    def _change(self, change: Change) -> None:
        self._changes.append(change)
        self._apply(change)

    def _apply(self, change: Change) -> None:
        for name, file in change.items():
            if file is None:
                self.files.pop(name, None)
            else:
                self.files[name] = file

    def _step(self, what: str, half_way: Callable[[], object] | None = None) -> None:
        self._pause(what)
        self._world.step(what, half_way)

    def _named(self, file: File) -> str:
        return next((name for name, each in self.files.items() if each is file), "a removed file")


def _survivor(file: File, random: Random) -> bytes:
    data, synced = file.data, file.synced
    if not data.startswith(synced):  # it was emptied and written anew
        return random.choice([data, synced])
    length = random.choice([len(synced), random.randint(len(synced), len(data)), len(data)])
    survivor = bytearray(data[:length])
    lost = random.choice([0.0, 0.3, 1.0])  # pages that were never written read as zeros
    stale = random.random() < 0.4  # or as what was there before
    for page in range(len(synced) // PAGE, len(data) // PAGE + 1):
        if random.random() < lost:
            first, end = max(len(synced), page * PAGE), min(length, (page + 1) * PAGE)
            survivor[first:end] = bytes(max(0, end - first))
            if stale and end > first:
                survivor[first:end] = data[first:end].translate(_STALE)
    return bytes(survivor)


class DiskPath(PosixPath):
    """A path on the simulated disk, which ``disk`` is for as long as a simulation runs."""

    disk: ClassVar[Disk]

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return self.name in self.disk.files

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return str(self) == FOLDER

    def read_bytes(self) -> bytes:
        return self.disk.read(self.name)

    def iterdir(self) -> Generator[Self, None, None]:
        yield from [self / name for name in self.disk.files]

    def replace(self, target: str | os.PathLike[str]) -> Self:
        return self.rename(target)

    def rename(self, target: str | os.PathLike[str]) -> Self:
        self.disk.rename(self.name, _name(target))
        return type(self)(target)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat_result([0] * 10)

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok or self.exists():
            self.disk.unlink(self.name)


def _name(path: str | os.PathLike[str]) -> str:
    return os.fspath(path).removeprefix(FOLDER).removeprefix("/")
