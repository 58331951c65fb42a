"""Failures on the event loop: what the failure policy decides is carried out here.

Dead letters are written from here, and calls with several sub-messages are taken apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from drainer.core.admission import Admission, Rate, Retries
from drainer.core.batches import Batch, Batcher, Batching, InPart
from drainer.core.dispatch import Dispatcher
from drainer.engine.blame import (
    ErrorCounts,
    MachineFails,
    blame,
    halted_at,
    is_retryable,
    reason_to_skip,
    summary_of,
)
from drainer.engine.divert import Divert
from drainer.engine.letters import LetterDelivery
from drainer.engine.outcome import lanes_parked, too_many_ignored
from drainer.engine.ports import DeadLetters, Events
from drainer.engine.runtime import Runtime
from drainer.engine.workers import CallInput, LeaseOver, TimedOut, WorkSource
from drainer.errors import DrainerError, Halted, ThreadsOverdue
from drainer.handler import Fatal, GiveUp, Retry, Skip
from drainer.machine import describe_os, way_out
from drainer.message import SubMessage, Unsplit
from drainer.model.listed import counted, round_duration
from drainer.model.progress import Outcome
from drainer.model.settings import FailureSettings, OnFailure
from drainer.model.status import FailureStatus
from drainer.policy.failures import (
    BY_COMPARISON,
    HANDLER,
    IN_DOUBT,
    OTHERS_SUCCEED,
    UNSPLIT,
    Decision,
    FailurePolicy,
    Totals,
)
from drainer.policy.fault import Fault

TICK_LEAST_S = 0.001
OTHERS_S = 60.0  # without a success in another task: then there may be none at work

_STUCK_HINT = "Find out why they block, then resume: drainer handles them again."


class Failures:
    """Retries, dead letters, parked lanes, the circuit breaker and the rate of one drain.

    Args:
        batching: how the handler wants several sub-messages in one call; None when it does not.
        is_outage: the handler's judgement of an error; None when it has none of any.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        policy: FailurePolicy,
        sink: DeadLetters | None,
        batching: Batching | None,
        is_outage: Callable[[BaseException], bool | None] | None = None,
        *,
        events: Events,
        runtime: Runtime,
    ) -> None:
        self._clock = clock = runtime.monotonic
        self._wall = runtime.wall
        self._is_outage = is_outage
        self._dispatcher = dispatcher
        self._events = events
        self._retries = Retries()
        self._policy = policy
        self._breaker = policy.breaker
        self._whole = self._others = Totals()  # What all tasks, and the other ones, have done.
        self._others_until_s = 0.0  # Until then, another task may still show that all is well.
        per_s = policy.settings.rate
        rate = None if per_s is None else Rate(per_s, clock())
        self._admission = Admission(
            dispatcher,
            self._retries,
            policy,
            rate,
            clock,
            succeeded=self._succeeded,
            outage_over=self._outage_over,
        )
        self._paused_s = 0.0  # since when it is
        self._errors = ErrorCounts()
        self._batcher = None if batching is None else Batcher(self._admission, batching)
        self.source: WorkSource = self._batcher or self._admission  # where workers get their work
        self._letters = LetterDelivery(sink, self._written, events.halt)
        self._failed_subs = self._timeouts = self._skipped = 0
        self._diverted: dict[SubMessage, str] = {}  # by expression, until the letter is safe
        self._outage = ""  # the error with which it began; empty while the breaker is closed
        self.late: set[SubMessage] = set()  # overdue, and still in their threads
        # The last errno by which this machine failed the handler, and a text about it.
        self._machine: tuple[int | None, str] = None, ""
        # Since when the machine fails, and how many sub-messages were done at that time.
        self._machine_since_s, self._machine_done = 0.0, -1
        self._stuck_since_s: float | None = None  # all threads are overdue
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def _settings(self) -> FailureSettings:
        return self._policy.settings

    @property
    def holding_back(self) -> bool:
        """Whether some of what is ready may have to wait."""
        return self._admission.checks

    @property
    def failed_attempts(self) -> int:
        """Attempts that failed, of messages that ``split`` rejected too."""
        return self._errors.attempts

    @property
    def calls(self) -> int | None:
        """Calls that ended well, of a handler that takes several sub-messages in one."""
        return None if self._batcher is None else self._batcher.calls + self._skipped

    @property
    def waiting(self) -> int:
        """Sub-messages that come back by themselves: for a retry, or acknowledged as dead."""
        return len(self._retries) + self._letters.pending

    @property
    def trouble(self) -> str | None:
        if self._breaker.is_open:
            _, most_s, option, what = self._patience
            return (
                f"{what} ({self._outage}): drainer tries one sub-message at a time, for up to"
                f" {round_duration(most_s)} ({option}). If only these messages are bad, `drainer"
                " set PLAN breaker=off` gives them up"
            )
        in_doubt = self._policy.suspicion.in_doubt
        if in_doubt and self._nothing_else_runs:
            return (
                f"{counted(len(in_doubt), 'sub-message')} failed ({self._errors.latest}),"
                " and nothing has succeeded since to show whether the downstream is away: drainer"
                f" tries again for {round_duration(self._settings.max_doubt_s)} (--max-doubt)"
            )
        if self._machine_done == self._own_done:
            return (
                f"{self._machine[1]}: drainer tries again, and gives nothing up, for up to"
                f" {round_duration(self._settings.max_outage_s)} (--max-outage)"
            )
        return self._letters.trouble

    @property
    def _patience(self) -> tuple[float, float, str, str]:
        """Since when the breaker is open, how long it may be, by which option, and why."""
        own_s, since_s = self._breaker.own_since_s, self._breaker.open_since_s or 0.0
        if self._done and own_s is None:
            most_s = self._settings.max_outage_s
            return since_s, most_s, "--max-outage", "the downstream is failing"
        what = "no message of many succeeds" if self._done else "nothing has succeeded in this run"
        what += "" if own_s is None else ", with errors that look like the messages' own"
        return own_s or since_s, self._settings.max_doubt_s, "--max-doubt", what

    def status(self) -> FailureStatus:
        return FailureStatus(
            failures=self._errors.attempts,
            failed_sub_messages=self._failed_subs,
            retries=self._retries.started,
            timeouts=self._timeouts,
            waiting=len(self._retries),
            parked_lanes=self._dispatcher.lanes.parked,
            late=len(self.late),
            outages=self._breaker.opened,
            errors=self._errors.kinds,
            dead_letter_topic=self._settings.dead_letter_topic,
            error_types=self._errors.types,
            in_outage=self._breaker.open_since_s is not None,
            given_up=self._policy.given_up,
            given_up_by=tuple(self._policy.given_up_by.items()),
            rate=self._settings.rate,
            doubled_letters=self._letters.doubled,
            doubled_first=self._letters.doubled_first,
            left_out_letters=self._letters.left_out,
            left_out_oldest_ms=self._letters.left_out_oldest_ms,
        )

    def failed(self, work: CallInput, error: BaseException) -> None:
        """Notices a call that ended with an error."""
        if isinstance(error, InPart) and self._batcher is not None:
            self._failed_in_part(work, error, self._batcher)
            return
        fault, error = self._blame(error)
        if isinstance(error, LeaseOver):
            for sub in _members(work):
                sub.attempt -= 1
        if self._batcher is None or not isinstance(work, Batch):
            self._failed_alone(work, error, fault)
        elif isinstance(error, Retry):
            for lead in self._batcher.give_back(work, split=False):
                self._failed_alone(lead, error, fault)
        elif len(work.members) == 1 or isinstance(error, Fatal) or not is_retryable(error):
            work.unfold()
            self._skipped += isinstance(error, Skip)
            self._failed_alone(work.members[0], error, fault)
        else:
            self._failed_together(work, error, fault, self._batcher)

    def _blame(self, error: BaseException) -> tuple[Fault, BaseException]:
        fault, error = blame(error, self._is_outage)
        if isinstance(error, MachineFails):
            self._errors.count(error.error)
            self._machine_failed(error.error)
        elif not isinstance(error, Skip | Retry | Divert):
            self._errors.count(error)
            self._timeouts += isinstance(error, TimedOut)
        return fault, error

    def _machine_failed(self, error: OSError) -> None:
        now_s, max_s = self._clock(), self._settings.max_outage_s
        if error.errno != self._machine[0]:  # described once, which may take long
            self._machine = error.errno, f"this machine fails the handler: {describe_os(error)}"
        if self._machine_done != self._own_done:
            self._machine_since_s, self._machine_done = now_s, self._own_done
        elif now_s - self._machine_since_s >= max_s:
            why = f"{self._machine[1]}; nothing has succeeded for {round_duration(max_s)}"
            hint = f"{way_out(error, '')} Then resume."
            self._events.halt(Halted(f"{why} (--max-outage)", hint=hint, cause=error))

    def _failed_in_part(self, batch: Batch, part: InPart, batcher: Batcher) -> None:
        # What is done has finished by then, so that the breaker knows of it first.
        for sub, raised, members in batcher.take_apart(batch, part.results):
            fault, error = self._blame(raised)
            if members == 1 or isinstance(error, Retry | Fatal) or not is_retryable(error):
                self._failed_alone(sub, error, fault)
            else:
                self._judge(sub, error, fault, members)
                self._try_again([sub])
        self._moved()

    def _failed_alone(self, sub: SubMessage, error: BaseException, fault: Fault) -> None:
        now_s = self._clock()
        known = getattr(sub, "failing", None)  # without a try of its own, it was in a batch
        if not (isinstance(error, Skip | Retry | Divert) or (known and known.tries)):
            self._failed_subs += 1
        if isinstance(error, Skip):
            self._policy.excuse(sub, now_s)  # decided by the handler, perhaps without a call
            self._dispatcher.rule_filter.skipped(reason_to_skip(error))
            self._dispatcher.finish(sub, Outcome.SKIPPED)
            self._moved()
        elif isinstance(error, Retry):
            decision = self._policy.try_later(now_s, error.after, sub)
            self._carry_out(sub, decision, error)
        elif isinstance(error, Divert):
            self._policy.excuse(sub, now_s)
            self._diverted[sub] = str(error)
            self._write(sub, error)
        elif isinstance(error, GiveUp):
            self._policy.excuse(sub, now_s)
            self._carry_out(sub, self._policy.give_up(HANDLER), error)
        elif isinstance(error, Fatal) or not is_retryable(error):
            self._carry_out(sub, Decision(OnFailure.HALT), error)
        else:
            self._notice(sub, fault, now_s, self._in_flight - 1)
            decision = self._policy.decide(sub, error, fault, done=self._done, now_s=now_s)
            self._gate()
            self._carry_out(sub, decision, error)

    def _notice(self, sub: SubMessage, fault: Fault, now_s: float, running: int) -> None:
        lanes, wall_s = len(self._dispatcher.lanes), self._wall().timestamp()
        self._policy.count_call(
            sub, fault, lanes=lanes, running=running, now_s=now_s, wall_s=wall_s
        )

    def decide_rejected(self) -> None:
        """Decides on messages that ``split`` rejected, without retries or the breaker: that is
        their own fault."""
        while not (self._stopped or self._admission.paused):
            if self._letters.pending and self._settings.stops_unsplit:
                break  # what is behind it waits, other letters too
            unit = self._dispatcher.next_rejected()
            if unit is None:
                self._events.on_moved()  # some may have been left behind a parked one
                break
            if unit.skip is not None:
                self._dispatcher.rule_filter.skipped(reason_to_skip(Skip(unit.skip)))
                self._dispatcher.finish(unit, Outcome.SKIPPED)
                self._moved()
            else:
                self._errors.count(unit.error)
                settings: FailureSettings = unit.failures or self._settings
                decision = Decision(settings.on_unsplit, rule=UNSPLIT)
                self._carry_out(unit, decision, unit.error)

    def _failed_together(
        self, batch: Batch, error: BaseException, fault: Fault, batcher: Batcher
    ) -> None:
        # None of them has spent a retry by that: they are tried in smaller calls, until the one
        # that fails is known.
        self._judge(batch.members[0], error, fault, len(batch.members))
        # When it is away, it is not for what is in it that it failed.
        self._try_again(batcher.give_back(batch, split=not self._breaker.is_open))
        self._moved()

    def _judge(self, lead: SubMessage, error: BaseException, fault: Fault, members: int) -> None:
        now_s = self._clock()
        if isinstance(error, Skip | GiveUp):
            self._policy.excuse(lead, now_s)  # a handler that decides that has not failed
        else:
            self._notice(lead, fault, now_s, self._in_flight - members)
            self._gate()

    def _try_again(self, leads: Sequence[SubMessage]) -> None:
        at_s = self._clock() + self._settings.retry_delay_s
        for lead in leads:
            self._dispatcher.delay(lead)
            if self._breaker.is_open:
                self._retries.push(lead, at_s)
            else:
                self._dispatcher.release(lead)

    def _succeeded(self, sub: SubMessage) -> None:
        self._given_up(self._policy.succeeded(sub), OTHERS_SUCCEED)
        if not self._policy.needs_successes:
            self._update_admission()

    def _given_up(self, subs: Sequence[SubMessage], rule: str, why: str | None = None) -> None:
        """Gives up what waits for another attempt; what is in the handler gets its result first."""
        for sub in subs:
            if self._retries.remove(sub):
                self._dispatcher.resume(sub)
                self._carry_out(sub, self._policy.give_up(rule, why), sub.failing.error)

    def overdue(self, calls: Sequence[CallInput], *, stuck: bool) -> None:
        """Notices calls that go on in their threads after their time; their lanes wait for them."""
        for call in calls:
            if self.late.isdisjoint(members := _members(call)):
                self._timeouts += 1
                self.late.update(members)
        now_s = self._clock()
        for sub in self.late:
            self._breaker.end_probe(sub, now_s)  # another probe may start
        self._stuck_since_s = (self._stuck_since_s or now_s) if stuck else None
        for_s = now_s - (self._stuck_since_s or now_s)
        if for_s > self._settings.max_outage_s:
            self._events.halt(
                Halted(
                    f"all handler threads are blocked by {counted(len(self.late), 'sub-message')}"
                    f" for {round_duration(round(for_s))}, longer than --max-outage",
                    hint=_STUCK_HINT,
                )
            )
        if calls:
            self._events.on_moved()

    def hear(self, whole: Totals) -> None:
        """Note what all tasks of the drain have done. Successes of the others close the breaker,
        too, and speak against sub-messages that are in doubt here."""
        if whole == self._whole or self._stopped:
            return
        self._whole = whole
        own = Totals(self._own_done, self._policy.given_up, self._finished)
        before, self._others = self._others, self._others.beside(own, whole)
        if self._others.began_s > before.began_s:
            self._others_until_s = self._clock() + OTHERS_S
            was_open, calls = self._breaker.is_open, self._others.done - before.done
            bad = self._policy.succeeded_elsewhere(self._others.began_s, calls)
            self._given_up(bad, OTHERS_SUCCEED)
            if was_open and not self._breaker.is_open:
                self._outage_over()

    def returned(self, work: CallInput) -> None:
        """Notices that a call that may have been overdue has ended; its result comes next."""
        self.late.difference_update(_members(work))

    def left_over(self) -> DrainerError | None:
        """Return why a drain ends in which nothing is left to do, and not all is done; None if no
        more was wanted."""
        lanes = self._dispatcher.lanes
        if self.late:
            return ThreadsOverdue(
                f"{counted(len(self.late), 'sub-message')} did not return from the handler's"
                " threads in time; their lanes are pending",
                hint=_STUCK_HINT,
            )
        # What is deferred is read by the rest.
        read = self._dispatcher.delivered or self._dispatcher.deferred > 0
        if lanes.parked:
            return lanes_parked(
                lanes.parked, read=read, behind_letters=bool(self._dispatcher.parked)
            )
        if not read:
            return too_many_ignored(self._dispatcher.left_pending)
        return None

    def pause(self, paused: bool) -> None:
        """Starts nothing while paused; what is in the handler goes on."""
        if paused != self._admission.paused:
            now_s = self._clock()
            self._admission.paused = paused
            if paused:
                self._paused_s = now_s
            else:
                self._policy.leave_out(self._paused_s, now_s)
            self._update_admission()
            self._tick()

    def change(self, settings: FailureSettings, sink: DeadLetters | None) -> None:
        """Decides by these from now on; what was given up stays so."""
        before, now_s = self._settings, self._clock()
        self._policy.settings = settings
        self._letters.use(sink)
        rate = self._admission.rate
        if settings.rate is None:
            self._admission.rate = None
        elif rate is None:
            self._admission.rate = Rate(settings.rate, now_s)
        else:
            rate.change(settings.rate, now_s)
        if before.breaker and not settings.breaker:
            self._breaker.close()
            self._outage_over()
        self._update_admission()
        self._tick()

    def stop(self) -> None:
        """Starts nothing any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _gate(self) -> None:
        if self._breaker.is_open and not self._outage:  # once when it opens
            self._outage = self._errors.latest
            self._update_admission()
        elif self._policy.needs_successes and not self.holding_back:
            self._update_admission()

    def _update_admission(self) -> None:
        self._admission.update()
        self.schedule()

    def _carry_out(self, sub: SubMessage, verdict: Decision, error: BaseException) -> None:
        if verdict.action is None:
            self._dispatcher.delay(sub)
            requested = isinstance(error, Retry) and error.after is not None
            counts = not isinstance(error, LeaseOver)
            self._retries.push(sub, verdict.at_s, requested=requested, counts=counts)
            self.schedule()
            return
        if verdict.action is OnFailure.HALT:
            self._events.halt(halted_at(sub, error, verdict.why))
            return
        behind = self._dispatcher.lanes.next_in_lane(sub)
        if behind is not None and verdict.rule in BY_COMPARISON:
            self._policy.suspect_next(behind, sub)
        finished = self._finished + self._letters.pending + 1  # letters under way are given up, too
        too_many = self._policy.count_given_up(
            verdict.rule, finished + self._others.finished, self._others.given_up
        )
        if too_many is not None:
            self._events.halt(halted_at(sub, error, too_many))
        else:
            ACTIONS[verdict.action](self, sub, error)

    def _skip(self, sub: SubMessage, _: BaseException) -> None:
        self._dispatcher.finish(sub, Outcome.FAILED)
        self._moved()

    def _park(self, sub: SubMessage, error: BaseException) -> None:
        self._dispatcher.park(sub, summary_of(error))
        self._events.on_moved()

    def _write(self, sub: SubMessage, error: BaseException) -> None:
        if self._letters.send(sub, error):
            self._dispatcher.delay(sub)

    def _written(self, sub: SubMessage, summary: str) -> None:
        self._dispatcher.resume(sub)
        diverted = self._diverted.pop(sub, None)
        if diverted is not None:
            self._dispatcher.rule_filter.diverted(diverted)
        settings = (sub.failures if isinstance(sub, Unsplit) else None) or self._settings
        if settings.stops_behind_dead and diverted is None:
            self._dispatcher.park_behind(sub, Outcome.DEAD, summary)
        else:
            self._dispatcher.finish(sub, Outcome.DEAD)
        self._moved()

    def _moved(self) -> None:
        self.schedule()
        self._events.on_moved()

    def _outage_over(self) -> None:
        self._outage = ""
        self._policy.suspicion.clear()
        self._retries.hurry(self._clock())  # it was not for themselves that they failed
        self._update_admission()
        self._loop.call_soon(self._tick)

    def schedule(self) -> None:
        """Sets the time at which what can't start yet is looked at again."""
        now_s = self._clock()
        times = [self._admission.next_at_s]
        if self._breaker.open_since_s is None:
            times.append(self._retries.due_s)
            if self._policy.suspicion.in_doubt and self._nothing_else_runs:
                times.append(self._policy.doubts_end_s)
        else:
            since_s, most_s, *_ = self._patience
            times.append(since_s + most_s)
        at_s = min((time for time in times if time is not None), default=None)
        if at_s is None or self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(TICK_LEAST_S, at_s - now_s), self._tick)

    def _tick(self) -> None:
        if self._stopped or self._admission.paused:
            return
        now_s = self._clock()
        since_s, most_s, *_ = self._patience
        if not self._breaker.is_open:
            if self._policy.suspicion.in_doubt and self._nothing_else_runs:
                self._end_doubts(now_s)
            while (sub := self._retries.pop(now_s)) is not None:
                self._dispatcher.release(sub)
        elif now_s - since_s >= most_s:
            self._events.halt(self._no_more_patience(now_s - since_s))
            return
        self._events.on_moved()
        self.schedule()

    @property
    def _nothing_else_runs(self) -> bool:
        """Whether only what is in doubt can run, so that nothing can show whose fault it is."""
        doubts = self._policy.suspicion.in_doubt
        if self._clock() < self._others_until_s:
            return False
        busy = self._in_flight + self._dispatcher.ready
        if busy > len(doubts) or self._events.awaits_more:
            return False
        waiting = sum(sub in self._retries for sub in doubts)
        return busy <= len(doubts) - waiting and len(self._retries) == waiting

    @property
    def _in_flight(self) -> int:
        return self._dispatcher.lanes.running - len(self.late)

    def _end_doubts(self, now_s: float) -> None:
        if now_s < self._policy.doubts_end_s:
            return
        bad = self._policy.end_doubts(now_s)
        self._gate()
        why = (
            f"nothing has succeeded for {round_duration(self._settings.max_doubt_s)}, and no other"
            " lane has work to show whether the downstream is the cause (--max-doubt)"
        )
        self._given_up(bad, IN_DOUBT, why)

    def _no_more_patience(self, waited_s: float) -> Halted:
        _, _, option, what = self._patience
        return Halted(
            f"{what}; drainer has waited for {round_duration(round(waited_s))} ({option}); last,"
            f" {self._errors.latest}",
            hint="Fix the handler or its downstream, then resume. If the messages are bad instead,"
            " resume with --no-breaker.",
        )

    @property
    def _done(self) -> int:
        return self._own_done + self._others.done

    @property
    def _own_done(self) -> int:
        return sum(ledger.subs_done for ledger in self._dispatcher.ledgers.values())

    @property
    def _finished(self) -> int:
        # In all runs, without what rules took out: the handler has not seen that.
        finished = self._dispatcher.tally()[1].finished
        return finished - self._dispatcher.unhandled().without_call


ACTIONS: dict[OnFailure, Callable[[Failures, SubMessage, BaseException], None]] = {
    OnFailure.DEAD_LETTER: Failures._write,  # noqa: SLF001
    OnFailure.PARK: Failures._park,  # noqa: SLF001
    OnFailure.SKIP: Failures._skip,  # noqa: SLF001
}
"""How a sub-message is given up; one with ``OnFailure.HALT`` is not, it ends the drain."""


def _members(work: CallInput) -> list[SubMessage]:
    return work.members if isinstance(work, Batch) else [work]
