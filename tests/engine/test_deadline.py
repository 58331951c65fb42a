"""Whether a running drain makes its deadline, and from when on that is sure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from drainer.model.deadline import SURE_AFTER_S, SURE_FOR_S, DeadlineStatus, DeadlineWatch

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
    moments = [(0.5, late), (SURE_AFTER_S - 0.1, late), (20.0, fine), (21.0, late)]
    found = watched(100.0, *moments, (21.0 + SURE_FOR_S, late), (40.0, fine))
    assert [each.missed for each in found] == [False, False, False, False, True, False]
