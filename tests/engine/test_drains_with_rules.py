"""Rules in the engine: drains in which workers have little or nothing to do."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from made_up_kafka import OnTheLoop, OnThreads, Rehearsal, log_of

from drainer.engine import pump
from drainer.handler import Handler
from drainer.policy.rules.settings import RuleSettings, SkipRule

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
    assert summary.rules.skipped_by == {"all": 1000}
    assert summary.sub_messages.skipped == 1000
    assert rehearsal.group.committed == {0: 503}
    assert rehearsal.file.load().plan.ruled.skipped_by == {"all": 1000}


def test_the_loop_breathes_while_very_many_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "SLICE_S", 0.0)  # as if each took its whole slice
    rehearsal = Rehearsal(tmp_path, {0: log_of(*(["a"] * 20 for _ in range(300)))})
    rehearsal.rules = ALL
    turns: list[int] = []
    taken_out = 0

    def watch(drain: object) -> None:
        rule_filter = drain.dispatcher.rule_filter  # type: ignore[attr-defined]
        sift = rule_filter.sift

        def counting(*args: object) -> int:
            nonlocal taken_out
            if not turns:
                asyncio.get_running_loop().call_soon(turn)
            found: int = sift(*args)
            taken_out = rule_filter.skipped_by.total()
            return found

        def turn() -> None:
            turns.append(taken_out)
            if taken_out < 6000:
                asyncio.get_running_loop().call_soon(turn)

        drain.dispatcher._sift = counting  # type: ignore[attr-defined]

    rehearsal.prepare = watch
    assert rehearsal.drain(OnTheLoop()).exit_code == 0
    steps = [later - before for before, later in pairwise(turns)]
    assert max(steps) <= 2 * 20, "one message, or two, between two turns of the loop"
