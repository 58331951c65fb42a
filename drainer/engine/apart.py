"""Dead letters of what a rule kept out of the lanes, and what dead letters are written to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from drainer.core.dispatch import Dispatcher
from drainer.core.progress import Outcome
from drainer.errors import DrainerError
from drainer.message import SubMessage

UNDER_WAY_MOST = 1_000  # letters

Told = Callable[[DrainerError | None], None]


class DeadLetters(Protocol):
    """Where dead letters go (kafka/dead_letters.py)."""

    @property
    def trouble(self) -> str | None:
        """Why nothing is acknowledged; None while it is."""

    def send(self, sub: SubMessage, error: BaseException, told: Told) -> None:
        """Writes one; ``told`` is called from any thread, once it is safe or when it can't be."""

    def close(self, timeout_s: float) -> None:
        """Waits for what is not acknowledged yet, that long at most. Blocks."""


class PastLimit(Exception):
    """Why a sub-message is given up that no handler has seen."""


class Apart:
    """Writes them one after the other, each finished when it is safe.

    None of them has a place in a lane: it ends without an effect, so nothing has to wait for it.
    ``moved`` is called whenever one has ended, ``halt`` when one can't be written.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        sink: DeadLetters | None,
        moved: Callable[[], None],
        halt: Callable[[BaseException], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._sink = sink
        self._moved = moved
        self._halt = halt
        self._line: deque[SubMessage] = deque()
        self._under_way = 0
        self._paused = False
        self._loop = asyncio.get_running_loop()
        dispatcher.rule_filter.give_up = self._give_up

    @property
    def waiting(self) -> int:
        """How many are not safe yet."""
        return len(self._line) + self._under_way

    def pause(self, paused: bool) -> None:
        """Sends none while paused."""
        self._paused = paused
        self._send()

    def stop(self) -> None:
        """Sends none any more; what was not sent stays pending."""
        self._paused = True
        self._line.clear()

    def _give_up(self, sub: SubMessage) -> None:
        self._line.append(sub)
        self._send()

    def _send(self) -> None:
        while self._line and self._under_way < UNDER_WAY_MOST and not self._paused:
            assert self._sink is not None, "dead letters without a place for them"
            sub = self._line.popleft()
            sub.attempt = 0  # no handler has seen it
            self._under_way += 1
            self._sink.send(sub, PastLimit("above --limit-per-key"), self._told(sub))

    def _told(self, sub: SubMessage) -> Told:
        def told(failure: DrainerError | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._written, sub, failure)

        return told

    def _written(self, sub: SubMessage, failure: DrainerError | None) -> None:
        self._under_way -= 1
        if failure is not None:
            self._halt(failure)
            return
        self._dispatcher.rule_filter.buried()
        self._dispatcher.finish_apart(sub, Outcome.DEAD)
        self._send()
        self._moved()
