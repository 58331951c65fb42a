"""A deadline in the live view and in log lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from drainer.engine.status import DeadlineStatus, Outlook, Reason
from drainer.view.progress import deadline_warning, deadline_words

from .samples import status

NOW = datetime(2026, 11, 20, 18, 0, tzinfo=UTC)


def due_in(hours: float, seen: Outlook, warning: Outlook | None = None) -> DeadlineStatus:
    return DeadlineStatus(NOW + timedelta(hours=hours), seen, warning)


def test_what_is_made_and_what_is_missed_is_told_with_the_margin() -> None:
    fine, late = Outlook(7200.0, 1800.0), Outlook(7200.0, -1800.0, Reason.FETCH)
    assert "makes it, with 30m 00s to spare" in deadline_words(due_in(2, fine))
    assert "30m 00s too late" in deadline_words(due_in(2, late))


@pytest.mark.parametrize("reason", list(Reason))
def test_a_warning_has_its_reason_and_comes_when_it_is_sure(reason: Reason) -> None:
    late = Outlook(7200.0, -1800.0, reason, lane_s=9000.0, concurrency=300)
    told = deadline_warning(status(deadline=due_in(2, late, late)))
    assert told is not None
    assert "will be missed by 30m 00s: " in told
    assert not told.endswith(": ")
    assert deadline_warning(status(deadline=due_in(2, late))) is None
