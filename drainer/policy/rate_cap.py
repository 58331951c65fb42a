"""Rate limiters, which keep a flow of messages smoothly below what the brokers tolerate."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

from drainer.errors import LimitsRefused
from drainer.model.rate_cap import Cap, CapCurve, CapsStatus, CapStatus
from drainer.model.status import Status

# The messages of this many seconds may come at once, because threads and event loops may be late.
BURST_S = 0.2
# In the mean size, a message counts half as much after this many further messages, so that the mean
# soon follows a change.
HALF_LIFE = 100
BINDS_S = 1.0  # A cap binds for this long after it has delayed something.


class RateLimiter:
    """A token bucket that is filled at the rate of a cap.

    The cap depends on the mean size of the messages that flow. Each message takes up some time, and
    the next may come when that time is over. If the mean reaches a size at which nothing was safe,
    the last cap stays.

    One thread uses the limiter. Other threads may read its figures, and set its share.

    Args:
        curve: the caps by size. Raises LimitsRefused if it allows nothing at ``message_bytes``.
        share: the share of the cap that this flow may use, if there are others beside it.
        message_bytes: the mean size until something has flowed.
    """

    def __init__(self, curve: CapCurve, share: float = 1.0, message_bytes: float = 1.0) -> None:
        self._curve = curve
        self.share = share
        # The numbers of messages and bytes for the mean size, in which old messages count less.
        self._messages = self._bytes = 0.0
        self._free_s = float("-inf")  # When the next message may come.
        self._bound_s = float("-inf")  # When the cap last delayed something.
        self.cap = curve.cap(message_bytes)
        self.flowed = self.flowed_bytes = 0

    @property
    def messages_per_s(self) -> float:
        """The messages per second that may flow now."""
        return self.share * self.cap.messages_per_s

    @property
    def bytes_per_s(self) -> float:
        """The bytes of keys and values per second that may flow now."""
        return self.share * self.cap.bytes_per_s

    @property
    def overall(self) -> Cap:
        """The cap at the mean size of all that has flowed."""
        return self._at(max(1.0, self.flowed_bytes / self.flowed)) if self.flowed else self.cap

    def status(self, now_s: float, elapsed_s: float, *, over: bool) -> CapStatus | None:
        """Return the cap and the flow for a status; None if nothing has flowed.

        The cap is that of the mean size now, or of all that has flowed once the run is ``over``.
        """
        if not self.flowed:
            return None
        cap = self.overall if over else self.cap
        return CapStatus.of(cap, self.flowed, elapsed_s, binds=self.binds(now_s))

    def binds(self, now_s: float) -> bool:
        """Return whether the cap has delayed anything lately."""
        return now_s - self._bound_s < BINDS_S

    def allowed(self, now_s: float) -> int:
        """Return how many messages of the mean size may come now."""
        credit_s = min(BURST_S, now_s - self._free_s)
        if credit_s < 0:
            self._bound_s = now_s
            return 0
        return max(1, int(credit_s * self.messages_per_s))

    def next_s(self, now_s: float, messages: int = 1) -> float:
        """Return the seconds until this many messages may come at once.

        No more than a burst may come at once, so the wait is at most that for a burst.
        """
        burst = min(messages / self.messages_per_s, BURST_S)
        return max(0.0, self._free_s + burst - now_s)

    def came(self, now_s: float, messages: int, size: int) -> None:
        """Note that messages came, with ``size`` bytes of keys and values in all."""
        if not messages:
            return
        self._measure(messages, size)
        self._free_s = max(self._free_s, now_s - BURST_S) + messages / self.messages_per_s

    def book(self, now_s: float, size: int, most_s: float) -> float:
        """Return in how many seconds a message of this size may go, and reserve its place.

        If that takes longer than ``most_s``, no place is reserved.
        """
        wait_s = self._free_s - now_s
        if wait_s > 0:
            self._bound_s = now_s
        if wait_s <= most_s:
            self.came(now_s, 1, size)
        return max(0.0, wait_s)

    def _measure(self, messages: int, size: int) -> None:
        kept = 0.5 ** (messages / HALF_LIFE)
        self._messages = self._messages * kept + messages
        self._bytes = self._bytes * kept + size
        self.flowed += messages
        self.flowed_bytes += size
        mean = max(1.0, self._bytes / self._messages)
        if abs(mean - self.cap.message_bytes) > 0.01 * self.cap.message_bytes:
            self.cap = self._at(mean)

    def _at(self, message_bytes: float) -> Cap:
        try:
            return self._curve.cap(message_bytes)
        except LimitsRefused:  # Nothing was safe at that size.
            return self.cap


class BrokerCaps:
    """The rate limiters of a drain: one for what it reads, and one for what it writes.

    Both are None if the drain has no broker limits.

    Args:
        cap: the cap on reading until something was read; None if it is not known yet.
    """

    def __init__(self, curve: CapCurve | None, cap: Cap | None) -> None:
        self.reading = self.writing = None
        if curve is not None:
            message_bytes = 1.0 if cap is None else cap.message_bytes
            self.reading = RateLimiter(curve.reading, message_bytes=message_bytes)
            self.writing = RateLimiter(curve)

    def complete_status(self, status: Status, over: bool) -> Status:
        """Add the caps to a status. It is the last status of a run if the run is ``over``."""
        found = [
            None if each is None else each.status(monotonic(), status.timing.elapsed_s, over=over)
            for each in (self.reading, self.writing)
        ]
        return replace(status, caps=CapsStatus(*found))
