"""A handler's latency, as it is typed or was measured."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.errors import UsageError
from drainer.insight.distribution import Distribution
from drainer.model.latency import Latency


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10ms", 0.01), ("0.5 s", 0.5), ("250us", 0.00025), ("2s", 2.0), ("1m", 60)],
)
def test_one_duration_is_the_latency_of_every_call(text: str, seconds: float) -> None:
    latency = Distribution.parse(text)
    assert latency.mean_s == pytest.approx(seconds)
    assert latency.quantile(0.01) == latency.quantile(0.99) == pytest.approx(seconds)


def test_the_quantiles_that_were_named_are_those_of_the_latency() -> None:
    latency = Distribution.parse("p99=120ms, p50=8ms")
    assert latency.quantile(0.5) == pytest.approx(0.008)
    assert latency.quantile(0.99) == pytest.approx(0.12)
    assert latency.quantile(0.0) == pytest.approx(0.008)
    assert latency.quantile(1.0) == pytest.approx(0.12)
    assert 0.012 < latency.mean_s < 0.02  # straight between the two it would be twice as much


@pytest.mark.parametrize(
    "text", ["", "fast", "-1ms", "10 parsecs", "p50=8ms,p50=9ms", "p101=1s", "x=1s", "p50=", "p9ms"]
)
def test_what_is_no_latency_is_refused_with_the_form_it_should_have(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        Distribution.parse(text)
    hint = str(refused.value.hint)
    assert "10ms" in hint or "Use a unit: us, ms" in hint


def measured(seconds: list[float], mean_s: float) -> Distribution:
    """Of a hundred and one calls."""
    return Distribution.measured(Latency(101, mean_s, tuple(seconds)))


@given(st.lists(st.floats(0, 100), min_size=101, max_size=101).map(sorted), st.floats(0, 1))
def test_quantiles_never_fall_and_a_mean_that_they_allow_is_kept(
    seconds: list[float], between: float
) -> None:
    least, most = sum(seconds[:-1]) / 100, sum(seconds[1:]) / 100
    mean_s = min(most, least + between * (most - least))
    latency = measured(seconds, mean_s)
    found = [latency.quantile(share / 50) for share in range(51)]
    assert all(behind >= before for before, behind in pairwise(found))
    assert latency.mean_s == pytest.approx(mean_s)


def test_the_longest_of_many_calls_and_of_what_is_left_of_them() -> None:
    constant, uniform = Distribution.constant(2.0), Distribution(((0.0, 0.0), (1.0, 1.0)))
    assert constant.longest_s(50) == pytest.approx(2.0)
    assert uniform.longest_s(1) == pytest.approx(0.5)
    assert uniform.longest_s(9) == pytest.approx(0.9, abs=0.01)
    # What is left of a call of 2 s is anything from 0 to 2 s: 1 s on average, and of 9 at most 1.8.
    assert constant.overhang_s(1) == pytest.approx(0.0, abs=1e-9)
    assert constant.overhang_s(9) == pytest.approx(0.8, abs=0.02)
    assert Distribution.constant(0.0).overhang_s(9) == 0.0


def test_one_call_that_was_very_late_does_not_make_a_hundredth_of_them_late() -> None:
    found = measured([0.01] * 100 + [10.0], 0.01999)
    assert found.mean_s == pytest.approx(0.01999)
    assert found.quantile(0.99) == 0.01
    assert found.quantile(1.0) == 10.0
