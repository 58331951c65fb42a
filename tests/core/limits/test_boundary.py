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
from drainer.limits.search.boundary import Boundary, Limits
from drainer.limits.search.trial import End, Found, Point, Signals, Trial, Verdict
from drainer.policy.rate_cap import CapPoint

PACE = 100.0
SIGNALS = Signals(30.0, 995.0, 3.0, 0.0, 0.0, 0.4, 0.0, 0.3, 5.0)


def trial(producers: int, verdict: Verdict, sent_per_s: float = 995.0, why: str = "so") -> Trial:
    signals = replace(SIGNALS, sent_per_s=sent_per_s)
    return Trial(Point(1000, producers, PACE), signals, verdict, (why,), 1e9)


MEASURED = replace(
    measured({100: 40_000.0, 1_000: 10_000.0, 10_000: 1_500.0}),
    baseline={100: 2.0, 1_000: 2.5},
    trials=(trial(10, Verdict.SAFE), trial(12, Verdict.OVERLOADED)),
)
CURVE = MEASURED.curve()


def test_a_boundary_is_what_was_acknowledged_at_the_safe_end() -> None:
    trials = [
        trial(10, Verdict.SAFE, 990.0),
        trial(11, Verdict.OVERLOADED, 1_050.0, "request handlers idle 14%"),
        trial(10, Verdict.SAFE, 1_000.0),
        trial(10, Verdict.OVERLOADED, 300.0),
        trial(12, Verdict.CLIENTS, 900.0, "a client is busy 97%"),
    ]

    made = Boundary.of(1000, PACE, Found(10, 11, 9.5, 11.5, 3, End.NARROW), trials)
    clients = Boundary.of(1000, PACE, Found(10, None, 9.5, None, 3, End.CLIENTS), trials)

    assert (made.messages_per_s, made.bytes_per_s) == (995.0, 995_000.0)
    assert (made.low, made.high) == (950.0, 1_150.0)
    assert made.why == ("request handlers idle 14%",)
    assert clients.why == ("a client is busy 97%",)
    assert (made.is_lower_bound, clients.is_lower_bound) == (False, True)


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


def test_sizes_come_in_any_order() -> None:
    assert replace(MEASURED, boundaries=MEASURED.boundaries[::-1]).curve() == CURVE


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (replace(MEASURED, boundaries=()), "no boundary yet"),
        (measured({1_000: 0.0, 100: 500.0}), "no traffic was safe"),
    ],
)
def test_a_cap_that_does_not_follow_is_refused_with_a_way_out(limits: Limits, said: str) -> None:
    with pytest.raises(LimitsRefused, match=said) as error:
        limits.curve().cap(500)

    assert error.value.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"points": ()},
        {"points": CURVE.points[::-1]},
        {"points": (CapPoint(100, -1.0),)},
        {"points": (CapPoint(0, 1.0),)},
        {"safe_share": 1.5},
    ],
)
def test_a_curve_has_rising_sizes_and_a_share_of_what_was_borne(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        replace(CURVE, **changes)


def body_of(limits: Limits) -> Any:
    return orjson.loads(orjson.dumps(limits.as_json()))


def test_what_was_written_is_read_again() -> None:
    unseen = replace(SIGNALS, handlers_idle=None, round_trip_ms=None)
    silent = replace(trial(10, Verdict.CLIENTS), signals=unseen)
    bound = replace(MEASURED.boundaries[0], high=None, overloaded_producers=None, end=End.MOST)

    for found in (MEASURED, replace(MEASURED, boundaries=(bound,), trials=(silent,), baseline={})):
        assert Limits.from_json(body_of(found)) == found


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, "not a limits file"),
        ({"format": "drainer-plan/1"}, "not a limits file"),
        *(({"drainer_limits": version}, "version") for version in (1, 3.0, True)),
    ],
)
def test_something_else_or_another_version_is_refused(body: object, said: str) -> None:
    with pytest.raises(LimitsRefused, match=said) as error:
        Limits.from_json(body)

    assert error.value.hint


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("settings", "message_bytes"), [100, 100]),
        (("settings", "safe_share"), 1.5),
        (("trials", 0, "verdict"), "maybe"),
        (("trials", 0, "signals", "sent_per_s"), -1.0),
        (("boundaries", 0, "high"), 1.0),
        (("boundaries", 0, "message_bytes"), 777),
        (("boundaries", 1, "message_bytes"), 100),
    ],
)
def test_a_law_that_is_broken_is_refused(path: tuple[str | int, ...], value: object) -> None:
    holder = body = body_of(MEASURED)
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value

    with pytest.raises(LimitsRefused, match="damaged"):
        Limits.from_json(body)


def places(body: Any) -> list[tuple[Any, str | int]]:
    """Each field of a body, in all that it holds, with what holds it."""
    steps: list[str | int] = list(body if isinstance(body, dict) else range(len(body)))
    found = [(body, step) for step in steps]
    for step in steps:
        if isinstance(body[step], dict | list):
            found += places(body[step])
    return found


@given(st.data())
def test_a_field_that_is_missing_unknown_or_of_another_type_is_refused(data: st.DataObject) -> None:
    body = body_of(MEASURED)
    found = [place for place in places(body) if place[1] != "drainer_limits"]  # another message
    holder, step = data.draw(st.sampled_from(found))
    match data.draw(st.sampled_from(["missing", "unknown", "type"])):
        case "missing" if isinstance(holder, dict) and holder is not body["baseline"]:
            del holder[step]
        case "unknown" if isinstance(holder, dict):
            holder[f"{step}x"] = holder[step]
        case _:
            holder[step] = data.draw(st.sampled_from([{"x": []}, [[]]]))

    with pytest.raises(LimitsRefused, match="missing or wrong") as error:
        Limits.from_json(body)
    assert error.value.hint
