"""A canary: handles the first messages for real, and keeps the plan to resume from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from drainer.core.dispatch import Dispatcher
from drainer.engine.ports import Source
from drainer.engine.pump import Batch
from drainer.engine.settings import LocalSettings
from drainer.engine.status import Status, Summary
from drainer.errors import EXIT_DEAD_LETTERS, EXIT_DONE, DrainerError, Interrupted, Refused
from drainer.insight.forecast.distribution import Distribution
from drainer.kafka.cluster import Cluster
from drainer.loader import LoadedHandler
from drainer.message import Message
from drainer.operations.drain import drain
from drainer.operations.engine import InProcess
from drainer.operations.start import Prepared

OVER = "the canary is over"
TIMES_MOST = 100_000  # calls that are remembered


class CanaryOver(Interrupted):
    """Raised as the reason why a canary's drain ended: its messages are done."""


@dataclass(frozen=True, slots=True)
class _Part:
    messages: Iterable[Message]
    reached: dict[int, int] = field(default_factory=dict)


class FirstMessages:
    """A source that gives no more than so many messages, and ends the drain once they are done."""

    def __init__(self, source: Source, most: int, dispatcher: Dispatcher) -> None:
        self._source = source
        self._left = self._most = most
        self._dispatcher = dispatcher
        self._delivered = False  # the last of them, too

    @property
    def trouble(self) -> str | None:
        return self._source.trouble if self._left else None

    @property
    def failure(self) -> DrainerError | None:
        if self._source.failure is not None:
            return self._source.failure
        if not self._all_done():
            return None
        return CanaryOver(
            f"{OVER}: {self._most:,} messages are done",
            hint="Resume the plan for the rest.",
        )

    def start(self) -> None:
        self._source.start()

    def next_batch(self) -> Batch | None:
        if not self._left:
            return None
        batch = self._source.next_batch()
        if batch is None:
            return None
        messages = list(islice(batch.messages, self._left))
        if len(messages) < self._left:
            self._left -= len(messages)
            return _Part(messages, batch.reached)
        # What was reached behind the ones that are left out is not reached now.
        part = _Part(self._last(messages))
        self._left = 0
        return part

    def stop(self) -> None:
        self._source.stop()

    def _last(self, messages: list[Message]) -> Iterator[Message]:
        yield from messages
        self._delivered = True

    def _all_done(self) -> bool:
        # Or nothing more can be done for them: what is parked stays pending.
        lanes, rule_filter = self._dispatcher.lanes, self._dispatcher.rule_filter
        waits = lanes.running or lanes.ready or lanes.held or rule_filter.under_way
        return self._delivered and not waits


class Timed:
    """A handler whose calls are timed, failed attempts among them."""

    def __init__(self, handler: LoadedHandler) -> None:
        self.times_s: list[float] = []
        self.handler = copy(handler)
        self.handler.handle = self._timing(handler.handle)
        self.handler.handle_bundle = self._timing(handler.handle_bundle)

    @property
    def latency(self) -> Distribution | None:
        """None when nothing was handled."""
        return Distribution.from_times(self.times_s) if self.times_s else None

    def _timing(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        async def on_the_loop(work: Any) -> Any:
            with self._timed():
                return await handle(work)

        def plainly(work: Any) -> Any:
            with self._timed():
                return handle(work)

        return on_the_loop if self.handler.is_async else plainly

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begun_s = time.perf_counter()
        try:
            yield
        finally:
            if len(self.times_s) < TIMES_MOST:
                self.times_s.append(time.perf_counter() - begun_s)


@dataclass(frozen=True, slots=True)
class Canary:
    """How the first messages went. ``latency`` is None when nothing was handled."""

    summary: Summary
    latency: Distribution | None
    calls: int

    @property
    def over(self) -> bool:
        """Whether all of it was handled, whatever became of it."""
        return self.summary.cause is None


def send_canary(
    cluster: Cluster,
    prepared: Prepared,
    running: LocalSettings,
    first: int,
    observe: Callable[[Status], None],
    say: Callable[[str], None],
    give_up: Callable[[], None] = lambda: None,
) -> Canary:
    """Drains the first messages as any drain does: journal, plan, commits, failure policy.

    Raises as ``drain`` does, and Refused for a drain on Spark.
    """
    if not isinstance(prepared.engine, InProcess):
        raise Refused(
            "a canary runs in this process: the first messages are no work for Spark",
            hint="the rest of it can be resumed on Spark",
        )
    timed = Timed(prepared.handler)
    engine = InProcess(lambda source, dispatcher: FirstMessages(source, first, dispatcher))

    def observe_canary(status: Status) -> None:
        # That it stops by itself is no news.
        over = status.stopping is not None and status.stopping.startswith(OVER)
        observe(replace(status, stopping=None) if over else status)

    summary = drain(
        cluster,
        replace(prepared, handler=timed.handler, engine=engine),
        running,
        observe_canary,
        say,
        give_up,
    )
    if isinstance(summary.cause, CanaryOver):
        code = EXIT_DEAD_LETTERS if summary.sub_messages.given_up else EXIT_DONE
        summary = replace(summary, status="canary", exit_code=code, cause=None)
    return Canary(summary, timed.latency, len(timed.times_s))
