"""When retention may delete a record, at the earliest: where its segment ends nobody tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Retention:
    """What a topic does with old records.

    Attributes:
        policy: ``delete``, ``compact`` or both; empty when the user may not see the configuration.
        ms: records older than this are deleted; None for never.
        bytes: a partition keeps this much; None for all.
    """

    policy: str
    ms: int | None
    bytes: int | None

    @property
    def known(self) -> bool:
        """Whether the user may see it."""
        return bool(self.policy)

    @property
    def deletes(self) -> bool:
        """Whether records go by age or size."""
        limited = self.ms is not None or self.bytes is not None
        return "delete" in self.policy and limited

    @property
    def compacts(self) -> bool:
        """Whether a record goes when a later one has its key."""
        return "compact" in self.policy

    def as_json(self) -> dict[str, Any]:
        return {"policy": self.policy or None, "ms": self.ms, "bytes": self.bytes}


@dataclass(frozen=True, slots=True)
class Doom:
    """When a record may be deleted at the earliest.

    Attributes:
        in_s: seconds from now, 0 when it may happen at any moment.
        by: the setting that does it.
    """

    in_s: float
    by: str


def doom(
    retention: Retention,
    *,
    now_ms: int,
    timestamp_ms: int | None,
    bytes_behind: float | None,
    bytes_per_s: float,
) -> Doom | None:
    """When retention may delete a record; None when it won't, or that can't be told.

    It is a lower bound. Kafka deletes whole segments: by age once the newest record of the segment
    is too old, by size once what follows the segment is enough. Both come later than what is
    assumed here, that the record is the last one of its segment. And it looks every
    log.retention.check.interval.ms only.

    Args:
        timestamp_ms: of the record; None when it has none.
        bytes_behind: what the log holds from the record on; None when that is not known.
        bytes_per_s: what is added to the log.
    """
    if not retention.deletes:
        return None
    found: list[Doom] = []
    if retention.ms is not None and timestamp_ms is not None:
        found.append(Doom(max(0.0, (timestamp_ms + retention.ms - now_ms) / 1000), "retention.ms"))
    if retention.bytes is not None and bytes_behind is not None:
        room = retention.bytes - bytes_behind
        if room <= 0:
            found.append(Doom(0.0, "retention.bytes"))
        elif bytes_per_s > 0:
            found.append(Doom(room / bytes_per_s, "retention.bytes"))
    return min(found, key=lambda one: one.in_s, default=None)
