"""Attempts: each attempt at a sub-message begins here, and ends here in success or failure.

Workers take from ``Failures`` what may start, and report to it how calls end. What follows a
failure is decided by ``policy/failures.py``, whose docstring has the state machine. This module
carries the decisions out:

    again        the lane waits, and the sub-message is among the ``Retries`` until it is due
    halt         the drain ends
    dead letter  the lane waits until the letter is safe; then it continues, or is parked
    park         the sub-message stays pending, and its lane waits for another run
    skip         the sub-message counts as failed, and its lane continues

Everything here runs on the event loop. Questions (properties and ``status``) change nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from drainer.core.batches import Batch, Batcher, Batching, InPart
from drainer.core.dispatch import Dispatcher
from drainer.engine.divert import Divert
from drainer.engine.error_kinds import TEXT_LENGTH, ErrorCounts, summary_of
from drainer.engine.letters import LetterDelivery
from drainer.engine.outcome import STUCK_HINT, halted_at
from drainer.engine.ports import CallInput, DeadLetters, Events, LeaseOver, TimedOut
from drainer.engine.runtime import Runtime
from drainer.errors import Halted
from drainer.handler import Fatal, GiveUp, Results, Retry, Skip
from drainer.host.os_errors import describe_os, way_out
from drainer.message import SubMessage, Unsplit
from drainer.model.listed import counted, round_duration
from drainer.model.progress import Outcome
from drainer.model.settings import FailureSettings, OnFailure
from drainer.model.status import FailureStatus, OutageStatus
from drainer.policy.failures import (
    BY_COMPARISON,
    DOWNSTREAM_FAILS,
    HANDLER,
    IN_DOUBT,
    OTHERS_SUCCEED,
    UNSPLIT,
    Decision,
    FailurePolicy,
    Moment,
    Patience,
    Retries,
    Totals,
)
from drainer.policy.fault import Fault, MachineFails, blame, is_retryable
from drainer.policy.rate import Rate
from drainer.text.mask import describe

TICK_LEAST_S = 0.001


class Failures:
    """Starts the attempts of sub-messages, and decides what follows when they end.

    Args:
        sink: where dead letters go; None while dead letters are off.
        batching: how the handler takes several sub-messages in one call; None if it does not.
        is_outage: the handler's judgement of an error; None if it has none.

    Attributes:
        source: where workers take their calls from: this object, or a batcher in front of it.
        checks: whether this object has to look at each start and each success. If not, workers go
            straight to the dispatcher.
        late: the sub-messages that are overdue, and still in their threads.
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
        self.lanes = dispatcher.lanes
        self._dispatcher, self._policy, self._events = dispatcher, policy, events
        self._breaker, self._is_outage = policy.breaker, is_outage
        self._clock, self._wall = runtime.monotonic, runtime.wall
        self._loop = asyncio.get_running_loop()
        self._retries = Retries()
        per_s = policy.settings.rate
        self._rate = None if per_s is None else Rate(per_s, self._clock())
        self._paused_s: float | None = None  # Since when nothing may start; None while it may.
        self.checks = self._rate is not None
        self._batcher = None if batching is None else Batcher(self, batching)
        self.source: Batcher | Failures = self._batcher or self
        self._letters = LetterDelivery(sink, self._letter_is_safe, events.halt)
        # The expression that diverts each of these sub-messages, until its letter is safe.
        self._diverted: dict[SubMessage, str] = {}
        self.errors = ErrorCounts()
        self._failed_subs = self._timeouts = self._skipped_calls = 0
        self._outage = ""  # The error with which an outage began; empty while there is none.
        self._machine = MachineTrouble()
        self.late: set[SubMessage] = set()
        self._stuck_since_s: float | None = None  # Since when calls block all threads.
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None

    # --- an attempt begins ---

    @property
    def ready(self) -> int:
        """The number of sub-messages that may start now."""
        if not self.checks:
            return self._dispatcher.ready
        now_s, startable = self._clock(), self._startable
        if not startable or (self._breaker.probe_at_s or now_s) > now_s:
            return 0
        return startable if self._rate is None else min(startable, self._rate.allowed(now_s))

    @property
    def next_start_s(self) -> float | None:
        """When the clock will let something start; None if nothing waits for the clock."""
        rate_at_s = None if self._rate is None else self._rate.next_at_s(self._clock())
        times = [at_s for at_s in (self._breaker.probe_at_s, rate_at_s) if at_s is not None]
        return max(times, default=None) if self._startable else None

    @property
    def _startable(self) -> int:
        """The number of sub-messages that may start once rate and breaker allow it."""
        if self._paused_s is not None:
            return 0
        ready = self._dispatcher.ready
        if not self._breaker.is_open:
            return ready
        return min(1, ready + len(self._retries)) if self._breaker.probe_at_s is not None else 0

    def take(self) -> SubMessage | None:
        """Start the next sub-message, if one may start."""
        if not self.checks:
            return self._dispatcher.take()
        if not self.ready:
            return None
        breaker = self._breaker
        # The probes are in turn a sub-message that has failed before, and one that has not.
        takes_tried = breaker.is_open and (breaker.prefers_tried or not self._dispatcher.ready)
        if takes_tried and (tried := self._retries.pop()) is not None:
            self._dispatcher.release(tried)
        sub = self._dispatcher.take()
        if sub is None:
            return None
        if breaker.is_open:
            breaker.start_probe(sub)
        self._note_start(sub)
        return sub

    def take_next_in_lane(self, sub: SubMessage) -> SubMessage | None:
        """Start the sub-message behind ``sub`` in its lane, to be handled in the same call.

        Returns None if it may not start.
        """
        if not self.checks:
            return self._dispatcher.take_next_in_lane(sub)
        if self._breaker.is_open or self._paused_s is not None:
            return None
        if self._rate is not None and not self._rate.allowed(self._clock()):
            return None
        follower = self._dispatcher.take_next_in_lane(sub)
        self._note_start(follower)
        return follower

    def _note_start(self, sub: SubMessage) -> None:
        sub.started_at = self._policy.doubts.failed_calls
        if self._rate is not None:
            self._rate.start(self._clock())

    # --- an attempt succeeds ---

    def finish(self, sub: SubMessage) -> None:
        """Finish a sub-message that was handled."""
        self._dispatcher.finish(sub)
        if not self.checks:
            return
        if self._breaker.close_if_probe(sub):
            self._settle()
        elif self._policy.needs_successes:
            self._give_up(self._policy.succeeded(sub), OTHERS_SUCCEED)
            if not self._policy.needs_successes:
                self._settle()

    def finish_and_take(self, sub: SubMessage) -> SubMessage | None:
        """Finish a sub-message as done, and take the next one.

        Workers do this for nearly every sub-message, and one call is faster than two.
        """
        if self.checks or self._dispatcher.barrier_queues:
            self.finish(sub)
            return self.take()
        message = sub.message  # The dispatcher would do the same, but with one more call.
        message.ledger.finish(message, sub.index)
        return self.lanes.finish_and_take(sub)

    # --- an attempt fails ---

    def failed(self, call: CallInput, error: BaseException) -> None:
        """Decide on the sub-messages of a call that ended with an error."""
        batcher = self._batcher
        if isinstance(error, InPart) and batcher is not None:
            self._call_failed_in_part(call, error.results, batcher)
            return
        fault, error = self._blame(error)
        if isinstance(error, LeaseOver):
            for sub in _members(call):
                sub.attempt -= 1
        if batcher is None or not isinstance(call, Batch):
            self._attempt_failed(call, fault, error)
        elif isinstance(error, Retry):
            for lead in batcher.give_back(call, split=False):
                self._attempt_failed(lead, fault, error)
        elif len(call.members) == 1 or _ends_all(error):
            call.unfold()
            self._skipped_calls += isinstance(error, Skip)
            self._attempt_failed(call.members[0], fault, error)
        else:
            # None of the sub-messages spends a retry. They are tried in smaller calls until the one
            # that fails is known. In an outage the calls stay as large, because no sub-message is
            # to blame.
            self._call_failed(call.members[0], fault, error, len(call.members))
            self._try_again(batcher.give_back(call, split=not self._breaker.is_open))
            self._moved()

    def _call_failed_in_part(self, batch: Batch, results: Results, batcher: Batcher) -> None:
        # The batcher first finishes what is done, so that the breaker knows of the successes.
        for sub, raised, members in batcher.take_apart(batch, results):
            fault, error = self._blame(raised)
            if members == 1 or isinstance(error, Retry) or _ends_all(error):
                self._attempt_failed(sub, fault, error)
            else:
                self._call_failed(sub, fault, error, members)
                self._try_again([sub])
        self._moved()

    def _blame(self, error: BaseException) -> tuple[Fault, BaseException]:
        fault, error = blame(error, self._is_outage)
        if isinstance(error, MachineFails):
            self.errors.count(error.error)
            self._machine_failed(error.error)
        elif not isinstance(error, Skip | Retry | Divert):
            self.errors.count(error)
            self._timeouts += isinstance(error, TimedOut)
        return fault, error

    def _attempt_failed(self, sub: SubMessage, fault: Fault, error: BaseException) -> None:
        """Decide on a sub-message that failed alone in its call, or with a result of its own."""
        policy, now_s = self._policy, self._clock()
        # A record without an error belongs to a sub-message that failed only together with others.
        record = getattr(sub, "failing", None)
        if not (isinstance(error, Skip | Retry | Divert) or (record and record.error)):
            self._failed_subs += 1
        match error:
            case Skip():
                # This proves nothing: the handler may not have asked the downstream at all.
                policy.excuse(sub, now_s)
                self._skip_by_handler(sub, error)
            case Retry():
                self._carry_out(sub, policy.try_later(sub, error.after, now_s), error)
            case Divert():
                policy.excuse(sub, now_s)
                self._diverted[sub] = str(error)
                self._write(sub, error)
            case GiveUp():
                policy.excuse(sub, now_s)
                self._carry_out(sub, policy.give_up(HANDLER), error)
            case _ if _ends_all(error):
                self._carry_out(sub, Decision(OnFailure.HALT), error)
            case _:
                decision = policy.failed(sub, error, fault, self._moment(1))
                self._settle()
                self._carry_out(sub, decision, error)

    def _call_failed(
        self, lead: SubMessage, fault: Fault, error: BaseException, members: int
    ) -> None:
        """Note a call of several operations that failed as a whole; ``lead`` is the first."""
        if isinstance(error, Skip | GiveUp):
            # The handler decided it, so it is not a failure.
            self._policy.excuse(lead, self._clock())
        else:
            self._policy.count_call(lead, fault, self._moment(members))
            self._settle()

    def decide_rejected(self) -> None:
        """Decide on messages that ``split`` rejected. That is their own fault, so there are no
        retries, and the breaker does not count them."""
        while not (self._stopped or self._paused_s is not None):
            if self._letters.pending and self._policy.settings.stops_unsplit:
                break  # Everything behind a message waits until its letter is safe.
            unit = self._dispatcher.next_rejected()
            if unit is None:
                # Some messages may have been left pending behind a parked one.
                self._events.on_moved()
                break
            if unit.skip is not None:
                self._skip_by_handler(unit, Skip(unit.skip))
            else:
                self.errors.count(unit.error)
                settings: FailureSettings = unit.failures or self._policy.settings
                self._carry_out(unit, Decision(settings.on_unsplit, reason=UNSPLIT), unit.error)

    # --- what is decided is carried out ---

    def _carry_out(self, sub: SubMessage, decision: Decision, error: BaseException) -> None:
        if decision.action is None:
            self._dispatcher.delay(sub)
            requested = isinstance(error, Retry) and error.after is not None
            counts = not isinstance(error, LeaseOver)
            self._retries.push(sub, decision.at_s, requested=requested, counts=counts)
            self.schedule()
            return
        if decision.action is OnFailure.HALT:
            self._events.halt(halted_at(sub, error, decision.why))
            return
        behind = self.lanes.next_in_lane(sub)
        if behind is not None and decision.reason in BY_COMPARISON:
            self._policy.suspect_next(behind, sub)
        # Sub-messages whose letters are under way count as finished, too.
        finished = self._finished + self._letters.pending + 1
        too_many = self._policy.count_given_up(decision.reason, finished)
        if too_many is not None:
            self._events.halt(halted_at(sub, error, too_many))
        elif decision.action is OnFailure.DEAD_LETTER:
            self._write(sub, error)
        elif decision.action is OnFailure.SKIP:
            self._dispatcher.finish(sub, Outcome.FAILED)
            self._moved()
        else:
            self._dispatcher.park(sub, summary_of(error))
            self._events.on_moved()

    def _give_up(self, subs: Sequence[SubMessage], reason: str, why: str | None = None) -> None:
        """Give up those of ``subs`` that wait for another attempt.

        One that is in the handler now is decided when its attempt ends.
        """
        for sub in subs:
            if self._retries.remove(sub):
                self._dispatcher.resume(sub)
                self._carry_out(sub, self._policy.give_up(reason, why), sub.failing.error)

    def _try_again(self, leads: Sequence[SubMessage]) -> None:
        at_s = self._clock() + self._policy.settings.retry_delay_s
        for lead in leads:
            self._dispatcher.delay(lead)
            if self._breaker.is_open:
                self._retries.push(lead, at_s)
            else:
                self._dispatcher.release(lead)

    def _skip_by_handler(self, sub: SubMessage, skip: Skip) -> None:
        # Reasons are counted by their texts, without the name of the exception.
        reason = describe(skip).removeprefix("Skip").removeprefix(": ")[:TEXT_LENGTH]
        self._dispatcher.skip(sub, reason or "no reason")
        self._moved()

    def _write(self, sub: SubMessage, error: BaseException) -> None:
        if self._letters.send(sub, error):
            self._dispatcher.delay(sub)

    def _letter_is_safe(self, sub: SubMessage, summary: str) -> None:
        self._dispatcher.resume(sub)
        settings = (sub.failures if isinstance(sub, Unsplit) else None) or self._policy.settings
        if sub in self._diverted:
            self._dispatcher.divert(sub, self._diverted.pop(sub))
        elif settings.stops_behind_dead:
            self._dispatcher.park_behind(sub, Outcome.DEAD, summary)
        else:
            self._dispatcher.finish(sub, Outcome.DEAD)
        self._moved()

    # --- other events ---

    def overdue(self, calls: Sequence[CallInput], *, stuck: bool) -> None:
        """Note calls that go on in their threads after their timeout. Their lanes wait for them.

        ``stuck`` tells whether such calls block all threads.
        """
        for call in calls:
            if self.late.isdisjoint(members := _members(call)):
                self._timeouts += 1
                self.late.update(members)
        now_s = self._clock()
        for sub in self.late:
            self._breaker.end_probe(sub, now_s)  # If it was the probe, another one may start.
        self._stuck_since_s = (self._stuck_since_s or now_s) if stuck else None
        late = counted(len(self.late), "sub-message")
        what = f"all handler threads are blocked by {late}"
        stuck_for = self._policy.waits_out(what, self._stuck_since_s or now_s)
        if now_s > stuck_for.ends_s:
            waited = round_duration(round(now_s - stuck_for.since_s))
            why = f"{what} for {waited}, longer than {stuck_for.option}"
            self._events.halt(Halted(why, hint=STUCK_HINT))
        if calls:
            self._events.on_moved()

    def returned(self, call: CallInput) -> None:
        """Note that a call that may have been overdue has ended; its result comes next."""
        self.late.difference_update(_members(call))

    def hear(self, whole: Totals) -> None:
        """Note what all tasks of the drain have done.

        Successes of other tasks close the breaker, too, and count against sub-messages that are in
        doubt here.
        """
        if not self._stopped and whole != self._policy.whole:
            own = Totals(self._own_done, self._policy.given_up, self._finished)
            self._give_up(self._policy.hear(own, whole, self._clock()), OTHERS_SUCCEED)
            self._settle()

    def pause(self, paused: bool) -> None:
        """Start nothing while paused. Calls in flight go on."""
        now_s = self._clock()
        if paused and self._paused_s is None:
            self._paused_s = now_s
            self._settle()
        elif not paused and self._paused_s is not None:
            self._policy.leave_out(self._paused_s, now_s)
            self._paused_s = None
            self._settle()
            self._tick()

    def change(self, settings: FailureSettings, sink: DeadLetters | None) -> None:
        """Use new settings for decisions from now on. What was given up stays given up."""
        now_s = self._clock()
        if self._policy.settings.breaker and not settings.breaker:
            self._retries.hurry(now_s)
        self._policy.change(settings)
        self._letters.use(sink)
        if settings.rate is None:
            self._rate = None
        elif self._rate is None:
            self._rate = Rate(settings.rate, now_s)
        else:
            self._rate.change(settings.rate, now_s)
        self._settle()
        self._tick()

    def stop(self) -> None:
        """Cancel the timer, and set no other."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _moved(self) -> None:
        self.schedule()
        self._events.on_moved()

    # --- the clock ---

    def _settle(self) -> None:
        """Adapt to the state that the policy is in after an event."""
        if self._breaker.is_open and not self._outage:
            self._outage = self.errors.latest
        elif self._outage and not self._breaker.is_open:
            self._outage = ""
            self._retries.hurry(self._clock())  # They failed because of the outage.
            self._loop.call_soon(self._tick)
        is_paused = self._paused_s is not None
        self.checks = is_paused or self._rate is not None or self._policy.needs_successes
        self.schedule()

    def schedule(self) -> None:
        """Set the timer for the next moment at which the clock changes what may start."""
        times = [self.next_start_s]
        outage = self._waited_out
        if outage is not None:
            times.append(outage.ends_s)
        else:
            times.append(self._retries.due_s)
            if self._only_doubts_can_run:
                times.append(self._policy.doubts_end_s)
        at_s = min((time for time in times if time is not None), default=None)
        if at_s is None or self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(TICK_LEAST_S, at_s - self._clock()), self._tick)

    def _tick(self) -> None:
        if self._stopped or self._paused_s is not None:
            return
        now_s, outage = self._clock(), self._waited_out
        if outage is None:
            if self._only_doubts_can_run:
                self._end_doubts(now_s)
            while (sub := self._retries.pop(now_s)) is not None:
                self._dispatcher.release(sub)
        elif now_s >= outage.ends_s:
            self._events.halt(self._no_more_patience(outage, now_s))
            return
        self._events.on_moved()
        self.schedule()

    def _end_doubts(self, now_s: float) -> None:
        bad = self._policy.end_doubts(now_s)
        self._settle()
        why = (
            f"nothing has succeeded for {round_duration(self._policy.settings.max_doubt_s)}, and no"
            " other lane has work to show whether the downstream is the cause (--tune max-doubt)"
        )
        self._give_up(bad, IN_DOUBT, why)

    def _no_more_patience(self, outage: Patience, now_s: float) -> Halted:
        waited = round_duration(round(now_s - outage.since_s))
        return Halted(
            f"{outage.what}; drainer has waited for {waited} ({outage.option}); last,"
            f" {self.errors.latest}",
            hint="Fix the handler or its downstream, then resume. If the messages are bad instead,"
            " resume with --tune breaker=off.",
        )

    def _machine_failed(self, error: OSError) -> None:
        machine, now_s = self._machine, self._clock()
        is_new = machine.failed(error, self._own_done, now_s)
        trouble = self._policy.waits_out(machine.text, machine.since_s)
        if not is_new and now_s >= trouble.ends_s:
            why = f"{trouble.what}; nothing has succeeded for {round_duration(trouble.most_s)}"
            hint = f"{way_out(error, '')} Then resume."
            self._events.halt(Halted(f"{why} ({trouble.option})", hint=hint, cause=error))

    # --- questions ---

    @property
    def last_retry_in_s(self) -> float:
        """The time until the last retry is due; 0 if there is none."""
        due_s = self._retries.last_due_s
        return 0.0 if due_s is None else max(0.0, due_s - self._clock())

    @property
    def hold_up(self) -> bool:
        """Whether nothing may begin now, apart from a probe of the downstream."""
        return self._paused_s is not None or self._breaker.is_open

    @property
    def calls(self) -> int | None:
        """The number of calls that ended well; None if a call has one sub-message only."""
        return None if self._batcher is None else self._batcher.calls + self._skipped_calls

    @property
    def waiting(self) -> int:
        """The number of sub-messages that wait for a retry, or for their letter to be safe."""
        return len(self._retries) + self._letters.pending

    @property
    def trouble(self) -> str | None:
        """What the drain waits out, and for how long; None while all is well."""
        settings, outage = self._policy.settings, self._waited_out
        if outage is not None:
            is_plain = outage.what == DOWNSTREAM_FAILS
            return self._outage if is_plain else f"{outage.what}: {self._outage}"
        if self._only_doubts_can_run:
            return (
                f"{counted(len(self._policy.doubts), 'sub-message')} failed"
                f" ({self.errors.latest}), and nothing has succeeded since to show whether the"
                " downstream is away: drainer tries again for"
                f" {round_duration(settings.max_doubt_s)} (--tune max-doubt)"
            )
        if self._machine.lasts(self._own_done):
            return f"{self._machine.text}: drainer tries again, and gives nothing up"
        return self._letters.trouble

    @property
    def _outage_status(self) -> OutageStatus | None:
        outage, try_s = self._waited_out, self._breaker.probe_at_s
        if outage is None and self._machine.lasts(self._own_done):
            outage = self._policy.waits_out(self._machine.text, self._machine.since_s)
            try_s = self._retries.due_s
        if outage is None:
            return None
        now_s, now = self._clock(), self._wall()
        return OutageStatus(
            now - timedelta(seconds=now_s - outage.since_s),
            now_s - outage.since_s,
            now + timedelta(seconds=outage.ends_s - now_s),
            None if try_s is None else max(0.0, try_s - now_s),
        )

    def status(self) -> FailureStatus:
        """Return the section of the status on failures."""
        letters, errors = self._letters, self.errors
        return replace(
            FailureStatus.of(self._policy.settings),
            failures=errors.attempts,
            failed_sub_messages=self._failed_subs,
            retries=self._retries.started,
            timeouts=self._timeouts,
            waiting=self._retries.further,
            parked_lanes=self.lanes.parked,
            late=len(self.late),
            outages=self._breaker.opened,
            errors=errors.kinds,
            error_types=errors.types,
            in_outage=self._breaker.is_open,
            outage=self._outage_status,
            given_up=self._policy.given_up,
            given_up_by=tuple(self._policy.given_up_by.items()),
            doubled_letters=letters.doubled,
            doubled_first=letters.doubled_first,
            left_out_letters=letters.left_out,
            left_out_oldest_ms=letters.left_out_oldest_ms,
        )

    @property
    def _waited_out(self) -> Patience | None:
        """What the open breaker waits out; None while it is closed."""
        return self._policy.outage(self._own_done) if self._breaker.is_open else None

    @property
    def _only_doubts_can_run(self) -> bool:
        """Whether something is in doubt, and nothing else can run to show whose fault it is."""
        doubts = self._policy.doubts
        if not doubts or self._policy.others_may_succeed(self._clock()):
            return False
        busy = self._in_flight + self._dispatcher.ready
        if busy > len(doubts) or self._events.awaits_more:
            return False
        waiting = sum(sub in self._retries for sub in doubts)
        return busy <= len(doubts) - waiting and len(self._retries) == waiting

    @property
    def _in_flight(self) -> int:
        return self.lanes.running - len(self.late)

    @property
    def _own_done(self) -> int:
        return sum(ledger.subs_done for ledger in self._dispatcher.ledgers.values())

    @property
    def _finished(self) -> int:
        """The number of sub-messages that finished in all runs, without those that rules skipped:
        the handler has not seen them."""
        finished = self._dispatcher.tally()[1].finished
        return finished - self._dispatcher.unhandled().without_call

    def _moment(self, members: int) -> Moment:
        """Return the state of the drain at the moment when a call has failed."""
        return Moment(
            self._clock(),
            self._wall().timestamp(),
            lanes=len(self.lanes),
            running=self._in_flight - members,
            done=self._own_done,
        )


class MachineTrouble:
    """Trouble with this machine, such as a full disk. No message or service is to blame for it.

    Attributes:
        text: the trouble in words.
        since_s: when it began.
    """

    def __init__(self) -> None:
        self.text = ""
        self.since_s = 0.0
        self._errno: int | None = None
        # How many sub-messages were done when the trouble began. Once more are done, it is over.
        self._done = -1

    def failed(self, error: OSError, done: int, now_s: float) -> bool:
        """Note that the machine failed a call when ``done`` sub-messages were done.

        Return whether anything has succeeded since the last such error.
        """
        if error.errno != self._errno:  # Each error is described once, because that may take long.
            self._errno = error.errno
            self.text = f"this machine fails the handler: {describe_os(error)}"
        if self.lasts(done):
            return False
        self.since_s, self._done = now_s, done
        return True

    def lasts(self, done: int) -> bool:
        """Return whether nothing has succeeded since the trouble began.

        ``done`` is how many sub-messages are done by now.
        """
        return done == self._done


def _ends_all(error: BaseException) -> bool:
    """Return whether an error halts the drain, whichever sub-message it comes from."""
    return isinstance(error, Fatal) or not is_retryable(error)


def _members(call: CallInput) -> list[SubMessage]:
    return call.members if isinstance(call, Batch) else [call]
