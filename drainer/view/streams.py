"""Standard output and standard error that never fail, because a drain outlives its readers.

The reader of a pipe may be gone, a disk may be full, or a terminal closed. A descriptor may have
been closed before the command began, and a locale may lack characters. None of that changes how a
drain runs, or its exit code. These streams are installed once, below everything that writes: the
terminal, the log, ``print`` in a handler, and libraries.
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

from drainer.text.escape import UNENCODABLE

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# If a handler prints more characters than this without a newline, they count as a line.
LINE_MOST = 16_384


class SafeStream(io.FileIO):
    """A raw stream that accepts everything. Data that can't be written are dropped.

    ``lost`` is the error because of which data were last dropped; None if all data were written. If
    the descriptor is non-blocking, ``write`` waits until it accepts data.
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
    """Takes the place of a text stream while a view runs, and passes whole lines to ``take``.

    ``take`` is called in the thread that wrote the line. Child processes write to the real stream.
    A line that grows longer than LINE_MOST counts as complete.
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

    def end_line(self) -> None:
        """Complete the line that was begun, if there is one."""
        if self._begun:
            self.write("\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Lasting(io.TextIOWrapper):
    def close(self) -> None:
        """Flush, and stay open: a handler may close the stream before the summary is printed."""
        self.flush()


def install_streams() -> tuple[SafeStream, SafeStream]:
    """Replace the streams of this process by safe ones, and return those of stdout and stderr."""
    _fill_descriptors()
    return _install("stdout", 1), _install("stderr", 2)


def flush_streams(out: SafeStream) -> None:
    """Write what is buffered. Warn if output was lost, unless its reader had simply gone."""
    sys.stdout.flush()
    if out.lost is not None and out.lost.errno != errno.EPIPE:
        reason = out.lost.strerror or out.lost
        sys.stderr.write(f"warning: standard output could not be written: {reason}\n")
    sys.stderr.flush()


def _fill_descriptors() -> None:
    # If one of the three descriptors is closed, the next file that is opened gets its number. If
    # that is the plan, librdkafka or a child process would write its messages into the plan.
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # It gets the lowest free number, which is this one.
            os.set_inheritable(descriptor, True)


def _install(name: str, descriptor: int) -> SafeStream:
    raw = SafeStream(descriptor)
    before = getattr(sys, name)  # It is None if the descriptor was closed.
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
