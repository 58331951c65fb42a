"""What people ask of a running drain: its mailbox, and what can be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import Enum
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any

from drainer.errors import Refused, Signalled, UsageError
from drainer.escape import printable
from drainer.model.codec import builtins
from drainer.model.concurrency import Concurrency
from drainer.model.failures import FailureSettings, OnFailure
from drainer.model.naming import option_name
from drainer.model.settings import LocalSettings

if TYPE_CHECKING:
    from drainer.engine.steering import Steering

RESUMABLE = ("concurrency", "deadline", "plan_interval_s", "grace_s")
REASON_MOST = 500  # characters
CALLS_MOST = 100_000  # a drain that begins may take more, and has time for it
FIXED = frozenset(
    {"buffer_bytes", "journal_interval_s", "options", "reason"}
)  # of a run, once it has begun


@dataclass(frozen=True, slots=True)
class Settings:
    """All that can be changed of a running drain."""

    running: LocalSettings
    failures: FailureSettings

    def changed(self, values: Mapping[str, Any]) -> Settings:
        """These with other ``values``, by field, as JSON has them.

        Raises UsageError when one of them is unknown or makes no sense.
        """
        of_run = {each.name for each in fields(LocalSettings)} - FIXED
        of_failures = {each.name for each in fields(FailureSettings)}
        for name in values.keys() - of_run - of_failures:
            raise UsageError(f"{name} can't change while a drain runs", hint=_HINT)
        failures = {name: value for name, value in values.items() if name in of_failures}
        dead = OnFailure.DEAD_LETTER
        of_split = values.get("on_split_failure", self.failures.on_split_failure)
        if values.get("dead_letter_topic") is not None and of_split not in (dead, dead.value):
            failures.setdefault("on_failure", OnFailure.DEAD_LETTER.value)
        run = {name: value for name, value in values.items() if name in of_run}
        before = builtins(replace(self.running, options=None))
        try:
            running = LocalSettings.from_json(before | run)
            changed = FailureSettings.from_json(builtins(self.failures) | failures)
        except ValueError as error:
            raise UsageError(f"a value is not valid: {error}", hint=_HINT) from None
        if Concurrency.of(running.concurrency).most > CALLS_MOST:
            raise UsageError(
                f"a running drain can't have more than {CALLS_MOST:,} calls in flight",
                hint="Stop it, and resume with more.",
            )
        return Settings(replace(running, options=self.running.options), changed)

    def needs_brokers(self, before: Settings) -> bool:
        """Whether others have to be asked before it may be worked by."""
        mine, theirs = self.failures, before.failures
        return any(getattr(mine, name) != getattr(theirs, name) for name in _OF_LETTERS)

    def typed(self, before: LocalSettings) -> dict[str, str | None]:
        """How this run's own settings that are others than before are typed, by field; None is a
        deadline that was dropped."""
        return {
            name: typed(name, getattr(self.running, name))
            for name in RESUMABLE
            if getattr(self.running, name) != getattr(before, name)
        }

    def changes_to(self, other: Settings) -> tuple[str, ...]:
        """``concurrency 500 → 50`` and the like."""
        return tuple(
            f"{option_name(each.name)} {_shown(each.name, before)} → {_shown(each.name, after)}"
            for mine, others in ((self.running, other.running), (self.failures, other.failures))
            for each in fields(mine)
            if (before := getattr(mine, each.name)) != (after := getattr(others, each.name))
        )


_OF_LETTERS = ("on_failure", "on_split_failure", "dead_letter_topic", "after_dead")
_HINT = "See `drainer set --help`. For other options, stop the drain, then resume."


@dataclass(frozen=True, slots=True)
class Change:
    """Go on by other settings: JSON values, by field. All of them, or none."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pause:
    """Begin nothing, until somebody says so or that many seconds are over."""

    for_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unpause:
    """End the pause."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Come to rest, as after Ctrl-C; ``now`` as after the second one."""

    now: bool = False


Request = Change | Pause | Unpause | Stop


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, by whom ("user@host"), why, and the place for its answer: what was done, in
    words."""

    request: Request
    by: str
    reason: str | None
    answer: Future[tuple[str, ...]]


class Control:
    """Requests to one drain, from any thread; its lifecycle takes them, once it has begun."""

    def __init__(self) -> None:
        # How this run's own settings that are others than at its beginning are typed, by field:
        # what a resume has to say.
        self.changed: Mapping[str, str | None] = {}
        self.steering: Steering | None = None  # of the command, once a run of it has begun
        self.stopped: Signalled | None = None  # the last request to come to rest
        self._requests: SimpleQueue[Asked] = SimpleQueue()
        self._lock = Lock()
        self._begun = self._over = False

    def ask(self, request: Request, by: str, reason: str | None = None) -> Future[tuple[str, ...]]:
        """The answer will be what was done, or UsageError or Refused."""
        asked = Asked(request, by, reason, Future())
        with self._lock:
            if self._over:
                asked.answer.set_exception(over())
            elif self._begun:
                self._requests.put(asked)
            elif isinstance(request, Stop):
                self._requests.put(Asked(request, by, reason, Future()))
                asked.answer.set_result(("it is still starting, and stops then",))
            else:
                asked.answer.set_exception(
                    Refused("the drain is still starting", hint="Try again in a moment.")
                )
        return asked.answer

    def begin(self) -> None:
        """From now on requests are taken."""
        with self._lock:
            self._begun = True

    def taken(self) -> Iterator[Asked]:
        """What was asked since the last time."""
        with suppress(Empty):
            while True:
                yield self._requests.get_nowait()

    def end(self) -> None:
        """Nothing is done any more: whoever asks from now on is refused."""
        with self._lock:
            self._over = True
        for asked in self.taken():
            asked.answer.set_exception(over())


def between_passes() -> Refused:
    return Refused("the drain is between two passes", hint="Try again in a moment.")


def over() -> Refused:
    return Refused("this drain is stopping", hint="Resume it with other options.")


def reason_of(text: str | None) -> str | None:
    """A reason as it is kept: one line of what can be seen, not too long."""
    text = printable((text or "").strip())
    return text[:REASON_MOST] or None


def typed(field: str, value: Any) -> str | None:
    """How a setting of a run is given to a resume; None when it is not."""
    if isinstance(value, datetime):
        return value.astimezone().isoformat(timespec="minutes")
    return None if value is None else _shown(field, value)


def _shown(field: str, value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case Enum():
            return str(value.value)
        case datetime():
            return f"{value.astimezone():%d %b %H:%M}"
    unit = next((unit for end, unit in _UNITS if field.endswith(end)), "")
    return f"{f'{value:.6f}'.rstrip('0').rstrip('.')}{unit}" if unit else str(value)


_UNITS = (("rate", "/s"), ("_s", "s"))
