"""The circuit breaker: spares a downstream that is away most calls, and notices when it is back.

After Nygard, "Release It!" (2007): closed, open, and half open while a probe is under way. It
decides about load only; what counts against a sub-message is for ``FailurePolicy``.
"""

from __future__ import annotations

from dataclasses import dataclass

from drainer.message import SubMessage

FAILURES = 50  # sub-messages that failed, or as many as there are lanes: then it may open
HEALTHY = 0.25  # of them, in successes: with so many it stays closed
FAILURES_OWN = 100  # with errors of their own, and not one success
SUCCESSES = 50  # that show that an earlier failure was no outage
PROBE_FIRST_S = 0.5
PROBE_MOST_S = 5.0


@dataclass(slots=True)
class Window:
    """Sub-messages that failed for the first time, and the successes meanwhile."""

    since: int = 0  # the number of the first failed call
    failed: int = 0  # distinct sub-messages
    succeeded: int = 0  # calls that began after the first failure


class Breaker:
    """Closed while most calls succeed. Open, it lets one sub-message at a time through: a probe."""

    def __init__(self) -> None:
        self.open_since_s: float | None = None  # when it opened; None while it is closed
        self.opened = 0
        # Since when it is open for errors that look like the messages' own; None if it is not, or a
        # probe has failed otherwise since.
        self.own_since_s: float | None = None
        self.turn = 0  # rises when it opens and when it closes
        self.prefers_tried = False  # for the next probe: probes take turns with untried ones
        self._probe: SubMessage | None = None
        self._probe_at_s = 0.0
        self._wait_s = PROBE_FIRST_S
        self._away = Window()  # failures that may be the downstream's
        self._own = Window()  # failures that look like the messages' own

    @property
    def open(self) -> bool:
        return self.open_since_s is not None

    @property
    def watching(self) -> bool:
        """Whether a success would tell anything."""
        return self.open or self._away.failed + self._own.failed > 0

    @property
    def probe_at_s(self) -> float | None:
        """When the next probe may start; None while one is under way, or none is needed."""
        return self._probe_at_s if self.open and self._probe is None else None

    @property
    def own(self) -> bool:
        return self.own_since_s is not None

    def failed(
        self,
        sub: SubMessage,
        number: int,
        known: Window | None,
        *,
        own: bool,
        lanes: int,
        running: int,
        now_s: float,
    ) -> Window | None:
        """Takes note of the failed call of this number; gives the window that its sub-message is
        counted in, to be ``known`` when it fails again.

        ``lanes`` have something to do, and ``running`` calls are in flight: these may still end
        well, and as many have to fail first.
        """
        if sub is self._probe:
            self._wait_s = min(PROBE_MOST_S, self._wait_s * 2)
            self.undecided(sub, now_s)
            if not own:
                self.own_since_s = None
        if known is not None and (known is self._own or not own):
            return known
        window = self._own if own else self._away
        window.since = window.since if window.failed else number
        window.failed += 1
        if own and window.failed >= FAILURES_OWN:  # a success would have ended this window
            self.own_since_s = self.own_since_s or now_s
            self.start(now_s)
        enough = window.failed >= max(running, min(FAILURES, max(2, lanes)))
        if not own and enough and window.succeeded < HEALTHY * window.failed:
            self.start(now_s)
        return window

    def succeeded(self, begun: int, calls: int = 1) -> None:
        """Takes note of successes of calls that began after so many had failed."""
        if self._own.failed and begun >= self._own.since:
            self._own = Window()
        if self._away.failed and begun >= self._away.since:
            self._away.succeeded += calls
            if self._away.succeeded >= SUCCESSES:
                self._away = Window()

    def start(self, now_s: float) -> None:
        """Opens it, unless it is open."""
        if self.open:
            return
        self.open_since_s = now_s
        self.opened += 1
        self.turn += 1
        self._wait_s = PROBE_FIRST_S
        self._probe_at_s = now_s + PROBE_FIRST_S

    def stood_still(self, since_s: float, now_s: float) -> None:
        """Leaves a time out in which nothing could be tried."""
        if self.open_since_s is not None:
            self.open_since_s += now_s - max(since_s, self.open_since_s)
        if self.own_since_s is not None:
            self.own_since_s += now_s - max(since_s, self.own_since_s)

    def close(self) -> None:
        """Closes it, without a probe too."""
        self._probe = self.open_since_s = self.own_since_s = None
        self.turn += 1
        self._away, self._own = Window(), Window()

    def start_probe(self, sub: SubMessage) -> None:
        """Takes note of the sub-message that was let through."""
        self._probe = sub
        self.prefers_tried = not self.prefers_tried

    def undecided(self, sub: SubMessage, now_s: float) -> None:
        """Takes note of a probe that says nothing of the downstream: the next one may start."""
        if sub is self._probe:
            self._probe = None
            self._probe_at_s = now_s + self._wait_s

    def ended(self, sub: SubMessage) -> bool:
        """Takes note of a sub-message that is done. Whether that closed it."""
        if not self.open or sub is not self._probe:
            return False
        self.close()
        return True
