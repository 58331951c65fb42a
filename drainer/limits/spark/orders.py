"""What the driver orders of the tasks that host traffic: one line, said again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drainer.limits.search.point import Point

TELL_S = 0.2  # between two tellings
SILENCE_S = 1.0  # without any a task stops its traffic
REPORT_S = 0.25


@dataclass(frozen=True, slots=True)
class TrafficOrder:
    """What to do until the next one.

    Attributes:
        number: rises from order to order.
        point: the traffic to make, of all tasks; None for none.
        groups: how many of the groups read.
        skips: how often the groups had to skip what they had not read yet.
        over: the task may end.
    """

    number: int
    point: Point | None = None
    groups: int = 0
    skips: int = 0
    over: bool = False

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TrafficOrder:
        """Raises KeyError, TypeError or ValueError when the body is no order."""
        point = body["point"]
        return cls(
            number=body["number"],
            point=None if point is None else Point.from_json(point),
            groups=body["groups"],
            skips=body["skips"],
            over=body["over"],
        )


def share(whole: int, tasks: int, task: int) -> int:
    """How many of the whole one task has when they are spread evenly."""
    return whole // tasks + (task < whole % tasks)
