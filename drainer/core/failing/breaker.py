"""The circuit breaker: stops new work while the downstream is away, and notices when it is back.

After Nygard, "Release It!" (2007). Told of failures only: how much succeeded between them follows
from the count of what is done, so that success costs nothing.
"""

from __future__ import annotations

from collections import deque

from drainer.message import SubMessage

FAILURES = 50  # first attempts that failed, and are looked at together
SHARE = 0.8  # of all that ended meanwhile; with this many it is the downstream, not the messages
WINDOW_S = 10.0  # and they failed within this time; however long, when nothing succeeded meanwhile
PROBE_FIRST_S = 0.5
PROBE_MOST_S = 5.0


class Breaker:
    """Closed while all is well. Open, it lets one sub-message at a time through: a probe.

    Only what never failed before counts: the retries of a few bad messages, which are all that is
    left at the end of a backlog, are no outage.
    """

    def __init__(self) -> None:
        self.open_since_s: float | None = None
        self.opened = 0  # times
        self._failures: deque[tuple[float, int]] = deque(maxlen=FAILURES)  # when, and done by then
        self._probe: SubMessage | None = None
        self._probe_at_s = 0.0
        self._wait_s = PROBE_FIRST_S

    @property
    def open(self) -> bool:
        return self.open_since_s is not None

    @property
    def probe_at_s(self) -> float | None:
        """When the next probe may start; None while one is under way, or none is needed."""
        return self._probe_at_s if self.open and self._probe is None else None

    def failed(self, sub: SubMessage, done: int, now_s: float) -> bool:
        """Hears of a failed attempt. Whether that opened it."""
        if self.open:
            if sub is self._probe:
                self._probe = None
                self._wait_s = min(PROBE_MOST_S, self._wait_s * 2)
                self._probe_at_s = now_s + self._wait_s
            return False
        if getattr(sub, "failures", 0):
            return False
        self._failures.append((now_s, done))
        if len(self._failures) < FAILURES:
            return False
        first_s, done_then = self._failures[0]
        succeeded = done - done_then
        if succeeded and now_s - first_s > WINDOW_S:
            return False  # with none at all, a lane or two that fail slowly are an outage too
        if SHARE * (FAILURES + succeeded) > FAILURES:
            return False
        self.open_since_s = now_s
        self.opened += 1
        self._wait_s = PROBE_FIRST_S
        self._probe_at_s = now_s + PROBE_FIRST_S
        return True

    def undecided(self, sub: SubMessage, now_s: float) -> None:
        """Hears of one that asked to be called later, which tells nothing."""
        if sub is self._probe:
            self._probe = None
            self._probe_at_s = now_s + self._wait_s

    def start_probe(self, sub: SubMessage) -> None:
        """Notes which sub-message was let through."""
        self._probe = sub

    def ended(self, sub: SubMessage) -> bool:
        """Hears of one that is done. Whether that closed it."""
        if not self.open or sub is not self._probe:
            return False
        self._probe = self.open_since_s = None
        self._failures.clear()
        return True
