"""Rules in the engine: drains in which workers have little or nothing to do, and letters apart."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from made_up_kafka import Letters, OnTheLoop, OnThreads, Rehearsal, log_of

from drainer.engine import failures, pump
from drainer.errors import DeadLetterNotWritten
from drainer.handler import Handler
from drainer.message import SubMessage
from drainer.policy.rules.settings import LIMIT, OverLimit, RuleSettings, SkipRule

ALL = RuleSettings((SkipRule("all", when="index >= 0"),))
LETTERS = RuleSettings(limit_per_key=2, over_limit=OverLimit.DEAD_LETTER)


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


def test_letters_above_a_limit_are_dead_once_they_are_safe(tmp_path: Path) -> None:
    rehearsal = Rehearsal(tmp_path, {0: log_of(*(["hot", f"k{n}"] for n in range(200)))})
    rehearsal.rules = LETTERS
    handler = OnTheLoop()
    summary = rehearsal.drain(handler)
    assert summary.exit_code == 6
    assert summary.rules.dead_by == {LIMIT: 198}
    assert summary.sub_messages.dead == 198
    assert sorted(rehearsal.letters.written) == [(0, n, 0) for n in range(2, 200)]
    assert len(handler.account.finished) == 202


def test_no_more_are_under_way_than_memory_is_meant_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "LETTERS_MOST", 20)
    rehearsal = Rehearsal(tmp_path, {0: log_of(*(["hot"] * 5 for _ in range(100)))})
    rehearsal.rules = LETTERS
    most = under_way = 0
    send, letters = rehearsal.letters.send, rehearsal.letters

    def counting(sub: object, error: BaseException, told: object) -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)

        def answered(failure: object) -> None:
            nonlocal under_way
            under_way -= 1
            told(failure)  # type: ignore[operator]

        send(sub, error, answered)  # type: ignore[arg-type]

    letters.send = counting  # type: ignore[method-assign]
    drained = rehearsal.drain(OnTheLoop())
    assert drained.sub_messages.dead == 498
    assert most <= 25, "as many as are meant, and one message more"


def test_a_letter_that_can_not_be_written_stops_the_drain_and_stays_pending(
    tmp_path: Path,
) -> None:
    rehearsal = Rehearsal(tmp_path, {0: log_of(*(["hot"] for _ in range(10)))})
    rehearsal.rules = LETTERS
    rehearsal.letters.failure = DeadLetterNotWritten("no room", hint="make some")
    summary = rehearsal.drain(OnTheLoop())
    assert summary.exit_code == 4
    assert summary.rules.dead_by == {}
    assert summary.sub_messages.dead == 0
    assert rehearsal.finished_by_the_plan() <= {(0, 0, 0), (0, 1, 0)}


def test_a_message_with_very_many_above_the_limit_sends_some_letters_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "LETTERS_MOST", 5)
    waiting: list[Any] = []
    under_way: list[int] = []

    class Slow(Letters):
        def send(self, sub: SubMessage, error: BaseException, told: Any) -> None:
            waiting.append(told)
            under_way.append(len(waiting))
            threading.Timer(0.01, answer, (told,)).start()

    def answer(told: Any) -> None:
        waiting.remove(told)
        told(None)

    rehearsal = Rehearsal(tmp_path, {0: log_of(["a"] * 30)})
    rehearsal.rules = LETTERS
    rehearsal.letters = Slow()
    handler = OnTheLoop()
    summary = rehearsal.drain(handler)
    assert (summary.exit_code, summary.sub_messages.dead) == (6, 28)
    assert handler.account.finished == [(0, 0, 0), (0, 0, 1)]
    assert max(under_way) == 5
