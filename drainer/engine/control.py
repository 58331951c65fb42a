"""Requests to a running drain: their kinds, their queue, and what they changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import chain
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, ClassVar

from drainer.errors import Refused, Signalled, UsageError, raised_as
from drainer.model.account import Event
from drainer.model.codec import JsonRecord, builtins
from drainer.model.given import ensure_fields, ensure_types
from drainer.model.option import Concurrency, Option, clean_reason, options_of
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.status import Paused

EVENTS_SHOWN = 5
PAUSE_MOST_S = 31 * 86_400.0
# A running drain can't be set to more calls than this. A drain that begins may have more, because
# it has the time to make their workers.
CALLS_MOST = 100_000
# The settings that can change once a run has begun.
_OF_RUN = {name: each for name, each in options_of(LocalSettings).items() if each.live}
_OF_FAILURES = {name: each for name, each in options_of(FailureSettings).items() if each.live}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a running drain that can be changed."""

    running: LocalSettings
    failures: FailureSettings

    def changed(self, values: Mapping[str, Any]) -> Settings:
        """Return these settings with some changed. ``values`` has the new ones in JSON, by field.

        Raises UsageError if one of them is unknown or makes no sense.
        """
        failures = {name: value for name, value in values.items() if name in _OF_FAILURES}
        run = {name: value for name, value in values.items() if name in _OF_RUN}
        before = builtins(replace(self.running, options=None))
        with raised_as(UsageError, ValueError, about="a value is not valid: ", hint=_HINT):
            running = LocalSettings.from_json(before | run)
            given = FailureSettings.from_json(builtins(self.failures) | failures)
        if Concurrency.of(running.concurrency).most > CALLS_MOST:
            raise UsageError(
                f"a running drain can't have more than {CALLS_MOST:,} calls in flight",
                hint="Stop it, and resume with more.",
            )
        changed = self.failures.changed({name: getattr(given, name) for name in failures})
        return Settings(replace(running, options=self.running.options), changed)

    def needs_brokers(self, before: Settings) -> bool:
        """Return whether the brokers have to be asked before a drain may use these settings."""
        mine, theirs = self.failures, before.failures
        return any(getattr(mine, name) != getattr(theirs, name) for name in _OF_LETTERS)

    def changes_to(self, other: Settings) -> tuple[str, ...]:
        """Return how other settings differ from these, such as ``concurrency 500 → 50``."""
        return tuple(
            change
            for kind, mine, others in (
                (LocalSettings, self.running, other.running),
                (FailureSettings, self.failures, other.failures),
            )
            for name, each in options_of(kind).items()
            if (change := _change(each, getattr(mine, name), getattr(others, name)))
        )


_OF_LETTERS = ("on_failure", "on_split_failure", "dead_letter_topic", "after_dead")
_REQUEST_HINT = 'Give one of drainer.engine.control, such as Change({"concurrency": 50}).'
_HINT = "See `drainer set --help`. For other options, stop the drain, then resume."


@dataclass(frozen=True, slots=True)
class ControlRequest(JsonRecord):
    """A request to change a running drain. Programs send it by its ``name``."""

    name: ClassVar[str]
    reason: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        ensure_fields(self)


@dataclass(frozen=True, slots=True)
class Change(ControlRequest):
    """Continue with new settings. ``values`` has them in JSON, by field; all change, or none."""

    name = "set"
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pause(ControlRequest):
    """Start no calls until ``Unpause``, or for a number of seconds."""

    name = "pause"
    for_s: float | None = None

    def __post_init__(self) -> None:
        ensure_fields(self)
        if self.for_s is not None and not 0 < self.for_s <= PAUSE_MOST_S:
            raise UsageError(
                "a pause must be longer than 0 s, and may last 31 days at most",
                hint="Give a time such as --for 10m, or leave out --for until `drainer unpause`.",
            )


@dataclass(frozen=True, slots=True)
class Unpause(ControlRequest):
    """End the pause."""

    name = "unpause"


@dataclass(frozen=True, slots=True)
class Stop(ControlRequest):
    """Stop the drain as Ctrl-C does; with ``now``, as a second Ctrl-C does."""

    name = "stop"
    now: bool = False


REQUESTS = {kind.name: kind for kind in (Change, Pause, Unpause, Stop)}


@dataclass(frozen=True, slots=True)
class Requested:
    """A request, the person who made it ("user@host"), and the future of the answer in words."""

    request: ControlRequest
    by: str
    done: Future[tuple[str, ...]] = field(default_factory=Future)


class Control:
    """The requests to one drain, and what they have changed.

    Any thread may make a request. The drain takes it on its event loop, and sets the attributes.

    Attributes:
        began: the settings that this process began with.
        running: the current settings.
        stopper: who requested a stop, and why; None if the person who runs the drain did.
        stopped: the last request to stop; None if there is none.
        interrupted: whether Ctrl-C was one of these requests.
        paused: the current pause; None if the drain is not paused.
        unpause_at_s: when that pause ends by itself.
        events: the last few changes.
        events_total: how many changes there were.
    """

    def __init__(self, running: LocalSettings | None = None) -> None:
        self.began = self.running = running or LocalSettings()
        self.stopper: tuple[str, str | None] | None = None
        self.stopped: Signalled | None = None
        self.interrupted = False
        self.paused: Paused | None = None
        self.unpause_at_s = inf
        self.events: deque[Event] = deque(maxlen=EVENTS_SHOWN)
        self.events_total = 0
        self._requests: SimpleQueue[Requested] = SimpleQueue()
        self._changes: SimpleQueue[Requested] = SimpleQueue()
        self._lock = Lock()
        self._started = self._over = False
        self._unwanted: Signalled | None = None

    def use(self, running: LocalSettings) -> None:
        """Take the settings of the drain that will begin.

        Raises UsageError if this object has controlled another drain.
        """
        if self._started or self._over:
            raise UsageError(
                "this Control has controlled a drain before", hint="Make one per drain."
            )
        self.began = self.running = running

    def request(self, request: ControlRequest, by: str) -> Future[tuple[str, ...]]:
        """Add a request. The future that is returned gives what was done, or raises UsageError or
        Refused.

        Raises UsageError at once for what is no request, or a change of what can't change.
        """
        types = {"request": ControlRequest, "by": str}
        ensure_types({"request": request, "by": by}, types, {"request": _REQUEST_HINT})
        if isinstance(request, Change):
            for name in request.values.keys() - _OF_RUN.keys() - _OF_FAILURES.keys():
                raise UsageError(f"{name} can't change while a drain runs", hint=_HINT)
        made = Requested(replace(request, reason=clean_reason(request.reason)), by)
        with self._lock:
            if self._over:
                made.done.set_exception(ended())
            elif self._started:
                (self._changes if isinstance(request, Change) else self._requests).put(made)
            elif isinstance(request, Stop):
                self._requests.put(replace(made, done=Future()))
                self._unwanted = Signalled(
                    f"stopped by {by} before it began; nothing was handled",
                    hint="Start it again in the same way.",
                )
                made.done.set_result(("the drain is still starting: it stops as soon as it can",))
            else:
                made.done.set_exception(
                    Refused("the drain is still starting", hint="Try again in a moment.")
                )
        return made.done

    def ensure_wanted(self) -> None:
        """Raise Signalled if a stop was requested before the drain has begun."""
        if self._unwanted is not None:
            raise self._unwanted

    def begin(self) -> None:
        """Take requests from now on."""
        with self._lock:
            self._started = True

    def taken(self, *, changes: bool) -> Iterator[Requested]:
        """Yield the requests since the last call: those for other settings, or all others."""
        with suppress(Empty):
            while True:
                yield (self._changes if changes else self._requests).get_nowait()

    def take_stop(self) -> None:
        """Take requests between two passes: refuse all of them except a stop.

        Raises Signalled once a stop was requested.
        """
        for requested in chain(self.taken(changes=False), self.taken(changes=True)):
            if not requested.done.set_running_or_notify_cancel():
                continue
            if not isinstance(requested.request, Stop):
                requested.done.set_exception(between_passes())
                continue
            self.stopper = requested.by, requested.request.reason
            self.stopped = Signalled(f"stopped by {requested.by}")
            requested.done.set_result(("stopping: 0 calls in flight",))
        if self.stopped is not None:
            raise self.stopped

    def is_over(self) -> bool:
        """Return whether the drain has ended. From then on nothing changes its outcome."""
        return self._over

    def end(self) -> None:
        """Refuse all requests from now on."""
        with self._lock:
            self._over = True
        for requested in chain(self.taken(changes=False), self.taken(changes=True)):
            if requested.done.set_running_or_notify_cancel():
                requested.done.set_exception(ended())

    def retyped(self) -> dict[str, str | None]:
        """Return, by field, the settings for which a resume must not repeat what was typed.

        They are the settings that have changed, with None for one that was dropped, and times: the
        ``6h`` that was typed for this run would be another time for the next run.
        """
        return {
            name: typed(_OF_RUN[name], value)
            for name in sorted(_OF_RUN)
            if isinstance(value := getattr(self.running, name), datetime)
            or value != getattr(self.began, name)
        }


def between_passes() -> Refused:
    return Refused("the drain is between two passes", hint="Try again in a moment.")


def ended() -> Refused:
    hint = "See `drainer plan show`: it prints how, and the command to resume if anything is left."
    return Refused("this drain has ended", hint=hint)


def over() -> Refused:
    return Refused("this drain is stopping", hint="Resume it with other options.")


def typed(option: Option, value: Any) -> str | None:
    """Return a setting in the form in which a person types it; None for None."""
    if isinstance(value, datetime):
        return value.astimezone().isoformat(timespec="minutes")
    return None if value is None else _shown(option, value)


def _change(option: Option, before: Any, after: Any) -> str | None:
    """Return how a setting changes, as exactly as it takes to see that; None if it stays."""
    for show in (partial(_shown, option), _exactly):
        if before != after and (old := show(before)) != (new := show(after)):
            return f"{option.label} {old} → {new}"
    return None


def _exactly(value: Any) -> str:
    return str(value.astimezone() if isinstance(value, datetime) else value)


def _shown(option: Option, value: Any) -> str:
    match value:
        case None | ():
            return "none"
        case bool():
            return "on" if value else "off"
        case datetime():
            return f"{value.astimezone():%d %b %H:%M}"
    assert option.kind is not None
    return option.kind.show(value)
