"""Streams that can't fail, on real descriptors."""

from __future__ import annotations

import io
import os
import threading

from builders import a_status
from drainer.text.escape import UNENCODABLE
from drainer.view.live import LiveView
from drainer.view.streams import SafeStream
from drainer.view.terminal import Terminal


def text_on(raw: io.RawIOBase) -> io.TextIOWrapper:
    writer = io.BufferedWriter(raw)
    return io.TextIOWrapper(writer, encoding="utf-8", errors=UNENCODABLE, line_buffering=True)


def test_a_terminal_that_hangs_up_ends_no_live_view() -> None:
    emulator, screen = os.openpty()
    terminal = Terminal(stderr=text_on(SafeStream(screen)), width=80, height=24)
    assert terminal.is_live
    with LiveView(terminal) as view:
        view.update(a_status())
        os.close(emulator)
        view.update(a_status())
        view.update(a_status())
    terminal.print_line("no one reads this")
    os.close(screen)


def test_a_full_pipe_that_does_not_block_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    stream = text_on(SafeStream(writing))
    text = "x" * 300_000  # more than a pipe holds
    found = bytearray()

    def read() -> None:
        while len(found) < len(text):
            found.extend(os.read(reading, 65536))

    reader = threading.Thread(target=read)
    reader.start()
    stream.write(text)
    stream.flush()
    reader.join()
    assert found.decode() == text
    os.close(reading)
    os.close(writing)
