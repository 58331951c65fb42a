"""Boundaries: the cap that follows from them, and the form they are kept in."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.limit_samples import measured
from drainer.errors import LimitsRefused
from drainer.limits.search.boundary import (
    LEVELS,
    PRODUCERS_LEAST,
    MeasuredLimits,
    as_json,
    cap_curve,
    from_json,
)
from drainer.limits.search.trial import End, Found, Point, Signals, Trial, Verdict
from drainer.model.rate_cap import CapPoint

PACE = 100.0
MISSING = object()
SIGNALS = Signals(30.0, 995.0, 3.0, 0.0, 0.0, 0.4, 0.0, 0.3, 5.0)


def trial(producers: int, verdict: Verdict) -> Trial:
    return Trial(Point(1000, producers, PACE), SIGNALS, verdict, ("so",), 1e9)


MEASURED = replace(
    measured({100: 40_000.0, 1_000: 10_000.0, 10_000: 1_500.0}),
    baseline={100: 2.0, 1_000: 2.5},
    trials=(trial(10, Verdict.SAFE), trial(12, Verdict.OVERLOADED)),
)
CURVE = cap_curve(MEASURED)


def tried(level: int, verdict: Verdict, sent_share: float = 1.0, **seen: Any) -> Trial:
    """A trial of a level in which so much of what was to be sent was sent, and read twice."""
    point = EMPTY.point(1000, level)
    sent = sent_share * point.messages_per_s
    why = seen.pop("why", "so")
    signals = replace(SIGNALS, sent_per_s=sent, read_per_s=2 * sent, **seen)
    return Trial(point, signals, verdict, (why,), 1e9)


EMPTY = replace(MEASURED, boundaries=(), trials=())


def test_a_boundary_is_what_was_acknowledged_at_the_safe_end_and_lies_in_its_interval() -> None:
    trials = (
        tried(1000, Verdict.SAFE, 0.955),
        tried(1100, Verdict.OVERLOADED, why="request handlers idle 14%"),
        tried(1000, Verdict.SAFE, 0.965),
        tried(1000, Verdict.OVERLOADED, 0.3),
        tried(1200, Verdict.CLIENTS, why="a client is busy 97%"),
    )
    limits = replace(EMPTY, trials=trials)
    full = limits.point(1000, 1000).messages_per_s

    (made,) = limits.with_boundary(1000, Found(1000, 1100, 980, 1020, 3, End.NARROW)).boundaries
    (clients,) = limits.with_boundary(1000, Found(1000, None, 980, None, 3, End.CLIENTS)).boundaries

    assert made.messages_per_s == pytest.approx(0.96 * full)
    assert made.read_per_s == pytest.approx(2 * 0.96 * full)
    # Producers sent 4% less than they should: what was to be sent is above the whole interval.
    assert made.high == pytest.approx(1.02 * made.messages_per_s)
    assert made.low == pytest.approx(0.98 * made.messages_per_s)
    assert made.why == ("request handlers idle 14%",)
    assert clients.why == ("a client is busy 97%",)
    assert (made.is_open, clients.is_open) == (False, True)


def test_without_groups_a_drain_may_read_what_was_sent() -> None:
    safe = tried(1000, Verdict.SAFE)
    safe = replace(safe, signals=replace(safe.signals, read_per_s=0.0))

    limits = replace(EMPTY, trials=(safe,))
    (made,) = limits.with_boundary(1000, Found(1000, None, 900, None, 1, End.MOST)).boundaries

    assert made.read_per_s == safe.signals.sent_per_s


@given(st.integers(1, 64 * LEVELS), st.integers(1, 1_000), st.floats(0.01, 1e6))
def test_a_level_is_the_same_share_of_the_rate_however_many_producers_make_it(
    level: int, most: int, mb_per_s: float
) -> None:
    settings = replace(EMPTY.settings, max_producers=most, max_mb_per_s=mb_per_s)
    limits = replace(EMPTY, settings=settings)

    point = limits.point(1000, level)

    assert limits.level(point) == level
    assert point.bytes_per_s == pytest.approx(level / LEVELS * mb_per_s * 1e6)
    full = limits.point(1000, LEVELS)
    assert full.producers == most
    assert point.pace <= full.pace * (1 + 1e-9)
    assert point.producers >= min(PRODUCERS_LEAST, most)


def test_a_drain_is_capped_by_what_groups_read_and_its_writing_by_what_was_sent() -> None:
    curve = cap_curve(measured({1_000: 10_000.0}, groups=5))

    assert curve.reading.cap(1_000).messages_per_s == pytest.approx(0.8 * 50_000)
    assert curve.cap(1_000).messages_per_s == pytest.approx(0.8 * 10_000)


def test_the_order_of_the_boundaries_does_not_matter() -> None:
    assert cap_curve(replace(MEASURED, boundaries=MEASURED.boundaries[::-1])) == CURVE


@pytest.mark.parametrize(
    ("size", "rate"),
    [
        (1_000, 8_000.0),
        (sqrt(100 * 1_000), 0.8 * sqrt(40_000 * 10_000)),
        (10, 32_000.0),
        (100_000, 120.0),
    ],
)
def test_the_cap_is_the_safe_share_on_a_straight_line_of_logarithms(
    size: float, rate: float
) -> None:
    cap = CURVE.cap(size)

    assert cap.messages_per_s == pytest.approx(rate)
    assert cap.bytes_per_s == pytest.approx(rate * size)


@given(st.floats(1, 1e6), st.floats(1, 1e6))
def test_larger_messages_never_get_a_higher_rate(one: float, other: float) -> None:
    small, large = sorted((one, other))

    assert CURVE.cap(large).messages_per_s <= CURVE.cap(small).messages_per_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("limits", "reason", "way_out"),
    [
        (replace(MEASURED, boundaries=()), "no boundary yet", "goes on after the trials so far"),
        (measured({1_000: 0.0, 100: 500.0}), "no traffic was safe", ""),
    ],
)
def test_a_cap_that_does_not_follow_is_refused_with_a_way_out(
    limits: MeasuredLimits, reason: str, way_out: str
) -> None:
    with pytest.raises(LimitsRefused, match=reason) as error:
        cap_curve(limits).cap(500)

    assert error.value.hint
    assert way_out in error.value.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"points": ()},
        {"points": CURVE.points[::-1]},
        {"points": (CapPoint(100, 1.0, -1.0),)},
        {"points": (CapPoint(0, 1.0, 1.0),)},
        {"points": (CapPoint(100, 1.0, 1e300),)},
        {"points": (CapPoint(10**400, 1.0, 1.0),)},
        {"safe_share": 1.5},
    ],
)
def test_a_curve_has_rising_sizes_and_a_share_of_what_was_borne(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        replace(CURVE, **changes)


def body_of(limits: MeasuredLimits) -> Any:
    return orjson.loads(orjson.dumps(as_json(limits)))


def test_what_was_written_is_read_again() -> None:
    unseen = replace(SIGNALS, handlers_idle=None, round_trip_ms=None)
    silent = replace(trial(10, Verdict.CLIENTS), signals=unseen)
    bound = replace(MEASURED.boundaries[0], high=None, end=End.MOST)

    for found in (MEASURED, replace(MEASURED, boundaries=(bound,), trials=(silent,), baseline={})):
        assert from_json(body_of(found)) == found


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, "not a limits file"),
        ({"format": "drainer-plan/1"}, "not a limits file"),
        ({"drainer_limits": 1}, "limits format 1 is older"),
        *(({"drainer_limits": version}, "is not a version") for version in (5.0, True)),
    ],
)
def test_something_else_or_another_version_is_refused(body: object, reason: str) -> None:
    with pytest.raises(LimitsRefused, match=reason) as error:
        from_json(body)

    assert error.value.hint


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("boundaries", 0, "low"), 40_001.0),
        (("settings", "message_bytes"), [100, 100]),
        (("settings", "safe_share"), 1.5),
        (("trials", 0, "verdict"), "maybe"),
        (("trials", 0, "signals", "sent_per_s"), -1.0),
        (("boundaries", 0, "high"), 1.0),
        (("boundaries", 0, "message_bytes"), 777),
        (("boundaries", 1, "message_bytes"), 100),
        (("trials", 0, "signals", "sent_per_s"), [[]]),
        (("settings", "partition"), 7),
        (("boundaries", 0, "low"), MISSING),
    ],
)
def test_what_breaks_a_law_or_does_not_fit_is_refused(
    path: tuple[str | int, ...], value: object
) -> None:
    holder = body = body_of(MEASURED)
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    if value is MISSING:
        del holder[path[-1]]

    with pytest.raises(LimitsRefused, match=r"damaged|missing or wrong") as error:
        from_json(body)
    assert error.value.hint
