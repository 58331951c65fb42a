"""The time left that a running drain shows, against the truth, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

import pytest

from drainer.message import SubMessage
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.status import Status
from engine.made_up_kafka import OnTheLoop, VirtualDrains, log_of

WITHIN, WITHIN_S = 0.25, 1.0
FAN_OUT = 10
Latency = Callable[[SubMessage], float]
FIRST = "sub_key =~ 'k1.*'"


def fixed(latency_s: float) -> Latency:
    return lambda sub: latency_s


def exponential(mean_s: float) -> Latency:
    chance = Random(3)
    return lambda sub: chance.expovariate(1 / mean_s)


def slow_if_hot(sub: SubMessage) -> float:
    return 0.3 if sub.key == "hot" else 0.1


def records(
    messages: int, hot: float = 0.0, keys: int = 400, hot_from: float = 0.0
) -> list[list[str]]:
    """Messages of which a share of the operations is in one lane, from a place on."""
    chance = Random(1)

    def key(place: float) -> str:
        is_hot = place >= hot_from and chance.random() < hot
        return "hot" if is_hot else f"k{chance.randrange(keys)}"

    return [[key(n / messages) for _ in range(FAN_OUT)] for n in range(messages)]


def in_turns(messages: int, keys: int) -> list[list[str]]:
    """Messages whose operations are spread evenly over these lanes."""
    places = (range(n * FAN_OUT, (n + 1) * FAN_OUT) for n in range(messages))
    return [[f"k{place % keys}" for place in each] for each in places]


def near(shown_s: float, truth_s: float) -> bool:
    return abs(shown_s - truth_s) <= max(WITHIN * truth_s, WITHIN_S)


@pytest.mark.parametrize(
    ("backlog", "concurrency", "latency", "first"),
    [
        pytest.param(records(200), 20, exponential(0.3), (), id="no lane is long"),
        pytest.param(records(200, hot=1.7 / 20), 20, fixed(0.3), (), id="a lane of 1.7 W/C"),
        pytest.param(records(200, hot=0.95 / 20), 20, fixed(0.3), (), id="a lane of 0.95 W/C"),
        pytest.param(records(100, hot=0.1), 100, fixed(0.3), (), id="a tail of one lane"),
        pytest.param(records(200, keys=40), 100, fixed(0.3), (), id="a tail of forty short lanes"),
        pytest.param(in_turns(600, 60), 1000, exponential(0.2), (), id="sixty lanes, all as long"),
        pytest.param(records(200, hot=0.06), 20, slow_if_hot, (), id="a lane of longer calls"),
        pytest.param(
            records(200, hot=0.3, hot_from=0.8), 20, fixed(0.3), (), id="a lane that comes late"
        ),
        pytest.param(
            records(200, hot=1.7 / 20), 20, fixed(0.3), (FIRST,), id="a class before a long lane"
        ),
        pytest.param(
            records(200, hot=1.7 / 20), 20, fixed(0.3), ("message.offset % 3 == 0",),
            id="a class that waits in a long lane",
        ),
    ],
)  # fmt: skip
def test_the_time_left_is_right_until_the_end_and_does_not_jump(
    virtual: VirtualDrains,
    backlog: Sequence[list[str]],
    concurrency: int,
    latency: Latency,
    first: tuple[str, ...],
) -> None:
    settings = LocalSettings(concurrency=concurrency, plan_interval_s=1.0)
    assert_right(virtual, backlog, settings, latency, first)


def test_the_time_left_of_a_long_lane_counts_what_is_unread_and_what_a_class_has_finished(
    virtual: VirtualDrains,
) -> None:
    settings = LocalSettings(concurrency=20, plan_interval_s=1.0, buffer_bytes=400_000)
    assert_right(virtual, records(1_000, hot=1.7 / 20), settings, fixed(0.3), (FIRST,))


def test_no_end_of_a_class_is_shown_that_will_have_to_wait_for_the_rest(
    virtual: VirtualDrains,
) -> None:
    seen: list[Status] = []
    where = "sub_key =~ 'k1.*' or sub_key == 'hot' and message.offset % 3 == 0"
    rehearsal = virtual.rehearsal(
        {0: log_of(*records(2_000, hot=0.05))},
        LocalSettings(concurrency=20, plan_interval_s=1.0, buffer_bytes=300_000),
        observe=seen.append,
    )
    rehearsal.drain(virtual.handler(OnTheLoop, fixed(0.3)), where)
    (ended,) = seen[-1].progress.classes
    assert ended.cut
    assert ended.deferred
    turns = [turn for each in seen if (turn := each.progress.turn) is not None]
    assert len(turns) > 20
    assert {turn.eta_s for turn in turns[len(turns) // 2 :]} == {None}


def assert_right(
    virtual: VirtualDrains,
    backlog: Sequence[list[str]],
    settings: LocalSettings,
    latency: Latency,
    first: tuple[str, ...],
) -> None:
    seen: list[tuple[float, Status]] = []
    rehearsal = virtual.rehearsal(
        {0: log_of(*backlog)},
        settings,
        observe=lambda status: seen.append((virtual.world.now_s, status)),
    )
    assert rehearsal.drain(virtual.handler(OnTheLoop, latency), *first).exit_code == 0
    begun_s, ended_s = seen[0][0], seen[-1][0]
    shown = [(at_s, each.progress.eta_s) for at_s, each in seen if each.progress.eta_s is not None]
    assert shown[0][0] - begun_s < 3.0
    settled = [
        (at_s, eta_s) for at_s, eta_s in shown if at_s >= begun_s + 0.1 * (ended_s - begun_s)
    ]
    off = [
        (at_s, eta_s, ended_s - at_s) for at_s, eta_s in settled if not near(eta_s, ended_s - at_s)
    ]
    assert len(off) <= 0.02 * len(settled), off
    jumps = [
        (at_s, eta_s)
        for (before_s, before), (at_s, eta_s) in pairwise(settled)
        if not near(eta_s, max(0.0, before - (at_s - before_s)))
    ]
    assert jumps == []


def test_a_retry_that_is_not_due_yet_counts(virtual: VirtualDrains) -> None:
    failed: list[SubMessage] = []

    def flaky(sub: SubMessage) -> float:
        if sub.key == "k7" and not failed:
            failed.append(sub)
            raise ValueError("flaky")
        return 0.1

    rehearsal = virtual.rehearsal(
        {0: log_of(*([f"k{n}"] for n in range(100)))},
        LocalSettings(concurrency=4),
        failures=FailureSettings(retries=1, retry_delay_s=20.0),
    )
    assert rehearsal.drain(virtual.handler(OnTheLoop, flaky)).exit_code == 0
    took_s = rehearsal.statuses[-1].timing.elapsed_s
    waits = [each for each in rehearsal.statuses if each.failures.waiting]
    known = [
        (each.progress.eta_s, took_s - each.timing.elapsed_s)
        for each in waits
        if each.progress.eta_s is not None
    ]
    assert len(known) > len(waits) / 2
    assert all(near(shown_s, left_s) for shown_s, left_s in known), known
