"""That retention is nearer than the end of the drain, in words."""

from __future__ import annotations

from drainer.view import figures


def retention_warning(
    in_s: float, by: str, partition: int, offset: int | None, drained_in_s: float | None = None
) -> str:
    """When the head of a backlog may go, and when the drain would end if that is known."""
    when = f"in {figures.duration(in_s)}" if in_s > 0 else "at any moment"
    words = f"retention may delete the head of the backlog {when}"
    if drained_in_s is not None:
        words += f", and draining it takes about {figures.duration(drained_in_s)}"
    return f"{words}: {by}, offset {offset} of partition {partition}"
