"""What is measured of a drain: latency and load of the handler, whatever the rhythm of the work;
the course of it all, of which little is kept; its limit, with advice that holds; and the processor
time of a sub-message."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import timedelta
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest

from builders import a_status, changed, counts
from drainer.core.batches import Batching
from drainer.core.dispatch import Dispatcher
from drainer.engine.history import (
    HOTTEST_MOST,
    TROUBLES_MOST,
    History,
    HistoryPoint,
    Trouble,
    rates,
)
from drainer.engine.meter import (
    EACH_MOST,
    MEAN_S,
    RECENT_S,
    STANDS_S,
    Latencies,
    LocalSampler,
)
from drainer.handler import Handler
from drainer.insight import measurement
from drainer.insight.measurement import Calibration
from drainer.message import SubMessage
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.status import Load, Status
from drainer.model.unhandled import RuleStatus
from drainer.text.mask import short_key
from drainer.view.limit import Bottleneck, advice, limit, limit_of
from drainer.view.live import status_line
from engine.made_up_kafka import (
    Kind,
    OnTheLoop,
    OnThreads,
    Rehearsal,
    VirtualDrains,
    both_kinds,
    handler_of,
    in_lanes,
    log_of,
)
from simulation.loop import work


def near(seconds: float) -> object:
    return pytest.approx(seconds, rel=0.005)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Worker:
    """A worker as far as the measuring goes."""

    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies
        self._handled = self._gap = self._measure_at = 0
        self.measured = 0

    def handles(self, took_s: float) -> None:
        if self._handled >= self._measure_at:
            self._gap = self._latencies.record(took_s, self._gap)
            self._measure_at = self._handled + self._gap
            self.measured += 1
        self._handled += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def latencies(clock: Clock) -> Latencies:
    return Latencies(clock)


def test_a_hundred_slow_ones_are_all_measured(latencies: Latencies, clock: Clock) -> None:
    workers = [Worker(latencies) for _ in range(7)]
    for n in range(100):
        workers[n % 7].handles((n + 1) / 100)
        clock.now_s += 0.1
    latencies.look()

    overall = latencies.overall()

    assert overall is not None
    assert overall.count == 100
    assert overall.percentiles_s[0] == near(0.01)
    assert overall.percentiles_s[100] == near(1.0)
    assert overall.mean_s == near(0.505)
    assert overall.p50_s == pytest.approx(0.5, abs=0.011)


@pytest.mark.parametrize("period", [8, 32])
def test_no_rhythm_of_the_backlog_hides_the_slow_ones(latencies: Latencies, period: int) -> None:
    worker = Worker(latencies)
    for n in range(128_000):
        worker.handles(1.0 if n % period == 0 else 0.0)
    latencies.look()

    overall = latencies.overall()

    assert worker.measured < 2 * EACH_MOST + 128_000 / 16  # a sample, not all
    assert overall is not None
    assert overall.count == pytest.approx(128_000, abs=64)
    seconds = overall.mean_s * overall.count
    assert seconds == pytest.approx(128_000 / period, rel=0.2)


def test_a_slow_hour_weighs_no_more_than_what_was_handled_in_it(
    latencies: Latencies, clock: Clock
) -> None:
    worker = Worker(latencies)
    for second in range(40):  # each one is measured: 10,000 of them
        for _ in range(250):
            worker.handles(0.2)
        clock.now_s = second + 1.0
        latencies.look()
    for second in range(40, 80):  # mostly one in 32: 1,000,000 of them
        for _ in range(25_000):
            worker.handles(0.01)
        clock.now_s = second + 1.0
        latencies.look()

    overall = latencies.overall()

    assert overall is not None
    assert overall.count == pytest.approx(1_010_000, rel=0.03)
    assert overall.percentiles_s[98] == near(0.01)
    assert overall.mean_s == pytest.approx(0.0119, rel=0.03)
    assert overall.percentiles_s[100] == near(0.2)


def test_recent_is_what_the_last_seconds_were_like(latencies: Latencies, clock: Clock) -> None:
    worker = Worker(latencies)
    for second in range(60):
        for _ in range(400):
            worker.handles(0.5 if second < 40 else 0.02)
        clock.now_s = second + 1.0
        latencies.look()

    recent, overall = latencies.recent(), latencies.overall()
    clock.now_s += RECENT_S + 1
    latencies.look()

    assert recent is not None
    assert overall is not None
    assert recent.p99_s == recent.p50_s == near(0.02)
    assert recent.count == pytest.approx(400 * RECENT_S, rel=0.15)
    assert overall.p50_s == near(0.5)
    assert latencies.recent() is None


def test_a_drain_reports_the_latency_of_attempts_that_returned(virtual: VirtualDrains) -> None:
    async def sleep(sub: SubMessage) -> None:
        if sub.attempt == 1 and sub.key == "bad":
            raise ValueError("not yet")
        await work(0.03 if sub.key == "bad" else 0.01)

    rehearsal = virtual.rehearsal(
        {0: log_of(*([f"k{n}"] for n in range(60)), ["bad"])},
        LocalSettings(concurrency=10, plan_interval_s=0.05),
        failures=FailureSettings(retries=2, retry_delay_s=0.001),
    )

    summary = rehearsal.drain(OnTheLoop(sleep))

    assert summary.last.failures.failures == 1
    assert summary.last.timing.latency is not None
    assert summary.last.timing.latency.count == 61  # and not the one that failed
    assert summary.last.timing.latency.percentiles_s[0] >= 0.009
    assert summary.last.timing.latency.percentiles_s[100] >= 0.029
    assert rehearsal.statuses[-1].timing.latency == summary.last.timing.latency
    assert rehearsal.file.load().plan.account.latency == summary.last.timing.latency
    assert summary.as_json()["latency"] == summary.last.timing.latency.as_json()


def test_an_attempt_that_was_cancelled_for_its_time_has_no_latency(virtual: VirtualDrains) -> None:
    async def hang(sub: SubMessage) -> None:
        if sub.attempt == 1 and sub.key == "hangs":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return  # and hides it

    rehearsal = virtual.rehearsal(
        {0: log_of(["hangs"], ["a"], ["b"])},
        LocalSettings(concurrency=2, plan_interval_s=0.05),
        failures=FailureSettings(retries=1, retry_delay_s=0.001, timeout_s=0.05),
    )

    summary = rehearsal.drain(OnTheLoop(hang))

    assert summary.last.failures.timeouts == 1
    assert summary.last.timing.latency is not None
    assert summary.last.timing.latency.count == 3
    assert summary.last.timing.latency.percentiles_s[100] < 0.05


@both_kinds
def test_no_worker_is_busy_in_a_run_that_has_nothing_to_do(
    virtual: VirtualDrains, kind: Kind
) -> None:
    rehearsal = virtual.rehearsal({0: log_of()}, LocalSettings(concurrency=100))
    rehearsal.drain(handler_of(kind, lambda sub: None))
    assert {status.limits.workers_busy for status in rehearsal.statuses} == {0}


# --- sub-messages in the handler, on average: a single moment may be a bad one ---

LOOK_S = MEAN_S / 8


def sampler(clock: Clock, **more: Any) -> LocalSampler:
    return LocalSampler(
        Dispatcher({}),
        Latencies(clock),
        concurrency=200,
        buffer_bytes=1,
        plan_path="p",
        clock=clock,
        **more,
    )


def test_a_bad_moment_does_not_stand_for_the_time_since_the_last_status(clock: Clock) -> None:
    meter = sampler(clock)
    assert meter.in_flight == 0
    for count in [0] * 8 + [200] * 7 + [23]:
        clock.now_s += LOOK_S
        meter.sample(count, count // 10)
    assert meter.in_flight == round((7 * 200 + 23) / 8), "what was before is forgotten"
    clock.now_s += MEAN_S
    meter.sample(7, 1)
    assert (meter.in_flight, meter.busy) == (7, 1)


def test_the_load_of_the_processor_is_that_of_the_last_seconds(clock: Clock) -> None:
    spent = [0.0, 0.0]
    meter = sampler(clock, processor=lambda: (spent[0], spent[1]))
    assert meter.load == Load(0.0, 0.0), "nothing is known at once"
    for used, waited in [(0.9, 0.1)] * 30 + [(0.2, 0.0)] * 10:
        clock.now_s += 0.5
        spent[0], spent[1] = spent[0] + used / 2, spent[1] + waited / 2
        meter.measure(0)
        load = meter.load
        if clock.now_s == 15.0:
            assert (load.used, load.waited) == pytest.approx((0.9, 0.1))
    assert (load.used, load.waited) == pytest.approx((0.2, 0.0))


@pytest.mark.parametrize("kept", [401, 16])
def test_the_course_has_the_average_of_a_stretch_also_when_it_is_thinned_out(kept: int) -> None:
    history = History(kept)
    for n in range(401):
        history.add(a_status(elapsed_s=n / 2, in_flight=200 if n % 2 else 100))
    found = history.points[::4]
    means = rates(found, [each.running_s for each in found])
    assert means == pytest.approx([150] * len(means), abs=2)


def test_what_waits_for_a_thread_is_not_in_the_handler(virtual: VirtualDrains) -> None:
    seen = []
    rehearsal = virtual.rehearsal(
        in_lanes(400),
        LocalSettings(concurrency=4),
        observe=lambda status: seen.append(status.limits.in_flight),
    )
    assert rehearsal.drain(virtual.handler(OnThreads, lambda sub: 0.01)).exit_code == 0
    assert max(seen) == 4
    assert seen[-1] == 0, "at the end it is exact"


def at(elapsed_s: float, done: int = 0, **changes: object) -> Status:
    found = a_status(elapsed_s=elapsed_s, sub_messages=counts(done=done))
    return changed(found, **changes)


def lengths(points: tuple[HistoryPoint, ...] | list[HistoryPoint]) -> list[float]:
    return [after.ends_s - before.ends_s for before, after in pairwise(points)]


@pytest.mark.parametrize("count", [1, 2, 100, 101, 1_001])
def test_what_is_kept_is_bounded_even_and_exact(count: int) -> None:
    history = History(100)
    for n in range(count):
        history.add(at(n / 2, n * 500))
    history.add(at(count / 2 - 0.49, count * 500))  # the last one comes when the drain ends
    found = history.points

    assert len(found) <= 101
    assert found[0].ends_s == 0
    assert found[-1].finished == count * 500
    *whole, _ = lengths(found)[:-1] or [0.0]
    assert len(set(whole)) <= 1, "all are of one length, but for the last two"
    assert all(rate == 1000 for rate in rates(found[:-1], [each.finished for each in found[:-1]]))


def test_what_rules_took_out_is_no_failure() -> None:
    history = History(10)
    found = counts(done=60, skipped=40)
    history.add(at(1.0, sub_messages=found, rules=RuleStatus({"e-mails": 37})))
    assert history.points[-1].skipped == 3


def test_a_trouble_lasts_until_it_is_gone() -> None:
    history = History()
    for second, trouble in enumerate((None, "away", "away", None, "away", "slow", None)):
        history.add(at(second, trouble=trouble))
    assert history.troubles == (
        Trouble(1, 3, "away"),
        Trouble(4, 5, "away"),
        Trouble(5, 6, "slow"),
    )


def test_troubles_without_end_are_counted_and_not_kept() -> None:
    history = History()
    for n in range(2 * TROUBLES_MOST + 10):
        history.add(at(n, trouble="away" if n % 2 else None))
    assert len(history.troubles) == TROUBLES_MOST
    assert history.troubles_more == 5


def test_a_lane_is_remembered_for_how_deep_it_was() -> None:
    history = History()
    history.add(at(0, hottest=(("a", 9), ("b", 4))))
    history.add(at(1, hottest=(("b", 6), ("c", 1))))
    assert history.hottest == [("a", 9), ("b", 6), ("c", 1)]


def test_lanes_without_end_are_forgotten_but_for_the_deepest() -> None:
    history = History()
    for n in range(1_000):
        history.add(at(n, hottest=((f"doc-{n}", n % 100), ("hot", 1_000))))
    assert history.hottest[0] == ("hot", 1_000)
    assert len(history.hottest) == HOTTEST_MOST
    assert [depth for _, depth in history.hottest[1:]] == [99] * (HOTTEST_MOST - 1)


@pytest.mark.parametrize(("is_async", "fan_out"), [(True, 5.0), (True, None), (False, 5.0)])
def test_what_the_engine_takes_for_a_sub_message_is_measured(
    is_async: bool, fan_out: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "SUB_MESSAGES", 2_000)
    found = Calibration(fan_out, 10, is_async)
    assert 1e-7 < found.together_s(Batching(most=9)) < 0.01
    assert 1e-7 < found.sub_message_s() < 0.01


AT_ONCE = LocalSettings(concurrency=8)


def compute(sub: SubMessage) -> float:
    until_s = time.thread_time() + 0.003
    while time.thread_time() < until_s:
        pass
    return 0.001


def drained(rehearsal: Rehearsal, handler: Handler) -> list[Status]:
    """Statuses of a drain, but for the first and the last."""
    assert rehearsal.drain(handler).exit_code == 0
    return rehearsal.statuses[1:-1]


def test_a_handler_that_computes_is_limited_by_the_processor(tmp_path: Path) -> None:
    """Also where other processes leave it a part of a core."""
    seen = drained(Rehearsal(tmp_path, in_lanes(400), AT_ONCE), handler_of(OnTheLoop, compute))
    limits = [limit_of(status) for status in seen]
    assert limits.count(Bottleneck.PROCESSOR) > limits.count(Bottleneck.HANDLER)


@both_kinds
def test_a_handler_that_waits_is_the_limit_itself(kind: Kind, virtual: VirtualDrains) -> None:
    rehearsal = virtual.rehearsal(in_lanes(400), AT_ONCE)
    assert Bottleneck.HANDLER in map(
        limit_of, drained(rehearsal, virtual.handler(kind, lambda sub: 0.03))
    )


def test_a_rate_is_the_limit_before_its_mean_has_risen(virtual: VirtualDrains) -> None:
    """Lanes wait then, and workers are free: the machine has no part in that."""
    rehearsal = virtual.rehearsal(
        in_lanes(400), LocalSettings(concurrency=100), failures=FailureSettings(rate=30.0)
    )
    first = drained(rehearsal, virtual.handler(OnTheLoop, lambda sub: 2.0))[:10]
    waiting = [status for status in first if status.limits.lanes_ready]
    assert min(status.progress.rate_now for status in waiting) < 20
    assert {*map(limit_of, waiting)} == {Bottleneck.RATE}
    full = changed(waiting[0], processor=Load(0.97, 0.0))
    assert limit_of(full) is Bottleneck.PROCESSOR


def test_lanes_that_wait_behind_a_barrier_are_limited_by_it(virtual: VirtualDrains) -> None:
    before, after = ([f"k{n}"] for n in range(30)), ([f"k{n}"] for n in range(300))
    rehearsal = virtual.rehearsal({0: log_of(*before, [None], *after)}, AT_ONCE)
    slow = virtual.handler(OnTheLoop, lambda sub: 9.0 if sub.key == "k17" else 0.01)

    waiting = [each for each in drained(rehearsal, slow) if each.limits.behind_barriers]

    assert {each.limits.behind_barriers for each in waiting} == {301}
    assert Bottleneck.BARRIER in map(limit_of, waiting)
    assert not {Bottleneck.TAIL, Bottleneck.READING} & {*map(limit_of, waiting)}


def test_while_the_lock_is_not_confirmed_nothing_else_is_the_limit(virtual: VirtualDrains) -> None:
    """Lanes wait then, and workers are free: the machine has no part in that."""
    lapsed: list[Status] = []

    def lapse(status: Status) -> None:
        rehearsal.lock.sure_until_s = -inf if status.limits.in_flight and len(lapsed) < 2 else inf
        if status.health.is_kept_waiting:
            lapsed.append(status)

    rehearsal = virtual.rehearsal(in_lanes(600), AT_ONCE, observe=lapse)
    assert rehearsal.drain(handler_of(OnTheLoop, lambda sub: 0.02)).exit_code == 0
    assert lapsed
    for status in lapsed:
        assert limit_of(status) is Bottleneck.TROUBLE
        assert status.health.silent_s is None
        assert "the lock on the group is not confirmed" in (status.health.trouble or "")
        assert advice(status) == ""


@both_kinds
def test_the_record_of_a_drain_has_the_processor_time_of_its_handler(
    kind: Kind, tmp_path: Path
) -> None:
    rehearsal = Rehearsal(tmp_path, in_lanes(50), AT_ONCE)
    rehearsal.drain(handler_of(kind, compute))
    computed = rehearsal.file.load().plan.account.latency
    assert computed is not None
    assert 0.003 <= (computed.processor_s or 0.0) < 0.006
    rehearsal = Rehearsal(tmp_path, in_lanes(50), AT_ONCE)
    (tmp_path / "orders.plan.json").unlink()
    rehearsal.drain(handler_of(kind, lambda sub: 0.01))
    waited = rehearsal.file.load().plan.account.latency
    assert waited is not None
    assert (waited.processor_s or 0.0) < 0.002


# --- what holds the watermark back ---


@pytest.mark.parametrize("masked", [False, True])
def test_what_holds_the_watermark_back_is_named_while_others_finish(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch, masked: bool
) -> None:
    if masked:
        monkeypatch.setenv("DRAINER_MASK_KEYS", "a secret of this test")
    records = [[f"k{n}"] for n in range(1_000)]
    records[10] = ["d-root"] * 41
    rehearsal = virtual.rehearsal({0: log_of(*records)}, LocalSettings(concurrency=4))
    took_s = {"d-root": 0.5}
    handler = virtual.handler(OnTheLoop, lambda sub: took_s.get(str(sub.key), 0.1))
    assert rehearsal.drain(handler).exit_code == 0

    held = [each.limits.held_back for each in rehearsal.statuses]
    assert held[0] == held[-1] == ()
    found = [one for each in held for one in each]
    assert {(one.partition, one.offset) for one in found} == {(0, 10)}
    assert {one.key for one in found} == {short_key("d-root")}
    assert min(one.for_s for one in found) >= STANDS_S
    assert [one.for_s for one in found] == sorted(one.for_s for one in found)
    before = [one.before for one in found]
    assert before == sorted(before, reverse=True)
    assert 20 < before[0] < 40
    assert before[-1] < 3
    line = status_line(next(each for each in rehearsal.statuses if each.limits.held_back))
    key = re.escape(short_key("d-root"))
    words = rf"  watermark held back by 0:10, sub-key {key} \(\d\d before it\), for 5\.\ds  "
    assert re.search(words, line), line
    assert ("d-root" in line) is not masked


def test_nothing_is_said_to_hold_it_back_while_nothing_finishes(virtual: VirtualDrains) -> None:
    slow = virtual.rehearsal({0: log_of(["a"], ["b"])}, LocalSettings(concurrency=2))
    assert slow.drain(virtual.handler(OnTheLoop, lambda sub: 30.0)).exit_code == 0
    assert {each.limits.held_back for each in slow.statuses} == {()}


def test_while_a_class_is_drained_nothing_holds_the_watermark_back(virtual: VirtualDrains) -> None:
    rehearsal = virtual.rehearsal(in_lanes(400, 200), LocalSettings(concurrency=2))
    handler = virtual.handler(OnTheLoop, lambda sub: 0.05)
    assert rehearsal.drain(handler, "sub_key =~ 'k1.*'", only=True).exit_code == 0
    assert {each.limits.held_back for each in rehearsal.statuses} == {()}


def test_a_downstream_that_becomes_slow_is_compared_with_the_start(virtual: VirtualDrains) -> None:
    rehearsal = virtual.rehearsal(in_lanes(4_000), LocalSettings(concurrency=10))
    handler = virtual.handler(OnTheLoop, lambda sub: 0.05 if virtual.world.now_s < 15 else 0.4)
    assert rehearsal.drain(handler).exit_code == 0
    limits = [limit_of(status) for status in rehearsal.statuses]
    slowed = limits.index(Bottleneck.SLOWED)
    assert Bottleneck.HANDLER in limits[:slowed]
    assert 15 < rehearsal.statuses[slowed].timing.elapsed_s < 25
    assert set(limits[slowed:-5]) == {Bottleneck.SLOWED}
    words = limit(rehearsal.statuses[slowed + 20])
    assert words == "the downstream: p50 went from 50ms to 400ms since the start", words


def test_the_last_minute_counts_for_a_deadline(virtual: VirtualDrains) -> None:
    """A downstream that hangs half of the time does not make a deadline at its best pace."""
    by = virtual.runtime.wall() + timedelta(seconds=72)

    def flaps(sub: SubMessage) -> float:
        now_s = virtual.world.now_s
        return 0.1 + (40 - now_s % 40 if now_s % 40 >= 20 else 0.0)

    rehearsal = virtual.rehearsal(
        in_lanes(1_000), LocalSettings(concurrency=2, deadline=by, plan_interval_s=1.0)
    )
    assert rehearsal.drain(virtual.handler(OnTheLoop, flaps)).exit_code == 0
    assert rehearsal.statuses[-1].timing.elapsed_s > 72
    later = [each.progress for each in rehearsal.statuses if 40 < each.timing.elapsed_s < 72]
    judged = [(each.deadline, each.eta_s) for each in later if each.deadline and each.eta_s]
    assert any(deadline.left_s > eta_s for deadline, eta_s in judged), "it looks as if it did"
    assert all(deadline.late for deadline, _ in judged)
