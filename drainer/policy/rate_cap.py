"""Limits of a flow of messages, which keep it smoothly below what the brokers tolerate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import monotonic

from drainer.errors import LimitsRefused
from drainer.model.rate_cap import Cap, CapCurve, CapStatus
from drainer.model.status import Status

BURST_S = 0.2  # of the cap may come at once: threads and event loops are not on time
HALF_LIFE = 100  # messages, of what the mean size is made of: soon right when it changes
BINDS_S = 1.0  # a cap that delayed something so long ago still binds


class RateLimiter:
    """A token bucket, filled at the rate of the cap at the mean size of what flows, which moves.

    ``share`` of the cap is meant, when others flow beside this one. It counts in time: so many
    messages take so many seconds of the flow, and the next may come when those are over. Sizes at
    which nothing was safe have the cap of those before them.

    One thread uses it; others may read its figures, and set its share.
    """

    def __init__(self, curve: CapCurve, share: float = 1.0, message_bytes: float = 1.0) -> None:
        """``message_bytes`` is the mean size until something has flowed.

        Raises LimitsRefused when the curve allows for nothing at that size.
        """
        self._curve = curve
        self.share = share
        self._messages = self._bytes = 0.0  # that the mean is made of
        self._free_s = float("-inf")
        self._bound_s = float("-inf")
        self.cap = curve.cap(message_bytes)
        self.flowed = self.flowed_bytes = 0

    @property
    def messages_per_s(self) -> float:
        """Messages per second that may flow now."""
        return self.share * self.cap.messages_per_s

    @property
    def bytes_per_s(self) -> float:
        """Bytes of keys and values per second that may flow now."""
        return self.share * self.cap.bytes_per_s

    @property
    def overall(self) -> Cap:
        """The cap at the mean size of all that has flowed."""
        return self._at(max(1.0, self.flowed_bytes / self.flowed)) if self.flowed else self.cap

    def status(self, now_s: float, elapsed_s: float, *, over: bool) -> CapStatus | None:
        """Return how the flow stands to its cap, or all that has flowed once it is ``over``.

        Returns None if nothing has flowed.
        """
        if not self.flowed:
            return None
        cap = self.overall if over else self.cap
        return CapStatus.of(cap, self.flowed, elapsed_s, binds=self.binds(now_s))

    def binds(self, now_s: float) -> bool:
        """Whether it has delayed anything lately."""
        return now_s - self._bound_s < BINDS_S

    def allowed(self, now_s: float) -> int:
        """Return how many messages may come now, of the size that they had so far."""
        credit_s = min(BURST_S, now_s - self._free_s)
        if credit_s < 0:
            self._bound_s = now_s
            return 0
        return max(1, int(credit_s * self.messages_per_s))

    def next_s(self, now_s: float, messages: int = 1) -> float:
        """Return how long until so many may come, or all that a burst has."""
        burst = min(messages / self.messages_per_s, BURST_S)
        return max(0.0, self._free_s + burst - now_s)

    def came(self, now_s: float, messages: int, size: int) -> None:
        """Record that so many came, with so many bytes of keys and values."""
        if not messages:
            return
        self._measure(messages, size)
        self._free_s = max(self._free_s, now_s - BURST_S) + messages / self.messages_per_s

    def book(self, now_s: float, size: int, most_s: float) -> float:
        """After how many seconds one of this size may go; nothing is booked above ``most_s``."""
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
        except LimitsRefused:  # nothing was safe at that size
            return self.cap


class BrokerCaps:
    """The brokers' limits of a drain at work: limiters of what it reads and of what it writes.

    Both are None if there are no limits.
    """

    def __init__(
        self,
        curve: CapCurve | None,
        message_bytes: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """``message_bytes`` is the mean size of what is read, until something was read."""
        self._clock = clock
        self.reading = self.writing = None
        if curve is not None:
            self.reading = RateLimiter(curve.reading, message_bytes=message_bytes)
            self.writing = RateLimiter(curve)

    def complete_status(self, status: Status, *, over: bool) -> Status:
        """Add to a status how the drain stands to its caps, or stood once it is ``over``."""
        found = [
            None if each is None else each.status(self._clock(), status.timing.elapsed_s, over=over)
            for each in (self.reading, self.writing)
        ]
        limits = replace(status.limits, read_cap=found[0], write_cap=found[1])
        return replace(status, limits=limits)
