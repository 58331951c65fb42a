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
from drainer.limits.search.found import End, Found
from drainer.limits.search.point import Judgement, Point, Signals, Trial, Verdict
from drainer.limits.search.settings import Axis, LimitSettings

POINT = Point(1000, 10, 100.0, consumer_groups=5, partitions=40)
SIGNALS = Signals(30.0, 995.0, 3.0, 0.0, 0.0, 0.4, 0.0, 0.3, 5.0)
SIZES = (100, 1_000, 10_000)
SETTINGS = LimitSettings(Axis.MESSAGE_BYTES, SIZES, pace_bytes_per_s=1e5, producers_most=500)


def trial(
    producers: int, verdict: Verdict, sent_per_s: float = 995.0, why: str = "so it is"
) -> Trial:
    signals = replace(SIGNALS, sent_per_s=sent_per_s)
    return Trial(replace(POINT, producers=producers), signals, Judgement(verdict, (why,)), 1e9)


def boundary(message_bytes: int, rate: float, width: float = 0.05) -> Boundary:
    point = replace(POINT, message_bytes=message_bytes, producers=round(rate / POINT.pace))
    return Boundary(
        message_bytes,
        point,
        point.producers + 1,
        messages_per_s=rate,
        low=rate * (1 - width),
        high=rate * (1 + width),
        trials=12,
        end=End.NARROW,
        why=("request handlers idle 14%, under 20%",),
    )


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


def test_a_boundary_is_what_was_acknowledged_at_the_safe_end() -> None:
    found = Found(10, 11, 9.5, 11.5, 3, End.NARROW)
    trials = [
        trial(10, Verdict.SAFE, 990.0),
        trial(11, Verdict.OVERLOADED, 1_050.0, "request handlers idle 14%"),
        trial(10, Verdict.SAFE, 1_000.0),
        trial(10, Verdict.OVERLOADED, 300.0),
        trial(30, Verdict.OVERLOADED, 300.0, "another"),
    ]

    made = Boundary.of(Axis.MESSAGE_BYTES, POINT, found, trials)

    assert made.messages_per_s == 995.0
    assert made.bytes_per_s == 995_000.0
    assert (made.low, made.high) == (950.0, 1_150.0)
    assert (made.value, made.safe_producers, made.overloaded_producers) == (1000, 10, 11)
    assert made.why == ("request handlers idle 14%",)
    assert not made.is_lower_bound


def test_a_boundary_of_clients_that_could_do_no_more_says_why() -> None:
    found = Found(10, None, 9.5, None, 3, End.CLIENTS)
    trials = [trial(10, Verdict.SAFE), trial(11, Verdict.CLIENTS, 900.0, "a client is busy 97%")]

    made = Boundary.of(Axis.MESSAGE_BYTES, POINT, found, trials)

    assert made.why == ("a client is busy 97%",)
    assert made.is_lower_bound


def test_a_boundary_where_nothing_was_safe_is_zero() -> None:
    made = Boundary.of(Axis.MESSAGE_BYTES, POINT, Found(0, 1, 0.0, 1.0, 5, End.NONE), [])

    assert (made.messages_per_s, made.safe_producers) == (0.0, 0)


def test_a_broker_has_its_share() -> None:
    assert MEASURED.bytes_per_s_a_broker(MEASURED.boundaries[1]) == 2_500_000.0


def test_the_cap_is_the_safe_share_of_the_boundary() -> None:
    cap = MEASURED.curve().cap(1_000)

    assert cap.messages_per_s == pytest.approx(8_000.0)
    assert cap.bytes_per_s == pytest.approx(8_000_000.0)
    assert cap.source == "measured at 1,000 bytes"


def test_between_two_sizes_the_cap_lies_on_a_straight_line_of_logarithms() -> None:
    middle = MEASURED.curve().cap(sqrt(100 * 1_000))

    assert middle.messages_per_s == pytest.approx(0.8 * sqrt(40_000 * 10_000))
    assert middle.source == "between 100 and 1,000 bytes"


def test_below_the_smallest_size_its_messages_hold_and_above_the_largest_its_bytes() -> None:
    small, large = MEASURED.curve().cap(10), MEASURED.curve().cap(100_000)

    assert small.messages_per_s == pytest.approx(32_000.0)
    assert small.source == "messages/s of 100 bytes, the smallest measured"
    assert large.bytes_per_s == pytest.approx(12_000_000.0)
    assert large.messages_per_s == pytest.approx(120.0)
    assert large.source == "bytes/s of 10,000 bytes, the largest measured"


@given(st.floats(1, 1e6), st.floats(1, 1e6))
def test_larger_messages_never_get_a_higher_rate(one: float, other: float) -> None:
    small, large = sorted((one, other))

    assert MEASURED.curve().cap(large).messages_per_s <= MEASURED.curve().cap(
        small
    ).messages_per_s * (1 + 1e-9)


def test_the_order_in_which_sizes_were_measured_makes_no_difference() -> None:
    turned = replace(MEASURED, boundaries=MEASURED.boundaries[::-1])

    assert turned.curve().cap(300) == MEASURED.curve().cap(300)


def test_a_cap_from_a_lower_bound_says_so() -> None:
    bound = replace(boundary(1_000, 10_000.0), end=End.CLIENTS, high=None)

    assert (
        limits(bound).curve().cap(1_000).source
        == "measured at 1,000 bytes; the brokers may bear more"
    )


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (limits(), "no boundary yet"),
        (limits(boundary(1_000, 0.0), boundary(100, 500.0)), "no traffic was safe"),
        (
            limits(settings=replace(SETTINGS, axis=Axis.COMPRESSION, values=("none", "zstd"))),
            "compression, not of message sizes",
        ),
    ],
)
def test_a_cap_that_does_not_follow_is_refused_with_a_way_out(refused: Limits, said: str) -> None:
    with pytest.raises(LimitsRefused, match=said) as error:
        refused.curve().cap(500)

    assert error.value.hint


def test_it_is_complete_when_each_value_has_its_boundary() -> None:
    assert MEASURED.complete
    assert not replace(MEASURED, boundaries=MEASURED.boundaries[:2]).complete
    assert MEASURED.boundary(1_000) == MEASURED.boundaries[1]
    assert MEASURED.boundary(7) is None
    assert len(MEASURED.trials_of(1_000)) == 2
    assert MEASURED.trials_of(100) == ()


# Two side by side.


def test_a_change_beyond_both_ranges_is_certain() -> None:
    half = replace(MEASURED, boundaries=(boundary(1_000, 5_000.0), boundary(100, 38_500.0)))

    found = compare(MEASURED, half)

    by_size = {change.value: change for change in found.changes}
    assert by_size[1_000].ratio == pytest.approx(0.5)
    assert by_size[1_000].certain
    assert by_size[100].ratio == pytest.approx(0.9625)
    assert not by_size[100].certain
    assert (found.only_before, found.only_after) == ((10_000,), ())
    assert found.same_cluster


@pytest.mark.parametrize(("now", "certain"), [(12_000.0, True), (8_000.0, False)])
def test_a_lower_bound_is_certain_to_be_more_only_from_above(now: float, certain: bool) -> None:
    bound = replace(boundary(1_000, now), high=None, end=End.CLIENTS)

    (change,) = compare(limits(boundary(1_000, 10_000.0)), limits(bound)).changes

    assert change.certain is certain


def test_what_was_asked_differently_is_named() -> None:
    other = limits(boundary(1_000, 1.0), settings=replace(SETTINGS, consumer_groups=1, jmx=True))

    assert compare(MEASURED, other).settings == ("consumer_groups", "jmx")


def test_where_nothing_was_safe_before_there_is_no_ratio() -> None:
    (change,) = compare(limits(boundary(1_000, 0.0)), limits(boundary(1_000, 9.0))).changes

    assert change.ratio is None
    assert change.certain


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (limits(boundary(77, 5.0)), "no message-bytes of which both"),
        (
            limits(settings=replace(SETTINGS, axis=Axis.COMPRESSION, values=("none",))),
            "over message-bytes, the other over compression",
        ),
    ],
)
def test_two_that_have_nothing_in_common_are_refused(other: Limits, said: str) -> None:
    with pytest.raises(LimitsRefused, match=said):
        compare(MEASURED, other)


def test_a_comparison_can_be_written_as_json() -> None:
    body = orjson.loads(orjson.dumps(compare(MEASURED, MEASURED).as_json()))

    assert [change["ratio"] for change in body["changes"]] == [1.0, 1.0, 1.0]


# The form.


def kept(found: Limits) -> Limits:
    return Limits.from_json(orjson.loads(orjson.dumps(found.as_json())))


def test_what_was_written_is_read_again() -> None:
    assert kept(MEASURED) == MEASURED


def test_begun_and_lower_bounds_and_silent_brokers_are_read_again() -> None:
    silent = replace(trial(10, Verdict.CLIENTS), signals=replace(SIGNALS, handlers_idle=None))
    bound = replace(boundary(100, 5.0), high=None, overloaded_producers=None, end=End.MOST)
    begun = replace(limits(bound), trials=(silent,), baseline={})

    assert kept(begun) == begun


def test_compression_as_the_axis_is_read_again() -> None:
    settings = replace(SETTINGS, axis=Axis.COMPRESSION, values=("none", "zstd"))
    made = Boundary.of(
        Axis.COMPRESSION,
        replace(POINT, compression="zstd"),
        Found(9, 10, 8.5, 10.5, 9, End.NARROW),
        [],
    )
    found = replace(limits(made, settings=settings), baseline={"zstd": 2.0})

    assert made.value == "zstd"
    assert kept(found) == found


def test_what_was_not_measured_stays_unknown() -> None:
    lost = replace(trial(10, Verdict.UNCLEAR), signals=replace(SIGNALS, round_trip_ms=nan))

    (again,) = kept(replace(MEASURED, trials=(lost,))).trials

    assert again.signals.round_trip_ms != again.signals.round_trip_ms
    assert again.signals.sent_per_s == 995.0


@pytest.mark.parametrize("body", [None, [], "limits", {}, {"format": "drainer-plan/1"}])
def test_something_else_is_refused(body: object) -> None:
    with pytest.raises(LimitsRefused, match="no limits") as error:
        Limits.from_json(body)

    assert error.value.hint


@pytest.mark.parametrize("version", [2, 0, "1", 1.0, True, None])
def test_another_version_is_refused(version: object) -> None:
    with pytest.raises(LimitsRefused, match="version") as error:
        Limits.from_json({**MEASURED.as_json(), "drainer_limits": version})

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
        put("brokers", value="4"),
        put("settings", value=None),
        put("settings", "axis", value="moons"),
        put("settings", "values", value=[]),
        put("settings", "values", value=[100, 100]),
        put("settings", "values", value=["none"]),
        put("settings", "safe_share", value=1.5),
        put("settings", "thresholds", value={}),
        put("baseline", value={"none": 2.0}),
        put("trials", value=[None]),
        put("trials", 0, "judgement", "verdict", value="maybe"),
        put("trials", 0, "point", "pace", value=0),
        put("trials", 0, "signals", "sent_per_s", value=-1.0),
        put("boundaries", 0, "end", value="soon"),
        put("boundaries", 0, "high", value=1.0),
        put("boundaries", 0, "value", value=777),
        put("boundaries", 1, "value", value=100),
        put("boundaries", 0, "messages_per_s", value=None),
        put("boundaries", value={}),
        put("boundaries", value=7),
    ],
)
def test_a_damaged_file_is_refused_with_a_way_out(damage: Callable[[Any], None]) -> None:
    body = orjson.loads(orjson.dumps(MEASURED.as_json()))
    damage(body)

    with pytest.raises(LimitsRefused, match="damaged") as error:
        Limits.from_json(body)

    assert error.value.hint


@given(st.data())
def test_a_field_that_is_missing_is_refused(data: st.DataObject) -> None:
    body = orjson.loads(orjson.dumps(MEASURED.as_json()))
    holders = [
        body,
        body["settings"],
        body["trials"][0],
        body["trials"][0]["signals"],
        body["boundaries"][0],
        body["boundaries"][0]["point"],
    ]
    holder = data.draw(st.sampled_from(holders))
    derived = {"bytes_per_s", "drainer_limits"}  # for readers; another message
    del holder[data.draw(st.sampled_from(sorted(set(holder) - derived)))]

    with pytest.raises(LimitsRefused, match="missing or wrong"):
        Limits.from_json(body)
