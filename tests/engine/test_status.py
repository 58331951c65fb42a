"""Questions have no effects: taking a status, a count or a text changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

from core.messages import deliver, one_partition
from drainer.engine.failures import Failures
from drainer.engine.runtime import THIS_PROCESS
from drainer.model.settings import FailureSettings
from drainer.policy.failures import FailurePolicy, Totals

LANES = 20
WALL_S = 1e9


class Ignored:
    """Events of a drain in which nothing works but what the test does."""

    awaits_more = False

    def halt(self, cause: BaseException) -> None:
        raise cause

    def on_moved(self) -> None:
        """Nothing waits for this."""

    def on_idle(self) -> None:
        """Nothing waits for this."""

    def on_busy_loop(self, now_s: float) -> None:
        """There is no journal."""


def on_a_loop(story: Callable[[], None]) -> None:
    async def run() -> None:
        story()

    asyncio.run(run())


def test_statuses_are_the_same_until_an_event_comes() -> None:
    now_s = 100.0

    def story() -> None:
        nonlocal now_s
        dispatcher = one_partition(0, LANES)
        for offset in range(LANES):
            deliver(dispatcher, offset, f"k{offset}")
        policy = FailurePolicy(FailureSettings(retries=0), Random(1), given_up=3)
        runtime = replace(
            THIS_PROCESS,
            monotonic=lambda: now_s,
            wall=lambda: datetime.fromtimestamp(WALL_S + now_s, UTC),
        )
        failures = Failures(dispatcher, policy, None, None, events=Ignored(), runtime=runtime)
        failures.hear(Totals(done=1))
        taken = [failures.source.take() for _ in range(LANES)]
        for sub in taken:
            now_s += 1.0
            failures.failed(sub, ConnectionError("away"))
        assert policy.breaker.is_open

        def seen() -> tuple[object, ...]:
            return failures.status(), failures.trouble, failures.waiting, failures.source.ready

        first = seen()
        assert "for up to 1h (--max-outage)" in (failures.trouble or "")
        assert [seen() for _ in range(3)] == [first] * 3
        now_s += 3_600.0
        assert seen()[:3] == first[:3], "only events and the clock change anything"
        assert policy.breaker.is_open

        failures.hear(Totals(done=60, finished=60, began_s=WALL_S + now_s))
        assert not policy.breaker.is_open
        assert failures.trouble is None
        failures.stop()

    on_a_loop(story)
