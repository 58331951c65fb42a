"""What is said over a drain's socket: a line of JSON asks, lines of JSON answer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from drainer.engine.control import Change, Pause, Request, Stop, Unpause
from drainer.engine.status import Repr, Status
from drainer.errors import UsageError
from drainer.model.codec import JsonRecord, builtins, convert
from drainer.view.figures import sub_key

LINE_MOST = 1 << 20  # bytes of a question
PAUSE_MOST_S = 31 * 86_400.0
TEXT_MOST = 1000  # characters of a name
KEY_SHOWN = 80  # characters of a sub-key


@dataclass(frozen=True, slots=True)
class Question(JsonRecord):
    """What is asked: "status", "watch" (from then on to the end), or a request by its name."""

    ask: str
    values: Mapping[str, Any] = field(default_factory=dict)
    for_s: float | None = None
    now: bool = False
    reason: str | None = None

    @property
    def request(self) -> Request:
        """Raises UsageError when it is none."""
        match self.ask:
            case "set":
                return Change(self.values)
            case "pause":
                if self.for_s is not None and not 0 < self.for_s <= PAUSE_MOST_S:
                    raise UsageError(
                        "a pause may last 31 days at most", hint="Give less, such as --for 10m."
                    )
                return Pause(self.for_s)
            case "unpause":
                return Unpause()
            case "stop":
                return Stop(self.now)
        raise UsageError(
            f"a drain has no request {self.ask!r}", hint="Use the drainer version of the drain."
        )


@dataclass(frozen=True, slots=True)
class About(JsonRecord):
    """A running drain: what doesn't change of it. ``since`` is ISO 8601."""

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

    def cut(self) -> About:
        """The same with no text longer than TEXT_MOST: anybody may have written it."""
        return replace(
            self, **{each.name: getattr(self, each.name)[:TEXT_MOST] for each in fields(self)}
        )


@dataclass(frozen=True, slots=True)
class Answer(JsonRecord):
    """One line of an answer; what is None is not told by it."""

    about: About | None = None
    told: tuple[str, ...] | None = None  # what was done, in words
    status: Mapping[str, Any] | None = None  # as ``encode_status`` makes it
    age_s: float | None = None  # since the status was taken
    # How the drain ended, as the summary's JSON; the last line.
    ended: Mapping[str, Any] | None = None
    error: str | None = None  # why nothing was done, with its ``hint`` and ``exit_code``
    hint: str | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class EngineTold:
    """What an engine adds to a status, as it said it in another process."""

    words: str | None = None
    facts: tuple[tuple[str, str], ...] = ()

    def limit(self, status: Status) -> str | None:
        return self.words

    def as_json(self) -> dict[str, Any]:
        return dict(self.facts)


def encode_status(status: Status) -> dict[str, Any]:
    """All of a status that views show, as JSON has it."""
    engine = status.engine
    told = None if engine is None else EngineTold(engine.limit(status), tuple(engine.facts))
    hottest = tuple((sub_key(key, KEY_SHOWN), waiting) for key, waiting in status.limits.hottest)
    plain = builtins(replace(status, engine=None, limits=replace(status.limits, hottest=hottest)))
    return plain | {"engine": None if told is None else builtins(told)}


def decode_status(body: Mapping[str, Any]) -> Status:
    """Raises ValueError."""
    engine = body.get("engine")
    plain = convert({**body, "engine": None}, Status, _parse)
    told = None if engine is None else convert(engine, EngineTold)
    return replace(plain, engine=told)


def _parse(kind: Any, value: Any) -> Any:
    return Repr(value) if kind is Hashable else kind.parse(value)
