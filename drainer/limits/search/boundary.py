"""The boundary of what brokers bear: one for each value of the varied axis, and what it allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from drainer.core import fields
from drainer.errors import LimitsRefused
from drainer.limits.search.found import End, Found
from drainer.limits.search.point import Point, Trial, Verdict, above_zero, not_negative
from drainer.limits.search.settings import Axis, LimitSettings, Value
from drainer.policy.rate_cap import CapCurve, CapPoint

FORMAT = 1

_AGAIN = "measure them again with `drainer limits --out FILE`"
_LOWER_BOUNDS = (End.MOST, End.CLIENTS)


@dataclass(frozen=True, slots=True)
class Boundary:
    """How much the brokers bear at one value of the varied axis.

    Attributes:
        value: of the axis; the message size in bytes, unless another axis is varied.
        point: traffic at the safe end, which counts as the boundary. ``point.producers`` is 0 when
            no traffic was safe.
        overloaded_producers: the least that overloaded the brokers; None when none did.
        messages_per_s: that the brokers acknowledged at the safe end.
        low: messages/s that the boundary is above, with some 95% probability.
        high: and below; None when it may be anywhere above.
        trials: that it took.
        end: why the search ended.
        why: the signals that decided at the overloaded end, in words, or why clients could do no
            more.
    """

    value: Value
    point: Point
    overloaded_producers: int | None
    messages_per_s: float
    low: float
    high: float | None
    trials: int
    end: End
    why: tuple[str, ...] = ()

    @classmethod
    def of(cls, axis: Axis, point: Point, found: Found, trials: Sequence[Trial]) -> Boundary:
        """What a search found. ``point`` is any of its points, ``trials`` are all of this value."""
        safe = replace(point, producers=found.safe)
        sent = [
            trial.signals.sent_per_s
            for trial in trials
            if trial.point.producers == found.safe and trial.judgement.verdict is Verdict.SAFE
        ]
        if found.end is End.CLIENTS:
            against = [t for t in trials if t.judgement.verdict is Verdict.CLIENTS]
        else:
            against = [
                trial
                for trial in trials
                if trial.point.producers == found.overloaded
                and trial.judgement.verdict is Verdict.OVERLOADED
            ]
        return cls(
            value=axis.of(point),
            point=safe,
            overloaded_producers=found.overloaded,
            messages_per_s=median(sent) if sent else safe.messages_per_s,
            low=found.low * point.pace,
            high=None if found.high is None else found.high * point.pace,
            trials=found.trials,
            end=found.end,
            why=against[-1].judgement.why if against else (),
        )

    @property
    def message_bytes(self) -> int:
        return self.point.message_bytes

    @property
    def safe_producers(self) -> int:
        return self.point.producers

    @property
    def bytes_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes

    @property
    def is_lower_bound(self) -> bool:
        """Whether the brokers bear more than could be tried."""
        return self.end in _LOWER_BOUNDS

    def as_json(self) -> dict[str, Any]:
        """With ``bytes_per_s`` for readers."""
        return {
            "value": self.value,
            "point": self.point.as_json(),
            "overloaded_producers": self.overloaded_producers,
            "messages_per_s": self.messages_per_s,
            "bytes_per_s": self.bytes_per_s,
            "low": self.low,
            "high": self.high,
            "trials": self.trials,
            "end": self.end.value,
            "why": list(self.why),
        }

    @classmethod
    def from_json(cls, axis: Axis, body: Mapping[str, Any]) -> Boundary:
        """Raises KeyError, TypeError or ValueError when the body is no boundary."""
        found = cls(
            value=axis.value_from(body["value"]),
            point=Point.from_json(body["point"]),
            overloaded_producers=fields.optional(fields.whole, body["overloaded_producers"]),
            messages_per_s=not_negative(fields.number_of(body["messages_per_s"])),
            low=not_negative(fields.number_of(body["low"])),
            high=fields.optional(fields.number_of, body["high"]),
            trials=not_negative(fields.whole(body["trials"])),
            end=End(body["end"]),
            why=fields.texts(body["why"]),
        )
        if found.value != axis.of(found.point):
            raise ValueError(f"the boundary of {found.value!r} is at another point")
        if found.high is not None and found.high < found.low:
            raise ValueError(f"the boundary of {found.value!r} lies between {found.low} and less")
        return found


@dataclass(frozen=True, slots=True)
class Limits:
    """All that was measured of a cluster, or as far as that got.

    ``at`` is when it began, in seconds since the epoch; ``baseline`` holds by value of the axis
    the round trip in ms of brokers without load.
    """

    cluster_id: str
    brokers: int
    at: float
    settings: LimitSettings
    baseline: Mapping[Value, float]
    trials: tuple[Trial, ...]
    boundaries: tuple[Boundary, ...]

    @property
    def complete(self) -> bool:
        """Whether there is a boundary for each value that was asked for."""
        return {each.value for each in self.boundaries} == set(self.settings.values)

    def boundary(self, value: Value) -> Boundary | None:
        """The one of this value; None when it is not known yet."""
        return next((each for each in self.boundaries if each.value == value), None)

    def trials_of(self, value: Value) -> tuple[Trial, ...]:
        """Those with this value of the varied axis, in their order."""
        return tuple(t for t in self.trials if self.settings.axis.of(t.point) == value)

    def bytes_per_s_a_broker(self, boundary: Boundary) -> float:
        """What producers may send, shared out over brokers; copies and readers not counted."""
        return boundary.bytes_per_s / self.brokers

    def curve(self) -> CapCurve:
        """What caps a drain.

        Raises LimitsRefused when sizes were not what was varied, or none was measured to its end.
        """
        if self.settings.axis is not Axis.MESSAGE_BYTES:
            raise LimitsRefused(
                f"these limits are of different {self.settings.axis.value}, not of message sizes",
                hint="measure sizes with `drainer limits --bytes …`",
            )
        if not self.boundaries:
            raise LimitsRefused("these limits have no boundary yet", hint=_AGAIN)
        return CapCurve(
            self.cluster_id,
            self.at,
            self.settings.safe_share,
            tuple(
                CapPoint(each.message_bytes, each.messages_per_s, each.is_lower_bound)
                for each in sorted(self.boundaries, key=lambda each: each.message_bytes)
            ),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "drainer_limits": FORMAT,
            "cluster_id": self.cluster_id,
            "brokers": self.brokers,
            "at": self.at,
            "settings": self.settings.as_json(),
            "baseline": {str(value): ms for value, ms in self.baseline.items()},
            "trials": [trial.as_json() for trial in self.trials],
            "boundaries": [boundary.as_json() for boundary in self.boundaries],
        }

    @classmethod
    def from_json(cls, body: object) -> Limits:
        """Raises LimitsRefused when the body is something else, newer or damaged."""
        if not isinstance(body, dict) or "drainer_limits" not in body:
            raise LimitsRefused("it is JSON, but no limits", hint=_AGAIN)
        version = body["drainer_limits"]
        if version != FORMAT or type(version) is not int:
            raise LimitsRefused(
                f"it has version {version!r} of the format; this drainer reads {FORMAT}",
                hint="use the drainer that wrote it, or " + _AGAIN,
            )
        try:
            return cls._from_json(body)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LimitsRefused(
                f"the limits are damaged: a field is missing or wrong: {error!r}", hint=_AGAIN
            ) from None

    @classmethod
    def _from_json(cls, body: Mapping[str, Any]) -> Limits:
        settings = LimitSettings.from_json(body["settings"])
        axis = settings.axis
        boundaries = tuple(
            Boundary.from_json(axis, each) for each in fields.listed(body["boundaries"])
        )
        values = [each.value for each in boundaries]
        if len(set(values)) < len(values) or not set(values) <= set(settings.values):
            raise ValueError(f"there are boundaries for {values!r}")
        return cls(
            cluster_id=fields.text(body["cluster_id"]),
            brokers=above_zero(fields.whole(body["brokers"])),
            at=fields.number_of(body["at"]),
            settings=settings,
            baseline={
                axis.value_from(value): above_zero(fields.number_of(ms))
                for value, ms in body["baseline"].items()
            },
            trials=tuple(Trial.from_json(each) for each in fields.listed(body["trials"])),
            boundaries=boundaries,
        )
