"""Rules in the engine: drains in which workers have little or nothing to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_kafka import OnTheLoop, OnThreads, Rehearsal, log_of

from drainer.handler import Handler
from drainer.model.rules import RuleSettings, SkipRule

ALL = RuleSettings((SkipRule("all", when="index >= 0"),))


@pytest.mark.parametrize("handler", [OnTheLoop, OnThreads])
def test_a_drain_ends_that_gives_its_workers_nothing(
    handler: type[Handler], tmp_path: Path
) -> None:
    rehearsal = Rehearsal(tmp_path, {0: log_of(*(["a", "b"] for _ in range(500)), holes=3)})
    rehearsal.rules = ALL
    given = handler()
    summary = rehearsal.drain(given)
    assert summary.exit_code == 0
    assert summary.last.rules.skipped_by == {"all": 1000}
    assert summary.sub_messages.skipped == 1000
    assert rehearsal.group.committed == {0: 503}
    assert rehearsal.file.load().plan.account.ruled.skipped_by == {"all": 1000}
