"""The life of a drain with any engine, from its start to its summary."""

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
    ProgressStatus,
    Status,
    Summary,
    share_finished,
)
from drainer.text.mask import describe

STATUS_INTERVAL_S = 0.5

# After one of these the group is not ours any more, so nothing may be committed.
NOT_OURS = (OffsetMoved, GroupJoined, LockLost, TopicGone)


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
        self._requested: Signalled | None = None  # The last request to stop.
        self._pressed = False  # Whether a person or a supervisor has sent a signal to stop.
        # The time left in the last status before the drain began to end. It stays until the end,
        # because no estimate makes sense while nothing new begins.
        self._eta_s: float | None = None
        ending.at_once.append(self._commit_no_more)

    async def run(self) -> Summary:
        """Drain until the drain ends, and return how it ended.

        Raises Refused if the drain can't begin. An error of drainer that stops it is the cause in
        the summary. Any other error is raised once the plan is saved.
        """
        loop, end = asyncio.get_running_loop(), self._ending.end
        with self._runtime.stop_signals(loop, self._signalled, self._context.give_up):
            self._ending.on_signal = self._signalled
            self.apply_pause()  # It may have been paused in an earlier pass.
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
        """Check what happens elsewhere, and show the status, until the drain ends."""
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
        """Begin no calls while the drain is paused, or continue if it is not."""
        # It also pauses while the lock is not confirmed, because another drain may have the lock,
        # and while the journal waits for its place, because a kill would repeat all that finishes.
        self._work.pause(self._unsure is not None or self._control.paused is not None)

    @property
    def _unsure(self) -> str | None:
        """The reason why nothing may begin for now; None if nothing is unsure."""
        if self._runtime.uptime() < self._lock.sure_until_s:
            return self._context.file.trouble
        return "the lock on the group is not confirmed, so drainer begins nothing new"

    def shut_down(self, request: Signalled, *, now: bool = False) -> None:
        """End the drain on request. With ``now``, it does not wait for calls in flight."""
        if now:
            self._ending.forced.set()
        self._requested = self._control.stopped = request
        self._ending.end(request)

    def _commit_no_more(self) -> None:
        """End commits at once if the drain ends because the group is not its own."""
        if isinstance(self._ending.cause, NOT_OURS):
            self.checkpointer.may_commit = False

    async def _stop(self, cause: BaseException | None) -> BaseException | None:
        """Stop, save for the last time, and return the cause to report; None if all is done."""
        # If another drain or consumer works for the group by now, it handles what failed here. So
        # this drain must write no letter for it.
        grace_s = 0.0 if isinstance(cause, NOT_OURS) else self._control.running.grace_s
        # The checkpointer goes on meanwhile, so that a call that hangs does not delay its writes.
        try:
            cause = await self._work.wind_down(cause, grace_s)
        except Exception as error:  # The last checkpoint is written all the same.
            cause = chain_errors(cause, not_stopped(error))
        # This is the last measurement, so that plan and summary have everything.
        self._work.measure(self.checkpointer.plan)
        self._note_share(self._status().progress)
        forced, within = self._ending.forced, self._ending.within
        await within(self.checkpointer.stop())
        cause = await self._work.close(cause)
        if forced.is_set():
            # The drain does not wait for its commit, so it can't report that it is done.
            cause = cause or self._requested
        lost = self._lock.lost  # The lock may have been lost after the drain began to end.
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
        goes_on = may_continue(cause) and not self._context.this_pass.is_last
        if not (goes_on or self._context.waits_after(cause)):
            self._control.end()
        return cause if lost is None or lost is cause else chain_errors(cause, lost)

    def _show(self) -> Status:
        """Show the status, with the deadline and the time left, which need earlier statuses."""
        status = self._status()
        progress, elapsed_s = status.progress, status.timing.elapsed_s
        eta_s = 0.0 if progress.complete else progress.eta_s
        by, now = self._control.running.deadline, self._runtime.wall()
        at_pace_s = None if eta_s is None else eta_s * progress.quicker
        deadline = self._deadline.judge(by, now, elapsed_s, at_pace_s)
        status = replace(status, progress=replace(progress, deadline=deadline))
        self._note_share(progress)
        if self._ending.cause is None:
            self._eta_s = status.progress.eta_s
        self._context.observe(status)
        return status

    def _note_share(self, progress: ProgressStatus) -> None:
        # With --only, the share is of what is selected, and a resume drains the rest, too.
        share = None if progress.only_classes else share_finished(progress.partitions)
        self.checkpointer.share_done = share

    def _status(self) -> Status:
        checkpointer, control = self.checkpointer, self._control
        status = self._work.status(checkpointer.plan)
        cause, stopping, eta_s = self._ending.cause, None, status.progress.eta_s
        if cause is not None:
            stopping = str(cause) if isinstance(cause, DrainerError) else describe(cause)
            eta_s = self._eta_s
        failures = self._work.failure_status()
        health, silence = status.health, self._lock.silence
        silent_s, waits = None, health.trouble or self._unsure
        if silence is not None:  # Whatever else is wrong follows from that.
            silent_s, waits = self._runtime.uptime() - silence[1], f"no answer from {silence[0]}"
        trouble = waits or checkpointer.trouble  # A commit that waits keeps nothing else waiting.
        plan_age_s = self._runtime.monotonic() - checkpointer.written_at
        progress = replace(status.progress, eta_s=eta_s)
        # While drainer waits, calls in flight still end, but no other begins.
        if failures.in_outage or (waits is not None and not status.limits.in_flight):
            classes = tuple(replace(each, eta_s=None) for each in progress.classes)
            progress = replace(progress, eta_s=None, classes=classes)
        return replace(
            status,
            progress=progress,
            failures=failures,
            timing=replace(status.timing, plan_age_s=plan_age_s),
            health=replace(
                health, trouble=trouble, silent_s=silent_s, is_kept_waiting=waits is not None
            ),
            control=ControlStatus(
                stopping, control.paused, tuple(control.events), control.events_total
            ),
        )

    async def _summary(self, cause: BaseException | None) -> Summary:
        status = self._show()
        work, account, plan = self._work, self.checkpointer.account, self.checkpointer.plan
        partitions = plan.account.partitions
        committed: Mapping[int, int | None] = plan.account.committed
        if not self._ending.forced.is_set():
            with suppress(DrainerError):  # If no broker answers, the offsets of the plan are shown.
                committed = await self._runtime.blocking_call(self._context.read_committed)
        watermarks = account.watermarks
        # What is pending is counted one by one, so that the law of conservation is really checked.
        messages, subs = account.counts()
        progress = replace(status.progress, messages=messages, sub_messages=subs)
        ended, code, reported = final_outcome(
            cause,
            messages,
            subs,
            # A redrive may drain what its former runs gave up once more. The policy's count leaves
            # that out (``given_up_before``).
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
                        *(part.start, part.end, watermarks[n], committed.get(n), part.lost),
                        plan.account.finished_above(n),
                    )
                    for n, part in partitions.items()
                },
                cause=reported,
                parked=account.parked_lanes,
                history=plan.account.history,
                handler=plan.terms.handler_words,
                connection=plan.terms.connection_words,
                barrier=plan.terms.payloads.barrier,
                commits=plan.terms.commits,
            )
        )

    def _signalled(self, name: str) -> None:
        cause = self._ending.cause
        # A SIGHUP is not a second request, because supervisors send it along with another signal.
        if name != "SIGHUP":
            if self._pressed or not (cause is None or isinstance(cause, Signalled)):
                self._ending.forced.set()
            self._pressed = True
        self._control.interrupted |= name == "SIGINT"
        self.shut_down(Signalled(f"interrupted by {name}"))
