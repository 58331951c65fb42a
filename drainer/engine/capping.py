"""How a flow stands to the cap that it is held to."""

from __future__ import annotations

from time import monotonic

from drainer.engine.status import CapStatus
from drainer.policy.rate_cap import Cap, RateLimiter


def cap_status(
    pace: RateLimiter | None, elapsed_s: float, *, over: bool = False
) -> CapStatus | None:
    """Of a flow of this process, or of all that has flowed once it is ``over``; None when it is not
    capped, or nothing has flowed."""
    if pace is None or not pace.flowed:
        return None
    cap = pace.overall if over else pace.cap
    return capped(cap, pace.flowed, elapsed_s, binds=pace.binds(monotonic()))


def capped(cap: Cap, flowed: float, elapsed_s: float, *, binds: bool) -> CapStatus:
    """Of a flow of which so many messages have come."""
    return CapStatus(
        messages_per_s=cap.messages_per_s,
        bytes_per_s=cap.bytes_per_s,
        message_bytes=cap.message_bytes,
        average_per_s=flowed / elapsed_s if elapsed_s > 0 else 0.0,
        binds=binds,
    )
