"""Whether a running drain makes its deadline, and the reason when it doesn't."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.policy.outlook import SURE_AFTER_S, SURE_FOR_S, Outlook, Reason, Speed, Warner, outlook

PACE = Speed(
    elapsed_s=60.0,
    left_s=100.0,
    eta_s=200.0,
    rate_now=1_000.0,
    running=100,
    concurrency=100,
    ready=50,
    hottest=0,
    waiting_retries=0,
    in_trouble=False,
    all_read=False,
    asked_rate=None,
)


def test_a_drain_that_is_too_slow_tells_by_how_much_and_how_many_more_it_takes() -> None:
    seen = outlook(PACE)
    assert seen.margin_s == -100.0
    assert seen.reason is Reason.CONCURRENCY
    assert seen.concurrency is not None
    assert 200 <= seen.concurrency <= 230


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"left_s": -1.0}, Reason.PASSED),
        ({"in_trouble": True}, Reason.OUTAGE),
        ({"hottest": 3_000}, Reason.LANE),  # 100 ms each, by Little's law: 300 s
        ({"asked_rate": 1_000.0}, Reason.RATE),
        ({"running": 40, "waiting_retries": 70}, Reason.RETRIES),
        ({"running": 40}, Reason.FETCH),
        ({"running": 40, "ready": 500}, Reason.CPU),
        ({"running": 2, "all_read": True}, Reason.LANE),
    ],
)
def test_the_reason_is_what_binds(changes: dict[str, object], reason: Reason) -> None:
    assert outlook(replace(PACE, **changes)).reason is reason  # type: ignore[arg-type]


def test_a_hot_lane_makes_it_late_though_the_rest_is_quick() -> None:
    seen = outlook(replace(PACE, eta_s=300.0, hottest=3_000))
    assert seen.reason is Reason.LANE
    assert seen.lane_s == pytest.approx(300.0)
    assert seen.margin_s == pytest.approx(-200.0)


def test_nothing_is_known_before_there_is_a_speed() -> None:
    assert outlook(replace(PACE, eta_s=None)) == Outlook(100.0, None)


def test_it_warns_once_and_only_when_it_is_sure() -> None:
    warner, late = Warner(), outlook(PACE)
    assert not warner.look(0.5, late)
    assert not warner.look(SURE_AFTER_S - 0.1, late)
    assert warner.look(SURE_AFTER_S, late)
    assert not warner.look(SURE_AFTER_S + 100, late)


def test_a_moment_that_looks_late_is_no_warning() -> None:
    warner, late, fine = Warner(), outlook(PACE), outlook(replace(PACE, eta_s=1.0))
    assert not warner.look(20.0, late)
    assert not warner.look(20.0 + SURE_FOR_S / 2, fine)
    assert not warner.look(20.0 + SURE_FOR_S, late)
    assert warner.look(20.0 + 2 * SURE_FOR_S, late)


def test_a_deadline_that_has_passed_is_told_at_once() -> None:
    assert Warner().look(0.5, outlook(replace(PACE, left_s=-1.0)))
