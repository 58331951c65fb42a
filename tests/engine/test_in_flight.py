"""How many sub-messages are in the handler: on average, as a single moment may be a bad one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from made_up_kafka import OnThreads, Rehearsal, in_lanes

from builders import a_status
from drainer.core.dispatch import Dispatcher
from drainer.engine.history import History, rates
from drainer.engine.latencies import Latencies
from drainer.engine.meter import MEAN_S, LocalSampler
from drainer.message import SubMessage
from drainer.model.settings import LocalSettings
from drainer.model.status import Load

LOOK_S = MEAN_S / 8


class Clock:
    """Stands still until it is moved."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_bad_moment_does_not_stand_for_the_time_since_the_last_status() -> None:
    clock = Clock()
    meter = LocalSampler(
        Dispatcher({}),
        Latencies(clock),
        concurrency=200,
        buffer_bytes=1,
        plan_path="p",
        clock=clock,
    )
    assert meter.in_flight == 0
    for count in [0] * 8 + [200] * 7 + [23]:
        clock.now_s += LOOK_S
        meter.sample(count, count // 10)
    assert meter.in_flight == round((7 * 200 + 23) / 8), "what was before is forgotten"
    clock.now_s += MEAN_S
    meter.sample(7, 1)
    assert (meter.in_flight, meter.busy) == (7, 1)


def test_the_load_of_the_processor_is_that_of_the_last_seconds() -> None:
    clock, spent = Clock(), [0.0, 0.0]
    meter = LocalSampler(
        Dispatcher({}),
        Latencies(clock),
        concurrency=200,
        buffer_bytes=1,
        plan_path="p",
        clock=clock,
        processor=lambda: (spent[0], spent[1]),
    )
    assert meter.load() == Load(0.0, 0.0), "nothing is known at once"
    for used, waited in [(0.9, 0.1)] * 30 + [(0.2, 0.0)] * 10:
        clock.now_s += 0.5
        spent[0], spent[1] = spent[0] + used / 2, spent[1] + waited / 2
        load = meter.load()
        if clock.now_s == 1_015.0:
            assert (load.used, load.waited) == pytest.approx((0.9, 0.1))
    assert (load.used, load.waited) == pytest.approx((0.2, 0.0))


@pytest.mark.parametrize("kept", [1_000, 16])
def test_the_course_tells_the_average_of_a_stretch_also_when_it_is_thinned_out(kept: int) -> None:
    history = History(kept)
    for n in range(401):
        history.add(a_status(elapsed_s=n / 2, running=200 if n % 2 else 100))
    found = history.evenly(10)
    means = rates(found, [each.running_s for each in found])
    assert len(means) <= 10
    assert means == pytest.approx([150] * len(means), abs=2)


def test_what_waits_for_a_thread_is_not_in_the_handler(tmp_path: Path) -> None:
    seen = []
    rehearsal = Rehearsal(
        tmp_path,
        in_lanes(400),
        LocalSettings(concurrency=4),
        observe=lambda status: seen.append(status.limits.running),
    )
    assert rehearsal.drain(OnThreads(_sleep)).exit_code == 0
    assert max(seen) == 4
    assert seen[-1] == 0, "at the end it is exact"


def _sleep(sub: SubMessage) -> None:
    time.sleep(0.01)
