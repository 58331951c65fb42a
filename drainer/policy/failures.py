"""Decisions about sub-messages whose attempts fail: which is at fault, they or the downstream.

Calls are numbered by the failed calls before them: one that began after so many of them, and
succeeds, shows that the downstream was there, and speaks against all that failed before.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from random import Random

from drainer.message import SubMessage
from drainer.model.codec import Whole
from drainer.model.settings import FailureSettings, OnFailure
from drainer.policy.breaker import HEALTHY, Breaker, FailureWindow
from drainer.policy.fault import Fault

MARK_S = 0.5  # between two failed calls whose times are kept
MARKS_MOST = 1_000
SKEW_S = 1.0  # that clocks of machines may differ
LANE_BAD = 2  # sub-messages of a lane, given up one after the other: it is bad, whoever comes next

# The rules by which failures that may be the downstream's count.
OTHERS_SUCCEED = "others succeeded"
IN_DOUBT = "--max-doubt"


@dataclass(slots=True, eq=False)
class FailureRecord:
    """Knowledge of a sub-message that has failed and not ended."""

    own: int = 0  # failures of its own
    generation: int = 0  # of the breaker, in which the rest is counted
    tries: int = 0  # attempts that failed
    proven: int = 0  # failures that may be the downstream's, and that count by ``rule``
    rule: str = ""
    is_stale: bool = False  # whether the attempt in flight began before the last of these did
    doubted_at: int = 0  # the failed call with which the doubt began, at ``doubted_s``
    doubted_s: float = 0.0
    successes_before: int = 0  # that had ended when the doubt began
    latest: int = 0  # the last failed call, which failed with ``error``
    error: BaseException | None = None
    given_up_before: int = 0  # sub-messages before it in its lane, one after the other
    window: FailureWindow | None = None  # of the breaker, that it was counted in

    @property
    def failures(self) -> int:
        """Failures that count."""
        return self.own + self.proven

    @property
    def is_suspect(self) -> bool:
        """Whether it, or its lane, has failed where others succeeded."""
        return self.proven > 0 or self.given_up_before >= LANE_BAD

    def begin_generation(self, generation: int) -> None:
        """Counts from nothing what may be the downstream's, if the breaker has opened or closed."""
        if self.generation != generation:
            self.generation = generation
            self.tries = self.proven = 0
            self.is_stale = False

    def count(self, failures: int, rule: str) -> None:
        """Counts so many failures as proven, by this rule; two rules may prove the same failure."""
        self.proven, self.rule = min(failures, self.tries), rule


class Suspicion:
    """Sub-messages in doubt: each has failed, and nothing that began later has succeeded yet."""

    def __init__(self) -> None:
        self.failed_calls = 0
        self.in_doubt: dict[SubMessage, FailureRecord] = {}  # by the failures with which it began
        self._successes = 0
        self._expired_at: int | None = None  # failed calls by then; nothing has succeeded since
        self._times: deque[tuple[int, float]] = deque(maxlen=MARKS_MOST)  # failed calls, and when

    @property
    def needs_successes(self) -> bool:
        """Whether a success would change anything."""
        return bool(self.in_doubt) or self.expired

    @property
    def expired(self) -> bool:
        """Whether doubts have lasted too long, and nothing has succeeded since."""
        return self._expired_at is not None

    @property
    def since_s(self) -> float:
        """When the oldest doubt began; for as long as there is one."""
        return next(iter(self.in_doubt.values())).doubted_s

    def count_call(self, wall_s: float) -> None:
        """Counts a failed call; ``wall_s`` is the time that other processes have too."""
        self.failed_calls += 1
        if not self._times or abs(wall_s - self._times[-1][1]) >= MARK_S:
            self._times.append((self.failed_calls, wall_s))

    def calls_before(self, wall_s: float) -> int:
        """Return how many calls had surely failed by a time of another process; -1 if none had."""
        return max((n for n, at_s in self._times if at_s + SKEW_S < wall_s), default=-1)

    def add(self, sub: SubMessage, record: FailureRecord, now_s: float) -> None:
        """Puts a sub-message in doubt, if it isn't."""
        if sub not in self.in_doubt:
            record.doubted_at, record.doubted_s = self.failed_calls, now_s
            record.successes_before = self._successes
            self.in_doubt[sub] = record

    def clear(self) -> None:
        """Forget all doubts, as after an outage."""
        self.in_doubt.clear()
        self._expired_at = None

    def count_success(self, sub: SubMessage) -> None:
        """Counts a call that ended well."""
        self.in_doubt.pop(sub, None)
        self._successes += 1

    def prove(self, started_at: int) -> list[SubMessage]:
        """Counts a failure of each sub-message that a success speaks against, and ends the doubt:
        the call that succeeded began after so many had failed."""
        if self._expired_at is not None and started_at >= self._expired_at:
            self._expired_at = None
        proven = []
        while self.in_doubt:
            sub, record = next(iter(self.in_doubt.items()))
            if record.doubted_at > started_at:
                break
            del self.in_doubt[sub]
            if not record.is_stale:
                record.count(record.proven + 1, OTHERS_SUCCEED)
            record.is_stale = (
                getattr(sub, "started_at", -1) >= record.latest
            )  # it is tried again now
            proven.append(sub)
        return proven

    def expire(self) -> list[SubMessage]:
        """Ends all doubts, for nothing else can run: each failure in doubt counts."""
        self._expired_at = self.failed_calls
        expired = list(self.in_doubt)
        for record in self.in_doubt.values():
            record.count(record.tries, IN_DOUBT)
        self.in_doubt.clear()
        return expired

    def leave_out(self, since_s: float, now_s: float) -> None:
        """Leaves out a time in which nothing could be tried."""
        for record in self.in_doubt.values():
            record.doubted_s += now_s - max(since_s, record.doubted_s)

    @property
    def is_outage(self) -> bool:
        """Whether it is the downstream that all that can run is in doubt."""
        new = [each.successes_before for each in self.in_doubt.values() if not each.is_suspect]
        if not new or self.expired:
            return bool(new)
        return len(new) > 1 and self._successes - min(new) < HEALTHY * len(new)


# The rules by which a sub-message is given up.
OWN_ERROR = "error of its own"
HANDLER = "GiveUp"
UNSPLIT = "split failed"
BY_COMPARISON = (OTHERS_SUCCEED, IN_DOUBT)  # with what else succeeds or runs


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision about a sub-message after a failed attempt: ``action``, or None to try again.

    ``at_s`` is when, by the clock that was given; ``why`` is the reason to give it up, and ``rule``
    the rule that applies.
    """

    action: OnFailure | None
    at_s: float = 0.0
    why: str | None = None
    rule: str = ""


NOTHING_SUCCEEDED = (
    "nothing has succeeded in this run: the handler or its downstream is broken, not one message"
    " (--no-breaker gives up anyway)"
)


@dataclass(frozen=True, slots=True)
class Totals:
    """Outcomes of sub-messages in a drain of several tasks."""

    done: Whole = 0  # in this run
    given_up: Whole = 0  # in all runs
    finished: Whole = 0  # likewise, without those that rules skipped
    # When the latest of the calls began that are known to have succeeded, or later ones: seconds
    # since 1970.
    began_s: float = 0.0

    def beside(self, own: Totals, whole: Totals) -> Totals:
        """Return what others did, at least, as of now: ``self`` is what was known of it before, and
        ``whole`` what all did a moment ago, with part of our ``own`` in it."""
        return Totals(
            max(self.done, whole.done - own.done),
            max(self.given_up, whole.given_up - own.given_up),
            max(self.finished, whole.finished - own.finished),
            max(self.began_s, whole.began_s),
        )


class FailurePolicy:
    """Decides after each failed attempt, and keeps count of what was given up.

    A failure of the message's own counts at once. Any other counts only once a call that began
    after it has succeeded: until then the sub-message is in doubt, is tried again and spends
    nothing. Two such failures are needed at least, for the first may be the last one of an outage.
    Where nothing but what is in doubt can run, it is given up after ``max_doubt_s``, once until
    something succeeds; but the breaker opens if several failed that were no suspects, and hardly
    any call ended well meanwhile.

    ``given_up`` continues from what former runs gave up.
    """

    def __init__(self, settings: FailureSettings, random: Random, given_up: int = 0) -> None:
        self.settings = settings
        self.breaker = Breaker()
        self.suspicion = Suspicion()
        self.given_up = given_up
        self.given_up_by = Counter[str]()  # in this run, by the rule that applied
        self._opened_at = 0  # failed calls by then
        self._random = random

    @property
    def needs_successes(self) -> bool:
        """Whether it has to see each success, and when its call began."""
        return self.suspicion.needs_successes or self.breaker.needs_successes

    def try_later(self, now_s: float, after_s: float | None, sub: SubMessage) -> Decision:
        """Decides on a handler that requests another call: no failure, and spends no retry."""
        self.excuse(sub, now_s)
        wait_s = self.settings.delay_s(sub.attempt, self._random) if after_s is None else after_s
        return Decision(None, now_s + max(0.0, wait_s))

    def give_up(self, rule: str, why: str | None = None) -> Decision:
        """Decides on a sub-message that is given up by this rule."""
        return Decision(self.settings.on_failure, why=why, rule=rule)

    def count_call(
        self,
        sub: SubMessage,
        fault: Fault,
        *,
        lanes: int,
        now_s: float,
        running: int = 0,
        wall_s: float = 0.0,
    ) -> None:
        """Counts a failed call, of several sub-messages too: ``sub`` is the first of them.

        ``lanes`` have something to do, ``running`` calls are in flight; ``wall_s`` is the time
        that other processes have too.
        """
        self.suspicion.count_call(wall_s)
        record: FailureRecord | None = getattr(sub, "failing", None)
        if record is None:
            record = sub.failing = FailureRecord()
        if self.settings.breaker:
            generation = self.breaker.generation
            record.window = self.breaker.failed(
                sub,
                self.suspicion.failed_calls,
                record.window,
                own=fault is Fault.OWN,
                lanes=lanes,
                running=running,
                now_s=now_s,
            )
            if generation != self.breaker.generation:
                self._opened()
        record.begin_generation(self.breaker.generation)

    def decide(
        self, sub: SubMessage, error: BaseException, fault: Fault, *, done: int, now_s: float
    ) -> Decision:
        """Decides on an attempt that failed, or took too long, and was counted.

        ``done`` is how many sub-messages this run has done so far.
        """
        settings, breaker, suspicion = self.settings, self.breaker, self.suspicion
        record: FailureRecord = sub.failing
        record.tries += 1
        record.latest, record.error = suspicion.failed_calls, error
        if fault is Fault.OWN or not settings.breaker:
            suspicion.in_doubt.pop(sub, None)
            if breaker.own_since_s is None:
                record.own += 1
                if record.failures > settings.retries:
                    return self.give_up(OWN_ERROR)
        elif not breaker.is_open:
            if suspicion.expired and record.is_suspect:
                record.count(record.proven + 1, IN_DOUBT)
            if record.failures > self._allowed:
                return self.give_up(record.rule)
            halts = settings.on_failure is OnFailure.HALT  # a resume tries it again
            if halts and not done and record.tries > settings.retries:
                return Decision(OnFailure.HALT, why=NOTHING_SUCCEEDED)
            suspicion.add(sub, record, now_s)
            lasts_s = now_s - suspicion.since_s
            if lasts_s >= settings.max_doubt_s and suspicion.is_outage:
                self._open(now_s)  # calls that hang: few fail in all that time
        return Decision(None, now_s + settings.delay_s(record.tries, self._random))

    def succeeded(self, sub: SubMessage) -> list[SubMessage]:
        """Records a success; returns the sub-messages in doubt that it shows to be bad."""
        self.suspicion.count_success(sub)
        return self._shown_bad(getattr(sub, "started_at", -1), 1)

    def succeeded_elsewhere(self, began_s: float, calls: int) -> list[SubMessage]:
        """Record successes in other processes, the last of which began at that time; they close the
        breaker, too. Returns as ``succeeded`` does."""
        started_at = self.suspicion.calls_before(began_s)
        if self.breaker.is_open and started_at >= self._opened_at:
            self.breaker.close()
        return self._shown_bad(started_at, calls)

    def _shown_bad(self, started_at: int, calls: int) -> list[SubMessage]:
        self.breaker.succeeded(started_at, calls)
        return [
            sub for sub in self.suspicion.prove(started_at) if sub.failing.failures > self._allowed
        ]

    def excuse(self, sub: SubMessage, now_s: float) -> None:
        """Records an attempt that proves nothing of the downstream, and is no failure."""
        self.suspicion.in_doubt.pop(sub, None)
        self.breaker.end_probe(sub, now_s)

    @property
    def doubts_end_s(self) -> float:
        """When ``end_doubts`` has something to do, if nothing but what is in doubt can run."""
        longest_s = 0.0 if self.suspicion.is_outage else self.settings.max_doubt_s
        return self.suspicion.since_s + longest_s

    def end_doubts(self, now_s: float) -> list[SubMessage]:
        """Ends the doubts where nothing else can run; returns the sub-messages to give up."""
        if self.suspicion.is_outage:
            self._open(now_s)
            return []
        expired = self.suspicion.expire()
        return [sub for sub in expired if sub.failing.failures > self.settings.retries]

    def leave_out(self, since_s: float, now_s: float) -> None:
        """Leaves out a time in which nothing could be tried: it proves nothing."""
        self.breaker.leave_out(since_s, now_s)
        self.suspicion.leave_out(since_s, now_s)

    def count_given_up(self, rule: str, finished: int, by_others: int = 0) -> str | None:
        """Counts one that was given up by this rule; returns the reason to halt when those are too
        many, with those that others gave up."""
        self.given_up_by[rule] += 1
        self.given_up += 1
        given_up, most = self.given_up + by_others, self.settings.max_failures
        if not most.passed(given_up, finished):
            return None
        many = f"{given_up:,} sub-messages in all runs"
        return f"drainer gave up {many}, more than --max-failures {most}"

    def suspect_next(self, sub: SubMessage, given_up: SubMessage) -> None:
        """Suspects the next one in the lane of a sub-message that is given up: if it fails as
        well, that proves nothing of the downstream."""
        former: FailureRecord = given_up.failing
        before = former.given_up_before + 1
        sub.failing = FailureRecord(given_up_before=before, window=former.window)

    @property
    def _allowed(self) -> int:
        # The first one may be the last of an outage.
        return max(1, self.settings.retries)

    def _open(self, now_s: float) -> None:
        self.breaker.open(now_s)
        self._opened()

    def _opened(self) -> None:
        self._opened_at = self.suspicion.failed_calls
        self.suspicion.clear()
