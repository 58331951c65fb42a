"""The boundary of what brokers bear: one for each value of the varied axis, and what it allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from statistics import median
from typing import Any

import msgspec

from drainer.errors import LimitsRefused
from drainer.limits.search.point import (
    MEASURED,
    AboveZero,
    Amount,
    Count,
    End,
    Found,
    Point,
    Positive,
    Trial,
    Verdict,
)
from drainer.limits.search.settings import Axis, LimitSettings, Value
from drainer.policy.rate_cap import CapCurve, CapPoint

FORMAT = 1

_AGAIN = "measure them again with `drainer limits --out FILE`"


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
        bytes_per_s: the same as ``messages_per_s``, for readers of a file.
    """

    value: Value
    point: Point
    overloaded_producers: int | None
    messages_per_s: Amount
    low: Amount
    high: float | None
    trials: Count
    end: End
    why: tuple[str, ...] = ()
    bytes_per_s: float = field(init=False)

    def __post_init__(self) -> None:
        if self.high is not None and self.high < self.low:
            raise ValueError(f"the boundary of {self.value!r} lies between {self.low} and less")
        object.__setattr__(self, "bytes_per_s", self.messages_per_s * self.message_bytes)

    @classmethod
    def of(cls, value: Value, point: Point, found: Found, trials: Sequence[Trial]) -> Boundary:
        """What a search found. ``point`` is at the safe end, ``trials`` are all of this value."""
        sent = [
            trial.signals.sent_per_s
            for trial in trials
            if trial.point.producers == found.safe and trial.verdict is Verdict.SAFE
        ]
        if found.end is End.CLIENTS:
            against = [t for t in trials if t.verdict is Verdict.CLIENTS]
        else:
            against = [
                trial
                for trial in trials
                if trial.point.producers == found.overloaded and trial.verdict is Verdict.OVERLOADED
            ]
        return cls(
            value=value,
            point=point,
            overloaded_producers=found.overloaded,
            messages_per_s=median(sent) if sent else point.messages_per_s,
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
    def is_lower_bound(self) -> bool:
        """Whether the brokers bear more than could be tried."""
        return self.end in (End.MOST, End.CLIENTS)

    @property
    def is_open(self) -> bool:
        """Whether the brokers may bear any more."""
        return self.is_lower_bound or (self.high is None and self.messages_per_s > 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """All that was measured of a cluster, or as far as that got.

    ``at`` is when it began, in seconds since the epoch; ``baseline`` holds by value of the axis
    the round trip in ms of brokers without load.
    """

    cluster_id: str
    brokers: Positive
    at: float
    settings: LimitSettings
    baseline: Mapping[Value, AboveZero]
    trials: tuple[Trial, ...]
    boundaries: tuple[Boundary, ...]

    def __post_init__(self) -> None:
        values = [each.value for each in self.boundaries]
        if len(set(values)) < len(values) or not set(values) <= set(self.settings.values):
            raise ValueError(f"there are boundaries for {values!r}")
        for each in self.boundaries:
            if each.value != self.settings.axis.of(each.point):
                raise ValueError(f"the boundary of {each.value!r} is at another point")

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

    def mb_per_s_a_broker(self, boundary: Boundary) -> float:
        """What producers may send, shared out over brokers; copies and readers not counted."""
        return boundary.bytes_per_s / self.brokers / 1e6

    def safe_per_s(self, boundary: Boundary) -> float:
        """The messages/s of it that a drain may use."""
        return self.settings.safe_share * boundary.messages_per_s

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
        return {"drainer_limits": FORMAT, **plain(self)}

    @classmethod
    def from_json(cls, body: object) -> Limits:
        """Raises LimitsRefused when the body is something else, newer or damaged."""
        if not isinstance(body, dict) or "drainer_limits" not in body:
            raise LimitsRefused("it is JSON, but not limits", hint=_AGAIN)
        version = body["drainer_limits"]
        if version != FORMAT or type(version) is not int:
            raise LimitsRefused(
                f"it has version {version!r} of the format; this drainer reads {FORMAT}",
                hint="use the drainer that wrote it, or " + _AGAIN,
            )
        try:
            words = body["settings"]["axis"] == Axis.COMPRESSION
            baseline = {v if words else int(v): ms for v, ms in body["baseline"].items()}
            trials = [{**t, "signals": _with_unmeasured(t["signals"])} for t in body["trials"]]
            found = msgspec.convert({**body, "baseline": baseline, "trials": trials}, cls)
            if found.as_json() != body:  # also what has a default has to be there
                raise ValueError("it has not just the fields that it should")
        except (msgspec.ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise LimitsRefused(
                f"the limits are damaged: a field is missing or wrong: {error!r}", hint=_AGAIN
            ) from None
        return found


def _with_unmeasured(seen: Mapping[str, Any]) -> dict[str, Any]:
    return {**seen, **{name: nan for name in MEASURED if seen[name] is None}}


def plain(record: object) -> dict[str, Any]:
    """A record as JSON has it: what was not measured (NaN) is null."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record))
    return found
