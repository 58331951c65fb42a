"""The JSON that a drain and other processes exchange through the drain's socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from drainer.model.codec import JsonRecord, convert, decode, encode
from drainer.model.status import Status
from drainer.text.mask import mask_reported


@dataclass(frozen=True, slots=True)
class About(JsonRecord):
    """The facts about a drain that do not change while it runs.

    ``since`` is the time at which it began, in ISO 8601.
    """

    plan: str
    topic: str
    group: str
    drain_id: str
    engine: str
    since: str

    def __post_init__(self) -> None:
        try:
            datetime.fromisoformat(self.since).astimezone()
        except OverflowError as error:
            raise ValueError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to a request that succeeded: what the drain did, in words."""

    done: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request that was refused: the reason, and the way out."""

    error: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class DrainReport:
    """A report on a drain at one moment.

    Attributes:
        status: the latest status; None if there is none yet.
        age_s: the age of the status in seconds.
        ended: the JSON of the summary, or the error and hint of a drain that did not begin. Only
            the last report has it.
    """

    about: About
    status: Status | None = None
    age_s: float = 0.0
    ended: Mapping[str, Any] | None = None

    def encoded(self) -> bytes:
        """Encode the report as JSON. It has the status as one object without sections."""
        status = None if self.status is None else self.status.as_json()
        fields = {"about": self.about, "age_s": self.age_s, "ended": self.ended}
        return encode(fields | {"status": status})

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """Decode a report. Raises ValueError."""
        fields = decode(data, dict[str, Any])
        found, status = fields.pop("status", None), None
        if found is not None:
            status = Status.from_json(found)
            limits = status.limits
            hottest = tuple((mask_reported(text), waiting) for text, waiting in limits.hottest)
            held_back = tuple(
                replace(each, key=each.key and mask_reported(each.key)) for each in limits.held_back
            )
            limits = replace(limits, hottest=hottest, held_back=held_back)
            status = replace(status, limits=limits)
        return replace(convert(fields, cls), status=status)
