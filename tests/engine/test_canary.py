"""A canary's source ends with the first messages; and what the engine itself takes is measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_up_kafka import OnTheLoop, Rehearsal, log_of, work

from drainer.core.batches import Batching
from drainer.core.dispatch import Dispatcher
from drainer.engine.ports import Source
from drainer.insight import calibration
from drainer.insight.calibration import Calibration
from drainer.insight.canary import CanaryOver, FirstMessages
from drainer.message import SubMessage


class CanaryRehearsal(Rehearsal):
    """A rehearsal of which only the first messages are drained by ``first``."""

    first: int | None = None

    def _open_source(self, dispatcher: Dispatcher, notify: Callable[[], None]) -> Source:  # type: ignore[override]
        source = super()._open_source(dispatcher, notify)
        return source if self.first is None else FirstMessages(source, self.first, dispatcher)


async def slowly(sub: SubMessage) -> None:
    await work()


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


@pytest.mark.parametrize(("is_async", "fan_out"), [(True, 5.0), (True, None), (False, 5.0)])
def test_what_the_engine_takes_for_a_sub_message_is_measured(
    is_async: bool, fan_out: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "SUB_MESSAGES", 2_000)
    found = Calibration(fan_out, 10, is_async)
    assert 1e-7 < found.together_s(Batching(most=9)) < 0.01
    assert 1e-7 < found.sub_message_s() < 0.01
