"""What was done with a drain, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from drainer.core.event import Event
from drainer.view import figures
from drainer.view.page import Column, Table, few

OFFSETS_SHOWN = 4  # partitions of an event


def events(history: Sequence[Event]) -> Table | None:
    """A row for each, the first thing first."""
    columns = (Column("when"), Column("what"), Column("by"), Column("details", wide=True))
    rows = tuple(map(_event_row, history))
    return Table(columns, rows, shown=len(rows)) if rows else None


def _event_row(event: Event) -> tuple[str, ...]:
    when = datetime.fromisoformat(event.at).astimezone()
    told = [*event.details]
    if event.offsets:
        stands = (f"{number}:{figures.offset(at)}" for number, at in event.offsets.items())
        told.append(f"group at {' '.join(few(tuple(stands), OFFSETS_SHOWN))}")
    if event.reason is not None:
        told.append(f"reason: {event.reason}")
    return f"{when:%Y-%m-%d %H:%M:%S}", event.what, event.by, "; ".join(told)
