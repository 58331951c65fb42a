"""What becomes of a sub-message whose attempt failed."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from random import Random

from drainer.message import SubMessage
from drainer.model.codec import Whole
from drainer.model.failures import FailureSettings, OnFailure
from drainer.policy.breaker import HEALTHY, Breaker, Window
from drainer.policy.fault import Fault

MARK_S = 0.5  # between two failed calls whose times are kept
MARKS_MOST = 1_000
SKEW_S = 1.0  # that clocks of machines may differ
LANE_BAD = 2  # sub-messages of a lane, given up one after the other: it is bad, whoever comes next

# The rules by which a sub-message is given up.
OWN_ERROR = "error of its own"
OTHERS_SUCCEED = "others succeeded"
IN_DOUBT = "--max-doubt"
HANDLER = "GiveUp"
UNSPLIT = "split failed"


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a sub-message after a failed attempt: ``action``, or None to try again.

    ``at_s`` is when, by the clock that was given; ``why`` tells why it is given up, and ``rule`` by
    which rule.
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
    """What became of sub-messages in a drain of several tasks."""

    done: Whole = 0  # in this run
    given_up: Whole = 0  # in all runs
    finished: Whole = 0  # likewise, without those that rules skipped
    # When the latest of the calls began that are known to have succeeded, or later ones: seconds
    # since 1970.
    began_s: float = 0.0

    def beside(self, own: Totals, whole: Totals) -> Totals:
        """What others did, at least, as of now: ``self`` is what was known of it before, and
        ``whole`` what all did a moment ago, with part of our ``own`` in it."""
        return Totals(
            max(self.done, whole.done - own.done),
            max(self.given_up, whole.given_up - own.given_up),
            max(self.finished, whole.finished - own.finished),
            max(self.began_s, whole.began_s),
        )


@dataclass(slots=True, eq=False)
class Failing:
    """What is known of a sub-message that has failed and not ended."""

    own: int = 0  # failures of its own
    turn: int = 0  # of the breaker, in which the rest is counted
    tries: int = 0  # attempts that failed
    proven: int = 0  # failures that may be the downstream's, and that count by ``rule``
    rule: str = ""
    is_stale: bool = False  # whether the attempt in flight began before the last of these did
    number: int = 0  # of the failed call with which the doubt began, at ``at_s``
    at_s: float = 0.0
    latest: int = 0  # of the last one, which failed with ``error``
    error: BaseException | None = None
    ended: int = 0  # successes that had ended when the doubt began
    behind: int = 0  # sub-messages before it in its lane that were given up, one after the other
    window: Window | None = None  # of the breaker, that it was counted in

    @property
    def failures(self) -> int:
        """How many count."""
        return self.own + self.proven

    @property
    def is_suspect(self) -> bool:
        """Whether it, or its lane, has failed where others succeeded."""
        return self.proven > 0 or self.behind >= LANE_BAD


class FailurePolicy:
    """Decides after each failed attempt, and keeps count of what was given up.

    A failure of the message's own counts at once. Any other counts only once a call that began
    after it has succeeded: until then the sub-message is in doubt, is tried again and spends
    nothing. Two such failures are needed at least, for the first may be the last one of an outage.
    Calls are numbered by failures: what begins after ``failed_calls`` of them, and succeeds, speaks
    against all of these. Where nothing but what is in doubt can run, it is given up after
    ``max_doubt_s``, once until something succeeds; but the breaker opens if several failed that
    were no suspects, and hardly any call ended well meanwhile.

    ``done`` is how many sub-messages this run has done so far. ``given_up`` goes on from what
    former runs gave up.
    """

    def __init__(self, settings: FailureSettings, random: Random, given_up: int = 0) -> None:
        self.settings = settings
        self.breaker = Breaker()
        self.failed_calls = 0
        self._ended = 0  # successes, while it watched
        self._opened_at = 0  # failed calls by then
        self.given_up = given_up
        self.given_up_by = Counter[str]()  # in this run, by the rule that applied
        self.doubts: dict[SubMessage, Failing] = {}  # by the failures with which they began
        self._doubt_since = 0, 0.0  # the failed call, and when
        self._doubt_over: int | None = None  # after so many failed calls
        self._times: deque[tuple[int, float]] = deque(maxlen=MARKS_MOST)  # failed calls, and when
        self._random = random

    @property
    def watching(self) -> bool:
        """Whether it has to hear of each success, and when its call began."""
        return bool(self.doubts) or self._doubt_over is not None or self.breaker.watching

    def later(self, now_s: float, after_s: float | None, sub: SubMessage) -> Decision:
        """Decides on a handler that asks to be called again: no failure, and spends no retry."""
        self.forget(sub, now_s)
        wait_s = self.settings.delay_s(sub.attempt, self._random) if after_s is None else after_s
        return Decision(None, now_s + max(0.0, wait_s))

    def give_up(self, rule: str, why: str | None = None) -> Decision:
        """Decides on a sub-message that is given up by this rule."""
        return Decision(self.settings.on_failure, why=why, rule=rule)

    def failed(
        self, sub: SubMessage, error: BaseException, fault: Fault, *, done: int, now_s: float
    ) -> Decision:
        """Decides on an attempt that failed, or took too long, and was ``noticed``."""
        settings, breaker = self.settings, self.breaker
        failing: Failing = sub.failing
        failing.tries += 1
        failing.latest, failing.error = self.failed_calls, error
        if fault is Fault.OWN or not settings.breaker:
            self.doubts.pop(sub, None)
            if not breaker.own:
                failing.own += 1
                if failing.failures > settings.retries:
                    return self.give_up(OWN_ERROR)
        elif not breaker.open:
            if self._doubt_over is not None and failing.is_suspect:
                failing.proven, failing.rule = failing.proven + 1, IN_DOUBT
            if failing.failures > self._allowed:
                return self.give_up(failing.rule)
            halts = settings.on_failure is OnFailure.HALT  # a resume tries it again
            if halts and not done and failing.tries > settings.retries:
                return Decision(OnFailure.HALT, why=NOTHING_SUCCEEDED)
            self._doubt(sub, failing, now_s)
        return Decision(None, now_s + settings.delay_s(failing.tries, self._random))

    def _doubt(self, sub: SubMessage, failing: Failing, now_s: float) -> None:
        if sub not in self.doubts:
            failing.number, failing.at_s, failing.ended = self.failed_calls, now_s, self._ended
            if not self.doubts:
                self._doubt_since = failing.number, now_s
            self.doubts[sub] = failing
        if now_s - self._doubt_since[1] >= self.settings.max_doubt_s and self._is_outage():
            self.breaker.start(now_s)  # calls that hang: few fail in all that time
            self._opened()

    def noticed(
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
        self.failed_calls += 1
        if not self._times or abs(wall_s - self._times[-1][1]) >= MARK_S:
            self._times.append((self.failed_calls, wall_s))
        failing: Failing | None = getattr(sub, "failing", None)
        if failing is None:
            failing = sub.failing = Failing()
        turn = self.breaker.turn
        if self.settings.breaker:
            failing.window = self.breaker.failed(
                sub,
                self.failed_calls,
                failing.window,
                own=fault is Fault.OWN,
                lanes=lanes,
                running=running,
                now_s=now_s,
            )
        if turn != self.breaker.turn:
            self._opened()
        if failing.turn != self.breaker.turn:
            failing.turn = self.breaker.turn
            failing.tries = failing.proven = 0
            failing.is_stale = False

    def succeeded(self, sub: SubMessage) -> list[SubMessage]:
        """Takes note of a success; gives the sub-messages in doubt that it shows to be bad."""
        self.doubts.pop(sub, None)
        self._ended += 1
        return self._proved(getattr(sub, "begun", -1), 1)

    def succeeded_elsewhere(self, began_s: float, calls: int) -> list[SubMessage]:
        """The same for calls in other processes, the last of which began at that time; they close
        the breaker, too."""
        marks = (number for number, wall_s in self._times if wall_s + SKEW_S < began_s)
        begun = max(marks, default=-1)
        if self.breaker.open and begun >= self._opened_at:
            self.breaker.close()
        return self._proved(begun, calls)

    def _proved(self, begun: int, calls: int) -> list[SubMessage]:
        self.breaker.succeeded(begun, calls)
        if self._doubt_over is not None and begun >= self._doubt_over:
            self._doubt_over = None
        bad = []
        while self.doubts and (found := next(iter(self.doubts.items())))[1].number <= begun:
            sub, failing = found
            del self.doubts[sub]
            if not failing.is_stale:
                failing.proven, failing.rule = failing.proven + 1, OTHERS_SUCCEED
            failing.is_stale = getattr(sub, "begun", -1) >= failing.latest  # it is tried again now
            if failing.failures > self._allowed:
                bad.append(sub)
        if self.doubts and begun >= self._doubt_since[0]:
            self._doubt_since = found[1].number, found[1].at_s
        return bad

    def forget(self, sub: SubMessage, now_s: float) -> None:
        """Takes note of an attempt that says nothing of the downstream, nor of a failure."""
        self.doubts.pop(sub, None)
        self.breaker.undecided(sub, now_s)

    def doubt_ends_s(self) -> float:
        """When ``undoubted`` has something to end, if nothing but what is in doubt can run."""
        if self._is_outage():
            return self._doubt_since[1]
        return self._doubt_since[1] + self.settings.max_doubt_s

    def undoubted(self, now_s: float) -> list[SubMessage]:
        """Ends the doubts where nothing else can run; gives the sub-messages that are given up."""
        if self._is_outage():
            self.breaker.start(now_s)
            self._opened()
            return []
        self._doubt_over = self.failed_calls
        bad = []
        for sub, failing in self.doubts.items():
            failing.proven, failing.rule = failing.tries, IN_DOUBT
            if failing.failures > self.settings.retries:
                bad.append(sub)
        self.doubts.clear()
        return bad

    def recovered(self) -> None:
        """Takes note of a breaker that has closed: what was in doubt begins anew."""
        self.doubts.clear()
        self._doubt_over = None

    def stood_still(self, since_s: float, now_s: float) -> None:
        """Leaves a time out in which nothing could be tried: it says nothing of the downstream."""
        self.breaker.stood_still(since_s, now_s)
        number, doubt_s = self._doubt_since
        self._doubt_since = number, doubt_s + now_s - max(since_s, doubt_s)

    def gave_up(self, rule: str, finished: int, elsewhere: int = 0) -> str | None:
        """Counts one that was given up by this rule; the reason to halt when those are too many,
        with those that others gave up."""
        self.given_up_by[rule] += 1
        self.given_up += 1
        given_up, most = self.given_up + elsewhere, self.settings.max_failures
        if not most.passed(given_up, finished):
            return None
        many = f"{given_up:,} sub-messages in all runs"
        return f"drainer gave up {many}, more than --max-failures {most}"

    def follows(self, sub: SubMessage, given_up: SubMessage) -> None:
        """Takes note of the next one in the lane of a sub-message that is given up: if it fails as
        well, that says nothing of the downstream."""
        sub.failing = Failing(behind=given_up.failing.behind + 1, window=given_up.failing.window)

    def _is_outage(self) -> bool:
        """Whether it is the downstream that all that can run is in doubt."""
        new = [failing.ended for failing in self.doubts.values() if not failing.is_suspect]
        if not new or self._doubt_over is not None:
            return bool(new)
        return len(new) > 1 and self._ended - min(new) < HEALTHY * len(new)

    @property
    def _allowed(self) -> int:
        # The first one may be the last of an outage.
        return max(1, self.settings.retries)

    def _opened(self) -> None:
        self._opened_at = self.failed_calls
        self.recovered()
