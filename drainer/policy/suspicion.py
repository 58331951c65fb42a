"""Suspicion: whether it is a sub-message or the downstream that is at fault, by what else succeeds.

Calls are numbered by the failed calls before them: one that began after so many of them, and
succeeds, shows that the downstream was there, and speaks against all that failed before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from drainer.message import SubMessage
from drainer.policy.breaker import HEALTHY, FailureWindow

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
    doubted_at: int = (
        0  # the number of the failed call with which the doubt began, at ``doubted_s``
    )
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
        """Counts so many failures as proven, by this rule."""
        self.proven, self.rule = failures, rule


class Suspicion:
    """Sub-messages in doubt: each has failed, and nothing that began later has succeeded yet."""

    def __init__(self) -> None:
        self.failed_calls = 0
        self.in_doubt: dict[SubMessage, FailureRecord] = {}  # by the failures with which it began
        self._since = 0, 0.0  # the failed call with which the oldest doubt began, and when
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
        """When the oldest doubt began."""
        return self._since[1]

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
            if not self.in_doubt:
                self._since = self.failed_calls, now_s
            self.in_doubt[sub] = record

    def discard(self, sub: SubMessage) -> None:
        """Ends the doubt about a sub-message."""
        self.in_doubt.pop(sub, None)

    def clear(self) -> None:
        """Begins anew, as after an outage."""
        self.in_doubt.clear()
        self._expired_at = None

    def count_success(self, sub: SubMessage) -> None:
        """Counts a call that ended well."""
        self.in_doubt.pop(sub, None)
        self._successes += 1

    def prove(self, begun: int) -> list[SubMessage]:
        """Counts a failure of each sub-message that a success speaks against, and ends the doubt:
        the call that succeeded began after so many had failed."""
        if self._expired_at is not None and begun >= self._expired_at:
            self._expired_at = None
        proven = []
        while self.in_doubt:
            sub, record = next(iter(self.in_doubt.items()))
            if record.doubted_at > begun:
                if begun >= self._since[0]:
                    self._since = record.doubted_at, record.doubted_s
                break
            del self.in_doubt[sub]
            if not record.is_stale:
                record.count(record.proven + 1, OTHERS_SUCCEED)
            record.is_stale = getattr(sub, "begun", -1) >= record.latest  # it is tried again now
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
        number, began_s = self._since
        self._since = number, began_s + now_s - max(since_s, began_s)

    @property
    def is_outage(self) -> bool:
        """Whether it is the downstream that all that can run is in doubt."""
        new = [each.successes_before for each in self.in_doubt.values() if not each.is_suspect]
        if not new or self.expired:
            return bool(new)
        return len(new) > 1 and self._successes - min(new) < HEALTHY * len(new)
