"""Whether a running drain makes its deadline, and from when on that is sure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from drainer.model.deadline import ERROR_LEAST, SURE_FOR_S, DeadlineStatus, DeadlineWatch

NOW = datetime(2026, 11, 20, 18, 0, tzinfo=UTC)


def watched(left_s: float, *moments: tuple[float, float | None]) -> list[DeadlineStatus]:
    """What is found of a run after so many seconds, with so many to go."""
    watch, deadline = DeadlineWatch(), NOW + timedelta(seconds=left_s)
    found = [watch.judge(deadline, NOW, elapsed_s, eta_s) for elapsed_s, eta_s in moments]
    return [each for each in found if each is not None]


@pytest.mark.parametrize(
    ("left_s", "eta_s", "margin_s"),
    [(100.0, 200.0, -100.0), (100.0, 99.0, 1.0), (1.0, None, None), (-1.0, None, -1.0)],
)
def test_the_margin_is_what_is_left_when_all_is_done(
    left_s: float, eta_s: float | None, margin_s: float | None
) -> None:
    [found] = watched(left_s, (60.0, eta_s))
    assert (found.left_s, found.margin_s) == (left_s, margin_s)
    assert found.missed is (left_s < 0)


def test_it_is_missed_once_that_is_sure() -> None:
    late, fine = 500.0, 1.0
    moments = [(0.5, late), (SURE_FOR_S, late), (SURE_FOR_S + 1, late), (80.0, fine), (81.0, late)]
    found = watched(100.0, *moments, (200.0, late), (200.0 + SURE_FOR_S, late), (240.0, fine))
    missed = [each.missed for each in found]
    assert missed == [False, False, True, False, False, True, True, False]


def test_a_deadline_that_is_met_in_the_end_is_not_missed_before() -> None:
    """The first forecasts of a short drain are far off."""
    watch, deadline = DeadlineWatch(), NOW + timedelta(seconds=25)
    for half_seconds in range(4, 48):
        at_s = half_seconds / 2
        eta_s = 24.0 - at_s + max(0.0, 12.0 - at_s)  # until it knows better
        found = watch.judge(deadline, NOW + timedelta(seconds=at_s), at_s, eta_s)
        assert found is not None
        assert not found.missed
    found = watch.judge(deadline, NOW + timedelta(seconds=25.5), 25.5, 1.0)
    assert found is not None
    assert found.missed, "it is over"


@pytest.mark.parametrize(
    ("late_by", "swings_s", "missed"),
    [(0.05, 0.0, False), (0.2, 0.0, True), (0.2, 400.0, False), (1.0, 400.0, True)],
)
def test_it_is_missed_only_by_more_than_the_error_of_the_forecast(
    late_by: float, swings_s: float, missed: bool
) -> None:
    eta_s = 2_000.0
    left_s = eta_s / (1 + late_by)
    moments = [
        (at_s, eta_s + (swings_s if at_s % 20 < 10 else -swings_s))
        for at_s in map(float, range(0, 120, 5))
    ]
    assert ERROR_LEAST == 0.1
    assert watched(left_s, *moments)[-1].missed is missed
