"""The lease: no call of a drain runs any more when another drain may begin.

Simulated with the driver's and the worker's real rules, in virtual time, over drawn troubles: the
driver's machine is frozen at any instant and maybe thawed, its way to the coordinator is cut,
what it writes arrives late, looks are slow, and see what is no longer so.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from math import inf
from random import Random

import pytest

from drainer.spark.state.lease import LOCAL, MOUNTED, REMOTE, Lease, LeaseTimes, may_beat

SCHEDULES = 150


class Machine:
    """The driver's; while it is frozen nothing of it runs."""

    def __init__(self, drawn: Random, horizon_s: float) -> None:
        self.frozen_s = drawn.uniform(0, horizon_s)
        self.thawed_s = self.frozen_s + drawn.choice([inf, drawn.uniform(0, horizon_s)])

    def runs_at(self, time_s: float) -> float:
        """When what is due at a time is done."""
        return self.thawed_s if self.frozen_s <= time_s < self.thawed_s else time_s


def spare_s(
    seed: int, times: LeaseTimes, session_s: float | None = None, lease: type[Lease] = Lease
) -> float:
    """Return for how long the last call is over when a newcomer may get the lock."""
    drawn = Random(seed)
    session_s = times.session_s if session_s is None else session_s
    horizon_s = 2 * session_s
    machine = Machine(drawn, horizon_s)
    cut_off_s = drawn.choice([inf, inf, drawn.uniform(0, horizon_s)])

    # The coordinator: when it began a session, and when the driver knew, as of which question.
    sessions: list[float] = []
    known: list[tuple[float, float]] = []
    sent_s = 0.0
    while sent_s < min(horizon_s, cut_off_s):
        arrives_s = sent_s + drawn.uniform(0, 0.3)
        if sessions and arrives_s - sessions[-1] >= session_s:
            break  # it is no member any more
        sessions.append(arrives_s)
        known.append((machine.runs_at(arrives_s + drawn.uniform(0, 0.3)), sent_s))
        sent_s = machine.runs_at(sent_s + drawn.uniform(0.9, 1.2))
    newcomer_s = sessions[-1] + session_s

    # Beats: it may be frozen between its look at the clock and the write, and that may take long.
    beats: list[float] = []  # when each could be seen
    now_s = machine.runs_at(drawn.uniform(0, times.beat_s))
    while now_s < horizon_s + session_s:
        confirmed_s = max((sent for at, sent in known if at <= now_s), default=-inf)
        if may_beat(times, confirmed_s, now_s):
            begun_s = machine.runs_at(now_s + drawn.choice([0, 0.05]))
            beats.append(begun_s + drawn.choice([0.01, 0.01, drawn.uniform(0, 20)]))
            now_s = machine.runs_at(beats[-1])
        now_s = machine.runs_at(now_s + times.beat_s)

    # A worker: calls begin while it is sure, and go on as long as they may.
    leased = lease(times)
    last_call_s = -inf
    now_s = drawn.uniform(0, horizon_s)
    seen_s = 0.0  # as of when it knows the state
    while now_s < horizon_s + session_s:
        answered_s = now_s + drawn.choice([0.01, 0.01, drawn.uniform(0, 3)])
        if answered_s - seen_s > times.stale_s or drawn.random() < 0.1:
            seen_s = drawn.uniform(now_s, answered_s)
        if beat := bisect_right(beats, seen_s):
            leased.seen(now_s, beat)
        if leased.sure_until_s > answered_s:
            last_call_s = leased.cut_at_s
        now_s = answered_s + times.look_s
    return newcomer_s - last_call_s


@pytest.mark.parametrize("times", [LOCAL, REMOTE, MOUNTED], ids=["local", "remote", "mounted"])
def test_no_call_runs_when_another_drain_may_begin(times: LeaseTimes) -> None:
    spare = {seed: spare_s(seed, times) for seed in range(SCHEDULES)}
    assert min(spare.values()) > 0, min(spare, key=spare.__getitem__)
    assert min(spare.values()) < times.session_s, "no schedule had a worker that made calls"


class AnyNews(Lease):
    """Takes each beat that is new for one that was begun since the last look."""

    def seen(self, begun_s: float, beat: int) -> None:
        super().seen(begun_s, 2 * beat)


class FirstBeat(Lease):
    """Takes the first beat that it sees for one that has just been written."""

    def seen(self, begun_s: float, beat: int) -> None:
        if not self._seen:
            self._seen.append((begun_s, beat - 2))
        super().seen(begun_s, beat)


@pytest.mark.parametrize(("session_s", "lease"), [(6.0, Lease), (None, AnyNews), (None, FirstBeat)])
def test_without_one_of_the_rules_calls_overlap(
    session_s: float | None, lease: type[Lease]
) -> None:
    assert min(spare_s(seed, LOCAL, session_s, lease) for seed in range(4 * SCHEDULES)) < 0


def test_a_worker_goes_on_as_long_as_beats_come() -> None:
    lease = Lease(LOCAL)
    for number in range(1, 100):
        lease.seen(float(number), number)
        assert number < 3 or lease.sure_until_s > number + LOCAL.look_s


def test_an_earlier_beat_that_comes_late_means_nothing() -> None:
    lease = Lease(LOCAL)
    lease.seen(1.0, 7)
    lease.seen(2.0, 5)
    lease.seen(3.0, 7)
    lease.seen(4.0, 8)
    assert lease.sure_until_s < 0
    lease.seen(5.0, 9)
    assert lease.sure_until_s == 3.0 + LOCAL.lease_s


def test_what_is_overtaken_has_the_time_of_the_cut_and_no_more() -> None:
    lease = Lease(replace(LOCAL, lease_s=60))
    for number in range(1, 4):
        lease.seen(float(number), number)
    lease.end(5.0)
    assert (lease.sure_until_s, lease.cut_at_s) == (5.0, 5.0 + LOCAL.cut_s)
    lease.seen(6.0, 5)
    assert lease.sure_until_s == 5.0
