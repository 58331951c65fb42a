"""Parked lanes by name, for people: the summary, the report and the plan list the first of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from drainer.core import fields
from drainer.mask import mask_text, masking

NAMED_MOST = 1_000  # by a plan; the others are counted
SHOWN_MOST = 20
KEY_LENGTH = 1_000  # characters


@dataclass(frozen=True, slots=True)
class ParkedLane:
    """One lane and what it waits for.

    Attributes:
        key: ``repr`` of its sub-key, or ``partition N`` when a barrier holds back all of one.
        place: of the sub-message that failed, as topic/partition/offset[index]. It is the first
            one pending, unless it became a dead letter.
        error: how it failed.
    """

    key: str
    place: str
    error: str

    def as_json(self) -> dict[str, str]:
        """As the plan has it."""
        return {"key": self.key, "place": self.place, "error": self.error}

    def shown(self) -> dict[str, str]:
        """The same for people, masked if that was asked for."""
        error = self.error.partition(":")[0] if masking() else self.error
        return {"key": mask_text(self.key), "place": self.place, "error": error}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ParkedLane:
        """Raises KeyError or TypeError when the body is not what was written."""
        return cls(*(fields.text(body[name]) for name in ("key", "place", "error")))


@dataclass(frozen=True, slots=True)
class ParkedLanes:
    """How many lanes a run left parked, and the first of them by name."""

    total: int = 0
    first: tuple[ParkedLane, ...] = ()

    def of(self, keys: Iterable[str]) -> tuple[ParkedLane, ...]:
        """Those named that have one of these keys."""
        known = {key[:KEY_LENGTH] for key in keys}
        return tuple(lane for lane in self.first if lane.key in known)

    def shown(self) -> list[dict[str, str]]:
        """As many as people read, masked if that was asked for."""
        return [lane.shown() for lane in self.first[:SHOWN_MOST]]

    @property
    def more(self) -> int:
        """How many are not ``shown``."""
        return max(0, self.total - len(self.first[:SHOWN_MOST]))

    def merge(self, later: ParkedLanes) -> ParkedLanes:
        """With those that another task left, or this one later; each is told of once."""
        lanes: dict[str, ParkedLane] = {}
        for lane in (*self.first, *later.first):
            lanes.setdefault(lane.key, lane)
        return ParkedLanes(later.total, tuple(lanes.values())[:NAMED_MOST])

    def as_json(self) -> dict[str, Any]:
        return {"total": self.total, "first": [lane.as_json() for lane in self.first]}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ParkedLanes:
        """Raises KeyError or TypeError when the body is not what was written."""
        first = fields.listed(body["first"])
        return cls(fields.whole(body["total"]), tuple(map(ParkedLane.from_json, first)))


NONE_PARKED = ParkedLanes()
