"""The watchdog: notices an async handler that blocks the event loop, and names the line.

A thread looks at the stack of the loop's thread now and then, twice within a few milliseconds. If
both looks find the same call of the handler at the same instruction, and the thread asleep, then
the handler waits for something that it should await, and nothing else can run meanwhile.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path
from types import FrameType

from drainer.engine.coroutines import CALLS_HANDLER

EVERY_S = 0.1
APART_S = 0.004  # The two looks are this far apart, so both see most calls that block for 10 ms.
LOOKS = 20  # This many looks are remembered.
BLOCKED = 6  # This many of them have to find a blocked loop before a warning is given.
STOP_S = 1.0

_OWN = f"{Path(__file__).parents[1]}{os.sep}"
_LIBRARIES = tuple(
    f"{sysconfig.get_paths()[name]}{os.sep}" for name in ("stdlib", "purelib", "platlib")
)


class Watchdog:
    """Watches the thread that makes it, within a ``with``.

    Attributes:
        blocked_by: the line of the handler that blocks most often; None until one was found.
        is_blocked: whether the handler blocks the loop now.
    """

    is_blocked = False

    def __init__(self) -> None:
        self.blocked_by: str | None = None
        self._watched = threading.get_ident()
        self._state = Path(f"/proc/self/task/{threading.get_native_id()}/stat")
        self._looks: deque[str | None] = deque(maxlen=LOOKS)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(STOP_S)

    def _watch(self) -> None:
        while not self._over.wait(EVERY_S):
            self._looks.append(self._blocked_at())
            found = Counter(place for place in self._looks if place is not None)
            self.is_blocked = found.total() >= BLOCKED
            if self.is_blocked:
                self.blocked_by = found.most_common(1)[0][0]

    def _blocked_at(self) -> str | None:
        # The frame itself is compared, because a later frame may get the same id().
        frame = sys._current_frames().get(self._watched)
        place = None if frame is None else _place_in_handler(frame)
        if frame is None or place is None:
            return None
        instruction = frame.f_lasti
        self._over.wait(APART_S)
        still = sys._current_frames().get(self._watched) is frame and frame.f_lasti == instruction
        return place if still and self._sleeps() else None

    def _sleeps(self) -> bool:
        # A thread that computes, or that waits for a processor, is running or runnable.
        with suppress(OSError, IndexError):
            return self._state.read_text().rpartition(") ")[2][0] in "SD"
        return True  # The state of a thread is not known on every platform.


def _place_in_handler(frame: FrameType) -> str | None:
    """Return ``file:line in function`` of the handler's own code that runs; None if none does.

    That is the innermost frame that is neither drainer's nor a library's, if there is one.
    """
    found: FrameType | None = None
    own: FrameType | None = None
    step: FrameType | None = frame
    while step is not None and step.f_code is not CALLS_HANDLER:
        file = step.f_code.co_filename
        if not file.startswith((_OWN, "<")):
            found = step
            if own is None and not file.startswith(_LIBRARIES):
                own = step
        step = step.f_back
    shown = own or found
    if step is None or shown is None:
        return None
    return f"{shown.f_code.co_filename}:{shown.f_lineno} in {shown.f_code.co_name}"
