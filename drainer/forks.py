"""Children that the handler forks: each ends with the call that it was forked in, and has neither
the drain's sockets nor its pipes.

Otherwise it would be a second drain, with the first one's work in its hands.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from drainer.mask import describe

T = TypeVar("T")

EVENT_LOOPS = "drainer.engine.local"  # the module that runs those of drains
FORKS: list[None] = []  # one for each fork between the first process and this one


class _Open(Protocol):
    def fileno(self) -> int: ...


_KEPT = WeakSet[_Open]()


def keep_from_children(*streams: _Open) -> None:
    """Have children that are forked from now on get these streams closed."""
    _KEPT.update(streams)


def call_alone(function: Callable[..., T], *args: Any) -> T:
    """Call a function of the handler; a child that it forks does not return."""
    begun = len(FORKS)
    try:
        return function(*args)
    finally:
        end_if_forked(begun)


def end_if_forked(begun: int) -> None:
    """End this process if it was forked since FORKS had the length ``begun``.

    For the ``finally`` of a call of the handler. As for any Python the exit code is that of a
    SystemExit, 1 after another error, else 0.
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
    """The frame of the task that has just forked, if a drain's event loop runs it."""
    frame, task = inspect.currentframe(), None
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == EVENT_LOOPS:
            return task
        if name.startswith("multiprocessing."):
            return None  # its children never return, and would be slower by that
        if frame.f_code.co_flags & inspect.CO_COROUTINE:
            task = frame
        frame = frame.f_back
    return None


def _in_child() -> None:
    FORKS.append(None)
    if (task := _task_of_a_drain()) is not None:
        # The event loop is the parent's: by its descriptors a child takes the parent's events away.
        sys.setprofile(
            lambda frame, event, _: os._exit(1) if frame is task and event == "return" else None
        )
    with suppress(OSError), Path(os.devnull).open("r+b") as nothing:
        for each in _KEPT:
            with suppress(OSError, ValueError):  # closed
                # Not closed: the number would be given to another file, and closed for it later.
                os.dup2(nothing.fileno(), each.fileno(), inheritable=False)


_forking = threading.local()


def _block_signals() -> None:
    # A signal to a child that still has the drain's pipes would be taken for one to the drain.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


os.register_at_fork(
    before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_in_child
)
os.register_at_fork(after_in_child=_unblock_signals)
