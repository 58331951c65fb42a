"""Being asked to stop by a person or a supervisor, also while a handler blocks the event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last when a terminal goes away
BLOCKED_S = 1.0  # a loop that has not heard of the second signal by then is blocked


@contextmanager
def stop_signals(
    loop: asyncio.AbstractEventLoop, heard: Callable[[str], None], give_up: Callable[[], None]
) -> Iterator[None]:
    """Calls ``heard`` on the loop with each signal's name.

    When the loop does not get to hear of the second one, ``give_up`` is called from another thread.
    Not ``loop.add_signal_handler``: it can't tell, for it needs the loop itself.
    """
    seen = 0
    answers: list[threading.Event] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        answer = threading.Event()
        answers.append(answer)

        def tell() -> None:
            answer.set()
            heard(signal.Signals(number).name)

        def insist() -> None:
            if not answer.wait(BLOCKED_S):
                give_up()

        loop.call_soon_threadsafe(tell)
        if seen == 2:
            threading.Thread(target=insist, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for answer in answers:  # the drain has ended all the same
            answer.set()
