"""The brokers' limits of a drain in words: what it may read or write, and how fast it went."""

from __future__ import annotations

from collections.abc import Iterator

from drainer.model.rate_cap import Cap, CapsStatus, CapStatus
from drainer.view import figures
from drainer.view.page import Field


def words(cap: Cap | CapStatus) -> str:
    """Return ``12,345 messages/s, 12 MiB/s``."""
    size = figures.size(round(cap.bytes_per_s))
    return f"{figures.rate(cap.messages_per_s)} messages/s, {size}/s"


def fields_before(cap: Cap | None, messages: float = 0) -> Iterator[Field]:
    """Yield how fast a drain may read, and how long it takes at least to read these messages."""
    if cap is None:
        return
    mean = figures.size(round(cap.message_bytes))
    yield Field("limits", words(cap), f"maximum that drainer reads; {mean} per message")
    if messages:
        took = figures.duration(messages / cap.messages_per_s)
        yield Field("", f"reading the backlog takes at least {took}")


def fields_after(caps: CapsStatus, ahead_per_s: float) -> Iterator[Field]:
    """Yield how fast a drain went, compared with what the limits allowed.

    ``ahead_per_s`` is how many messages per second were read, and not finished in the end: if they
    are many, something other than reading limited the run.
    """
    caps_of = ("read", caps.read_cap, ahead_per_s), ("written", caps.write_cap, 0.0)
    for what, cap, ahead in caps_of:
        if cap is not None and cap.average_per_s:
            went = f"{figures.rate(cap.average_per_s)} messages/s {what}, of {words(cap)}"
            yield Field("limits", went, "this limited the run" if cap.limited(ahead) else "")
