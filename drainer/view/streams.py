"""Standard output and error that can't fail: a drain outlives the readers of its output.

A pipe whose reader is gone, a full disk, a terminal that hung up, a descriptor that was closed
before the command began, a locale without the characters: none of it changes how a drain runs or
its exit code. Installed once, below everything that writes: the terminal, the log, ``print`` in a
handler, the libraries.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TextIO

from drainer.escape import UNENCODABLE

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LINE_MOST = 16_384  # characters of what a handler prints without a newline


class SafeStream(io.FileIO):
    """A descriptor that takes everything: what can't be written is dropped, and ``lost`` is why.

    It waits also for a descriptor that something made non-blocking.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.lost: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        while True:
            try:
                written = super().write(data)
            except OSError as error:
                self.lost = error
                return memoryview(data).nbytes
            if written is not None:
                return written
            select.select((), (self.fileno(),), ())


class LineStream:
    """Takes the place of a text stream while a view runs, and gives whole lines to ``take``, on the
    thread that wrote them. A child process gets the real stream.

    ``rest`` ends a line that was begun; one longer than ``LINE_MOST`` is ended at once.
    """

    def __init__(self, real: TextIO, take: Callable[[str], None]) -> None:
        self._real = real
        self._take = take
        self._lock = threading.Lock()
        self._begun = ""

    def write(self, text: str) -> int:
        with self._lock:
            lines, end, self._begun = (self._begun + text).rpartition("\n")
            if len(self._begun) > LINE_MOST:
                lines, end, self._begun = f"{lines}{end}{self._begun}", "\n", ""
        if end:
            self._take(lines + end)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def rest(self) -> None:
        if self._begun:
            self.write("\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Lasting(io.TextIOWrapper):
    def close(self) -> None:
        """Flush and stay open: a handler may close it before the account is written."""
        self.flush()


def install_streams() -> tuple[SafeStream, SafeStream]:
    """Replace the process's own streams by safe ones; return what is under the two."""
    _fill_descriptors()
    return _install("stdout", 1), _install("stderr", 2)


def flush_streams(out: SafeStream) -> None:
    """Write what is still buffered, and warn when output was lost before its reader had gone."""
    sys.stdout.flush()
    if out.lost is not None and out.lost.errno != errno.EPIPE:
        reason = out.lost.strerror or out.lost
        sys.stderr.write(f"warning: standard output could not be written: {reason}\n")
    sys.stderr.flush()


def _fill_descriptors() -> None:
    # Else the plan or a connection gets the number of a closed one, and librdkafka or a child
    # process writes its words into it.
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number, which is this one
            os.set_inheritable(descriptor, True)


def _install(name: str, descriptor: int) -> SafeStream:
    raw = SafeStream(descriptor)
    before = getattr(sys, name)  # None when it was closed
    stream = _Lasting(
        io.BufferedWriter(raw),
        encoding="utf-8" if before is None else before.encoding,
        errors=UNENCODABLE,
        line_buffering=descriptor == 2 or raw.isatty(),
        write_through=before is not None and before.write_through,
    )
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)
    return raw
