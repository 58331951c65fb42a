"""What a measurement of limits was asked to do; a search is only resumed with the same."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta

from drainer.limits.search.overload import Thresholds
from drainer.limits.search.point import AboveZero, Amount, Count, Point, Positive

TRIALS_MOST = 14  # of one search, unless said otherwise

Value = int | str  # of an axis


class Axis(StrEnum):
    """What is varied; there is a boundary for each of its values."""

    MESSAGE_BYTES = "message-bytes"
    CONSUMER_GROUPS = "consumer-groups"
    PARTITIONS = "partitions"
    COMPRESSION = "compression"

    @property
    def field(self) -> str:
        """Its name among the fields of a point."""
        return self.value.replace("-", "_")

    def of(self, point: Point) -> Value:
        """A point's value on this axis."""
        found: Value = getattr(point, self.field)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person asks for, and what a file of limits keeps of it.

    Attributes:
        axis: what is varied, over ``values``. The field of that name below says nothing then.
        producers_most: one more than that is never tried.
        precision: width of the range that is good enough, as a share of its safe end.
        safe_share: of the boundary, that a drain may use; 0.8, as a fifth of the brokers may be
            out.
        window_s: for how long a trial is observed, warm-up apart.
    """

    axis: Axis
    values: tuple[Value, ...]
    producers_most: Positive
    message_bytes: Positive = 1024
    consumer_groups: Count = 5
    partitions: Positive = 10
    compression: str = "none"
    compressibility: Amount = 0.0
    precision: AboveZero = 0.05
    safe_share: Annotated[float, Meta(gt=0, le=1)] = 0.8
    trials_most: Positive = TRIALS_MOST
    window_s: AboveZero = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings(Asked):
    """What was asked, on a cluster.

    Attributes:
        pace_bytes_per_s: of one producer. Its messages/s follow from the size of a message.
        jmx: whether brokers were asked over JMX.
    """

    pace_bytes_per_s: AboveZero
    jmx: bool = False
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        kind = str if self.axis is Axis.COMPRESSION else int
        same = len(set(self.values)) < len(self.values)
        if not self.values or same or not all(isinstance(value, kind) for value in self.values):
            raise ValueError(f"{list(self.values)!r} are not values of an axis, each once")

    @property
    def bytes_per_s_most(self) -> float:
        """That all producers together send at most."""
        return self.producers_most * self.pace_bytes_per_s

    def most(self, axis: Axis) -> int:
        """The largest value of an axis that is tried."""
        if self.axis is axis:
            return max(int(value) for value in self.values)
        found: int = getattr(self, axis.field)
        return found

    def point(self, value: Value, producers: int) -> Point:
        """The traffic of so many producers at this value of the axis."""
        shape: dict[str, Any] = {
            "message_bytes": self.message_bytes,
            "consumer_groups": self.consumer_groups,
            "partitions": self.partitions,
            "compression": self.compression,
            self.axis.field: value,
        }
        pace = self.pace_bytes_per_s / shape["message_bytes"]
        return Point(producers=producers, pace=pace, compressibility=self.compressibility, **shape)

    def differences(self, other: LimitSettings) -> tuple[str, ...]:
        """Names of the settings in which another differs."""
        names = [each.name for each in fields(self)]
        return tuple(name for name in names if getattr(self, name) != getattr(other, name))
