"""What a measurement of limits was asked to do; a search is only gone on with under the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from dataclasses import fields as fields_of
from enum import StrEnum
from typing import Any

from drainer.core import fields
from drainer.limits.search.found import TRIALS_MOST
from drainer.limits.search.overload import Thresholds
from drainer.limits.search.point import Point, above_zero, not_negative

Value = int | str  # of an axis


class Axis(StrEnum):
    """What is varied; there is a boundary for each of its values."""

    MESSAGE_BYTES = "message-bytes"
    CONSUMER_GROUPS = "consumer-groups"
    PARTITIONS = "partitions"
    COMPRESSION = "compression"

    def of(self, point: Point) -> Value:
        """A point's value on this axis."""
        found: Value = getattr(point, self.value.replace("-", "_"))
        return found

    def value_from(self, given: object) -> Value:
        """A value as JSON has it, as itself or as a key. Raises TypeError or ValueError."""
        if self is Axis.COMPRESSION:
            return fields.text(given)
        return fields.number(given) if isinstance(given, str) else fields.whole(given)


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What was asked.

    Attributes:
        axis: what is varied, over ``values``. The field of that name below says nothing then.
        pace_bytes_per_s: of one producer. Its messages/s follow from the size of a message.
        producers_most: one more than that is never tried.
        precision: width of the range that is good enough, as a share of its safe end.
        safe_share: of the boundary, that a drain may use; 0.8, as a fifth of the brokers may be
            out.
        window_s: for how long a trial is observed, warm-up apart.
        jmx: whether brokers were asked over JMX.
    """

    axis: Axis
    values: tuple[Value, ...]
    pace_bytes_per_s: float
    producers_most: int
    message_bytes: int = 1024
    consumer_groups: int = 5
    partitions: int = 10
    compression: str = "none"
    compressibility: float = 0.0
    precision: float = 0.05
    safe_share: float = 0.8
    trials_most: int = TRIALS_MOST
    window_s: float = 30.0
    jmx: bool = False
    thresholds: Thresholds = field(default_factory=Thresholds)

    @property
    def bytes_per_s_most(self) -> float:
        """That all producers together send at most."""
        return self.producers_most * self.pace_bytes_per_s

    def differences(self, other: LimitSettings) -> tuple[str, ...]:
        """Names of the settings in which another differs."""
        return tuple(
            each.name
            for each in fields_of(self)
            if getattr(self, each.name) != getattr(other, each.name)
        )

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "axis": self.axis.value, "values": list(self.values)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> LimitSettings:
        """Raises KeyError, TypeError or ValueError when the body is something else."""
        axis = Axis(body["axis"])
        values = tuple(axis.value_from(value) for value in fields.listed(body["values"]))
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{list(values)!r} are no values of an axis, each once")
        safe_share = above_zero(fields.number_of(body["safe_share"]))
        if safe_share > 1:
            raise ValueError(f"a safe share of {safe_share} is more than there is")
        return cls(
            axis=axis,
            values=values,
            pace_bytes_per_s=above_zero(fields.number_of(body["pace_bytes_per_s"])),
            producers_most=above_zero(fields.whole(body["producers_most"])),
            message_bytes=above_zero(fields.whole(body["message_bytes"])),
            consumer_groups=not_negative(fields.whole(body["consumer_groups"])),
            partitions=above_zero(fields.whole(body["partitions"])),
            compression=fields.text(body["compression"]),
            compressibility=not_negative(fields.number_of(body["compressibility"])),
            precision=above_zero(fields.number_of(body["precision"])),
            safe_share=safe_share,
            trials_most=above_zero(fields.whole(body["trials_most"])),
            window_s=above_zero(fields.number_of(body["window_s"])),
            jmx=fields.yes_or_no(body["jmx"]),
            thresholds=Thresholds(
                **{
                    each.name: fields.number_of(body["thresholds"][each.name])
                    for each in fields_of(Thresholds)
                }
            ),
        )
