"""The engine's own cost on this machine: it drains made-up messages with an idle handler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from drainer.core.batches import Batching
from drainer.loader import LoadedHandler
from drainer.message import Message, Origin, SubMessage
from drainer.model.settings import LocalSettings
from drainer.operations.in_memory import drain_of

SUB_MESSAGES = 30_000
CONCURRENCY_LEAST, CONCURRENCY_MOST = 400, 1000
THREADS_MOST = 64
TOGETHER = 50  # sub-messages in a call of a handler that folds
IN_CALLS_MOST = 20_000  # sub-messages at once: what lies deeper has left the processor's caches
ROUNDS = 4  # of as many as are in calls at once
LATENCY_PER_WORKER_S = 10e-6  # so short that the process is what binds, and timers are still used
WARM_UP = 0.2  # of the sub-messages, which are not looked at
MESSAGE_BYTES = 100


@dataclass(frozen=True, slots=True)
class Calibration:
    """A drain of made-up messages that measures the engine's cost per sub-message.

    Attributes:
        fan_out: about how many sub-messages a message has; None where each is one, unsplit.
    """

    fan_out: float | None
    concurrency: int
    is_async: bool

    def sub_message_s(self) -> float:
        """Seconds of this process that a sub-message takes from the fetch to its end, without
        the fetch itself and the handler's ``split``.

        Drains made-up messages with a handler that only sleeps, so shortly that nothing but this
        process binds, and with each sub-message on a lane of its own. Takes half a second.
        """
        workers = min(CONCURRENCY_MOST, max(CONCURRENCY_LEAST, self.concurrency))
        if not self.is_async:
            workers = min(THREADS_MOST, self.concurrency)
        return self._drain(SUB_MESSAGES, workers, workers * LATENCY_PER_WORKER_S)

    def together_s(self, batching: Batching) -> float:
        """Seconds of a sub-message that shares its call with as many others as a call takes."""
        together = batching.most if batching.most > 1 else TOGETHER
        most = CONCURRENCY_MOST if self.is_async else THREADS_MOST
        calls = max(1, min(most, self.concurrency, IN_CALLS_MOST // together))
        in_calls = calls * together
        subs = max(SUB_MESSAGES, ROUNDS * in_calls)
        latency_s = in_calls * LATENCY_PER_WORKER_S / 10
        return self._drain(subs, calls, latency_s, Batching(most=together))

    def _drain(
        self, subs: int, workers: int, latency_s: float, batching: Batching | None = None
    ) -> float:
        in_each = 1 if self.fan_out is None else max(1, round(self.fan_out))
        origin, value = Origin("", "", 0), bytes(MESSAGE_BYTES)
        messages = [
            Message(origin, offset, b"%d" % offset, value)
            for offset in range(max(1, subs // in_each))
        ]
        handler = (_OnTheLoop if self.is_async else _OnThreads)(latency_s, len(messages) * in_each)
        loaded = LoadedHandler("calibration", handler)
        loaded.batching, loaded.split = batching, None
        if self.fan_out is not None:
            keys = count()
            parts = [[SubMessage(next(keys)) for _ in range(in_each)] for _ in messages]
            loaded.split = lambda message: parts[message.offset]
        running = LocalSettings(concurrency=workers)
        with drain_of(messages, loaded, running) as drain:
            summary = drain.run()
        if summary.cause is not None:
            raise summary.cause
        return handler.each_s


class _Sleeper:
    """Notes when it has warmed up, and the last start: it is a handler of single ones, and of
    batches."""

    def __init__(self, latency_s: float, subs: int) -> None:
        self._latency_s = latency_s
        self._warm = WARM_UP * subs
        self._begun = 0
        self._first = self._last = (0, 0.0)  # how many had begun, and when

    @property
    def each_s(self) -> float:
        """Seconds of one sub-message."""
        (before, begun_s), (after, ended_s) = self._first, self._last
        return (ended_s - begun_s) / max(1, after - before)

    def _note(self, count: int) -> None:
        self._begun += count
        self._last = (self._begun, time.perf_counter())
        if self._begun <= self._warm:
            self._first = self._last


class _OnTheLoop(_Sleeper):
    async def handle(self, sub: SubMessage) -> None:
        self._note(1)
        await asyncio.sleep(self._latency_s)

    async def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        self._note(len(subs))
        await asyncio.sleep(self._latency_s)


class _OnThreads(_Sleeper):
    def handle(self, sub: SubMessage) -> None:
        self._note(1)
        time.sleep(self._latency_s)

    def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        self._note(len(subs))
        time.sleep(self._latency_s)
