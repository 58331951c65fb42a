"""The knee: the concurrency at which a downstream's throughput stops growing, found while draining.

A limit is tried until its throughput is known well enough; what the trials say decides which one is
tried next. It doubles while throughput grows, as TCP's slow start does (Jacobson, "Congestion
Avoidance and Control", 1988). Past the knee, throughput times unloaded latency tells where it was:
by Little's law that many were really at work, and the others queued. That is the gradient of TCP
Vegas (Brakmo and Peterson, 1995) and of Netflix's concurrency-limits, and the operating point of
BBR (Cardwell and others, 2016). Latency alone is not trusted: a downstream that becomes slower with
each one more may still do more, so the limit that is settled on was itself measured.
"""

from __future__ import annotations

from math import sqrt

from drainer.policy.concurrency_trial import (
    BOUND,
    ConcurrencyPoint,
    ConcurrencyTrial,
    Errors,
    Interval,
)

ENOUGH = 0.95  # of the best throughput: the least limit that gives it is the knee
TOO_LITTLE = 0.9  # less than this is surely not enough; between the two, chance decides
GROWS = 0.1  # more throughput for twice the limit; with less it has stopped growing
CLEAR = 1.5  # times as much as before needs no exact measurement
NEAR = 1.15  # bounds of the knee that are so close are not worth another trial
HEADROOM = 1.04  # over what was at work, or a slot that has just become free waits for us

SLOW_S = 0.3  # from this latency on, a higher limit is reached in steps, or answers come in bursts

CHANGED = 0.2  # of the throughput, up or down, in two trials in a row: it is another downstream now
PROBE_UP, PROBE_DOWN = 1.25, 0.8
GAIN = 0.1  # that a probe upwards must bring
LOSS = 0.06  # that a probe downwards may cost
PROBE_AFTER_S, PROBE_MOST_S = 5.0, 30.0  # between two probes; longer while they bring nothing
PROBE_SHARE = 8  # or so many times as long as a trial takes
BAD_FOR_S, BAD_MOST_S = 60.0, 600.0  # how long a limit that met errors is left alone

BACK_OFF = 0.7
INDEPENDENT = 0.75  # of the share of errors is left, however low the limit: it is not the cause
BACK_OFFS = 4  # before that is believed

FULL = 0.85  # of one processor: this process itself is the bottleneck


class ConcurrencyLimit:
    """The limit that a drain should run with, from what it measures.

    ``limit`` is the one for now, ``settled`` the one that was found, None while it is looked for.
    ``best_per_s`` is the throughput there, ``why`` the reason for the last change. Tell it what was
    measured each ``look_s`` (``hear``); it has no clock.
    """

    look_s = 0.1

    def __init__(self, first: int, most: int, least: int = 1) -> None:
        self.most = most
        self.least = least
        self.limit = max(least, min(first, most))
        self.settled: int | None = None
        self.best_per_s: float | None = None
        self.bound = True  # whether it is the limit that binds
        self._why = "beginning"
        self._now_s = 0.0
        self._points: dict[int, ConcurrencyPoint] = {}  # of this search
        self._trial = ConcurrencyTrial(self.limit, wait=self.limit)
        self._step_from = self._target = self.limit
        self._latency_s = 0.0  # of a call now, by the last trial
        self._unloaded_s: float | None = None  # in the last search
        self._reference = 0.0  # throughput at the settled limit
        self._peak = 0.0  # and the best that was measured before it was settled on
        self._strange = 0  # trials in a row that are far from it
        self._probing = 0  # the limit that is tried beside the settled one; 0 for none
        self._up_next = False  # the search has just been there
        self._rests_since_s = 0.0
        self._probe_after_s = PROBE_AFTER_S
        self._errors = Errors()
        self._bad: int | None = None  # the least limit that met errors
        self._bad_until_s = 0.0
        self._bad_for_s = BAD_FOR_S
        self._backed_off: list[tuple[int, float]] = []  # limits that met errors, and their share
        self._settled_why = ""

    @property
    def why(self) -> str:
        """Why the limit is what it is, in a few words."""
        return self._why if self.bound else "fewer are ready than may run"

    def hear(self, interval: Interval) -> int:
        """Takes in what was measured; gives the limit from now on."""
        if interval.seconds <= 0:
            return self.limit
        self._now_s += interval.seconds
        trial, waited = self._trial, self._trial.waits
        if interval.in_flight >= BOUND * self.limit:
            self.bound = True
        if not self._in_steps(interval):
            trial.add(interval)
        if self._fails(interval, waited=waited):
            self._back_off()
        elif trial.says_nothing:
            self._set_aside()
        elif not trial.waits and self._target == self.limit and trial.long_enough:
            self._judge(trial)
        return self.limit

    def _in_steps(self, interval: Interval) -> bool:
        # All at once would be answered all at once, and again and again: no way to measure.
        if self.limit == self._target:
            return False
        step = (self._target - self._step_from) * interval.seconds / max(self._latency_s, 1e-9)
        self.limit = min(self._target, self.limit + max(1, round(step)))
        return True

    def _go_to(self, limit: int, why: str) -> None:
        self._why = why
        wait = max(limit, self.limit)
        self._step_from, self._target = self.limit, limit
        if limit <= self.limit or self._latency_s < SLOW_S:
            self.limit = limit
        self._trial = ConcurrencyTrial(limit, wait)
        self._errors.forget()

    def _judge(self, trial: ConcurrencyTrial) -> None:
        found = trial.point
        if self.settled is None:
            tried = [point.rate for point in self._points.values()]
            more = trial.limit > max(self._points, default=0)
            if trial.exact or (more and found.rate > CLEAR * max(tried, default=0.0)):
                self._latency_s = found.call_s
                self._note(trial, found)
        elif trial.exact:
            self._latency_s = found.call_s
            self._errors.rest(found.errors)
            if self._probing:
                self._judge_probe(trial, found)
            else:
                self._look_after(trial, found)

    # Searching: trials at different limits, until the knee lies between two of them.

    def _note(self, trial: ConcurrencyTrial, found: ConcurrencyPoint) -> None:
        self._points[trial.limit] = found
        self._errors.rest(found.errors)
        self._backed_off.clear()
        chosen = self._choose()
        if chosen is None:
            self._settle()
        elif chosen > max(self._points):
            self._go_to(chosen, "throughput still grows")
        else:
            self._go_to(chosen, "looking for where throughput stops growing")

    def _choose(self) -> int | None:
        """What to try next; None when the knee is known."""
        points = self._points
        best = self._best()
        high = self._least_enough()
        top = max(points)
        if high == top and top < self.most and self._grew(top):
            if self._bad is None:
                return min(2 * top, self.most)
            between = round(sqrt(top * self._bad))
            return between if self._bad > NEAR * top and top < between < self._bad else None
        low = max((n for n, p in points.items() if n < high and _little(p, best)), default=None)
        if low is None:
            least = min(points)
            return max(self.least, least // 2) if least > self.least else None
        # No limit does more than one in each unloaded latency.
        at_work = best * self._unloaded()
        floor = max(low, ENOUGH * ENOUGH * at_work)
        if high <= NEAR * floor or (high == top and high * ENOUGH <= at_work):
            return None
        guess = round(HEADROOM * at_work)
        if not NEAR * low < guess < high / (NEAR**0.5):
            guess = round(sqrt(floor * high))
        return guess if low < guess < high and guess not in points else None

    def _best(self) -> float:
        # The luckiest trial is no measure for the others.
        rates = [point.rate for point in self._points.values()]
        good = [rate for rate in rates if rate >= TOO_LITTLE * max(rates)]
        return sum(good) / len(good)

    def _least_enough(self) -> int:
        best = self._best()
        return min(n for n, point in self._points.items() if point.rate >= ENOUGH * best)

    def _grew(self, top: int) -> bool:
        below = max((limit for limit in self._points if limit < top), default=None)
        if below is None:
            return True
        wanted = 1 + GROWS * min(1.0, top / below - 1)
        return self._points[top].rate >= wanted * self._points[below].rate

    def _unloaded(self) -> float:
        # Of all trials that are about as quick as the quickest: one alone may be lucky.
        least = min(point.latency_s for point in self._points.values())
        quick = [p for p in self._points.values() if p.latency_s <= 1.1 * least]
        ended = sum(max(1, point.done) for point in quick)
        return sum(point.latency_s * max(1, point.done) for point in quick) / ended

    def _settle(self) -> None:
        limit = self._least_enough()
        point = self._points[limit]
        self._unloaded_s = self._unloaded()
        if self._bad is not None and limit == max(self._points) and self._grew(limit):
            why = f"errors at {self._bad:,}"
        elif limit == self.most and self._grew(limit):
            why = "it may be no more"
        elif max(p.busy for p in self._points.values()) >= FULL:
            why = "this process has no more processor time"
        else:
            why = "throughput stopped growing"
        self._peak = max(self._peak, self._best())
        self._rest(limit, point.rate, why)

    # Settled: it is looked after, and now and then another limit is tried.

    def _rest(self, limit: int, rate: float, why: str) -> None:
        self.settled, self._settled_why = limit, why
        self.best_per_s = self._reference = rate
        self._strange = self._probing = 0
        self._points = {}
        self._go_to(limit, why)
        self._rests_since_s = self._now_s

    def _look_after(self, trial: ConcurrencyTrial, found: ConcurrencyPoint) -> None:
        ratio = found.rate / max(self._reference, 1e-9)
        if abs(ratio - 1) > CHANGED:
            self._strange += 1
            if self._strange == 2:
                self._begin_again(trial.limit, found, ratio)
                return
        else:
            self._strange = 0
            self._reference += 0.3 * (found.rate - self._reference)
            self.best_per_s = self._reference
        pause_s = max(self._probe_after_s, PROBE_SHARE * trial.seconds)
        if self._strange or self._now_s < self._rests_since_s + pause_s:
            self._trial = ConcurrencyTrial(trial.limit)
            return
        self._probe(trial.limit)

    def _begin_again(self, limit: int, found: ConcurrencyPoint, ratio: float) -> None:
        self.settled = None
        self._points = {limit: found}
        self._peak = 0.0
        self._bad = None
        self._probe_after_s = PROBE_AFTER_S
        if ratio > 1:
            self._note_again("throughput rose: looking again")
            return
        # As many as would be at work if latency were what it was: no queue is built meanwhile.
        unloaded_s = found.latency_s if self._unloaded_s is None else self._unloaded_s
        at_work = round(HEADROOM * found.rate * unloaded_s)
        lower = max(self.least, limit // 4, min(at_work, round(limit / NEAR)))
        self._go_to(lower, "throughput fell: looking again")

    def _note_again(self, why: str) -> None:
        chosen = self._choose()
        if chosen is None:
            self._settle()
        else:
            self._go_to(chosen, why)

    def _probe(self, limit: int) -> None:
        bad = self._bad if self._now_s < self._bad_until_s else None
        up = min(self.most, int(PROBE_UP * limit + 1))
        if bad is not None:
            up = max(limit, min(up, int(bad / sqrt(NEAR))))
        down = max(self.least, int(PROBE_DOWN * limit))
        choice = up if self._up_next else down
        if choice == limit:
            choice = down if self._up_next else up
        self._up_next = choice < limit
        if choice == limit:
            self._trial = ConcurrencyTrial(limit)
            return
        self._probing = choice
        self._go_to(choice, "trying whether more helps" if choice > limit else "trying fewer")

    def _judge_probe(self, trial: ConcurrencyTrial, found: ConcurrencyPoint) -> None:
        assert self.settled is not None
        limit, ratio = self.settled, found.rate / max(self._reference, 1e-9)
        at_rest = ConcurrencyPoint(
            self._reference, limit / max(self._reference, 1e-9), trial.limit, 0.0, 0.0, 0.0
        )
        gain = min(GAIN, (trial.limit / limit - 1) / 2)
        enough = found.rate >= (1 - LOSS) * max(self._reference, self._peak)  # or it would creep
        if trial.limit < limit and enough and ratio < 1 - LOSS / 2:
            self._rest(trial.limit, found.rate, self._settled_why)
        elif ratio > 1 + gain if trial.limit > limit else enough:
            self._probing = 0
            self.settled = None
            self._points = {limit: at_rest, trial.limit: found}
            self._probe_after_s = PROBE_AFTER_S
            if self._now_s >= self._bad_until_s:
                self._bad = None
            grows = "throughput still grows"
            self._note_again(grows if trial.limit > limit else "fewer do as much: looking again")
        else:
            self._probe_after_s = min(PROBE_MOST_S, 1.5 * self._probe_after_s)
            self._rest(limit, self._reference, self._settled_why)

    def _set_aside(self) -> None:
        # Too few lanes, an empty buffer, a pause: nothing is known of the limit by this.
        self.bound = False
        if self._probing and self.settled is not None:
            self._rest(self.settled, self._reference, self._settled_why)
        else:
            self._trial = ConcurrencyTrial(self._target, wait=self._target)

    # Errors

    def _fails(self, interval: Interval, *, waited: bool) -> bool:
        lowered = self._backed_off and self._backed_off[-1][0] > self.limit
        if waited and lowered:
            return False  # they began under the higher limit
        return self._errors.too_many(interval, self.limit)

    def _back_off(self) -> None:
        share = self._errors.share
        self._backed_off.append((self.limit, share))
        first, share_first = self._backed_off[0]
        often = len(self._backed_off) >= BACK_OFFS and share >= INDEPENDENT * share_first
        again = self.settled is not None
        self.settled = None
        self._probing = 0
        if often or self.limit <= self.least:
            self._errors.usual = sum(each for _, each in self._backed_off) / len(self._backed_off)
            self._backed_off.clear()
            self._bad = None
            self._points = {}
            self._go_to(first, "fewer at once fail as often: it is not the concurrency")
            return
        self._bad = self.limit if self._bad is None or again else min(self._bad, self.limit)
        self._bad_until_s = self._now_s + self._bad_for_s
        self._bad_for_s = min(BAD_MOST_S, 2 * self._bad_for_s)
        lower = max(self.least, int(BACK_OFF * self.limit))
        self._points = {n: point for n, point in self._points.items() if n < lower}
        why = f"{share:.0%} of the attempts failed at {self.limit:,}"
        self._go_to(lower, why)


def _little(point: ConcurrencyPoint, best: float) -> bool:
    return point.rate * (1 + 2 * point.error) < TOO_LITTLE * best
