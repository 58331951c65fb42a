"""A deadline in the live view and in log lines."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from drainer.engine.status import DeadlineStatus, Outlook, Reason, Status
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
