"""Latency and load of the handler: measured fairly, whatever the rhythm of the work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from made_up_kafka import OnTheLoop, OnThreads, VirtualDrains, in_lanes, log_of, work

from builders import a_status
from drainer.core.dispatch import Dispatcher
from drainer.engine.history import History, rates
from drainer.engine.meter import EACH_MOST, MEAN_S, RECENT_S, Latencies, LocalSampler
from drainer.message import SubMessage
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.status import Load


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


@pytest.mark.parametrize("kept", [1_000, 16])
def test_the_course_has_the_average_of_a_stretch_also_when_it_is_thinned_out(kept: int) -> None:
    history = History(kept)
    for n in range(401):
        history.add(a_status(elapsed_s=n / 2, in_flight=200 if n % 2 else 100))
    found = history.evenly(10)
    means = rates(found, [each.running_s for each in found])
    assert len(means) <= 10
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
