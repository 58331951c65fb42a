"""Steering: carries out the requests to a running drain on its event loop, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf
from typing import Any

from drainer.engine.checkpointer import Checkpointer
from drainer.engine.control import Change, Pause, Requested, Settings, Stop, between_passes, over
from drainer.engine.outcome import Ending, ended_by
from drainer.engine.ports import DrainContext, Work
from drainer.errors import DrainerError, Refused, Signalled, UsageError
from drainer.model.account import NOBODY, Event, EventKind
from drainer.model.listed import counted, given_up_words, round_duration
from drainer.model.option import Concurrency
from drainer.model.status import Paused
from drainer.text.mask import describe


@dataclass(eq=False)
class Steering:
    """Carries out the requests to one run of a drain.

    Attributes:
        apply_pause: pauses the drain, or lets it continue, by what ``Control.paused`` is now.
        shut_down: ends the drain on request. With ``now``, it ends at once.
    """

    context: DrainContext
    work: Work
    checkpointer: Checkpointer
    ending: Ending
    apply_pause: Callable[[], None]
    shut_down: Callable[..., None]

    def __post_init__(self) -> None:
        self._runtime, self._control = self.context.runtime, self.context.control
        self._settings = Settings(self.context.running, self.context.plan.terms.failures)

    async def serve(self, *, changes: bool) -> None:
        """Carry out requests until cancelled: those for other settings, or all others.

        Requests for other settings are served apart, because they may wait for the brokers.
        """
        while True:
            is_paused = self._control.paused is not None and not self.ending.has_come
            if is_paused and self._runtime.monotonic() >= self._control.unpause_at_s:
                details = ("the time of its pause is over",)
                self._unpause(Event(self._runtime.now(), EventKind.UNPAUSED, NOBODY, None, details))
            for requested in self._control.taken(changes=changes):
                await _answer(requested, self._do(requested))
            await asyncio.sleep(self.work.look_s)

    def ended(self, cause: BaseException | None) -> Event:
        """Return the event for the end of the drain."""
        by, reason = self._control.stopper or (self._runtime.user(), None)
        short = given_up_words(self.checkpointer.account.counts()[1])
        done = ", ".join(filter(None, (self.context.this_pass.done, short)))
        how = done if cause is None else ended_by(cause)
        return Event(self._runtime.now(), EventKind.ENDED, by, reason, (how,))

    async def _do(self, requested: Requested) -> tuple[str, ...]:
        """Carry out a request, and return what was done. Raises UsageError or Refused."""
        control, request = self._control, requested.request
        match request:
            case Stop(now=now):
                control.stopper = requested.by, request.reason
                self.shut_down(Signalled(f"stopped by {requested.by}"), now=now)
                return (f"stopping: {self._in_flight}",)
            case _ if self.ending.has_come:
                raise self._refusal()
            case Pause(for_s=for_s):
                return self._pause(requested, for_s)
            case Change(values=values):
                return await self._change(requested, values)
            case _ if control.paused is None:
                return ("the drain is not paused",)
            case _:
                self._unpause(self._event(EventKind.UNPAUSED, requested))
                return ("unpaused",)

    def _refusal(self) -> Refused:
        """Return the error for a request to a run that is ending."""
        return over() if self.context.this_pass.is_last else between_passes()

    def _pause(self, requested: Requested, for_s: float | None) -> tuple[str, ...]:
        """Pause the drain. The answer says which pause this replaces: that may have been longer."""
        now, earlier, until = self._runtime.wall(), self._control.paused, None
        replaced = () if earlier is None else (f"was {earlier.in_words(now)}",)
        self._control.unpause_at_s = inf
        details: tuple[str, ...] = ()
        if for_s is not None:
            self._control.unpause_at_s = self._runtime.monotonic() + for_s
            until = (now + timedelta(seconds=for_s)).isoformat(timespec="milliseconds")
            details = (f"for {round_duration(for_s)}",)
        event = self._event(EventKind.PAUSED, requested, (*details, *replaced))
        self._control.paused = paused = Paused(event, until)
        self.apply_pause()  # No call may begin once the request is answered.
        self._note(event)
        return (f"{paused.in_words(now)}: {self._in_flight}", *replaced)

    def _unpause(self, event: Event) -> None:
        self._control.paused = None
        self.apply_pause()
        self._note(event)

    async def _change(self, requested: Requested, values: Mapping[str, Any]) -> tuple[str, ...]:
        before, began_with = self._settings, Concurrency.of(self._control.began.concurrency)
        wanted = before.changed(values)
        if wanted.running.concurrency == Concurrency.auto() and began_with.is_auto:
            # The handler was opened for the maximum that this run began with.
            wanted = Settings(replace(wanted.running, concurrency=began_with), wanted.failures)
        by = wanted.running.deadline
        if "deadline" in values and by is not None and by <= self._runtime.wall():
            hint = "Give one that is to come, such as deadline=08:00 or deadline=6h."
            raise UsageError(f"the deadline {by.astimezone():%d %b %H:%M} has passed", hint=hint)
        if "until_lag" in values and not before.running.follows:
            raise UsageError(
                "this drain does not follow its topic, so it has no lag to wait for",
                hint="Stop it, then resume it with --until-lag.",
            )
        if "until_lag" in values and not wanted.running.follows:
            raise UsageError(
                "this drain was not begun with --follow, so it needs a lag at which it ends",
                hint="Stop it, then resume it with --follow.",
            )
        if wanted.needs_brokers(before):
            failures = await self._runtime.blocking_call(self.context.resolve, wanted.failures)
            wanted = Settings(wanted.running, failures)
        details = before.changes_to(wanted)
        if not details:
            return ("nothing changed",)
        if self.ending.has_come:  # The drain began to end while the brokers were asked.
            raise self._refusal()
        await self.work.change(wanted)
        self._settings, self._control.running = wanted, wanted.running
        self.checkpointer.change(wanted.failures, self.context.resuming())
        self._note(self._event(EventKind.CHANGED, requested, details))
        return details

    def _event(self, what: EventKind, requested: Requested, details: tuple[str, ...] = ()) -> Event:
        by, reason = requested.by, requested.request.reason
        return Event(self._runtime.now(), what, by, reason, details)

    def _note(self, event: Event) -> None:
        self._control.events.append(event)
        self._control.events_total += 1
        self.checkpointer.note_event(event)

    @property
    def _in_flight(self) -> str:
        return f"{counted(self.work.running, 'call')} in flight"


async def _answer(requested: Requested, doing: Coroutine[Any, Any, tuple[str, ...]]) -> None:
    """Set the answer to a request. If the request fails, the drain goes on."""
    if not requested.done.set_running_or_notify_cancel():  # The client has gone.
        doing.close()
        return
    try:
        requested.done.set_result(await doing)
    except DrainerError as error:
        requested.done.set_exception(error)
    except asyncio.CancelledError:
        requested.done.set_exception(over())
        raise
    except Exception as error:
        requested.done.set_exception(Refused(f"that failed: {describe(error)}"))
