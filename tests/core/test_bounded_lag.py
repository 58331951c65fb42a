"""Whether a drain that follows its log keeps up: the lanes on a clock that ticks once a call."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from random import Random

import pytest

from drainer.core.lanes import Lanes
from drainer.message import SubMessage

FAN_OUT, SUB_KEYS, WORKERS = 10, 400, 50
TICKS = 4_000


def ages(rate: float, lane_of: Callable[[SubMessage], Hashable], hot: float = 0.0) -> list[int]:
    """Return the age of the oldest sub-message after each tick.

    ``rate`` messages come in each tick, each with FAN_OUT sub-messages. All have one message key.
    The share ``hot`` of the messages has a sub-message of one more sub-key.
    """
    chance, lanes = Random(5), Lanes()
    lanes.adjust(workers=WORKERS)
    pending, running, found, come = dict[int, int](), list[SubMessage](), list[int](), 0
    for now in range(TICKS):
        while come < now * rate:
            keys: list[object] = [chance.randrange(SUB_KEYS) for _ in range(FAN_OUT)]
            if int(come * hot) != int((come + 1) * hot):
                keys[0] = "hot"
            for key in keys:
                sub = SubMessage(key=key)
                pending[id(sub)] = now
                lanes.push(sub, lane_of(sub))
            come += 1
        while len(running) < WORKERS and (taken := lanes.take()) is not None:
            running.append(taken)
        for sub in running:
            lanes.finish(sub)
            del pending[id(sub)]
        running.clear()
        found.append(now - next(iter(pending.values()), now))
    return found


def by_message_key(sub: SubMessage) -> Hashable:
    return "customer"


def by_sub_key(sub: SubMessage) -> Hashable:
    return sub.key


@pytest.mark.parametrize(
    ("lane_of", "rate", "hot"),
    [
        (by_message_key, 0.09, 0.0),  # 0.9 workers' work for the one lane
        (by_sub_key, 4.5, 0.0),  # 45 of 50 workers, and 0.11 for each lane
        (by_sub_key, 4.5, 0.2),  # 0.9 for the hot lane
    ],
)
def test_the_age_stays_bounded_while_each_lane_and_all_workers_can_keep_up(
    lane_of: Callable[[SubMessage], Hashable], rate: float, hot: float
) -> None:
    course = ages(rate, lane_of, hot)
    assert max(course[TICKS // 2 :]) <= 100


@pytest.mark.parametrize(
    ("lane_of", "rate", "hot", "load"),
    [
        (by_message_key, 0.125, 0.0, 1.25),
        (by_message_key, 4.5, 0.0, 45),
        (by_sub_key, 4.5, 0.3, 1.35),
    ],
)
def test_the_age_grows_as_the_load_of_one_lane_says_once_that_is_above_1(
    lane_of: Callable[[SubMessage], Hashable], rate: float, hot: float, load: float
) -> None:
    course = ages(rate, lane_of, hot)
    assert course[-1] == pytest.approx((1 - 1 / load) * TICKS, rel=0.03)
