"""The life of a drain, whatever its engine: it starts, is watched, keeps its plan, stops, and is
summed up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from drainer.engine.checkpointer import Checkpointer
from drainer.engine.loop import spawn
from drainer.engine.outcome import Ending, final_outcome, may_continue, not_stopped
from drainer.engine.ports import DrainContext, Work
from drainer.engine.steering import Steering
from drainer.errors import (
    DrainerError,
    GroupJoined,
    LockLost,
    LogCut,
    OffsetMoved,
    Signalled,
    TopicGone,
    chain_errors,
)
from drainer.model.deadline import DeadlineWatch
from drainer.model.status import (
    ControlStatus,
    PartitionResult,
    Status,
    Summary,
)
from drainer.text.mask import describe

STATUS_INTERVAL_S = 0.5

NOT_OURS = (OffsetMoved, GroupJoined, LockLost, TopicGone)  # then nothing may be committed


class Lifecycle:
    """One run of a drain, from a plan on disk to a summary."""

    def __init__(
        self, context: DrainContext, work: Work, checkpointer: Checkpointer, ending: Ending
    ) -> None:
        self._work = work
        self._context = context
        self._lock = context.lock
        self._runtime = context.runtime
        self.checkpointer = checkpointer
        self._ending = ending
        self._control = context.control
        self._steering = Steering(
            context, work, checkpointer, ending, self.apply_pause, self.shut_down
        )
        self._deadline = DeadlineWatch()
        self._requested: Signalled | None = None  # to stop, by the last signal
        self._pressed = False  # by one that a person sends
        # The last time left that was shown before the drain began to end: nothing begins after it.
        self._eta_s: float | None = None

    async def run(self) -> Summary:
        """Drain until it ends, one way or another.

        Raises Refused when it can't begin. Everything else that stops it is the summary's cause;
        an error that is not drainer's is raised after the plan was saved.
        """
        loop, end = asyncio.get_running_loop(), self._ending.end
        with self._runtime.stop_signals(loop, self._signalled, self._context.give_up):
            self._ending.takes_signals = True
            self.apply_pause()  # paused in a run before
            await self._work.start()
            self._control.begin()
            tasks = [
                spawn(self._watch(), "watch", end),
                spawn(self._steering.serve(changes=False), "control", end),
                spawn(self._steering.serve(changes=True), "changes", end),
            ]
            cause = await self._stop(await self._ending.wait())
            for task in tasks:
                task.cancel()
            return await self._summary(cause)

    async def _watch(self) -> None:
        """Check what runs elsewhere, and show the status, again and again."""
        clock, lock = self._runtime.monotonic, self._lock
        due = 0.0
        while True:
            if lock.lost is not None:
                self._ending.end(lock.lost)
            self.apply_pause()
            await self._work.check()
            if clock() >= due:
                self._work.measure(self.checkpointer.plan)
                self._show()
                due = clock() + STATUS_INTERVAL_S
            await asyncio.sleep(self._work.look_s)

    def apply_pause(self) -> None:
        """Start nothing more, or continue, as ``Control.paused`` demands by now."""
        # Another drain may have the lock by now: it should find no one at work.
        self._work.pause(self._unsure is not None or self._control.paused is not None)

    @property
    def _unsure(self) -> str | None:
        """Reason why nothing may begin, until the lock is confirmed."""
        if self._runtime.uptime() < self._lock.sure_until_s:
            return None
        return "the lock on the group is not confirmed, so drainer begins nothing new"

    def shut_down(self, request: Signalled, *, now: bool = False) -> None:
        """End the drain for a person; one that is only writing down its end is let finish, once."""
        if now:
            self._ending.forced.set()
        self._requested = self._control.stopped = request
        self._ending.end(request)

    async def _stop(self, cause: BaseException | None) -> BaseException | None:
        """Stop, save for the last time, and return the reason to report; None when all is done."""
        # Whoever works for the group by now handles what died here: no letter is ours to write.
        grace_s = 0.0 if isinstance(cause, NOT_OURS) else self._control.running.grace_s
        # The checkpointer works on meanwhile: what hangs here delays nothing that it writes.
        try:
            cause = await self._work.wind_down(cause, grace_s)
        except Exception as error:  # the last checkpoint is written all the same
            cause = chain_errors(cause, not_stopped(error))
        self._work.measure(self.checkpointer.plan)  # The plan and the summary are to have it all.
        forced, within = self._ending.forced, self._ending.within
        await within(self.checkpointer.stop())
        cause = await self._work.close(cause)
        if forced.is_set():
            cause = cause or self._requested  # what is not committed now is not done
        lost = self._lock.lost  # maybe only now: the first reason hides it
        ours = lost is None and not isinstance(cause, (*NOT_OURS, LogCut))
        ours = ours and not self.checkpointer.account.unbalanced
        commit = ours and not forced.is_set()
        try:
            ended = self._steering.ended(cause)
            finish = self.checkpointer.finish(commit=commit, forced=forced, ended=ended)
            if await within(finish):
                await self._work.forget()
            else:
                cause = cause or self._requested
        except DrainerError as error:
            cause = chain_errors(cause, error)
        if self._context.this_pass.is_last or not may_continue(cause):
            self._control.end()
        return cause if lost is None or lost is cause else chain_errors(cause, lost)

    def _show(self) -> Status:
        """Show the status, with what only a series of statuses tells."""
        status = self._status()
        progress, elapsed_s = status.progress, status.timing.elapsed_s
        eta_s = 0.0 if progress.complete else progress.eta_s
        by, now = self._control.running.deadline, self._runtime.wall()
        deadline = self._deadline.judge(by, now, elapsed_s, eta_s)
        status = replace(status, progress=replace(progress, deadline=deadline))
        if self._ending.cause is None:
            self._eta_s = status.progress.eta_s
        self._context.observe(status)
        return status

    def _status(self) -> Status:
        checkpointer, control = self.checkpointer, self._control
        status = self._work.status(checkpointer.plan)
        cause, stopping, eta_s = self._ending.cause, None, status.progress.eta_s
        if cause is not None:
            stopping = str(cause) if isinstance(cause, DrainerError) else describe(cause)
            eta_s = self._eta_s
        failures = self._work.failure_status()
        health = status.health
        waits = health.trouble or self._unsure  # what a commit waits out keeps nothing else back
        trouble = waits or checkpointer.trouble
        plan_age_s = self._runtime.monotonic() - checkpointer.written_at
        progress = replace(status.progress, eta_s=eta_s)
        if failures.in_outage:
            progress = progress.without_estimates
        return replace(
            status,
            progress=progress,
            failures=failures,
            timing=replace(status.timing, plan_age_s=plan_age_s),
            health=replace(health, trouble=trouble, is_kept_waiting=waits is not None),
            control=ControlStatus(
                stopping, control.paused, tuple(control.events), control.events_total
            ),
        )

    async def _summary(self, cause: BaseException | None) -> Summary:
        status = self._show()
        work, account, plan = self._work, self.checkpointer.account, self.checkpointer.plan
        partitions = plan.account.partitions
        committed: Mapping[int, int | None] = {n: p.committed for n, p in partitions.items()}
        if not self._ending.forced.is_set():
            with suppress(DrainerError):  # as the plan knows them, if no broker answers
                committed = await self._runtime.blocking_call(self._context.read_committed)
        watermarks = account.watermarks
        messages, subs = account.counts()  # one by one, so that the law can fail
        progress = replace(status.progress, messages=messages, sub_messages=subs)
        ended, code, reported = final_outcome(
            cause,
            messages,
            subs,
            # What died in former runs of a redrive is among its letters again.
            gave_up=status.failures.given_up
            if plan.terms.redrive
            else subs.given_up - account.unhandled().dead_by_request,
            lost=bool(plan.account.lost) and not plan.terms.redrive,
        )
        return work.sum_up(
            Summary(
                replace(status, progress=progress),
                ended,
                code,
                partitions={
                    n: PartitionResult(
                        part.start,
                        part.end,
                        watermarks[n],
                        committed.get(n),
                        part.lost,
                        plan.account.finished_above(n),
                    )
                    for n, part in partitions.items()
                },
                cause=reported,
                parked=account.parked_lanes,
                history=plan.account.history,
                handler=plan.terms.handler_words,
                commits=plan.terms.commits,
            )
        )

    def _signalled(self, name: str) -> None:
        cause = self._ending.cause
        # Supervisors send SIGHUP beside another signal, in any order: that is not a second request.
        if name != "SIGHUP":
            if self._pressed or not (cause is None or isinstance(cause, Signalled)):
                self._ending.forced.set()
            self._pressed = True
        self._control.interrupted |= name == "SIGINT"
        self.shut_down(Signalled(f"interrupted by {name}"))
