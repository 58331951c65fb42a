"""What a drain and other processes send each other on the drain's socket, as JSON."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from drainer.model.codec import JsonRecord, convert, decode, encode
from drainer.model.status import EngineStatus, Repr, Status
from drainer.text.mask import short_key

KEY_SHOWN = 80  # characters of a sub-key in a report


@dataclass(frozen=True, slots=True)
class About(JsonRecord):
    """Facts about a drain that don't change while it runs. ``since`` is in ISO 8601."""

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
    """The answer to a request that was done, in words."""

    done: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request that was refused, with the reason."""

    error: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class EngineReport:
    """The engine's part of a status, as views of another process show it."""

    words: str | None = None
    facts: tuple[tuple[str, str], ...] = ()

    def limit(self, status: Status) -> str | None:
        return self.words

    def as_json(self) -> dict[str, Any]:
        return dict(self.facts)


@dataclass(frozen=True, slots=True)
class DrainReport:
    """A drain at one moment.

    ``status`` is None before the drain's first one, and ``age_s`` seconds old. The last report has
    ``ended``, the JSON of the summary.
    """

    about: About
    status: Status | None = None
    age_s: float = 0.0
    ended: Mapping[str, Any] | None = None

    def encoded(self) -> bytes:
        """Encode the report as JSON, as far as views show it."""
        if (status := self.status) is None:
            return encode(self)
        engine, limits = status.engine, status.limits
        hottest = tuple((short_key(key, KEY_SHOWN), waiting) for key, waiting in limits.hottest)
        status = replace(
            status,
            engine=engine and EngineReport(engine.limit(status), tuple(engine.facts)),
            limits=replace(limits, hottest=hottest),
        )
        return encode(replace(self, status=status))

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """Decode a report. Raises ValueError."""
        return convert(decode(data, dict[str, Any]), cls, _parse)


def _parse(kind: Any, value: Any) -> Any:
    if kind is EngineStatus:
        return convert(value, EngineReport)
    return Repr(value) if kind is Hashable else kind.parse(value)
