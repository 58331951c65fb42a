"""A deadline in the live view and in log lines."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from drainer.engine.deadline import DeadlineWatch
from drainer.engine.status import DeadlineStatus, Status
from drainer.policy.outlook import Outlook, Reason
from drainer.view.deadline import deadline_warning, deadline_words

from .samples import status

NOW = datetime(2026, 11, 20, 18, 0, tzinfo=UTC)


def due_in(hours: float, seen: Outlook, warning: Outlook | None = None) -> Status:
    at = NOW + timedelta(hours=hours)
    return replace(status(), deadline=DeadlineStatus(at, seen, warning))


def test_what_is_made_and_what_is_missed_is_told_with_the_margin() -> None:
    fine = due_in(2, Outlook(7200.0, 1800.0))
    late = due_in(2, Outlook(7200.0, -1800.0, Reason.FETCH))
    assert fine.deadline is not None
    assert late.deadline is not None
    assert "makes it, with 30m 00s to spare" in deadline_words(fine.deadline)
    assert "30m 00s too late" in deadline_words(late.deadline)


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_has_words(reason: Reason) -> None:
    late = Outlook(7200.0, -1800.0, reason, lane_s=9000.0, concurrency=300)
    told = deadline_warning(due_in(2, late, late))
    assert told is not None
    assert "will be missed by 30m 00s: " in told
    assert not told.endswith(": ")


def test_nothing_is_warned_of_before_it_is_sure() -> None:
    assert deadline_warning(due_in(2, Outlook(7200.0, -10.0, Reason.FETCH))) is None
    assert deadline_warning(status()) is None


def test_the_watch_adds_the_outlook_to_each_status_and_keeps_the_first_warning() -> None:
    seen: list[Status] = []
    watch = DeadlineWatch(NOW + timedelta(seconds=100), None, seen.append, now=lambda: NOW)
    for elapsed_s in (10.0, 11.0, 12.5, 13.0):
        watch(replace(status(), elapsed_s=elapsed_s, eta_s=500.0))
    warnings = [each.deadline.warning for each in seen if each.deadline is not None]
    assert warnings[0] is None
    assert warnings[1] is None
    assert warnings[2] is not None
    assert warnings[3] is warnings[2]
