"""What to do about a failed attempt: the state machine of failures, on one page.

An attempt has failed, and ``policy/fault.py`` has found whose fault it is. This module decides what
follows; ``engine/failures.py`` reports the events to it, and carries out what it decides.

A sub-message:

    state     | event                                                | next
    ----------|------------------------------------------------------|------------------------------
    untried   | it fails by its own fault                            | counted
    untried   | it fails, and that may be the downstream's fault     | in doubt
    in doubt  | a call that began after the doubt succeeds           | counted ("others succeeded")
    in doubt  | nothing but doubts can run for ``max_doubt_s``       | counted ("max-doubt")
    in doubt  | the breaker opens                                    | untried: nothing counts
    counted   | more failures count than there are ``retries``       | given up, by ``on_failure``
    any       | an attempt succeeds                                  | done

The downstream, as the ``Breaker`` sees it:

    closed    | many fail for the first time, and hardly any succeed | open
    open      | 0.5 to 5 s are over                                  | half open: one probe runs
    half open | the probe fails                                      | open
    half open | the probe succeeds, or one of another process does   | closed
    open      | ``max_outage_s`` or ``max_doubt_s`` is over          | the drain halts

The words of the table and of this module:

    in doubt    The sub-message failed, and the downstream may have been the cause.
    proven      A failure in doubt was found to be the sub-message's own, and counts from then on.
    suspect     The sub-message has a proven failure, or those right before it in its lane were
                given up. When a suspect fails again, this says little about the downstream.

A call knows how many calls had failed when it began. If it succeeds, the downstream was there after
those failures, so it proves all of them that are in doubt.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random
from typing import NamedTuple

from drainer.message import SubMessage
from drainer.model.codec import Whole
from drainer.model.settings import FailureSettings, OnFailure
from drainer.policy.fault import Fault

# The breaker opens once this many sub-messages have failed. It opens at fewer if there are fewer
# lanes, and at more if more calls are in flight. It stays closed if, meanwhile, the successes were
# at least HEALTHY times as many as the failures.
FAILURES = 50
HEALTHY = 0.25
# The breaker also opens once this many sub-messages have failed by errors of their own, without one
# success.
FAILURES_OWN = 100
SUCCESSES = 50  # This many successes show that the failures before them were no outage.
PROBE_FIRST_S, PROBE_MOST_S = 0.5, 5.0

# The times of up to this many failed calls are kept. They are at least MARK_S apart.
MARKS_MOST, MARK_S = 1_000, 0.5
SKEW_S = 1.0  # The clocks of two machines may differ by this much.
# For this long after a success of another task, further successes of other tasks are expected.
OTHERS_S = 60.0
# Once this many sub-messages of a lane were given up one after the other, the next one is suspect.
LANE_BAD = 2

# The reasons why a sub-message is given up. The last two follow from a comparison with other
# sub-messages.
OWN_ERROR = "the message's own error"
HANDLER = "GiveUp"
UNSPLIT = "split failed"
OTHERS_SUCCEED = "others succeeded"
IN_DOUBT = "max-doubt"
BY_COMPARISON = (OTHERS_SUCCEED, IN_DOUBT)

DOWNSTREAM_FAILS = "the downstream is failing"
NOTHING_SUCCEEDED = (
    "nothing has succeeded in this run: the handler or its downstream is broken, not one message"
    " (--tune breaker=off gives up anyway)"
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a sub-message whose attempt has ended without success.

    Attributes:
        action: how it is given up; None to try it again at ``at_s``, by the clock of the caller.
        reason: the reason why it is given up, one of the constants above.
        why: an explanation for people, where the error alone is not enough.
    """

    action: OnFailure | None
    at_s: float = 0.0
    reason: str = ""
    why: str | None = None


class Patience(NamedTuple):
    """Something that a drain waits out: its name, since when, how long, and the option for that."""

    what: str
    since_s: float
    most_s: float
    option: str

    @property
    def ends_s(self) -> float:
        return self.since_s + self.most_s


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of sub-messages by which the tasks of a drain learn from each other.

    Attributes:
        done: how many are done in this run.
        given_up: how many were given up in all runs.
        finished: how many finished in all runs, without those that rules skipped.
        began_s: when the latest call began that is known to have succeeded, in seconds since 1970.
    """

    done: Whole = 0
    given_up: Whole = 0
    finished: Whole = 0
    began_s: float = 0.0

    def beside(self, own: Totals, whole: Totals) -> Totals:
        """Return the least that the other tasks must have done.

        ``self`` is the least that was known of them before. ``whole`` is what all tasks together
        had done a moment ago, and ``own`` is what this task has done by now. So at most ``own`` of
        ``whole`` is this task's work, and the rest is that of the others.
        """
        return Totals(
            max(self.done, whole.done - own.done),
            max(self.given_up, whole.given_up - own.given_up),
            max(self.finished, whole.finished - own.finished),
            max(self.began_s, whole.began_s),
        )


@dataclass(slots=True)
class FailureWindow:
    """Failures that the breaker counts together, and the successes meanwhile.

    Attributes:
        since: the number of the first failed call.
        failed: how many different sub-messages failed.
        succeeded: how many calls succeeded that began after the first failure.
    """

    since: int = 0
    failed: int = 0
    succeeded: int = 0


class Breaker:
    """Circuit breaker: keeps most calls off a downstream that is away, and detects its return.

    It is closed while most calls succeed. While it is open, one sub-message at a time is let
    through, the probe; while a probe is under way, it is half open. It decides about load only:
    ``FailurePolicy`` decides what counts against a sub-message. After Nygard, "Release It!" (2007).

    Attributes:
        opened: how many times it has opened.
        generation: a number that rises when it opens and when it closes.
        open_since_s: since when it is open; None while it is closed.
        own_since_s: since when it is open because of errors that look like the messages' own. None
            if it is not, or if a probe has failed with a different error since.
        prefers_tried: whether the next probe shall be a sub-message that has failed before. Probes
            take turns between sub-messages that have and those that have not.
    """

    def __init__(self) -> None:
        self.opened = self.generation = 0
        self.open_since_s: float | None = None
        self.own_since_s: float | None = None
        self.prefers_tried = False
        self._probe: SubMessage | None = None
        self._next_probe_s = 0.0
        self._wait_s = PROBE_FIRST_S
        self._unclear, self._own = FailureWindow(), FailureWindow()

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open or half open."""
        return self.open_since_s is not None

    @property
    def needs_successes(self) -> bool:
        """Whether a success would change anything."""
        return self.is_open or self._unclear.failed + self._own.failed > 0

    @property
    def probe_at_s(self) -> float | None:
        """When the next probe may start; None while the breaker is closed or half open."""
        return self._next_probe_s if self.is_open and self._probe is None else None

    def failed(
        self, sub: SubMessage, number: int, earlier: FailureWindow | None, at: Moment, *, own: bool
    ) -> FailureWindow | None:
        """Count a failed call, and open the breaker if too many have failed.

        Return the window in which the sub-message counts. When it fails again, the caller passes
        that window as ``earlier``. Calls in flight may still end well, so the breaker opens only
        once at least as many have failed.

        Args:
            number: how many calls have failed by now, including this one.
            own: whether the error is the message's own.
        """
        now_s = at.now_s
        if sub is self._probe:
            self._wait_s = min(PROBE_MOST_S, self._wait_s * 2)
            self.end_probe(sub, now_s)
            if not own:
                self.own_since_s = None
        if earlier is not None and (earlier is self._own or not own):
            return earlier
        window = self._own if own else self._unclear
        window.since = window.since if window.failed else number
        window.failed += 1
        if own:  # There was no success since, because that would have ended this window.
            if window.failed >= FAILURES_OWN:
                self.own_since_s = self.own_since_s or now_s
                self.open(now_s)
            return window
        enough = window.failed >= max(at.running, min(FAILURES, max(2, at.lanes)))
        if enough and window.succeeded < HEALTHY * window.failed:
            self.open(now_s)
        return window

    def succeeded(self, started_at: int, calls: int = 1) -> None:
        """Count successes of calls that began when ``started_at`` calls had failed."""
        if self._own.failed and started_at >= self._own.since:
            self._own = FailureWindow()
        if self._unclear.failed and started_at >= self._unclear.since:
            self._unclear.succeeded += calls
            if self._unclear.succeeded >= SUCCESSES:
                self._unclear = FailureWindow()

    def open(self, now_s: float) -> None:
        """Open the breaker if it is closed."""
        if not self.is_open:
            self.open_since_s = now_s
            self.opened += 1
            self.generation += 1
            self._wait_s = PROBE_FIRST_S
            self._next_probe_s = now_s + PROBE_FIRST_S

    def close(self) -> None:
        """Close the breaker, even while a probe is under way, and forget all failures."""
        self._probe = self.open_since_s = self.own_since_s = None
        self.generation += 1
        self._unclear, self._own = FailureWindow(), FailureWindow()

    def start_probe(self, sub: SubMessage) -> None:
        """Note the sub-message that is let through as the probe."""
        self._probe = sub
        self.prefers_tried = not self.prefers_tried

    def end_probe(self, sub: SubMessage, now_s: float) -> None:
        """Let the next probe start, if this sub-message was the probe and has ended."""
        if sub is self._probe:
            self._probe = None
            self._next_probe_s = now_s + self._wait_s

    def close_if_probe(self, sub: SubMessage) -> bool:
        """Close the breaker if a sub-message that is done was the probe; return whether it was."""
        if sub is not self._probe:
            return False
        self.close()
        return True

    def leave_out(self, since_s: float, now_s: float) -> None:
        """Do not count the time since ``since_s``, in which nothing could be tried."""
        if self.open_since_s is not None:
            self.open_since_s += now_s - max(since_s, self.open_since_s)
        if self.own_since_s is not None:
            self.own_since_s += now_s - max(since_s, self.own_since_s)


@dataclass(slots=True, eq=False)
class FailureRecord:
    """What is known of a sub-message that has failed and whose outcome is not decided.

    Attributes:
        error: the error of its last attempt. None if only calls with others have failed so far.
        latest: the number of that failed call.
        own: how many failures were its own fault.
        tries: how many attempts have failed since the breaker last opened or closed.
        generation: the breaker's number for that time.
        proven: how many of these failures count, although they might have been the downstream's.
        reason: the reason why they count.
        is_stale: whether the attempt in flight began before the last of them was proven.
        doubted_at, doubted_s: the number of the failed call with which the doubt began, and when.
        successes_before: how many calls had succeeded when the doubt began.
        given_up_before: how many sub-messages right before it in its lane were given up.
        window: the breaker's window in which it was counted.
    """

    error: BaseException | None = None
    latest: int = 0
    own: int = 0
    tries: int = 0
    generation: int = 0
    proven: int = 0
    reason: str = ""
    is_stale: bool = False
    doubted_at: int = 0
    doubted_s: float = 0.0
    successes_before: int = 0
    given_up_before: int = 0
    window: FailureWindow | None = None

    @property
    def failures(self) -> int:
        """How many failures count."""
        return self.own + self.proven

    @property
    def is_suspect(self) -> bool:
        """Whether the sub-message, or its lane, has failed where others succeeded."""
        return self.proven > 0 or self.given_up_before >= LANE_BAD

    def begin_generation(self, generation: int) -> None:
        """Forget failures that may be the downstream's, if the breaker opened or closed since."""
        if self.generation != generation:
            self.generation = generation
            self.tries = self.proven = 0
            self.is_stale = False

    def prove(self, failures: int, reason: str) -> None:
        """Count this many failures in all as proven, for this reason; at most all ``tries``."""
        self.proven, self.reason = min(failures, self.tries), reason


class Doubts:
    """Sub-messages in doubt, which have failed while no call that began later has succeeded."""

    def __init__(self) -> None:
        self.failed_calls = 0
        # The records are in the order in which the doubts began.
        self._records: dict[SubMessage, FailureRecord] = {}
        self._successes = 0
        # How many calls had failed when the doubts expired; None once something has succeeded.
        self._expired_at: int | None = None
        # Numbers of failed calls, each with the time at which it was reached (since 1970).
        self._times: deque[tuple[int, float]] = deque(maxlen=MARKS_MOST)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[SubMessage]:
        return iter(self._records)

    @property
    def need_successes(self) -> bool:
        """Whether a success would change anything."""
        return bool(self._records) or self.have_expired

    @property
    def have_expired(self) -> bool:
        """Whether doubts have lasted too long, and no call has succeeded since."""
        return self._expired_at is not None

    @property
    def since_s(self) -> float:
        """When the oldest doubt began. There must be one."""
        return next(iter(self._records.values())).doubted_s

    @property
    def mean_outage(self) -> bool:
        """Whether the downstream is to blame, if nothing can run but sub-messages in doubt.

        It is if several of them are not suspect, and hardly any call has succeeded meanwhile. Once
        doubts have expired, one that is not suspect is enough.
        """
        new = [each.successes_before for each in self._records.values() if not each.is_suspect]
        if not new or self.have_expired:
            return bool(new)
        return len(new) > 1 and self._successes - min(new) < HEALTHY * len(new)

    def count_call(self, wall_s: float) -> None:
        """Count a failed call at a time in seconds since 1970, as other processes have it."""
        self.failed_calls += 1
        if not self._times or abs(wall_s - self._times[-1][1]) >= MARK_S:
            self._times.append((self.failed_calls, wall_s))

    def calls_before(self, wall_s: float) -> int:
        """Return how many calls had surely failed by a time of another process; -1 for none."""
        return max((n for n, at_s in self._times if at_s + SKEW_S < wall_s), default=-1)

    def add(self, sub: SubMessage, record: FailureRecord, now_s: float) -> None:
        """Put a sub-message in doubt, unless it is in doubt already."""
        if sub not in self._records:
            record.doubted_at, record.doubted_s = self.failed_calls, now_s
            record.successes_before = self._successes
            self._records[sub] = record

    def drop(self, sub: SubMessage) -> None:
        """End the doubt of a sub-message that succeeded, or whose failure says nothing."""
        self._records.pop(sub, None)

    def clear(self) -> None:
        """Forget all doubts, as after an outage."""
        self._records.clear()
        self._expired_at = None

    def prove(self, started_at: int) -> list[SubMessage]:
        """End the doubts that began before a call that has succeeded, and count a failure of each.

        The call that succeeded began when ``started_at`` calls had failed. Return the sub-messages
        that are no longer in doubt.
        """
        if self._expired_at is not None and started_at >= self._expired_at:
            self._expired_at = None
        proven = []
        while self._records:
            sub, record = next(iter(self._records.items()))
            if record.doubted_at > started_at:
                break
            del self._records[sub]
            if not record.is_stale:
                record.prove(record.proven + 1, OTHERS_SUCCEED)
            # It may be in the handler now, by an attempt that began before this was known.
            record.is_stale = getattr(sub, "started_at", -1) >= record.latest
            proven.append(sub)
        return proven

    def expire(self) -> list[SubMessage]:
        """End all doubts, because nothing else can run. Each failure in doubt counts then."""
        self._expired_at = self.failed_calls
        expired = list(self._records)
        for record in self._records.values():
            record.prove(record.tries, IN_DOUBT)
        self._records.clear()
        return expired

    def count_success(self, sub: SubMessage) -> None:
        """Count a call that ended well, and end the doubt of its sub-message."""
        self.drop(sub)
        self._successes += 1

    def leave_out(self, since_s: float, now_s: float) -> None:
        """Do not count the time since ``since_s``, in which nothing could be tried."""
        for record in self._records.values():
            record.doubted_s += now_s - max(since_s, record.doubted_s)


class Moment(NamedTuple):
    """The state of the drain when a call failed.

    Attributes:
        now_s, wall_s: the time by the drain's clock, and in seconds since 1970.
        lanes: how many lanes have something to do.
        running: how many calls are in flight.
        done: how many sub-messages this process has done in this run.
    """

    now_s: float
    wall_s: float = 0.0
    lanes: int = 0
    running: int = 0
    done: int = 0


class FailurePolicy:
    """Decides after each failed attempt, and keeps count of what was given up.

    A failure that is the message's own fault counts at once. Any other failure counts only once a
    call has succeeded that began after it. Until then the sub-message is in doubt: it is tried
    again, and spends no retry. At least two such failures are needed to give it up, because the
    first may be the last one of an outage.

    If nothing can run but what is in doubt, it is given up after ``max_doubt_s``. That happens at
    most once until something succeeds again. If several sub-messages failed that were not suspect,
    and hardly any call succeeded meanwhile, the breaker opens instead.

    Attributes:
        given_up: how many sub-messages were given up in all runs. The caller passes the number of
            former runs.
        given_up_by: how many were given up in this run, by the reason.
        others: what other tasks of the drain have done, as far as that is known.
        whole: what all tasks had done when this task heard of it last.
    """

    def __init__(self, settings: FailureSettings, random: Random, given_up: int = 0) -> None:
        self.settings = settings
        self.breaker, self.doubts = Breaker(), Doubts()
        self.given_up, self.given_up_by = given_up, Counter[str]()
        self.others = self.whole = Totals()
        self._others_until_s = 0.0  # Until then, another task may still show that all is well.
        self._opened_at = 0  # The number of failed calls when the breaker opened last.
        self._random = random

    # --- events ---

    def failed(self, sub: SubMessage, error: BaseException, fault: Fault, at: Moment) -> Decision:
        """Decide on an attempt that failed, or took too long."""
        self.count_call(sub, fault, at)
        settings, breaker, doubts = self.settings, self.breaker, self.doubts
        record: FailureRecord = sub.failing
        record.tries += 1
        record.latest, record.error = doubts.failed_calls, error
        if fault is Fault.OWN or not settings.breaker:
            doubts.drop(sub)
            if breaker.own_since_s is None:
                record.own += 1
                if record.failures > settings.retries:
                    return self.give_up(OWN_ERROR)
        elif not breaker.is_open:
            if doubts.have_expired and record.is_suspect:
                record.prove(record.proven + 1, IN_DOUBT)
            if record.failures > self._allowed:
                return self.give_up(record.reason)
            # To halt loses nothing, because a resume tries the sub-message again.
            halts = settings.on_failure is OnFailure.HALT and record.tries > settings.retries
            if halts and not at.done + self.others.done:
                return Decision(OnFailure.HALT, why=NOTHING_SUCCEEDED)
            doubts.add(sub, record, at.now_s)
            if at.now_s - doubts.since_s >= settings.max_doubt_s and doubts.mean_outage:
                self._open(at.now_s)  # If calls hang, only a few of them fail in all that time.
        return Decision(None, at.now_s + settings.delay_s(record.tries, self._random))

    def count_call(self, sub: SubMessage, fault: Fault, at: Moment) -> None:
        """Count a failed call. If it had several sub-messages, ``sub`` is the first of them."""
        self.doubts.count_call(at.wall_s)
        record: FailureRecord | None = getattr(sub, "failing", None)
        if record is None:
            record = sub.failing = FailureRecord()
        breaker = self.breaker
        if self.settings.breaker:
            generation = breaker.generation
            record.window = breaker.failed(
                sub, self.doubts.failed_calls, record.window, at, own=fault is Fault.OWN
            )
            if generation != breaker.generation:
                self._note_open()
        record.begin_generation(breaker.generation)

    def excuse(self, sub: SubMessage, now_s: float) -> None:
        """Note an attempt that is not a failure, and that proves nothing about the downstream."""
        self.doubts.drop(sub)
        self.breaker.end_probe(sub, now_s)

    def try_later(self, sub: SubMessage, after_s: float | None, now_s: float) -> Decision:
        """Decide on a request for another call. It is not a failure, and spends no retry."""
        self.excuse(sub, now_s)
        wait_s = self.settings.delay_s(sub.attempt, self._random) if after_s is None else after_s
        return Decision(None, now_s + max(0.0, wait_s))

    def succeeded(self, sub: SubMessage) -> list[SubMessage]:
        """Note a success. Return the sub-messages that are to be given up because of it."""
        self.doubts.count_success(sub)
        return self._prove(getattr(sub, "started_at", -1), 1)

    def hear(self, own: Totals, whole: Totals, now_s: float) -> list[SubMessage]:
        """Note what all tasks of the drain have done, including this one, which has done ``own``.

        Successes of other tasks close the breaker, too. Return the sub-messages that are to be
        given up because of them.
        """
        if whole == self.whole:
            return []
        before, self.whole = self.others, whole
        self.others = before.beside(own, whole)
        if self.others.began_s <= before.began_s:
            return []
        self._others_until_s = now_s + OTHERS_S
        started_at = self.doubts.calls_before(self.others.began_s)
        if self.breaker.is_open and started_at >= self._opened_at:
            self.breaker.close()  # Everything that failed here failed before that call began.
        return self._prove(started_at, self.others.done - before.done)

    def end_doubts(self, now_s: float) -> list[SubMessage]:
        """End the doubts if they have lasted long enough. Return what is to be given up then.

        The caller has found that nothing else can run.
        """
        if now_s < self.doubts_end_s:
            return []
        if self.doubts.mean_outage:
            self._open(now_s)
            return []
        expired = self.doubts.expire()
        return [sub for sub in expired if sub.failing.failures > self.settings.retries]

    def change(self, settings: FailureSettings) -> None:
        """Use new settings from now on. If they turn the breaker off, an outage ends."""
        if self.settings.breaker and not settings.breaker:
            self.breaker.close()
            self.doubts.clear()
        self.settings = settings

    def leave_out(self, since_s: float, now_s: float) -> None:
        """Do not count the time since ``since_s``: nothing could be tried, so it proves nothing."""
        self.breaker.leave_out(since_s, now_s)
        self.doubts.leave_out(since_s, now_s)

    # --- giving up ---

    def give_up(self, reason: str, why: str | None = None) -> Decision:
        """Decide on a sub-message that is given up for this reason."""
        return Decision(self.settings.on_failure, reason=reason, why=why)

    def count_given_up(self, reason: str, finished: int) -> str | None:
        """Count a sub-message that is given up for a reason.

        ``finished`` is how many sub-messages have finished in all runs. Return why the drain has to
        halt if too many are given up by now, including those of other tasks.
        """
        self.given_up_by[reason] += 1
        self.given_up += 1
        given_up, most = self.given_up + self.others.given_up, self.settings.max_failures
        if not most.passed(given_up, finished + self.others.finished):
            return None
        many = f"{given_up:,} sub-messages in all runs"
        return f"drainer gave up {many}, more than --max-failures {most}"

    def suspect_next(self, sub: SubMessage, given_up: SubMessage) -> None:
        """Suspect the sub-message behind one that is given up, in its lane.

        If it fails, too, that proves nothing about the downstream.
        """
        former: FailureRecord = given_up.failing
        before = former.given_up_before + 1
        sub.failing = FailureRecord(given_up_before=before, window=former.window)

    # --- questions ---

    @property
    def needs_successes(self) -> bool:
        """Whether the policy has to see each success, and when its call began."""
        return self.doubts.need_successes or self.breaker.needs_successes

    def outage(self, done: int) -> Patience | None:
        """Return what the open breaker waits out; None while it is closed.

        ``done`` is how many sub-messages this process has done in this run.
        """
        since_s, own_since_s = self.breaker.open_since_s, self.breaker.own_since_s
        if since_s is None:
            return None
        done += self.others.done
        if done and own_since_s is None:
            return self.waits_out(DOWNSTREAM_FAILS, since_s)
        what = "no message of many succeeds" if done else "nothing has succeeded in this run"
        what += "" if own_since_s is None else ", with errors that look like the messages' own"
        return Patience(what, own_since_s or since_s, self.settings.max_doubt_s, "--tune max-doubt")

    def waits_out(self, what: str, since_s: float) -> Patience:
        """Return the patience for trouble that is not the fault of any message."""
        return Patience(what, since_s, self.settings.max_outage_s, "--tune max-outage")

    def others_may_succeed(self, now_s: float) -> bool:
        """Whether another task may still show whose fault it is."""
        return now_s < self._others_until_s

    @property
    def doubts_end_s(self) -> float:
        """The time from which on ``end_doubts`` ends the doubts, if nothing else can run."""
        longest_s = 0.0 if self.doubts.mean_outage else self.settings.max_doubt_s
        return self.doubts.since_s + longest_s

    # --- helpers ---

    @property
    def _allowed(self) -> int:
        # The first failure may be the last one of an outage, so a second one is needed.
        return max(1, self.settings.retries)

    def _prove(self, started_at: int, calls: int) -> list[SubMessage]:
        self.breaker.succeeded(started_at, calls)
        proven = self.doubts.prove(started_at)
        return [sub for sub in proven if sub.failing.failures > self._allowed]

    def _open(self, now_s: float) -> None:
        self.breaker.open(now_s)
        self._note_open()

    def _note_open(self) -> None:
        self._opened_at = self.doubts.failed_calls
        self.doubts.clear()


class Retries:
    """Sub-messages that wait for their next attempt, by the time at which it is due.

    If several are due at the same time, the one that was added first comes first. Their lanes wait,
    too.

    Attributes:
        started: how many further attempts have begun.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, SubMessage, bool, bool]] = []
        self._ties = count()
        # The tie-breaker of each sub-message's valid entry in the heap, by which it is recognised.
        self._waiting: dict[SubMessage, int] = {}
        # Those of them of which the next call does not count as a further attempt.
        self._postponed: set[SubMessage] = set()
        self.started = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, sub: SubMessage) -> bool:
        return sub in self._waiting

    @property
    def further(self) -> int:
        """The number of sub-messages that wait for a further attempt."""
        return len(self._waiting) - len(self._postponed)

    @property
    def due_s(self) -> float | None:
        """When the first one is due; None if there is none."""
        while self._heap and self._waiting.get(self._heap[0][2]) != self._heap[0][1]:
            heappop(self._heap)  # It was removed, or has been added again since.
        return self._heap[0][0] if self._heap else None

    @property
    def last_due_s(self) -> float | None:
        """When the last one is due; None if there is none. All are looked at."""
        valid = (at_s for at_s, tie, sub, *_ in self._heap if self._waiting.get(sub) == tie)
        return max(valid, default=None)

    def push(
        self, sub: SubMessage, at_s: float, *, requested: bool = False, counts: bool = True
    ) -> None:
        """Add a sub-message.

        Args:
            requested: whether the handler requested this time.
            counts: whether the next call counts as a further attempt.
        """
        self._waiting[sub] = tie = next(self._ties)
        heappush(self._heap, (at_s, tie, sub, requested, counts))
        if counts:
            self._postponed.discard(sub)
        else:
            self._postponed.add(sub)

    def remove(self, sub: SubMessage) -> bool:
        """Remove a sub-message that gets no further attempt; return whether it was waiting."""
        self._postponed.discard(sub)
        return self._waiting.pop(sub, None) is not None

    def hurry(self, now_s: float) -> None:
        """Make all due now, except those whose time the handler requested."""
        self._heap = [
            (at_s if requested else min(at_s, now_s), tie, sub, requested, counts)
            for at_s, tie, sub, requested, counts in self._heap
        ]
        heapify(self._heap)

    def pop(self, now_s: float | None = None) -> SubMessage | None:
        """Remove and return the first one that is due; the first of all if no time is given."""
        due_s = self.due_s
        if due_s is None or (now_s is not None and due_s > now_s):
            return None
        _, _, sub, _, counts = heappop(self._heap)
        del self._waiting[sub]
        self._postponed.discard(sub)
        self.started += counts
        return sub
