"""Outages of what a split needs: a schema registry, or the topic of a letter's message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from drainer.errors import Halted
from drainer.model.listed import round_duration


@dataclass(eq=False, slots=True)
class Outage:
    """Time for which something does not answer. It is called with each answer that did not come.

    ``pause`` waits so many seconds, and returns whether to try again then. ``trouble`` is the
    reason of an outage that lasts.
    """

    most_s: float
    pause: Callable[[float], bool]
    clock: Callable[[], float] = monotonic
    since_s: float | None = None
    trouble: str | None = None

    def __call__(self, seconds: float, why: str) -> bool:
        """Wait so many seconds; whether to try again. Raises Halted when it lasts too long."""
        now_s = self.clock()
        if self.since_s is None:
            self.since_s = now_s
        if now_s - self.since_s > self.most_s:
            raise Halted(
                f"{why}, for longer than --max-outage ({round_duration(self.most_s)})",
                hint="Once it answers, resume with the plan.",
            )
        self.trouble = why
        return self.pause(seconds)

    def end(self) -> None:
        """Note that an answer came."""
        self.since_s = self.trouble = None
