"""What happens when a handler forks.

If the child returned from the handler's call, it would continue as a second drain with the work of
the first one. So it ends when that call returns. It can't use the drain's sockets and pipes.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from drainer.text.mask import describe

T = TypeVar("T")

EVENT_LOOPS = "drainer.engine.local"  # The module that runs the event loops of drains.
FORKS: list[None] = []  # It has one element for each fork between the first process and this one.


class _Open(Protocol):
    def fileno(self) -> int: ...


_KEPT = WeakSet[_Open]()
_HANDLERS: dict[signal.Signals, Callable[[int, FrameType | None], object]] = {}


def keep_from_children(*streams: _Open) -> None:
    """Ensure that children forked from now on can't use these streams."""
    _KEPT.update(streams)


@contextmanager
def kept_from_children(
    number: signal.Signals, handler: Callable[[int, FrameType | None], object]
) -> Iterator[None]:
    """Ensure that a signal ends children that are forked in the block, though ``handler`` gets it.

    A handler in Python could not end them reliably: it waits for the interpreter, which may be
    about to block in a call, and the signal came too early to interrupt that call.
    """
    before = _HANDLERS.copy()
    _HANDLERS[number] = handler
    try:
        yield
    finally:
        _HANDLERS.clear()
        _HANDLERS.update(before)


def call_alone(function: Callable[..., T], *args: Any) -> T:
    """Call a function of the handler. A child that it forks ends instead of returning."""
    begun = len(FORKS)
    try:
        return function(*args)
    finally:
        end_if_forked(begun)


def end_if_forked(begun: int) -> None:
    """End this process if it was forked since FORKS had the length ``begun``.

    Call it in the ``finally`` of a call of the handler. The exit code is what any Python process
    has: that of a SystemExit, 1 after another error, else 0.
    """
    if len(FORKS) == begun:
        return
    error = sys.exc_info()[1]
    code = getattr(error, "code", 1) if error is not None else None
    if error is not None and not isinstance(error, SystemExit):
        with suppress(OSError):
            os.write(2, f"a process that the handler forked failed: {describe(error)}\n".encode())
    os._exit(code if isinstance(code, int) else code is not None)


def _task_of_a_drain() -> FrameType | None:
    """Return the frame of the task that has just forked, if a drain's event loop runs it."""
    frame, task = inspect.currentframe(), None
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == EVENT_LOOPS:
            return task
        if name.startswith("multiprocessing."):
            # Children of multiprocessing never return, and a profiling function would slow them.
            return None
        if frame.f_code.co_flags & inspect.CO_COROUTINE:
            task = frame
        frame = frame.f_back
    return None


def _in_child() -> None:
    FORKS.append(None)
    if (task := _task_of_a_drain()) is not None:
        # The child must not return to the event loop: it shares the loop's descriptors with its
        # parent, and would take events away from it.
        sys.setprofile(
            lambda frame, event, _: os._exit(1) if frame is task and event == "return" else None
        )
    for number, handler in _HANDLERS.items():
        if signal.getsignal(number) is handler:
            signal.signal(number, signal.SIG_DFL)
    with suppress(OSError), Path(os.devnull).open("r+b") as nothing:
        for each in _KEPT:
            with suppress(OSError, ValueError):  # The parent has closed the stream.
                # The descriptor is redirected, not closed: its number could be given to another
                # file, which the stream's own ``close`` would close later.
                os.dup2(nothing.fileno(), each.fileno(), inheritable=False)


_forking = threading.local()


def _block_signals() -> None:
    # While a child still has the drain's pipes, a signal to it would count as one to the drain.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


os.register_at_fork(
    before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_in_child
)
os.register_at_fork(after_in_child=_unblock_signals)
