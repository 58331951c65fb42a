"""A pace holds a flow to the cap of its own message size, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from core.limit_samples import limits
from drainer.policy.rate_cap import RateLimiter

CLOSE = 0.05


def play(
    pace: RateLimiter,
    messages: int,
    size_at: Callable[[int], int],
    *,
    late: Callable[[], float] = lambda: 0.0,
    batch: int = 2_000,
) -> list[tuple[float, int]]:
    """Reads as the fetch thread does; gives when how many have come."""
    now, came = 0.0, 0
    course = []
    while came < messages:
        allowed = min(pace.allowed(now), batch, messages - came)
        if not allowed:
            some = max(1, round(0.02 * pace.messages_per_s))
            now += pace.next_s(now, some) + late()
            continue
        pace.came(now, allowed, sum(map(size_at, range(came, came + allowed))))
        came += allowed
        course.append((now, came))
    return course


@pytest.mark.parametrize(
    ("size", "share", "late_s"),
    [(10, 1, 0), (700, 1, 0), (50_000, 1, 0), (700, 0.25, 0), (700, 1, 0.1)],
)
def test_a_size_that_stays_is_read_at_its_share_of_the_cap_though_threads_wake_late(
    size: int, share: float, late_s: float
) -> None:
    random, cap = Random(1), limits().cap(size).messages_per_s
    pace, late = RateLimiter(limits(), share), lambda: random.uniform(0, late_s)
    course = play(pace, round(20 * share * cap), lambda _: size, late=late)
    assert course[-1][0] == pytest.approx(20, rel=CLOSE)


def test_no_second_has_more_than_the_cap_and_a_burst() -> None:
    cap = limits().cap(1_000).messages_per_s
    course = play(RateLimiter(limits(), message_bytes=1_000), round(10 * cap), lambda _: 1_000)
    for begun_s, before in course:
        within = [came for at_s, came in course if begun_s <= at_s < begun_s + 1]
        assert within[-1] - before <= 1.25 * cap


def test_it_follows_messages_that_become_larger() -> None:
    small, large = limits().cap(100).messages_per_s, limits().cap(10_000).messages_per_s
    first, then = round(30 * small), round(60 * large)
    course = play(RateLimiter(limits()), first + then, lambda n: 100 if n < first else 10_000)
    assert course[-1][0] == pytest.approx(90, rel=0.1)


def test_a_rest_is_not_made_up_for() -> None:
    pace = RateLimiter(limits(), message_bytes=1_000)
    pace.came(0.0, 1, 1_000)
    assert pace.allowed(3_600.0) <= 0.2 * limits().cap(1_000).messages_per_s


def test_what_is_booked_goes_at_the_cap_whoever_waits_for_it() -> None:
    pace = RateLimiter(limits(), message_bytes=1_000)
    cap = limits().cap(1_000).messages_per_s
    waits = [pace.book(0.0, 1_000, 100.0) for _ in range(round(10 * cap))]
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(10, rel=CLOSE)
    assert pace.binds(0.5)


def test_nothing_is_booked_that_would_wait_too_long() -> None:
    pace = RateLimiter(limits(), message_bytes=1_000)
    while pace.book(0.0, 1_000, 5.0) <= 5.0:
        pass
    flowed = pace.flowed
    assert pace.book(0.0, 1_000, 5.0) == pytest.approx(pace.book(0.0, 1_000, 5.0))
    assert pace.flowed == flowed
