"""That retention is nearer than the end of the drain, in words."""

from __future__ import annotations

from drainer.insight.retention import Expiry
from drainer.view import figures

NEAR_S = 24 * 3600  # where nobody knows how long a drain takes


def expiry_warning(expiry: Expiry | None, drained_in_s: float | None) -> str | None:
    """That the head of a backlog may go before it is drained; None when there is time.

    ``drained_in_s`` is how long a drain takes, when that is known.
    """
    if expiry is None or expiry.in_s >= (NEAR_S if drained_in_s is None else drained_in_s):
        return None
    when = f"in {figures.duration(expiry.in_s)}" if expiry.in_s > 0 else "at any moment"
    words = f"retention may delete the head of the backlog {when}"
    if drained_in_s is not None:
        words += f", and draining it takes about {figures.duration(drained_in_s)}"
    return f"{words}: {expiry.by}, offset {expiry.offset} of partition {expiry.partition}"
