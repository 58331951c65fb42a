"""Doing what people ask of a running drain: on its event loop, one thing after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any

from drainer.engine.control import (
    Change,
    Pause,
    Requested,
    Settings,
    Stop,
    Unpause,
    between_passes,
    over,
)
from drainer.engine.ports import Held
from drainer.errors import DrainerError, Refused, Signalled
from drainer.mask import describe
from drainer.model.concurrency import Concurrency
from drainer.model.event import Event, EventKind
from drainer.model.listed import counted, round_duration
from drainer.model.status import DeadlineStatus, Paused, Status

if TYPE_CHECKING:
    from drainer.engine.lifecycle import Lifecycle

EVENTS_SHOWN = 5
SURE_AFTER_S = 5.0  # no warning of a deadline comes before: the first speed is that of a start
SURE_FOR_S = 2.0  # for so long it must look late


class DeadlineWatch:
    """Adds to each status of a run, one after the other, whether it will make its deadline."""

    def __init__(self) -> None:
        self._late_since_s: float | None = None

    def judge(self, status: Status, deadline: datetime | None, now: datetime) -> Status:
        """The status with the deadline's, if there is one."""
        if deadline is None:
            self._late_since_s = None
            return status
        left_s = (deadline - now).total_seconds()
        eta_s = 0.0 if status.progress.complete else status.progress.eta_s
        if eta_s is None and left_s <= 0:
            eta_s = 0.0
        found = DeadlineStatus(deadline, left_s, None if eta_s is None else left_s - eta_s)
        if not found.late:
            self._late_since_s = None
        else:
            if self._late_since_s is None:
                self._late_since_s = status.timing.elapsed_s
            for_s = status.timing.elapsed_s - self._late_since_s
            sure = status.timing.elapsed_s >= SURE_AFTER_S and for_s >= SURE_FOR_S
            found = replace(found, missed=sure or left_s <= 0)
        return replace(status, progress=replace(status.progress, deadline=found))


class Steering:
    """What was asked of one run, and what it is at by that."""

    _drain: Lifecycle

    def __init__(self, held: Held) -> None:
        self._held = held
        self._runtime = held.runtime
        self.settings = Settings(held.running, held.plan.failures)  # those of now
        self.paused: Paused | None = None  # the pause that it is in
        # Who ends it, and why: whoever runs it, until somebody else asks for a stop.
        self.stopper: tuple[str, str | None] = held.runtime.user(), None
        self._unpause_s = inf  # when the pause is over
        self._events: deque[Event] = deque(maxlen=EVENTS_SHOWN)
        self._events_total = 0
        self._changes: asyncio.Queue[Requested] = asyncio.Queue()
        self._deadline = DeadlineWatch()

    @classmethod
    def of(cls, drain: Lifecycle, held: Held) -> Steering:
        """The next run of a command goes on by what was asked of those before."""
        steering = held.control.steering
        if steering is None:
            steering = held.control.steering = cls(held)
        waiting = steering._changes
        steering._drain, steering._changes = drain, asyncio.Queue()  # for another event loop
        while not waiting.empty():
            steering._changes.put_nowait(waiting.get_nowait())
        steering._deadline = DeadlineWatch()
        return steering

    async def listen(self) -> None:
        """Does what is asked. A change may take a while: what else is asked does not wait."""
        while True:
            over_s = inf if self.paused is None or self._drain.is_ending else self._unpause_s
            if self._runtime.monotonic() >= over_s:
                self._unpause(
                    self._event(EventKind.UNPAUSED, details=("the time of its pause is over",))
                )
            for requested in self._held.control.taken():
                if isinstance(requested.request, Change):
                    self._changes.put_nowait(requested)
                else:
                    await _answer(requested, self._do(requested))
            await asyncio.sleep(self._drain.look_s)

    async def change_on(self) -> None:
        """Makes the changes that are asked for, one after the other."""
        while True:
            requested = await self._changes.get()
            assert isinstance(requested.request, Change)
            await _answer(requested, self._change(requested, requested.request.values))

    def shown(self, status: Status) -> Status:
        """A status with what people asked, and the deadline of now."""
        status = replace(
            status,
            control=replace(
                status.control,
                paused=self.paused,
                changes=tuple(self._events),
                changes_total=self._events_total,
            ),
        )
        return self._deadline.judge(status, self.settings.running.deadline, self._runtime.wall())

    def ended(self, cause: BaseException | None) -> Event:
        """The event of its end."""
        by, reason = self.stopper
        first = self._drain.first
        done = "done" if first is None else f"done with what comes first, {first}"
        how = done if cause is None else str(cause)
        return Event(self._runtime.now(), EventKind.ENDED, by, reason, (how,))

    async def _do(self, requested: Requested) -> tuple[str, ...]:
        """What was done, in words. Raises Refused."""
        match requested.request:
            case Stop(now=now):
                self.stopper = requested.by, requested.request.reason
                self._drain.come_to_rest(Signalled(f"stopped by {requested.by}"), now=now)
                return (f"stopping: {self._in_flight}",)
            case _ if self._drain.is_ending:
                raise self._ending()
            case Pause(for_s=for_s):
                self._pause(requested, for_s)
                return (f"{self.paused}: {self._in_flight}",)
            case Unpause():
                if self.paused is None:
                    return ("the drain is not paused",)
                self._unpause(self._event(EventKind.UNPAUSED, requested))
                return ("unpaused",)
            case _:
                raise AssertionError("changes are made by another task")

    def _ending(self) -> Refused:
        """Why nothing can be asked any more, or not now."""
        return over() if self._drain.first is None else between_passes()

    def _pause(self, requested: Requested, for_s: float | None) -> None:
        until = None
        self._unpause_s = inf
        if for_s is not None:
            self._unpause_s = self._runtime.monotonic() + for_s
            ends = self._runtime.wall() + timedelta(seconds=for_s)
            until = ends.isoformat(timespec="milliseconds")
        details = () if for_s is None else (f"for {round_duration(for_s)}",)
        self.paused = Paused(self._event(EventKind.PAUSED, requested, details), until)
        self._drain.hold_back()  # from this answer on
        self._note(self.paused.event)

    def _unpause(self, event: Event) -> None:
        self.paused = None
        self._drain.hold_back()
        self._note(event)

    async def _change(self, requested: Requested, values: Mapping[str, Any]) -> tuple[str, ...]:
        before, began_with = self.settings, Concurrency.of(self._held.running.concurrency)
        wanted = before.changed(values)
        if wanted.running.concurrency == Concurrency.auto() and began_with.is_auto:
            # The handler was opened for the most that this run may find.
            wanted = Settings(replace(wanted.running, concurrency=began_with), wanted.failures)
        if wanted.needs_brokers(before):
            settled = await self._runtime.blocking_call(self._held.settle, wanted.failures)
            wanted = Settings(wanted.running, settled)
        details = before.changes_to(wanted)
        if not details:
            return ("nothing changed",)
        if self._drain.is_ending:  # meanwhile
            raise self._ending()
        await self._drain.change(wanted)
        self.settings = wanted
        self._held.control.changed = wanted.typed(self._held.running)
        self._note(self._event(EventKind.CHANGED, requested, details))
        return details

    def _event(
        self, what: EventKind, requested: Requested | None = None, details: tuple[str, ...] = ()
    ) -> Event:
        by, reason = (
            (self._runtime.user(), None)
            if requested is None
            else (requested.by, requested.request.reason)
        )
        return Event(self._runtime.now(), what, by, reason, details)

    def _note(self, event: Event) -> None:
        self._events.append(event)
        self._events_total += 1
        self._drain.checkpointer.note_event(event)

    @property
    def _in_flight(self) -> str:
        return f"{counted(self._drain.calls, 'call')} in flight"


async def _answer(requested: Requested, doing: Coroutine[Any, Any, tuple[str, ...]]) -> None:
    """Whatever comes of a request, it is no reason for the drain to end."""
    if not requested.done.set_running_or_notify_cancel():  # the asker has gone
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
