"""Looking at something four times a second, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from drainer.errors import BrokerUnreachable, Refused

LOOK_S = 0.25
KEEP_S = 600.0
PATIENCE_S = 5.0

Seen = TypeVar("Seen")


class Watch(Generic[Seen]):
    """Keeps what ``look`` gave, with the times of the monotonic clock.

    A look that raises BrokerUnreachable is left out. Any other Refused ends the watch, and is its
    ``failure``.
    """

    def __init__(self, name: str, look: Callable[[], Seen]) -> None:
        self._look = look
        self._looks: deque[tuple[float, Seen]] = deque(maxlen=int(KEEP_S / LOOK_S))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.failure: Refused | None = None

    def start(self) -> None:
        self._thread.start()

    def within(self, begin_s: float, end_s: float) -> list[tuple[float, Seen]]:
        """What was seen in that time."""
        return [look for look in list(self._looks) if begin_s <= look[0] <= end_s]

    def close(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            begun_s = time.monotonic()
            try:
                seen = self._look()
            except BrokerUnreachable:
                continue
            except Refused as error:
                self.failure = error
                return
            self._looks.append(((begun_s + time.monotonic()) / 2, seen))
