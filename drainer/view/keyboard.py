"""Single keys from a terminal, while a drain is watched on it."""

from __future__ import annotations

import os
import select
import signal
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

LOOK_S = 0.5
# Of a process in the background, to touch its terminal would stop it: a drain for a keyboard.
_STOPPING = {signal.SIGTTIN, signal.SIGTTOU}


@contextmanager
def keyboard(descriptor: int, pressed: Callable[[str], None]) -> Iterator[None]:
    """Calls ``pressed`` with each key, in a thread of its own, while inside.

    Only while the process is in the terminal's foreground, and Ctrl-C stays Ctrl-C. The terminal is
    left as it was found. Where the descriptor is no terminal nothing is read.
    """
    try:
        found = termios.tcgetattr(descriptor)
    except (termios.error, OSError, ValueError):
        yield
        return
    over, over_told = os.pipe()

    def listen() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)  # reads and writes fail instead
        with suppress(OSError, termios.error):
            while True:
                if _in_foreground(descriptor):
                    _by_key(descriptor)
                ready, _, _ = select.select((descriptor, over), (), (), LOOK_S)
                if over in ready:
                    return
                if ready and _in_foreground(descriptor):
                    key = os.read(descriptor, 1)
                    if not key:
                        return
                    pressed(key.decode("latin-1"))

    listener = threading.Thread(target=listen, name="keyboard", daemon=True)
    listener.start()
    try:
        yield
    finally:
        os.close(over_told)
        listener.join(2 * LOOK_S)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        with suppress(OSError, termios.error):
            if _in_foreground(descriptor):
                termios.tcsetattr(descriptor, termios.TCSANOW, found)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(over)


def _by_key(descriptor: int) -> None:
    """Again after a shell had the terminal: it sets it as it likes it."""
    if termios.tcgetattr(descriptor)[3] & (termios.ICANON | termios.ECHO):
        tty.setcbreak(descriptor, termios.TCSANOW)


def _in_foreground(descriptor: int) -> bool:
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False
