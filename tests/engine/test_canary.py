"""A canary's source: no more than the first messages, and the drain ends once they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_up_kafka import BacklogSource, OnTheLoop, Rehearsal, log_of, split_specs, tick

from drainer.core.bundles import Bundling
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.engine.ports import Source
from drainer.engine.status import Status
from drainer.errors import Refused
from drainer.insight import calibration
from drainer.insight.calibration import calibrate
from drainer.insight.canary import CanaryOver, FirstMessages, Timed
from drainer.loader import LoadedHandler
from drainer.message import Message, SubMessage
from drainer.policy.rules.settings import OverLimit, RuleSettings


class CanaryRehearsal(Rehearsal):
    """A rehearsal of which only the first messages are drained while ``first`` says how many."""

    first: int | None = None

    def _open_source(self, dispatcher: Dispatcher, notify: Callable[[], None]) -> Source:  # type: ignore[override]
        source = super()._open_source(dispatcher, notify)
        return source if self.first is None else FirstMessages(source, self.first, dispatcher)


async def slowly(sub: SubMessage) -> None:
    await tick()


@pytest.mark.parametrize("first", [1, 32, 100])
def test_it_ends_when_so_many_are_done_and_a_resume_does_the_rest(
    tmp_path: Path, first: int
) -> None:
    logs = {0: log_of(*[[f"k{n % 7}", f"k{n % 5}"] for n in range(150)], holes=3)}
    rehearsal = CanaryRehearsal(tmp_path, logs)
    rehearsal.first = first
    handler = OnTheLoop(slowly)
    summary = rehearsal.drain(handler)
    assert isinstance(summary.cause, CanaryOver)
    assert summary.messages.done == first
    assert summary.messages.pending == 0
    assert {offset for _, offset, _ in handler.account.finished} == set(range(first))
    assert rehearsal.group.committed == {0: first}
    rehearsal.first = None
    again = OnTheLoop(slowly)
    rehearsal.drain(again)
    assert set(handler.account.finished) | set(again.account.finished) == rehearsal.places
    assert not set(handler.account.finished) & set(again.account.finished)
    assert not handler.account.breaches + again.account.breaches


def test_it_waits_for_letters_above_a_limit_and_what_is_behind_them(tmp_path: Path) -> None:
    rehearsal = CanaryRehearsal(tmp_path, {0: log_of(["a"], ["a"], [None], ["b"], ["c"])})
    rehearsal.rules = RuleSettings(limit_per_key=1, over_limit=OverLimit.DEAD_LETTER)
    rehearsal.letters.keeps_silent = True
    rehearsal.first = 4

    def answer(status: Status) -> None:
        if status.sub_messages.read == 4:
            rehearsal.letters.answer()

    rehearsal.observe = answer
    summary = rehearsal.drain(OnTheLoop())
    assert isinstance(summary.cause, CanaryOver)
    assert (summary.messages.done, summary.messages.dead, summary.messages.pending) == (3, 1, 0)


def test_calls_are_timed_those_that_fail_too() -> None:
    async def once(sub: SubMessage) -> None:
        await tick()
        if sub.key == "bad":
            raise ValueError("no")

    timed = Timed(LoadedHandler("handlers.py:Accounting", SimpleNamespace(handle=once)))
    assert timed.handler.is_async
    assert timed.latency is None
    asyncio.run(timed.handler.handle(SubMessage("good")))
    with pytest.raises(ValueError, match="no"):
        asyncio.run(timed.handler.handle(SubMessage("bad")))
    assert len(timed.times_s) == 2
    assert timed.latency is not None
    assert timed.latency.mean_s >= 0.0005


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("own_split", [True, False])
def test_the_engine_costs_something_and_a_sub_message_among_others_no_more(
    is_async: bool, own_split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "SUB_MESSAGES", 2_000)
    logs = {0: log_of(*[["hot"] * 5 for _ in range(800 if own_split else 4000)])}
    ledgers = {number: Ledger(log.start, log.end) for number, log in logs.items()}
    found = calibrate(
        {number: (log.start, log.end) for number, log in logs.items()},
        lambda notify: BacklogSource(logs, Dispatcher(ledgers), notify),
        split_specs if own_split else None,
        fan_out=5.0 if own_split else 1.0,
        concurrency=10,
        is_async=is_async,
        bundling=Bundling(most=9),
    )
    assert 1e-7 < found.together_s <= found.sub_message_s < 0.01
    assert 0 <= found.late_s <= 0.001


def test_a_split_that_fails_where_no_sample_was_taken_is_refused() -> None:
    def split(message: Message) -> list[SubMessage]:
        raise ValueError("no document")

    logs = {0: log_of(["a"])}
    ledgers = {number: Ledger(log.start, log.end) for number, log in logs.items()}
    with pytest.raises(Refused, match=r"split failed at .*no document"):
        calibrate(
            {number: (log.start, log.end) for number, log in logs.items()},
            lambda notify: BacklogSource(logs, Dispatcher(ledgers), notify),
            split,
            fan_out=1.0,
            concurrency=10,
            is_async=True,
        )
