"""The life of a drain, whatever its engine: it starts, is watched, keeps its plan, comes to rest,
and is summed up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from math import inf
from typing import Any, Protocol

from drainer.core.event import Deed, Event
from drainer.core.latency import Latency
from drainer.core.plan import OffsetPlan
from drainer.engine.checkpointer import Account, Checkpointer
from drainer.engine.control import Asked, Change, Continue, Pause, Settings, Stop, over
from drainer.engine.deadline import DeadlineWatch
from drainer.engine.loop import spawn
from drainer.engine.outcome import concluded
from drainer.engine.ports import Held
from drainer.engine.status import FailureStatus, PartitionResult, Paused, Status, Summary
from drainer.errors import (
    DrainerError,
    GroupJoined,
    LockLost,
    OffsetMoved,
    Refused,
    Signalled,
    TopicGone,
    both,
)
from drainer.loader import describe

STATUS_INTERVAL_S = 0.5
EVENTS_SHOWN = 5
AT_ONCE_S = 0.5  # what a second Ctrl-C leaves to each step of the end

NOT_OURS = (OffsetMoved, GroupJoined, LockLost, TopicGone)  # then nothing may be committed


class Work(Protocol):
    """What an engine brings: where its sub-messages come from, and where they are handled.

    Attributes:
        look_s: between two looks.
        doubtful: whether its account did not add up, so that nothing may be committed.
    """

    @property
    def look_s(self) -> float: ...

    @property
    def account(self) -> Account: ...

    @property
    def doubtful(self) -> bool: ...

    async def prepare(self) -> None:
        """Before requests to stop are listened to. Raises Refused when it can't begin."""

    async def begin(self) -> None:
        """Starts all that works; calls ``keep`` before anything is handled.

        When it raises, it ends what it has begun.
        """

    def pause(self, paused: bool) -> None:
        """Nothing is begun while ``paused``; said again and again."""

    async def look(self) -> None:
        """Notices what happened elsewhere."""

    async def change(self, settings: Settings) -> None:
        """Works by these from now on."""

    def begin_no_more(self) -> None:
        """From here on nothing goes to a handler that is not in one: the drain has a cause to stop.

        It may be called before ``begin``.
        """

    def stop(self) -> None:
        """Reads nothing more, and starts nothing."""

    async def rest(self, cause: BaseException | None, grace_s: float) -> BaseException | None:
        """Returns when nothing is in a handler any longer; gives the cause, as it is known then."""

    async def close(self, cause: BaseException | None) -> BaseException | None:
        """Closes the handlers; gives the cause, with what went wrong by that."""

    async def forget(self) -> None:
        """Removes what the last plan on disk has made superfluous."""

    def failure_status(self) -> FailureStatus: ...

    def latency(self) -> Latency | None:
        """The handler's, in this run."""

    def status(self, plan: OffsetPlan) -> Status:
        """A moment of it, with what only this engine knows."""

    def sum_up(self, summary: Summary) -> Summary:
        """The summary with what only this engine knows."""


class Lifecycle:
    """One run of a drain, from a plan on disk to a summary.

    Attributes:
        forced: set when a person wants to wait no longer.
        listens: whether signals come as requests to stop; before that, Ctrl-C is a
            KeyboardInterrupt.
    """

    checkpointer: Checkpointer

    def __init__(self, work: Work, held: Held) -> None:
        self._work = work
        self._held = held
        self._lock = held.lock
        self._runtime = held.runtime
        self._settings = Settings(held.running, held.plan.failures)
        self._paused: Paused | None = None
        self._continue_s = inf  # when the pause is over
        self._events: deque[Event] = deque(maxlen=EVENTS_SHOWN)
        self._events_total = 0
        self._changes: asyncio.Queue[Asked] = asyncio.Queue()
        self._deadline = DeadlineWatch()
        self._stopper: tuple[str, str | None] = self._runtime.user(), None  # and why
        self._asked: Signalled | None = None  # to stop, by the last signal
        self._pressed = False  # by one that a person sends
        self.listens = False

    async def run(self) -> Summary:
        """Drains until it ends, one way or another.

        Raises Refused when it can't begin. Everything else that stops it is the summary's cause;
        an error that is not drainer's is raised after the plan was saved.
        """
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[BaseException | None] = loop.create_future()
        self.forced = asyncio.Event()
        await self._work.prepare()
        with self._runtime.stop_signals(loop, self._signalled, self._held.give_up):
            self.listens = True
            await self._work.begin()
            self._held.control.begin()
            tasks = [
                spawn(self._watch(), "watch", self.end),
                spawn(self._listen(), "control", self.end),
                spawn(self._change_on(), "changes", self.end),
            ]
            cause = await asyncio.shield(self.ended)
            cause = await self._stop(cause)
            for task in tasks:
                task.cancel()
            return await self._summary(cause)

    def keep(self) -> Checkpointer:
        """Makes what keeps the plan, of the account that the engine has by now."""
        self.checkpointer = Checkpointer(
            self._held, self._work.account, self._work.latency, failed=self.end
        )
        return self.checkpointer

    def end(self, cause: BaseException | None) -> None:
        """Brings the drain to rest, by the first cause; None when all is done."""
        if not self.ended.done():
            self.ended.set_result(cause)
            if cause is not None:
                self._work.begin_no_more()  # not one, before anything else

    async def _watch(self) -> None:
        """Looks after what lives elsewhere, and shows the status."""
        clock, lock = self._runtime.monotonic, self._lock
        due = 0.0
        while True:
            if lock.lost is not None:
                self.end(lock.lost)
            self._hold_back()
            await self._work.look()
            if clock() >= due:
                self._held.observe(self._status())
                due = clock() + STATUS_INTERVAL_S
            await asyncio.sleep(self._work.look_s)

    def _hold_back(self) -> None:
        # Another drain may hold the lock by now: it should find no one at work.
        unsure = self._lock.unsure_since_s is not None
        self._work.pause(unsure or self._paused is not None)

    async def _listen(self) -> None:
        """Does what people ask. A change may take a while: what else is asked does not wait."""
        while True:
            over_s = inf if self._paused is None or self.ended.done() else self._continue_s
            if self._runtime.monotonic() >= over_s:
                self._go_on(self._event(Deed.CONTINUED, details=("the time of its pause is over",)))
            for asked in self._held.control.taken():
                if isinstance(asked.request, Change):
                    self._changes.put_nowait(asked)
                else:
                    await _answer(asked, self._do(asked))
            await asyncio.sleep(self._work.look_s)

    async def _change_on(self) -> None:
        """Makes the changes that people ask for, one after the other."""
        while True:
            asked = await self._changes.get()
            assert isinstance(asked.request, Change)
            await _answer(asked, self._change(asked, asked.request.values))

    async def _do(self, asked: Asked) -> tuple[str, ...]:
        """What was done, in words. Raises Refused."""
        match asked.request:
            case Stop(now=now):
                self._stopper = asked.by, asked.reason
                if now:
                    self.forced.set()
                self._come_to_rest(Signalled(f"stopped by {asked.by}"))
                return (f"stopping: {self._in_flight()}",)
            case _ if self.ended.done():
                raise over()
            case Pause(for_s=for_s):
                self._pause(asked, for_s)
                return (f"{self._paused}: {self._in_flight()}",)
            case Continue():
                if self._paused is None:
                    return ("it is not paused",)
                self._go_on(self._event(Deed.CONTINUED, asked))
                return ("goes on",)
            case Change():
                raise AssertionError("changes are made by another task")

    def _pause(self, asked: Asked, for_s: float | None) -> None:
        until = None
        self._continue_s = inf
        if for_s is not None:
            self._continue_s = self._runtime.monotonic() + for_s
            ends = self._runtime.wall() + timedelta(seconds=for_s)
            until = ends.isoformat(timespec="milliseconds")
        details = () if for_s is None else (f"for {for_s:g}s",)
        self._paused = Paused(self._event(Deed.PAUSED, asked, details), until)
        self._hold_back()  # from this answer on
        self._note(self._paused.event)

    def _go_on(self, event: Event) -> None:
        self._paused = None
        self._hold_back()
        self._note(event)

    async def _change(self, asked: Asked, values: Mapping[str, Any]) -> tuple[str, ...]:
        before = self._settings
        wanted = before.changed(values)
        if wanted.needs_brokers(before):
            settled = await self._runtime.blocking_call(self._held.settle, wanted.failures)
            wanted = Settings(wanted.running, settled)
        details = before.changes_to(wanted)
        if not details:
            return ("nothing changes by that",)
        if self.ended.done():  # meanwhile
            raise over()
        await self._work.change(wanted)
        self._settings = wanted
        self._held.control.changed = wanted.typed(self._held.running)
        self.checkpointer.change(wanted.failures, wanted.running.plan_interval_s)
        self._note(self._event(Deed.CHANGED, asked, details))
        return details

    def _event(
        self, what: Deed, asked: Asked | None = None, details: tuple[str, ...] = ()
    ) -> Event:
        by, reason = self._runtime.user(), None
        if asked is not None:
            by, reason = asked.by, asked.reason
        return Event(self._runtime.now(), what, by, reason, details)

    def _note(self, event: Event) -> None:
        self._events.append(event)
        self._events_total += 1
        self.checkpointer.note_event(event)

    def _in_flight(self) -> str:
        calls = self._work.status(self.checkpointer.plan).running
        return f"{calls:,} call{'' if calls == 1 else 's'} in flight"

    async def within(self, work: Awaitable[object], most_s: float | None = None) -> bool:
        """Waits for it that long at most, and no longer than a moment once ``forced`` is set.

        Whether it has ended; else it is cancelled. Raises what it raised.
        """
        task = asyncio.ensure_future(work)
        forced = asyncio.ensure_future(self.forced.wait())
        await asyncio.wait((task, forced), timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
        if forced.done():
            await asyncio.wait((task,), timeout=AT_ONCE_S)
        forced.cancel()
        if not task.done():
            task.cancel()
            return False
        task.result()
        return True

    async def _stop(self, cause: BaseException | None) -> BaseException | None:
        """The reason to report, None when all is done."""
        self._work.stop()
        # Whoever works for the group by now handles what died here: no letter is ours to write.
        grace_s = 0.0 if isinstance(cause, NOT_OURS) else self._settings.running.grace_s
        cause = await self._work.rest(cause, grace_s)
        await self.within(self.checkpointer.stop())
        cause = await self._work.close(cause)
        if self.forced.is_set():
            cause = cause or self._asked  # what is not committed now is not done
        lost = self._lock.lost  # maybe only now: the first reason hides it
        ours = lost is None and not isinstance(cause, NOT_OURS) and not self._work.doubtful
        commit = ours and not self.forced.is_set()
        try:
            by, reason = self._stopper
            how = "done" if cause is None else str(cause)
            ended = Event(self._runtime.now(), Deed.ENDED, by, reason, (how,))
            finish = self.checkpointer.finish(commit=commit, forced=self.forced, ended=ended)
            if await self.within(finish):
                await self._work.forget()
            else:
                cause = cause or self._asked
        except DrainerError as error:
            cause = both(cause, error)
        self._held.control.end()
        return cause if lost is None or lost is cause else both(cause, lost)

    def _status(self) -> Status:
        checkpointer = self.checkpointer
        status = self._work.status(checkpointer.plan)
        cause = self.ended.result() if self.ended.done() else None
        stopping = None
        if cause is not None:
            stopping = str(cause) if isinstance(cause, DrainerError) else describe(cause)
        status = replace(
            status,
            plan_age_s=self._runtime.monotonic() - checkpointer.written_at,
            stopping=stopping,
            trouble=status.trouble or checkpointer.trouble,
            failures=self._work.failure_status(),
            paused=self._paused,
            asked=tuple(self._events),
            asked_total=self._events_total,
        )
        return self._deadline.judge(status, self._settings.running.deadline, self._runtime.wall())

    async def _summary(self, cause: BaseException | None) -> Summary:
        status = self._status()
        self._held.observe(status)
        work, plan = self._work, self.checkpointer.plan
        committed: Mapping[int, int | None] = {n: p.committed for n, p in plan.partitions.items()}
        if not self.forced.is_set():
            with suppress(DrainerError):  # as the plan knows them, if no broker answers
                committed = await self._runtime.blocking_call(self._held.read_committed)
        watermarks = work.account.watermarks
        messages, subs = work.account.counts()
        ended, code, told = concluded(
            cause,
            messages,
            subs,
            # What died in former runs of a redrive is among its letters again.
            gave_up=status.failures.given_up if plan.redrive else subs.given_up,
            lost=bool(plan.lost) and not plan.redrive,
        )
        return work.sum_up(
            Summary(
                status=ended,
                exit_code=code,
                elapsed_s=status.elapsed_s,
                messages=messages,
                sub_messages=subs,
                partitions={
                    n: PartitionResult(
                        part.start,
                        part.end,
                        watermarks[n],
                        committed.get(n),
                        part.lost,
                        plan.finished_above(n),
                    )
                    for n, part in plan.partitions.items()
                },
                plan=str(self._held.file.path),
                sub_messages_per_s=status.rate_average,
                cause=told,
                failures=status.failures,
                parked=work.account.parked_lanes,
                latency=status.latency,
                auto=status.auto,
                blocked_by=status.blocked_by,
                rules=status.rules,
                history=plan.history,
            )
        )

    def _signalled(self, name: str) -> None:
        cause = self.ended.result() if self.ended.done() else None
        # Supervisors send SIGHUP beside another signal, in any order: that is not asking twice.
        if name != "SIGHUP":
            if self._pressed or not (cause is None or isinstance(cause, Signalled)):
                self.forced.set()
            self._pressed = True
        self._come_to_rest(Signalled(f"interrupted by {name}"))

    def _come_to_rest(self, asked: Signalled) -> None:
        self._asked = asked
        self.end(asked)  # one that is only writing down its end is let finish, once


async def _answer(asked: Asked, doing: Coroutine[Any, Any, tuple[str, ...]]) -> None:
    """Whatever comes of a request, it is no reason for the drain to end."""
    if not asked.answer.set_running_or_notify_cancel():  # nobody waits for it any more
        doing.close()
        return
    try:
        asked.answer.set_result(await doing)
    except DrainerError as error:
        asked.answer.set_exception(error)
    except asyncio.CancelledError:
        asked.answer.set_exception(over())
        raise
    except Exception as error:
        asked.answer.set_exception(Refused(f"that failed: {describe(error)}"))
