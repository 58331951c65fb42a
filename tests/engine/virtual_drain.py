"""The workers and the failure policy of a drain, on a backlog in memory and in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from typing import Any

import pytest

from core.messages import deliver, one_partition
from drainer.engine.coroutines import AsyncWorkers
from drainer.engine.failures import Failures
from drainer.engine.runtime import Runtime
from drainer.engine.workers import Calls
from drainer.message import SubMessage
from drainer.model.progress import Outcome
from drainer.model.settings import FailureSettings, OnFailure
from drainer.model.status import FailureStatus
from drainer.policy.failures import FailurePolicy
from engine.made_up_kafka import Letters, VirtualTime
from fake_kafka import FakeLock
from simulation.loop import work

Bad = Callable[[int, float], BaseException | None]
"""What the call for an offset raises when it ends at a time."""


@dataclass
class VirtualDrain:
    """Drains ``count`` messages of ``lanes`` lanes, with a handler that takes about ``latency_s``.

    What is given up is in ``given_up``, by offset, with the time; ``halted`` is the error that
    ended it before everything was finished.
    """

    bad: Bad
    lanes: int = 1
    count: int = 400
    concurrency: int = 8
    latency_s: float = 0.01
    policy: FailureSettings = field(
        default_factory=lambda: FailureSettings(retries=3, on_failure=OnFailure.DEAD_LETTER)
    )
    is_outage: Callable[[BaseException], bool | None] | None = None
    latency_of: Callable[[int], float] | None = None
    awaits_more: bool = False
    hangs_s: float = inf  # of calls with a TimeoutError: they are cancelled by the policy's timeout

    def __post_init__(self) -> None:
        self.time = VirtualTime()
        self.given_up: dict[int, float] = {}
        self.attempts = Counter[int]()
        self.halted: BaseException | None = None
        self.troubles: list[str] = []
        asyncio.set_event_loop(None)
        try:
            self.time.loop.run_until_complete(self._run())
        finally:
            self.time.loop.close()

    @property
    def now_s(self) -> float:
        return self.time.world.now_s

    async def _run(self) -> None:
        random = Random(1)
        self.dispatcher = dispatcher = one_partition(self.count)
        for offset in range(self.count):
            deliver(dispatcher, offset, f"k{offset % self.lanes}")
        runtime = replace(self.time.runtime, random=lambda: random)
        self._over = asyncio.Event()
        self._failures, self._workers = failures, workers = self._engine(runtime, random)
        workers.limit(self.concurrency)
        workers.watch()
        watching = self.time.loop.create_task(self._watch(failures))
        await self._over.wait()
        watching.cancel()
        self.status = failures.status()
        failures.stop()
        workers.start_no_more()
        await workers.abandon()

    def _engine(self, runtime: Runtime, random: Random) -> tuple[Failures, AsyncWorkers]:
        dispatcher = self.dispatcher

        async def handle(sub: SubMessage) -> None:
            offset = sub.message.offset
            self.attempts[offset] += 1
            mean_s = self.latency_of(offset) if self.latency_of else self.latency_s
            await work(mean_s * random.uniform(0.5, 1.5))
            error = self.bad(offset, self.now_s)
            if isinstance(error, TimeoutError):
                await work(self.hangs_s if self.hangs_s < inf else 1e6)
            if error is not None:
                raise error

        finish = dispatcher.finish

        def watched(sub: SubMessage, outcome: Outcome = Outcome.DONE) -> None:
            if outcome in (Outcome.DEAD, Outcome.FAILED):
                self.given_up[sub.message.offset] = self.now_s
            finish(sub, outcome)

        dispatcher.finish = watched  # type: ignore[method-assign]
        failures = Failures(
            dispatcher,
            FailurePolicy(self.policy, runtime.random()),
            Letters(),
            None,
            self.is_outage,
            events=self,
            runtime=runtime,
        )

        calls = Calls(
            handle=handle,
            timeout_s=self.policy.timeout_s,
            lease=FakeLock(),
            record_latency=lambda took_s, gap, spent_s: 1,
            runtime=runtime,
        )
        return failures, AsyncWorkers(calls, failures, self)

    def halt(self, cause: BaseException) -> None:
        self._end(cause)

    def on_moved(self) -> None:
        self._workers.wake()
        self.on_idle()

    def on_idle(self) -> None:
        if self.dispatcher.complete:
            self._end(None)
        self._failures.schedule()

    def on_busy_loop(self, now_s: float) -> None:
        """There is no journal."""

    def _end(self, cause: BaseException | None) -> None:
        self.halted = self.halted or cause
        self._over.set()

    async def _watch(self, failures: Failures) -> None:
        while True:
            await work(0.5)
            trouble = failures.trouble
            if trouble is not None and trouble not in self.troubles:
                self.troubles.append(trouble)


def given_up_by(status: FailureStatus) -> dict[str, int]:
    return dict(status.given_up_by)


def named(name: str, *values: Any) -> Any:
    """A row of a table of drains."""
    return pytest.param(*values, id=name)
