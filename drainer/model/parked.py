"""Parked lanes by name, for people: the summary, the report and the plan list the first of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from drainer.mask import mask_text, masking
from drainer.model.codec import JsonRecord, Whole

NAMED_MOST = 1_000  # by a plan; the others are counted
SHOWN_MOST = 20
KEY_LENGTH = 1_000  # characters


@dataclass(frozen=True, slots=True)
class ParkedLane:
    """One lane and what it waits for."""

    key: str  # ``repr`` of its sub-key, or ``partition N`` when a barrier holds back all of one
    # Of the sub-message that failed, as topic/partition/offset[index]. It is the first one pending,
    # unless it became a dead letter.
    place: str
    error: str

    def shown(self) -> dict[str, str]:
        """The lane for people, masked if masking is on."""
        error = self.error.partition(":")[0] if masking() else self.error
        return {"key": mask_text(self.key), "place": self.place, "error": error}


@dataclass(frozen=True, slots=True)
class ParkedLanes(JsonRecord):
    """Lanes that a run left parked: the number, and the first of them by name."""

    total: Whole = 0
    first: tuple[ParkedLane, ...] = ()

    def of(self, keys: Iterable[str]) -> tuple[ParkedLane, ...]:
        """Named lanes that have one of these keys."""
        known = {key[:KEY_LENGTH] for key in keys}
        return tuple(lane for lane in self.first if lane.key in known)

    def shown(self) -> list[dict[str, str]]:
        """The lanes that a person is shown, masked if masking is on."""
        return [lane.shown() for lane in self.first[:SHOWN_MOST]]

    @property
    def more(self) -> int:
        """The number of lanes that ``shown`` leaves out."""
        return max(0, self.total - len(self.first[:SHOWN_MOST]))

    def merge(self, later: ParkedLanes) -> ParkedLanes:
        """Merge with what another task left, or this one later; each lane is named once."""
        lanes: dict[str, ParkedLane] = {}
        for lane in (*self.first, *later.first):
            lanes.setdefault(lane.key, lane)
        return ParkedLanes(later.total, tuple(lanes.values())[:NAMED_MOST])


NONE_PARKED = ParkedLanes()
