"""Failures on the event loop: what the failure policy decides is carried out here.

Dead letters are written from here, and calls with several sub-messages are taken apart.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from drainer.core.bundles import Bundle, Bundler, Bundling
from drainer.core.dispatch import Dispatcher
from drainer.core.listed import counted
from drainer.core.progress import Counts, Outcome
from drainer.engine.outcome import lanes_parked, left_alone
from drainer.engine.ports import DeadLetters
from drainer.engine.runtime import Runtime
from drainer.engine.status import DOUBLED_MOST, FailureStatus
from drainer.engine.workers import LeaseOver, Starter, TimedOut, Work
from drainer.errors import (
    DeadLetterDoubled,
    DrainerError,
    Halted,
    HandleFailed,
    RecordUnsure,
    ThreadsOverdue,
    ValueNotShipped,
)
from drainer.escape import printable
from drainer.handler import Fatal, Retry, Skip
from drainer.loader import PAST, describe, described, split_failed
from drainer.message import SubMessage, Unsplit
from drainer.policy.admission import Admission, Rate, Retries
from drainer.policy.breaker import Breaker
from drainer.policy.failures import (
    FATES,
    NOTHING,
    AfterDead,
    Decision,
    FailurePolicy,
    FailureSettings,
    Fate,
    Totals,
)

TICK_LEAST_S = 0.001
BACK_AGAIN_S = 0.05  # after it was not the time to try one again
KINDS_MOST = 50  # kinds of errors; what comes then is counted by its type alone
KIND_LENGTH = 160

_STUCK_HINT = "Find out what they wait for, then resume: that handles them again."


class Failures:
    """Retries, dead letters, parked lanes, the circuit breaker and the rate of one drain.

    Args:
        bundling: how the handler wants several sub-messages in one call; None when it does not.
        use: gives the workers their source of work.
        wake: wakes them when there is some.
        changed: called when the drain may be complete.
        halt: ends the drain.
        before: the account of sub-messages that former runs left to the failure policy.
        totals: what all tasks of the drain did, when there are others.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        settings: FailureSettings,
        sink: DeadLetters | None,
        bundling: Bundling | None,
        *,
        use: Callable[[Starter], None],
        wake: Callable[[], None],
        changed: Callable[[], None],
        halt: Callable[[BaseException], None],
        runtime: Runtime,
        before: Counts = NOTHING,
        totals: Callable[[], Totals] = Totals,
    ) -> None:
        self._clock = clock = runtime.monotonic
        self._dispatcher = dispatcher
        self._settings = settings
        self._sink = sink
        self._use = use
        self._wake = wake
        self._changed = changed
        self._halt = halt
        self._retries = Retries()
        self._breaker = Breaker()
        self._policy = FailurePolicy(settings, self._breaker, runtime.random(), before)
        self._totals = totals
        self._whole = self._others = Totals()
        rate = None if settings.rate is None else Rate(settings.rate, clock())
        self._admission = Admission(
            dispatcher, self._retries, self._breaker, rate, clock, self._recovered
        )
        self._paused_s = 0.0  # since when it is
        self._kinds: Counter[str] = Counter()
        self._types: Counter[str] = Counter()
        self._bundler: Bundler | None = None
        if bundling is not None:
            self._bundler = Bundler(dispatcher, bundling)
        self._letters = 0  # on their way
        self._doubled, self._doubled_first = 0, tuple[str, ...]()  # letters written again blindly
        self._doubted: dict[SubMessage, BaseException] = {}  # in ``_retries``, their retries spent
        self._failed = self._timeouts = self._skipped = 0
        self._last_kind = self._outage = ""
        self.late: set[SubMessage] = set()  # overdue, and still in their threads
        self._stuck_since_s: float | None = None  # all threads are overdue
        self.holding_back = rate is not None  # or while the breaker is open, or the drain is paused
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def starter(self) -> Starter:
        """Whom workers ask for work: the dispatcher itself, unless starts are held back or
        bundled."""
        starter = self._admission if self.holding_back else self._dispatcher
        if self._bundler is None:
            return starter
        self._bundler.use(starter)
        return self._bundler

    @property
    def calls(self) -> int | None:
        """Calls that ended well, of a handler that takes several sub-messages in one."""
        return None if self._bundler is None else self._bundler.calls + self._skipped

    @property
    def failed_attempts(self) -> int:
        return self._failed

    @property
    def waiting(self) -> int:
        """Sub-messages that come back by themselves: for a retry, or acknowledged as dead."""
        return len(self._retries) + self._letters

    @property
    def trouble(self) -> str | None:
        if self._breaker.open_since_s is not None:
            return self._in_outage()
        return None if self._sink is None else self._sink.trouble

    def _in_outage(self) -> str:
        settings = self._settings
        outage = self._policy.patience_s(self._done) > settings.max_doubt_s
        what = (
            "the downstream is failing"
            if outage
            else "nothing succeeds, and too few calls fail to tell"
        )
        most_s = settings.max_outage_s if outage else settings.max_doubt_s
        return (
            f"{what}: drainer tries one sub-message at a time, for {most_s:g} s at most"
            f" ({'--max-outage' if outage else '--max-doubt'}): {self._outage}. If only these"
            " messages are bad, `drainer set PLAN breaker=off` gives them up"
        )

    def status(self) -> FailureStatus:
        return FailureStatus(
            failures=self._failed,
            retries=self._policy.retries - len(self._doubted),  # which may get no attempt
            timeouts=self._timeouts,
            waiting=len(self._retries),
            parked_lanes=self._dispatcher.lanes.parked,
            late=len(self.late),
            outages=self._breaker.opened,
            errors=tuple(self._kinds.most_common(KINDS_MOST)),
            dead_letter_topic=self._settings.dead_letter_topic,
            error_types=tuple(self._types.items()),
            in_outage=self._breaker.open_since_s is not None,
            given_up=self._policy.given_up,
            rate=self._settings.rate,
            doubled_letters=self._doubled,
            doubled_first=self._doubled_first,
        )

    def failed(self, work: Work, error: BaseException) -> None:
        """Notices a call that ended with an error."""
        if isinstance(error, LeaseOver):
            for sub in _members(work):
                sub.attempt -= 1
        elif not isinstance(error, Skip | Retry):
            self._count(error)
        if self._bundler is None or not isinstance(work, Bundle):
            self._failed_alone(work, error)
        elif isinstance(error, Retry):
            for lead in self._bundler.give_back(work, split=False):
                self._failed_alone(lead, error)
        elif len(work.members) == 1 or isinstance(error, Fatal) or not _may_be_retried(error):
            work.unfold()
            self._skipped += isinstance(error, Skip)
            self._failed_alone(work.members[0], error)
        else:
            self._failed_together(work, error, self._bundler)

    def _failed_alone(self, sub: SubMessage, error: BaseException) -> None:
        now_s = self._clock()
        self._doubted.pop(sub, None)
        if isinstance(error, Skip):
            self._dispatcher.rule_filter.skipped(_reason(error))
            self._finish(sub, Outcome.SKIPPED)
        elif isinstance(error, Retry):
            self._carry_out(sub, self._policy.later(now_s, error.after, sub), error)
            self._policy.retries -= isinstance(error, LeaseOver)
        elif isinstance(error, Fatal) or not _may_be_retried(error):
            self._carry_out(sub, Decision(Fate.HALT), error)
        else:
            decision = self._policy.failed(sub, self._done, self._at_work, now_s)
            self._gate()
            self._carry_out(sub, decision, error)

    def decide_rejected(self) -> None:
        """Decides on messages that ``split`` rejected, without retries or the breaker: that is
        their own fault."""
        while not (self._stopped or self._admission.paused):
            if self._letters and self._settings.stops_unsplit:
                break  # what is behind it waits, other letters too
            unit = self._dispatcher.next_rejected()
            if unit is None:
                self._changed()  # some may have been left behind a parked one
                break
            if unit.skip is not None:
                self._dispatcher.rule_filter.skipped(_reason(Skip(unit.skip)))
                self._finish(unit, Outcome.SKIPPED)
            else:
                self._count(unit.error)
                self._carry_out(unit, Decision(FATES[self._settings.on_unsplit]), unit.error)

    def _failed_together(self, bundle: Bundle, error: BaseException, bundler: Bundler) -> None:
        # None of them has spent a retry by that: they are tried in smaller calls, until the one
        # that fails is known.
        now_s = self._clock()
        if isinstance(error, Skip):
            self._admission.ended(bundle.members[0])  # a handler that decides that has not failed
        else:
            why = self._policy.look_for_outage(bundle.members[0], self._done, self._at_work, now_s)
            self._gate()
            if why is not None:
                self._halt(_halted(bundle, error, why))
                return
        away = self._breaker.open  # then it is not for what is in it that it failed
        for lead in bundler.give_back(bundle, split=not away):
            self._dispatcher.hold(lead)
            if away:
                self._retries.push(lead, now_s + self._settings.retry_delay_s)
            else:
                self._dispatcher.release(lead)
        self._moved()

    def overdue(self, calls: Sequence[Work], *, stuck: bool) -> None:
        """Notices calls that go on in their threads after their time; their lanes wait for them."""
        for call in calls:
            if self.late.isdisjoint(members := _members(call)):
                self._timeouts += 1
                self.late.update(members)
        now_s = self._clock()
        self._stuck_since_s = (self._stuck_since_s or now_s) if stuck else None
        for_s = now_s - (self._stuck_since_s or now_s)
        if for_s > self._settings.max_outage_s:
            self._halt(
                Halted(
                    f"all handler threads are blocked by {counted(len(self.late), 'sub-message')}"
                    f" for {for_s:.0f} s, longer than --max-outage",
                    hint=_STUCK_HINT,
                )
            )
        if calls:
            self._changed()

    def returned(self, work: Work) -> None:
        """Notices that a call that may have been overdue has ended; its result comes next."""
        self.late.difference_update(_members(work))

    def left_over(self) -> DrainerError | None:
        """Why a drain ends in which nothing is left to do, and not all is done; None if no
        more was wanted."""
        lanes = self._dispatcher.lanes
        if self.late:
            return ThreadsOverdue(
                f"{counted(len(self.late), 'sub-message')} did not return from the handler's"
                " threads in time; their lanes are pending",
                hint=_STUCK_HINT,
            )
        read = self._dispatcher.delivered or self._dispatcher.held > 0  # that is read by the rest
        if lanes.parked:
            return lanes_parked(
                lanes.parked, read=read, behind_letters=bool(self._dispatcher.parked)
            )
        if not read:
            return left_alone(self._dispatcher.resting)
        return None

    def pause(self, paused: bool) -> None:
        """Starts nothing while paused; what is in the handler goes on."""
        if paused != self._admission.paused:
            now_s = self._clock()
            self._admission.paused = paused
            if paused:
                self._paused_s = now_s
            else:
                self._breaker.stood_still(self._paused_s, now_s)
            self._settle()
            if not paused:
                self._tick()

    def change(self, settings: FailureSettings, sink: DeadLetters | None) -> None:
        """Decides by these from now on; what was given up stays so."""
        before, now_s = self._settings, self._clock()
        self._settings = self._policy.settings = settings
        self._sink = sink or self._sink  # letters of before may be on their way
        rate = self._admission.rate
        if settings.rate is None:
            self._admission.rate = None
        elif rate is None:
            self._admission.rate = Rate(settings.rate, now_s)
        else:
            rate.change(settings.rate, now_s)
        if self._breaker.open and before.breaker and not settings.breaker:
            self._breaker.give_way()
            self._retries.hurry(now_s)
            self._recovered()
        self._settle()
        self._tick()

    def idle(self) -> None:
        """Notices that there may be something that can't start yet."""
        self._schedule()

    def stop(self) -> None:
        """Starts nothing any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _gate(self) -> None:
        if self._breaker.open and not self._outage:  # once when it opens
            self._outage = self._last_kind
            self._settle()

    def _settle(self) -> None:
        # Whoever needs no leave to start anything shall not ask for it.
        self.holding_back = (
            self._settings.rate is not None or self._breaker.open or self._admission.paused
        )
        self._use(self.starter)
        self._schedule()

    def _carry_out(self, sub: SubMessage, verdict: Decision, error: BaseException) -> None:
        if verdict.fate is Fate.RETRY:
            if verdict.in_doubt:
                self._doubted[sub] = error
            self._dispatcher.hold(sub)
            self._retries.push(sub, verdict.at_s, asked=verdict.asked)
            self._schedule()
            return
        if verdict.fate is Fate.HALT:
            self._halt(_halted(sub, error, verdict.why))
            return
        behind = self._dispatcher.lanes.behind(sub)
        if behind is not None and verdict.why is None and self._done:
            self._policy.expect(behind, self._clock())
        finished = self._finished + 1
        others = self._look_at_others()
        too_many = self._policy.gave_up(finished + others.finished, others.given_up)
        if too_many is not None:
            self._halt(_halted(sub, error, too_many))
        elif verdict.fate is Fate.DEAD:
            self._write(sub, error)
        elif verdict.fate is Fate.FAILED:
            self._finish(sub, Outcome.FAILED)
        else:
            self._dispatcher.park(sub, _kind(error))
            self._changed()

    def _write(self, sub: SubMessage, error: BaseException) -> None:
        kind = _kind(error)  # the error itself holds on to the frames that it came through
        self._dispatcher.hold(sub)
        assert self._sink is not None, "dead letters without a place for them"

        def told(failure: DrainerError | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                self._loop.call_soon_threadsafe(self._written, sub, kind, failure)

        self._letters += 1
        self._sink.send(sub, error, told)

    def _written(self, sub: SubMessage, kind: str, failure: DrainerError | None) -> None:
        self._letters -= 1
        if isinstance(failure, DeadLetterDoubled):
            self._doubled += 1
            if len(self._doubled_first) < DOUBLED_MOST:
                self._doubled_first += (str(sub),)
        elif failure is not None:
            self._halt(failure)
            return
        self._dispatcher.unhold(sub)
        if self._settings.after_dead is AfterDead.PARK:
            self._dispatcher.park_behind(sub, Outcome.DEAD, kind)
        else:
            self._dispatcher.finish(sub, Outcome.DEAD)
        self._moved()

    def _finish(self, sub: SubMessage, outcome: Outcome) -> None:
        self._dispatcher.finish(sub, outcome)
        self._admission.ended(sub)
        self._moved()

    def _moved(self) -> None:
        if not self._stopped:
            self._wake()
            self.idle()
        self._changed()

    def _recovered(self) -> None:
        self._outage = ""
        self._doubted.clear()
        self._settle()
        self._loop.call_soon(self._tick)

    def _schedule(self) -> None:
        now_s = self._clock()
        times = [self._admission.next_at_s]
        if self._breaker.open_since_s is None:
            times.append(self._retries.due_s)
        else:
            times.append(self._breaker.open_since_s + self._settings.max_outage_s)
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
        since_s = self._breaker.open_since_s
        if since_s is None:
            given_up = []
            done = self._done
            for sub in self._retries.pop_due(now_s):
                if not self._breaker.comes_back(sub, done, self._at_work):
                    self._retries.push(sub, now_s + BACK_AGAIN_S)
                    continue
                error = self._doubted.pop(sub, None)
                verdict = error and self._policy.proven(sub, done)
                if error and verdict:
                    given_up.append((sub, verdict, error))
                else:
                    self._dispatcher.release(sub)
            for sub, verdict, error in given_up:
                self._dispatcher.unhold(sub)
                self._carry_out(sub, verdict, error)
        elif now_s - since_s > self._settings.max_outage_s:
            self._halt(
                Halted(
                    f"the downstream has been failing for {now_s - since_s:.0f} s, longer than"
                    f" --max-outage ({self._last_kind})",
                    hint="Fix the downstream, then resume. If the messages are bad instead, resume"
                    " with --no-breaker.",
                )
            )
            return
        self._wake()
        self._schedule()

    def _count(self, error: BaseException) -> None:
        self._failed += 1
        self._timeouts += isinstance(error, TimedOut)
        kind = _kind(error)
        if kind not in self._kinds and len(self._kinds) >= KINDS_MOST:
            kind = type(error).__name__
        self._kinds[kind] += 1
        self._last_kind = kind
        name = type(error).__name__
        self._types[name if name in self._types or len(self._types) < KINDS_MOST else "other"] += 1

    @property
    def _at_work(self) -> int:
        # What waits for a worker could still show whether it is the downstream.
        return self._dispatcher.lanes.running - len(self.late) + self._dispatcher.ready

    @property
    def _done(self) -> int:
        return self._own_done + self._look_at_others().done

    @property
    def _own_done(self) -> int:
        return sum(ledger.subs_done for ledger in self._dispatcher.ledgers.values())

    def _look_at_others(self) -> Totals:
        whole = self._totals()
        if whole != self._whole:
            self._whole = whole
            own = Totals(self._own_done, self._policy.given_up, self._finished)
            self._others = self._others.beside(own, whole)
        return self._others

    @property
    def _finished(self) -> int:
        # In all runs; what rules took out says nothing of how the handler fares.
        finished = self._dispatcher.tally()[1].finished
        return finished - sum(self._dispatcher.rule_filter.skipped_by.values())


def _members(work: Work) -> list[SubMessage]:
    return work.members if isinstance(work, Bundle) else [work]


def _may_be_retried(error: BaseException) -> bool:
    if isinstance(error, ValueNotShipped | RecordUnsure):  # it would fail in each sub-message alike
        return False
    return isinstance(error, Exception | asyncio.CancelledError)


def _kind(error: BaseException) -> str:
    return printable(describe(error))[:KIND_LENGTH]  # it goes into the plan, as a reason does


def _reason(skip: Skip) -> str:
    reason = printable(describe(skip))  # it goes into the plan, and JSON has no half characters
    return reason.removeprefix("Skip").removeprefix(": ")[:KIND_LENGTH] or "no reason"


def _halted(sub: SubMessage | Bundle, error: BaseException, why: str | None) -> DrainerError:
    if isinstance(error, RecordUnsure):
        return error
    if isinstance(sub, Unsplit):
        return split_failed(sub.message, sub.why, PAST, f"{why}; last, " if why else "")
    attempts = f" after {sub.attempt} attempts" if sub.attempt > 1 else ""
    reason = "" if why is None else f"{why}; last, "
    return HandleFailed(
        f"{reason}handle failed for sub-message {sub} ({sub!r}){attempts}: {described(error)}",
        hint=error.hint
        if isinstance(error, ValueNotShipped)
        else "Fix the handler or its downstream, then resume. Its lane is still pending.",
        cause=error,
    )
