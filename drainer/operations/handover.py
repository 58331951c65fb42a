"""Taking over what a group's commits tell: which messages above its offsets are finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from drainer.core import handover
from drainer.core.progress import Progress
from drainer.kafka.backlog import Backlog, Committed, From, PartitionBacklog


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What a new drain begins with, by partition, and what a person should know of it."""

    progress: Mapping[int, Progress]
    checks: tuple[str, ...]
    warnings: tuple[str, ...]


def take_over(backlog: Backlog, from_: From) -> TakenOver:
    """Reads the metadata of the group's commits.

    Only a drain that starts at the committed offset leaves out what it tells; who names another
    start wants all from there.
    """
    progress: dict[int, Progress] = {}
    checks: list[str] = []
    warnings: list[str] = []
    for number, part in backlog.partitions.items():
        progress[number] = begun = Progress(part.start)
        told = _within(part)
        if told is None:
            warnings.append(
                f"partition {number}: the commit's metadata is of no format that is known here: it"
                " is left alone, and stays beside the offsets that this drain commits"
            )
        elif told.finished and isinstance(from_, Committed):
            progress[number] = begun.merge(told)
            checks.append(
                f"partition {number}: {_offsets(told):,} offsets above {part.committed} are"
                " finished already by the commit's metadata, and won't be handled again; a message"
                " that was finished only in part will be, whole"
            )
        elif told.finished:
            warnings.append(
                f"partition {number}: {_offsets(told):,} offsets are finished already by the"
                f" commit's metadata, and are handled again, as --from {from_} says"
            )
    return TakenOver(progress, tuple(checks), tuple(warnings))


def _within(part: PartitionBacklog) -> Progress | None:
    # As progress that begins at the start; None when nobody here can read it.
    told = handover.decode(part.committed or 0, part.metadata)
    if told is None:
        return None
    clipped = ((max(first, part.start), min(end, part.end)) for first, end in told)
    return Progress(part.start, tuple((first, end) for first, end in clipped if first < end))


def _offsets(progress: Progress) -> int:
    return sum(end - first for first, end in progress.finished)
