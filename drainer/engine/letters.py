"""The delivery of dead letters, which reports each one on the event loop once it is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from drainer.engine.error_kinds import summary_of
from drainer.engine.ports import DeadLetters
from drainer.errors import DeadLetterFlawed, DrainerError, Halted
from drainer.message import SubMessage
from drainer.model.status import DOUBLED_MOST, least_of


@dataclass(eq=False)
class LetterDelivery:
    """Writes dead letters, and waits for their acknowledgements.

    Attributes:
        sink: where letters go; None while dead letters are off.
        on_safe: called with each sub-message whose letter is safe, and with a summary of its error.
        halt: called if a letter can't be written.
        pending: how many letters are not acknowledged yet.
        doubled: how many letters may be in their topic twice.
        doubled_first: the first few of these, as places of sub-messages.
        left_out: how many letters have no payload, because it was too large.
        left_out_oldest_ms: the earliest timestamp of the messages of these letters.
    """

    sink: DeadLetters | None
    on_safe: Callable[[SubMessage, str], None]
    halt: Callable[[BaseException], None]

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.pending = 0
        self.doubled = 0
        self.doubled_first: tuple[str, ...] = ()
        self.left_out = 0
        self.left_out_oldest_ms: int | None = None

    @property
    def trouble(self) -> str | None:
        """The reason why no letter is acknowledged; None while letters are."""
        return None if self.sink is None else self.sink.trouble

    def use(self, sink: DeadLetters | None) -> None:
        """Send further letters to this sink.

        If it is None, the old one stays, because letters may still be under way in it.
        """
        self.sink = sink or self.sink

    def send(self, sub: SubMessage, error: BaseException) -> bool:
        """Write the letter of a sub-message; return False if that halts the drain instead."""
        if self.sink is None:  # Letters were turned off after the message was read.
            self.halt(
                Halted(
                    f"{sub} was to be a dead letter, but dead letters have been turned off since",
                    hint="Resume: the settings of that run apply to it.",
                )
            )
            return False
        summary = summary_of(error)  # The error itself would keep the frames that it came through.

        def acknowledged(failure: DrainerError | None) -> None:
            with suppress(RuntimeError):  # If the loop is closed, nobody waits for the letter.
                self._loop.call_soon_threadsafe(self._acknowledged, sub, summary, failure)

        self.pending += 1
        self.sink.send(sub, error, acknowledged)
        return True

    def _acknowledged(self, sub: SubMessage, summary: str, failure: DrainerError | None) -> None:
        self.pending -= 1
        if isinstance(failure, DeadLetterFlawed):
            self.doubled += failure.doubled
            if failure.doubled and len(self.doubled_first) < DOUBLED_MOST:
                self.doubled_first += (str(sub),)
            if failure.left_out:
                self.left_out += 1
                times = (self.left_out_oldest_ms, sub.message.timestamp)
                self.left_out_oldest_ms = least_of(times)
        elif failure is not None:
            self.halt(failure)
            return
        self.on_safe(sub, summary)
