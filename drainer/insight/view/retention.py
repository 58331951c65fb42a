"""That retention is nearer than the end of the drain, in words."""

from __future__ import annotations

from drainer.insight.retention import Doomed
from drainer.view import figures

NEAR_S = 24 * 3600  # where nobody knows how long a drain takes


def doomed_warning(doomed: Doomed | None, drained_in_s: float | None) -> str | None:
    """That the head of a backlog may go before it is drained; None when there is time.

    ``drained_in_s`` is how long a drain takes, when that is known.
    """
    if doomed is None or doomed.in_s >= (NEAR_S if drained_in_s is None else drained_in_s):
        return None
    when = f"in {figures.duration(doomed.in_s)}" if doomed.in_s > 0 else "at any moment"
    words = f"retention may delete the head of the backlog {when}"
    if drained_in_s is not None:
        words += f", and draining it takes about {figures.duration(drained_in_s)}"
    return f"{words}: {doomed.by}, offset {doomed.offset} of partition {doomed.partition}"
