"""The circuit breaker: stops new work while the downstream is away, and notices when it is back.

After Nygard, "Release It!" (2007). Told of failures only: how much succeeded between them follows
from the count of what is done, so that success costs nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from drainer.message import SubMessage

FAILURES = 50  # first attempts that failed, and are looked at together
SHARE = 0.8  # of all that ended meanwhile; with this many it is the downstream, not the messages
WINDOW_S = 10.0  # and they failed within this time; however long, when nothing succeeded meanwhile
PROBE_FIRST_S = 0.5
PROBE_MOST_S = 5.0
BACK_MOST = 20  # that failed before it closed and are tried again at once; one more each success


@dataclass(slots=True, eq=False)
class Streak:
    """What failed since something last succeeded.

    Attributes:
        done: how many had succeeded in this run when it began.
        at_work: sub-messages in the handler then, or ready for it.
        since_s: when it began.
        failed: sub-messages that failed in it.
        new: of these, for the first time.
    """

    done: int = 0
    at_work: int = 0
    since_s: float = 0.0
    failed: int = 0
    new: int = 0

    @property
    def of_all(self) -> bool:
        """Whether as many failed as could be worked on when it began."""
        return self.failed >= min(FAILURES, self.at_work)


@dataclass(slots=True, eq=False)
class Failing:
    """What is known of a sub-message that has failed and not ended.

    Attributes:
        since_s: when the first attempt failed.
        failures: attempts that failed since the breaker last opened or closed.
        done_at_last: how many had succeeded in this run when the last of these failed.
        outlived: how many of these others succeeded after, before it failed again.
        turn: of the breaker, that ``failures`` are counted in.
        streak: the last one in which it failed.
        expected: whether it is behind a bad one.
    """

    since_s: float
    failures: int = 0
    done_at_last: int = 0
    outlived: int = 0
    turn: int = -1
    streak: Streak | None = None
    expected: bool = False


class Breaker:
    """Closed while all is well. Open, it lets one sub-message at a time through: a probe.

    Of a streak only what failed for the first time says anything of the downstream: the retries of
    a few bad messages, which are all that is left at the end of a backlog, are no outage. What
    failed before the breaker opened or closed counts as new after that.
    """

    def __init__(self) -> None:
        self.open_since_s: float | None = None
        self.opened = 0  # times
        self.streak = Streak()
        self._turn = 0  # rises when it opens and when it closes
        self._failures: deque[tuple[float, int]] = deque(maxlen=FAILURES)  # when, and done by then
        self._probe: SubMessage | None = None
        self._probe_at_s = 0.0
        self._wait_s = PROBE_FIRST_S
        self._may_come_back = 0
        self._done_by_then: int | None = None

    @property
    def open(self) -> bool:
        return self.open_since_s is not None

    @property
    def probe_at_s(self) -> float | None:
        """When the next probe may start; None while one is under way, or none is needed."""
        return self._probe_at_s if self.open and self._probe is None else None

    def is_new(self, sub: SubMessage) -> bool:
        """Whether a sub-message has not failed since it last opened or closed."""
        known: Failing | None = getattr(sub, "failing", None)
        return known is None or known.turn != self._turn

    def failing(self, sub: SubMessage, now_s: float) -> Failing:
        """What is known of a sub-message that fails."""
        known: Failing | None = getattr(sub, "failing", None)
        if known is None:
            known = sub.failing = Failing(now_s)
        if known.turn != self._turn:
            known.turn, known.failures, known.expected = self._turn, 0, False
            known.outlived = 0
        return known

    def failed(self, sub: SubMessage, done: int, at_work: int, now_s: float) -> bool:
        """Notes a failed attempt. Whether that opened it.

        ``at_work`` is how many sub-messages are in the handler or could be, with this one.
        """
        if self.open and sub is self._probe:
            self._probe = None
            self._wait_s = min(PROBE_MOST_S, self._wait_s * 2)
            self._probe_at_s = now_s + self._wait_s
        failing = self._note(sub, done, at_work, now_s)
        if self.open or failing.failures or failing.expected:
            return False
        self._failures.append((now_s, done))
        if len(self._failures) < FAILURES:
            return False
        first_s, done_then = self._failures[0]
        succeeded = done - done_then
        if succeeded and now_s - first_s > WINDOW_S:
            return False  # with none at all, a lane or two that fail slowly are an outage too
        if SHARE * (FAILURES + succeeded) > FAILURES:
            return False
        self.start(now_s)
        return True

    def start(self, now_s: float) -> None:
        """Opens it."""
        self.open_since_s = now_s
        self.opened += 1
        self._turn += 1
        self._wait_s = PROBE_FIRST_S
        self._probe_at_s = now_s + PROBE_FIRST_S

    def stood_still(self, since_s: float, now_s: float) -> None:
        """Nothing could be tried in between: that says nothing of the downstream."""
        if self.open_since_s is not None:
            self.open_since_s += now_s - max(since_s, self.open_since_s)
        self.streak.since_s += now_s - max(since_s, self.streak.since_s)

    def give_way(self) -> None:
        """Closes it without a probe."""
        self._probe = self.open_since_s = None
        self._turn += 1
        self._failures.clear()
        self._may_come_back, self._done_by_then = BACK_MOST, None

    def undecided(self, sub: SubMessage, now_s: float) -> None:
        """Notes one that asked to be called later, which tells nothing."""
        if sub is self._probe:
            self._probe = None
            self._probe_at_s = now_s + self._wait_s

    def start_probe(self, sub: SubMessage) -> None:
        """Notes which sub-message was let through."""
        self._probe = sub

    def ended(self, sub: SubMessage) -> bool:
        """Notes one that is done. Whether that closed it."""
        if not self.open or sub is not self._probe:
            return False
        self.give_way()
        return True

    def comes_back(self, sub: SubMessage, done: int, at_work: int) -> bool:
        """Whether one that is due may be tried again now.

        What failed before the breaker closed comes back as others succeed: many bad ones at once
        would look like the next outage, and open it again for ever. ``at_work`` is as for
        ``failed``; where it is 0, only those that come back can succeed.
        """
        if getattr(sub, "failing", None) is None or not self.is_new(sub):
            return True
        since = 0 if self._done_by_then is None else done - self._done_by_then
        self._done_by_then = done
        self._may_come_back = min(BACK_MOST, self._may_come_back + since)
        if not self._may_come_back and at_work:
            return False
        self._may_come_back = max(0, self._may_come_back - 1)
        return True

    def _note(self, sub: SubMessage, done: int, at_work: int, now_s: float) -> Failing:
        if done != self.streak.done or not self.streak.failed:
            self.streak = Streak(done, at_work, now_s)
        is_new = self.is_new(sub)
        failing = self.failing(sub, now_s)
        if failing.streak is not self.streak:
            failing.streak = self.streak
            self.streak.failed += 1
            self.streak.new += is_new
        return failing
