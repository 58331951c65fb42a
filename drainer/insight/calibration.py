"""Measuring the engine's own cost on this machine: it drains made-up messages."""

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
# With more sub-messages in calls at once, those that return have left the processor's caches, and
# the measured cost would be higher than a drain's.
IN_CALLS_MOST = 20_000
ROUNDS = 4  # Each worker makes about so many calls.
# The calls are so short that the process is the limit, and long enough for the loop's timers.
LATENCY_PER_WORKER_S = 10e-6
WARM_UP = 0.2  # The first fifth of the sub-messages does not count.
MESSAGE_BYTES = 100


@dataclass(frozen=True, slots=True)
class Calibration:
    """A drain of made-up messages that measures the engine's cost per sub-message.

    Attributes:
        fan_out: mean sub-messages per message; None if the handler does not split messages.
    """

    fan_out: float | None
    concurrency: int
    is_async: bool

    def sub_message_s(self) -> float:
        """Measure the processor time of a sub-message, in seconds, without fetch and ``split``.

        The handler only sleeps, and so briefly that this process is the limit. Each sub-message
        has a lane of its own. The measurement takes half a second.
        """
        workers = min(CONCURRENCY_MOST, max(CONCURRENCY_LEAST, self.concurrency))
        if not self.is_async:
            workers = min(THREADS_MOST, self.concurrency)
        return self._drain(SUB_MESSAGES, workers, workers * LATENCY_PER_WORKER_S)

    def together_s(self, batching: Batching) -> float:
        """Measure the processor time of a sub-message in a full call of many, in seconds."""
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
    """Base of the handlers that sleep, for single sub-messages and for batches.

    It notes the time at the end of the warm-up and at the last sub-message's start.
    """

    def __init__(self, latency_s: float, subs: int) -> None:
        self._latency_s = latency_s
        self._warm = WARM_UP * subs
        self._begun = 0
        # How many sub-messages had begun, and the time: at the end of the warm-up and at the last.
        self._first = self._last = (0, 0.0)

    @property
    def each_s(self) -> float:
        """Seconds from one sub-message's start to the next one's."""
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
