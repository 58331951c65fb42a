"""Latencies as they are reported: sound after rounding, and right when runs are put together."""

from __future__ import annotations

from random import Random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.model.latency import Latency, merge_latencies


def measured(values: list[float]) -> Latency:
    ranked = sorted(values)
    last = len(ranked) - 1
    percentiles = [ranked[round(n / 100 * last)] for n in range(101)]
    return Latency.of(len(ranked), sum(ranked) / len(ranked), percentiles)


latencies = st.builds(
    measured, st.lists(st.floats(0, 1e4, allow_subnormal=False), min_size=1, max_size=300)
)


@given(latencies)
def test_what_is_written_is_read_again(latency: Latency) -> None:
    assert Latency.from_json(orjson.loads(orjson.dumps(latency.as_json()))) == latency


@given(st.lists(latencies, min_size=2, max_size=4))
def test_runs_put_together_are_sound_and_keep_count_mean_and_extremes(runs: list[Latency]) -> None:
    together = merge_latencies(runs)

    assert together is not None
    assert Latency.from_json(together.as_json()) == together
    assert together.count == sum(run.count for run in runs)
    assert together.percentiles_s[0] == min(run.percentiles_s[0] for run in runs)
    assert together.percentiles_s[100] == max(run.percentiles_s[100] for run in runs)
    total = sum(run.mean_s * run.count for run in runs)
    assert together.mean_s == pytest.approx(total / together.count, abs=2e-6)


def test_percentiles_of_runs_put_together_are_those_of_all_that_was_measured() -> None:
    random = Random(5)
    first = [random.expovariate(100) for _ in range(20_000)]
    second = [random.gauss(0.05, 0.004) for _ in range(60_000)]

    together, whole = merge_latencies([measured(first), measured(second)]), sorted(first + second)

    assert together is not None
    for n in range(1, 100):
        low, high = (whole[int(len(whole) * (n + d) / 100)] for d in (-0.6, 0.6))
        assert low < together.percentiles_s[n] < high, n


@pytest.mark.parametrize(
    "change",
    [
        {"count": 0},
        {"mean_s": 9.0},
        {"percentiles_s": [0.1] * 100},
        {"percentiles_s": [-0.1] + [0.1] * 100},
    ],
)
def test_what_is_no_record_of_latencies_is_refused(change: dict[str, object]) -> None:
    body = measured([0.1, 0.2, 0.4]).as_json()

    with pytest.raises((KeyError, TypeError, ValueError)):
        Latency.from_json(body | change)
