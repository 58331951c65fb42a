"""Boundaries: the cap that follows from them, two side by side, and the form they are kept in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import nan, sqrt
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.errors import LimitsRefused
from drainer.limits.search.boundary import Boundary, Limits
from drainer.limits.search.comparison import compare
from drainer.limits.search.point import End, Found, Judgement, Point, Signals, Trial, Verdict
from drainer.limits.search.settings import Axis, LimitSettings
from drainer.policy.rate_cap import CapPoint

POINT = Point(1000, 10, 100.0, consumer_groups=5, partitions=40)
SIGNALS = Signals(30.0, 995.0, 3.0, 0.0, 0.0, 0.4, 0.0, 0.3, 5.0)
SIZES = (100, 1_000, 10_000)
SETTINGS = LimitSettings(
    axis=Axis.MESSAGE_BYTES, values=SIZES, pace_bytes_per_s=1e5, producers_most=500
)
BY_COMPRESSION = replace(SETTINGS, axis=Axis.COMPRESSION, values=("none", "zstd"))


def trial(
    producers: int, verdict: Verdict, sent_per_s: float = 995.0, why: str = "so it is"
) -> Trial:
    signals = replace(SIGNALS, sent_per_s=sent_per_s)
    return Trial(replace(POINT, producers=producers), signals, Judgement(verdict, (why,)), 1e9)


def boundary(message_bytes: int, rate: float, **changes: Any) -> Boundary:
    point = replace(POINT, message_bytes=message_bytes, producers=round(rate / POINT.pace))
    made = Boundary(
        message_bytes,
        point,
        point.producers + 1,
        messages_per_s=rate,
        low=rate * 0.95,
        high=rate * 1.05,
        trials=12,
        end=End.NARROW,
        why=("request handlers idle 14%, under 20%",),
    )
    return replace(made, **changes)


def limits(*boundaries: Boundary, settings: LimitSettings = SETTINGS) -> Limits:
    return Limits(
        "cluster-1",
        4,
        1e9,
        settings,
        {100: 2.0, 1_000: 2.5},
        (trial(10, Verdict.SAFE), trial(12, Verdict.OVERLOADED)),
        boundaries,
    )


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

    made = Boundary.of(1000, POINT, Found(10, 11, 9.5, 11.5, 3, End.NARROW), trials)

    assert (made.messages_per_s, made.bytes_per_s) == (995.0, 995_000.0)
    assert (made.low, made.high) == (950.0, 1_150.0)
    assert made.why == ("request handlers idle 14%",)
    assert not made.is_lower_bound


def test_a_boundary_of_clients_that_could_do_no_more_says_why() -> None:
    trials = [trial(10, Verdict.SAFE), trial(11, Verdict.CLIENTS, 900.0, "a client is busy 97%")]

    made = Boundary.of(1000, POINT, Found(10, None, 9.5, None, 3, End.CLIENTS), trials)

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
        (limits(settings=BY_COMPRESSION), "compression, not of message sizes"),
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


# Two side by side.


def test_a_change_beyond_both_ranges_is_certain() -> None:
    half = replace(MEASURED, boundaries=(boundary(1_000, 5_000.0), boundary(100, 38_500.0)))

    found = compare(MEASURED, half)

    by_size = {change.value: (change.ratio, change.certain) for change in found.changes}
    assert by_size == {1_000: (0.5, True), 100: (0.9625, False)}
    assert (found.only_before, found.only_after) == ((10_000,), ())
    assert found.same_cluster
    assert [change["ratio"] for change in found.as_json()["changes"]] == [0.9625, 0.5]


@pytest.mark.parametrize(("now", "certain"), [(12_000.0, True), (8_000.0, False)])
def test_a_lower_bound_is_certain_to_be_more_only_from_above(now: float, certain: bool) -> None:
    bound = boundary(1_000, now, high=None, end=End.CLIENTS)

    (change,) = compare(limits(boundary(1_000, 10_000.0)), limits(bound)).changes

    assert change.certain is certain


def test_where_nothing_was_safe_before_there_is_no_ratio() -> None:
    other = replace(SETTINGS, consumer_groups=1, jmx=True)
    found = compare(limits(boundary(1_000, 0.0)), limits(boundary(1_000, 9.0), settings=other))

    assert (found.changes[0].ratio, found.changes[0].certain) == (None, True)
    assert found.settings == ("consumer_groups", "jmx")


@pytest.mark.parametrize("other", [limits(), limits(settings=BY_COMPRESSION)])
def test_what_has_nothing_in_common_is_not_compared(other: Limits) -> None:
    with pytest.raises(LimitsRefused, match="message-bytes") as error:
        compare(MEASURED, other)

    assert error.value.hint


# The form.


def kept(found: Limits) -> Limits:
    return Limits.from_json(orjson.loads(orjson.dumps(found.as_json())))


def test_what_was_written_is_read_again() -> None:
    silent = replace(trial(10, Verdict.CLIENTS), signals=replace(SIGNALS, handlers_idle=None))
    bound = boundary(100, 5.0, high=None, overloaded_producers=None, end=End.MOST)
    begun = replace(limits(bound), trials=(silent,), baseline={})
    zstd = boundary(1_000, 9.0, value="zstd", point=replace(POINT, compression="zstd"))
    words = replace(limits(zstd, settings=BY_COMPRESSION), baseline={"zstd": 2.0})

    for found in (MEASURED, begun, words):
        assert kept(found) == found


def test_what_was_not_measured_stays_unknown() -> None:
    lost = replace(trial(10, Verdict.UNCLEAR), signals=replace(SIGNALS, round_trip_ms=nan))

    (again,) = kept(replace(MEASURED, trials=(lost,))).trials

    assert again.signals.round_trip_ms != again.signals.round_trip_ms
    assert again.signals.sent_per_s == 995.0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, "not limits"),
        ({"format": "drainer-plan/1"}, "not limits"),
        *(({"drainer_limits": version}, "version") for version in (2, "1", 1.0, True, None)),
    ],
)
def test_something_else_or_another_version_is_refused(body: object, said: str) -> None:
    with pytest.raises(LimitsRefused, match=said) as error:
        Limits.from_json(body)

    assert error.value.hint


def put(*path: str | int, value: Any) -> Callable[[Any], None]:
    def change(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        body[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "damage",
    [
        put("brokers", value=0),
        put("settings", "axis", value="moons"),
        put("settings", "values", value=[]),
        put("settings", "values", value=[100, 100]),
        put("settings", "values", value=["none"]),
        put("settings", "safe_share", value=1.5),
        put("baseline", value={"none": 2.0}),
        put("trials", value=[None]),
        put("trials", 0, "judgement", "verdict", value="maybe"),
        put("trials", 0, "point", "pace", value=0),
        put("trials", 0, "signals", "sent_per_s", value=-1.0),
        put("boundaries", 0, "high", value=1.0),
        put("boundaries", 0, "value", value=777),
        put("boundaries", 1, "value", value=100),
    ],
)
def test_a_law_that_is_broken_is_refused(damage: Callable[[Any], None]) -> None:
    body = orjson.loads(orjson.dumps(MEASURED.as_json()))
    damage(body)

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
