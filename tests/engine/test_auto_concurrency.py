"""Workers up to a limit that changes while they run: never more, none forgotten, all in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest
from made_up_kafka import (
    Kind,
    OnTheLoop,
    VirtualDrains,
    both_kinds,
    in_lanes,
    split_specs,
    work,
)

from drainer.engine.runtime import Runtime
from drainer.handler import Handler
from drainer.message import Message, SubMessage
from drainer.model.option import Concurrency
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.policy.concurrency_limit import ConcurrencyLimit, LoadSample

MOST = 40
AUTO = LocalSettings(concurrency=Concurrency.auto(MOST), plan_interval_s=0.02)


class Scripted(ConcurrencyLimit):
    """Goes through some limits, one a look, and stays at the last."""

    look_s = 0.001

    def __init__(self, limits: Sequence[int], first: int, most: int) -> None:
        super().__init__(first, most)
        self._script = iter(limits)
        self.samples: list[LoadSample] = []

    def observe(self, interval: LoadSample) -> int:
        self.samples.append(interval)
        self.limit = next(self._script, self.limit)
        return self.limit


class TogetherOnTheLoop(Handler):
    """Takes up to eight in a call."""

    max_batch = 8

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.calls = 0
        self.sleep = sleep

    def split(self, message: Message) -> Iterable[SubMessage]:
        return split_specs(message)

    async def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        self.calls += 1
        await work()


class TogetherOnThreads(TogetherOnTheLoop):
    def handle_batch(self, subs: Sequence[SubMessage]) -> None:  # type: ignore[override]
        self.calls += 1
        self.sleep(0.001)


def scripted(virtual: VirtualDrains, made: list[Scripted], *limits: int) -> Runtime:
    """A runtime whose drains get these limits; ``made`` takes in what gave them."""

    def search(first: int, most: int) -> Scripted:
        made.append(Scripted(limits, first, most))
        return made[-1]

    return replace(virtual.runtime, search=search)


@both_kinds
def test_what_is_measured_is_what_was_done(kind: Kind, virtual: VirtualDrains) -> None:
    made: list[Scripted] = []
    runtime = scripted(virtual, made)
    failing = iter([True] * 30)

    def sometimes(sub: SubMessage) -> float:
        if next(failing, False):
            raise ConnectionError
        return 0.001

    rehearsal = virtual.rehearsal(
        in_lanes(1_000),
        AUTO,
        runtime=runtime,
        failures=FailureSettings(retries=2, retry_delay_s=0.001, breaker=False),
    )
    rehearsal.drain(virtual.handler(kind, sometimes))

    search = made[0]
    assert 0 < sum(each.done for each in search.samples) <= 1_000
    assert sum(each.failed for each in search.samples) == 30
    assert all(0 <= each.in_flight <= 20 for each in search.samples)
    assert all(each.seconds > 0 for each in search.samples)


def test_status_and_summary_have_the_limit(virtual: VirtualDrains) -> None:
    runtime = scripted(virtual, [], 33)
    rehearsal = virtual.rehearsal(in_lanes(2_000), AUTO, runtime=runtime)

    summary = rehearsal.drain(virtual.handler(OnTheLoop, lambda sub: 0.001))

    assert summary.last == rehearsal.statuses[-1]
    last = summary.last.limits
    assert last.auto is not None
    assert (last.concurrency, last.auto.limit, last.auto.most) == (33, 33, MOST)
    assert last.auto.settled is None


@pytest.mark.parametrize("kind", [TogetherOnTheLoop, TogetherOnThreads])
def test_calls_with_several_are_counted_as_calls(
    kind: type[TogetherOnTheLoop | TogetherOnThreads], virtual: VirtualDrains
) -> None:
    made: list[Scripted] = []
    runtime = scripted(virtual, made, 20)
    handler = kind(virtual.sleep)
    summary = virtual.rehearsal(in_lanes(4_000), AUTO, runtime=runtime).drain(handler)

    samples = made[0].samples
    assert summary.exit_code == 0
    assert sum(interval.done for interval in samples) > 0
    assert all(interval.calls is not None for interval in samples)
    assert 8 * sum(interval.ended for interval in samples) >= sum(each.done for each in samples)
    assert 0 < sum(interval.ended for interval in samples) <= handler.calls
