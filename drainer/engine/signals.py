"""Signals by which a person or a supervisor stops a drain, even while a handler blocks the loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

from drainer.errors import StopSignal
from drainer.host.forks import keep_from_children, kept_from_children

# SIGHUP comes when the terminal goes away.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BLOCKED_S = 1.0  # An event loop that has not noticed the second signal after this time is blocked.


@contextmanager
def signals_to(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Let ``handler`` get the signals that stop a process, for as long as the block lasts.

    In another thread than the main one nothing changes, because Python lets that one alone handle
    signals. A signal that was ignored when the process began stays ignored: ``nohup`` counts on
    that, and so does a shell without job control for what it puts in the background.
    """
    in_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS if in_main}
    previous_handlers = {number: was for number, was in before.items() if was is not signal.SIG_IGN}
    for number in previous_handlers:
        signal.signal(number, handler)
    try:
        # A process pool of the user's handler ends its children by this signal.
        with kept_from_children(signal.SIGTERM, handler):
            yield
    finally:
        for number, was in previous_handlers.items():
            signal.signal(number, was)


def obey_signals_until(is_over: Callable[[], bool]) -> None:
    """Ignore signals that stop a process once ``is_over``; until then they work as before.

    After the end the exit code is decided, and a signal must not change it. Call it in the main
    thread.
    """

    def obey_by(before: Any, number: int, _: FrameType | None) -> None:
        if not is_over():
            signal.signal(number, before)
            signal.raise_signal(number)

    for number in STOP_SIGNALS:
        before = signal.getsignal(number)
        if before is not signal.SIG_IGN:
            signal.signal(number, partial(obey_by, before))


def ignore_signals() -> None:
    """Ignore signals that stop a process from now on, even while Python shuts down.

    Python's own handlers no longer run then. Commands that are started later would ignore the
    signals, too.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def interrupt(number: int, _: FrameType | None) -> None:
    """Raise StopSignal, which is a KeyboardInterrupt, for any signal that stops a process."""
    raise StopSignal(f"interrupted by {signal.Signals(number).name}")


@contextmanager
def stop_signals(
    loop: asyncio.AbstractEventLoop, observe: Callable[[str], None], give_up: Callable[[], None]
) -> Iterator[None]:
    """Call ``observe`` on the loop with the name of each signal; in the main thread only.

    If the loop does not notice the second signal, ``give_up`` is called from another thread. The
    interpreter's own handler, which is written in C, writes each signal to a pipe that this thread
    reads. All other ways that Python offers (``loop.add_signal_handler``, or a handler in Python)
    wait for the main thread, which may be inside a call that no signal ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    pipe = os.fdopen(writing, "wb", buffering=0)
    keep_from_children(pipe)  # Otherwise, a signal to a child would stop this process.
    over = threading.Event()

    def do_nothing(_number: int, _frame: FrameType | None) -> None:
        pass  # The listening thread has learnt of the signal before Python calls this.

    def listen() -> None:
        count = 0
        while received := os.read(reading, 1):
            if received[0] in STOP_SIGNALS:
                count += received[0] != signal.SIGHUP
                noticed = report(received[0])
                if count == 2 and not noticed.wait(BLOCKED_S) and not over.is_set():
                    give_up()
            elif passed_on >= 0:
                with suppress(OSError):
                    os.write(passed_on, received)
        os.close(reading)

    def report(number: int) -> threading.Event:
        noticed = threading.Event()

        def on_the_loop() -> None:
            noticed.set()
            observe(signal.Signals(number).name)

        with suppress(RuntimeError):  # The loop is closed: the drain has ended already.
            loop.call_soon_threadsafe(on_the_loop)
        return noticed

    passed_on = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    listener = threading.Thread(target=listen, name="signals", daemon=True)
    listener.start()
    try:
        with signals_to(do_nothing):
            yield
    finally:
        over.set()
        signal.set_wakeup_fd(passed_on)
        pipe.close()
        listener.join(BLOCKED_S)
