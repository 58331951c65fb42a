"""Boundaries: the cap that follows from them, and the form they are kept in."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.errors import LimitsRefused
from drainer.limits.search.boundary import Boundary, Limits, LimitSettings
from drainer.limits.search.trial import End, Found, Point, Signals, Trial, Verdict
from drainer.policy.rate_cap import CapPoint

PACE = 100.0
SIGNALS = Signals(30.0, 995.0, 3.0, 0.0, 0.0, 0.4, 0.0, 0.3, 5.0)
SETTINGS = LimitSettings(message_bytes=(100, 1_000, 10_000), max_mb_per_s=50.0)


def trial(
    producers: int, verdict: Verdict, sent_per_s: float = 995.0, why: str = "so it is"
) -> Trial:
    signals = replace(SIGNALS, sent_per_s=sent_per_s)
    return Trial(Point(1000, producers, PACE), signals, verdict, (why,), 1e9)


def boundary(message_bytes: int, rate: float, **changes: Any) -> Boundary:
    made = Boundary(
        message_bytes=message_bytes,
        producers=round(rate / PACE),
        overloaded_producers=round(rate / PACE) + 1,
        messages_per_s=rate,
        low=rate * 0.95,
        high=rate * 1.05,
        trials=12,
        end=End.NARROW,
        why=("request handlers idle 14%, under 20%",),
    )
    return replace(made, **changes)


def limits(*boundaries: Boundary) -> Limits:
    trials = (trial(10, Verdict.SAFE), trial(12, Verdict.OVERLOADED))
    return Limits("cluster-1", 4, 1e9, SETTINGS, {100: 2.0, 1_000: 2.5}, trials, boundaries)


MEASURED = limits(boundary(100, 40_000.0), boundary(1_000, 10_000.0), boundary(10_000, 1_500.0))
CURVE = MEASURED.curve()


def test_a_boundary_is_what_was_acknowledged_at_the_safe_end() -> None:
    trials = [
        trial(10, Verdict.SAFE, 990.0),
        trial(11, Verdict.OVERLOADED, 1_050.0, "request handlers idle 14%"),
        trial(10, Verdict.SAFE, 1_000.0),
        trial(10, Verdict.OVERLOADED, 300.0),
        trial(30, Verdict.OVERLOADED, 300.0, "another"),
    ]

    made = Boundary.of(1000, PACE, Found(10, 11, 9.5, 11.5, 3, End.NARROW), trials)

    assert (made.messages_per_s, made.bytes_per_s) == (995.0, 995_000.0)
    assert (made.low, made.high) == (950.0, 1_150.0)
    assert made.why == ("request handlers idle 14%",)
    assert not made.is_lower_bound


def test_a_boundary_of_clients_that_could_do_no_more_says_why() -> None:
    trials = [trial(10, Verdict.SAFE), trial(11, Verdict.CLIENTS, 900.0, "a client is busy 97%")]

    made = Boundary.of(1000, PACE, Found(10, None, 9.5, None, 3, End.CLIENTS), trials)

    assert made.why == ("a client is busy 97%",)
    assert made.is_lower_bound


@pytest.mark.parametrize(
    ("size", "rate", "source"),
    [
        (1_000, 8_000.0, "measured at 1,000 bytes"),
        (sqrt(100 * 1_000), 0.8 * sqrt(40_000 * 10_000), "between 100 and 1,000 bytes"),
        (10, 32_000.0, "messages/s of 100 bytes, the smallest measured"),
        (100_000, 120.0, "bytes/s of 10,000 bytes, the largest measured"),
    ],
)
def test_the_cap_is_the_safe_share_on_a_straight_line_of_logarithms(
    size: float, rate: float, source: str
) -> None:
    cap = CURVE.cap(size)

    assert cap.messages_per_s == pytest.approx(rate)
    assert cap.bytes_per_s == pytest.approx(rate * size)
    assert cap.source == source


@given(st.floats(1, 1e6), st.floats(1, 1e6))
def test_larger_messages_never_get_a_higher_rate(one: float, other: float) -> None:
    small, large = sorted((one, other))

    assert CURVE.cap(large).messages_per_s <= CURVE.cap(small).messages_per_s * (1 + 1e-9)


def test_the_order_in_which_sizes_were_measured_makes_no_difference() -> None:
    assert replace(MEASURED, boundaries=MEASURED.boundaries[::-1]).curve() == CURVE


def test_a_cap_from_a_lower_bound_says_so() -> None:
    bound = boundary(1_000, 10_000.0, end=End.CLIENTS, high=None)

    assert limits(bound).curve().cap(1_000).source.endswith("the brokers may bear more")


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (limits(), "no boundary yet"),
        (limits(boundary(1_000, 0.0), boundary(100, 500.0)), "no traffic was safe"),
    ],
)
def test_a_cap_that_does_not_follow_is_refused_with_a_way_out(refused: Limits, said: str) -> None:
    with pytest.raises(LimitsRefused, match=said) as error:
        refused.curve().cap(500)

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


def test_what_was_written_is_read_again() -> None:
    unseen = replace(SIGNALS, handlers_idle=None, round_trip_ms=None)
    silent = replace(trial(10, Verdict.CLIENTS), signals=unseen)
    bound = boundary(100, 5.0, high=None, overloaded_producers=None, end=End.MOST)

    for found in (MEASURED, replace(limits(bound), trials=(silent,), baseline={})):
        assert Limits.from_json(orjson.loads(orjson.dumps(found.as_json()))) == found


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, "not limits"),
        ({"format": "drainer-plan/1"}, "not limits"),
        *(({"drainer_limits": version}, "version") for version in (1, "2", 2.0, True, None)),
    ],
)
def test_something_else_or_another_version_is_refused(body: object, said: str) -> None:
    with pytest.raises(LimitsRefused, match=said) as error:
        Limits.from_json(body)

    assert error.value.hint


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("brokers",), 0),
        (("settings", "message_bytes"), []),
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
    body = orjson.loads(orjson.dumps(MEASURED.as_json()))
    holder = body
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
    body = orjson.loads(orjson.dumps(MEASURED.as_json()))
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
