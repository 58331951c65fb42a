"""The circuit breaker: spares a downstream that is away most calls, and detects when it is back.

After Nygard, "Release It!" (2007). It decides about load only; what counts against a sub-message is
for ``FailurePolicy``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from drainer.message import SubMessage

FAILURES = 50  # sub-messages that failed, or as many as there are lanes: then it may open
HEALTHY = 0.25  # of them, in successes: with so many it stays closed
FAILURES_OWN = 100  # with errors of their own, and not one success
SUCCESSES = 50  # that show that an earlier failure was no outage
PROBE_FIRST_S = 0.5
PROBE_MOST_S = 5.0


class BreakerState(Enum):
    """States of a breaker: which calls may start."""

    CLOSED = "closed"  # all
    OPEN = "open"  # none before the next probe
    HALF_OPEN = "half open"  # none: a probe is under way


@dataclass(slots=True)
class FailureWindow:
    """Sub-messages that failed for the first time, and the successes meanwhile."""

    since: int = 0  # the number of the first failed call
    failed: int = 0  # distinct sub-messages
    succeeded: int = 0  # calls that began after the first failure


class Breaker:
    """Closed while most calls succeed. Open, it lets one sub-message at a time through: a probe."""

    def __init__(self) -> None:
        self.state = BreakerState.CLOSED
        self.opened = 0  # times
        self.generation = 0  # rises when it opens and when it closes
        self.open_since_s: float | None = None
        # Since when it is open for errors that look like the messages' own; None if it is not, or a
        # probe has failed otherwise since.
        self.own_since_s: float | None = None
        self.prefers_tried = False  # for the next probe: probes take turns with untried ones
        self._probe: SubMessage | None = None
        self._next_probe_s = 0.0
        self._wait_s = PROBE_FIRST_S
        self._unclear = FailureWindow()  # failures that may be the downstream's
        self._own = FailureWindow()  # failures that look like the messages' own

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open or half open."""
        return self.state is not BreakerState.CLOSED

    @property
    def needs_successes(self) -> bool:
        """Whether a success would change anything."""
        return self.is_open or self._unclear.failed + self._own.failed > 0

    @property
    def probe_at_s(self) -> float | None:
        """When the next probe may start; None unless it is open."""
        return self._next_probe_s if self.state is BreakerState.OPEN else None

    def failed(
        self,
        sub: SubMessage,
        number: int,
        counted_in: FailureWindow | None,
        *,
        own: bool,
        lanes: int,
        running: int,
        now_s: float,
    ) -> FailureWindow | None:
        """Records the failed call of this number; returns the window in which its sub-message
        counts, to be ``counted_in`` when it fails again.

        ``lanes`` have something to do, and ``running`` calls are in flight: these may still end
        well, and as many have to fail first.
        """
        if sub is self._probe:
            self._wait_s = min(PROBE_MOST_S, self._wait_s * 2)
            self.end_probe(sub, now_s)
            if not own:
                self.own_since_s = None
        if counted_in is not None and (counted_in is self._own or not own):
            return counted_in
        window = self._own if own else self._unclear
        window.since = window.since if window.failed else number
        window.failed += 1
        if own and window.failed >= FAILURES_OWN:  # a success would have ended this window
            self.own_since_s = self.own_since_s or now_s
            self.open(now_s)
        enough = window.failed >= max(running, min(FAILURES, max(2, lanes)))
        if not own and enough and window.succeeded < HEALTHY * window.failed:
            self.open(now_s)
        return window

    def succeeded(self, started_at: int, calls: int = 1) -> None:
        """Records successes of calls that began after so many had failed."""
        if self._own.failed and started_at >= self._own.since:
            self._own = FailureWindow()
        if self._unclear.failed and started_at >= self._unclear.since:
            self._unclear.succeeded += calls
            if self._unclear.succeeded >= SUCCESSES:
                self._unclear = FailureWindow()

    def open(self, now_s: float) -> None:
        """Open the breaker if it is closed."""
        if self.is_open:
            return
        self.state = BreakerState.OPEN
        self.open_since_s = now_s
        self.opened += 1
        self.generation += 1
        self._wait_s = PROBE_FIRST_S
        self._next_probe_s = now_s + PROBE_FIRST_S

    def close(self) -> None:
        """Close the breaker, also while a probe is under way."""
        self.state = BreakerState.CLOSED
        self._probe = self.open_since_s = self.own_since_s = None
        self.generation += 1
        self._unclear, self._own = FailureWindow(), FailureWindow()

    def start_probe(self, sub: SubMessage) -> None:
        """Record the sub-message that was let through as the probe."""
        self.state = BreakerState.HALF_OPEN
        self._probe = sub
        self.prefers_tried = not self.prefers_tried

    def end_probe(self, sub: SubMessage, now_s: float) -> None:
        """Lets the next probe start if this was one that did not close it."""
        if sub is self._probe:
            self.state = BreakerState.OPEN
            self._probe = None
            self._next_probe_s = now_s + self._wait_s

    def close_if_probe(self, sub: SubMessage) -> bool:
        """Closes it if the sub-message, which is done, was the probe; returns whether it was."""
        if self.state is not BreakerState.HALF_OPEN or sub is not self._probe:
            return False
        self.close()
        return True

    def leave_out(self, since_s: float, now_s: float) -> None:
        """Leaves out a time in which nothing could be tried."""
        if self.open_since_s is not None:
            self.open_since_s += now_s - max(since_s, self.open_since_s)
        if self.own_since_s is not None:
            self.own_since_s += now_s - max(since_s, self.own_since_s)
