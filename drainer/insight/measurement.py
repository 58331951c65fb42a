"""The measurement of a backlog before it is drained: its workload, and its cost on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from drainer.core.batches import Batching
from drainer.engine.loop import hurried_interpreter
from drainer.errors import HandleFailed, Refused, SplitFailed, raised_as
from drainer.insight.bounds import Costs
from drainer.insight.first import PassDivider, Passes
from drainer.insight.retention import Expiry, first_expiry
from drainer.insight.sample_split import SampleSplit, Skipped
from drainer.insight.workload import Keys, Workload
from drainer.kafka.backlog import Backlog
from drainer.kafka.cluster import Cluster
from drainer.kafka.fetch import FetchThread
from drainer.kafka.sample import sample_backlog
from drainer.loading.loader import LoadedHandler
from drainer.message import Message, Origin, SubMessage
from drainer.model.settings import LocalSettings
from drainer.operations.in_memory import drain_of
from drainer.operations.look import OptionsTried
from drainer.operations.start import Request

SAMPLED_MOST = 50_000  # The sample of a large backlog has this many messages.
WHOLE_MOST = 200_000  # A backlog of at most this many offsets is read as a whole.
# The pace of reading is measured for this long, or over this many messages.
PACE_S, PACE_MESSAGES = 0.3, 100_000
FIRST_WAIT_S = 10.0  # If the first message has not come after this time, no pace is measured.
FETCH_BYTES = 64 * 1024 * 1024  # A drain with default settings fetches this much ahead.
QUIET_S = 1.5  # A step is reported only if the user has seen nothing for this long.

# The calibration drains this many made-up sub-messages.
SUB_MESSAGES = 30_000
CONCURRENCY_LEAST, CONCURRENCY_MOST = 400, 1000
THREADS_MOST = 64
TOGETHER = 50  # If a handler folds sub-messages, a call of the calibration has this many.
# At most this many sub-messages are in calls at once. With more, the processor's caches would have
# lost a sub-message by the time its call returns, and the cost would be higher than in a drain.
IN_CALLS_MOST = 20_000
ROUNDS = 4  # Each worker makes about this many calls.
# Calls are so short that the process is the bottleneck, and long enough for the loop's timers.
LATENCY_PER_WORKER_S = 10e-6
WARM_UP = 0.2  # The first fifth of the sub-messages does not count.
MESSAGE_BYTES = 100


@dataclass(frozen=True, slots=True)
class Measured:
    """A backlog that was measured: its workload, and what it costs to read and split.

    Attributes:
        split_s: seconds of the handler's ``split`` for one message.
        skipped: what rules leave out of the workload; None without rules.
        expiry: the earliest deletion of the backlog's head by retention.
        message_bytes: mean bytes of a message: key, value and headers.
        passes: the passes of a drain with priority classes; None without them.
        rejected: how many messages ``split`` rejects, and the first error.
        warnings: on expressions that match nothing, and on keys that no sub-message has.
    """

    workload: Workload
    costs: Costs
    split_s: float
    skipped: Skipped | None = None
    expiry: Expiry | None = None
    message_bytes: float = 0.0
    passes: Passes | None = None
    rejected: tuple[int, str] = 0, ""
    warnings: tuple[str, ...] = ()


def backlog_of(cluster: Cluster, request: Request) -> Backlog:
    """Return the backlog that a drain would have if it began now, only to read it."""
    what = request.topic, request.group, request.partitions or None
    return request.range.freeze(cluster, *what, only_show=True)


def measure_backlog(
    cluster: Cluster,
    backlog: Backlog,
    request: Request,
    concurrency: int,
    print_line: Callable[[str], None] = lambda text: None,
) -> Measured:
    """Sample and split a backlog, and measure what fetch, split and engine cost on this machine.

    drainer handles nothing and touches no group. The workload leaves out sub-messages that rules
    skip, and messages that ``split`` rejects. Raises Refused if the topic can't be read, if
    ``split`` rejects the whole sample, if none of it has a key of ``--key``, or if ``coalesce``
    fails.
    """
    printed_s = time.monotonic()

    def report(text: str) -> None:
        """Print which step begins, but only if the user has seen nothing for a while."""
        nonlocal printed_s
        if time.monotonic() - printed_s > QUIET_S:
            printed_s = time.monotonic()
            print_line(f"{text} …")

    handler = request.handler
    report("reading a sample of the backlog")
    most = WHOLE_MOST if backlog.offsets <= WHOLE_MOST else SAMPLED_MOST
    sample = sample_backlog(cluster, backlog, most)
    if not sample.messages:
        return Measured(Workload((), Keys()), Costs(), 0.0)
    divider = PassDivider.of(request)
    tried = OptionsTried(request.classes, request.failures, handler.payloads)
    with hurried_interpreter():
        report("splitting the sample")
        hint = "Fix the handler. Nothing was handled or committed."
        with raised_as(Refused, SplitFailed, HandleFailed, hint=hint):
            split = SampleSplit(sample, handler, request.failures.skip, divider, tried)
        warnings = *tried.unmatched(), *tried.keys_missing()
        report("measuring how fast messages can be fetched")
        begin_s, fetch_s, wrap_s = _fetch_pace(cluster, backlog, request.group)
        report("measuring what a sub-message costs on this machine")
        fan_out = None if handler.split is None else split.fan_out
        calibration = Calibration(fan_out, concurrency, handler.is_async)
        sub_message_s = together_s = calibration.sub_message_s()
        if handler.batching is not None:
            together_s = min(sub_message_s, calibration.together_s(handler.batching))
    report("checking when retention reaches the backlog")
    message_s = split.split_s + split.rest_s + wrap_s
    return Measured(
        workload=split.workload,
        costs=Costs(sub_message_s, message_s, fetch_s, begin_s, together_s),
        split_s=split.split_s,
        skipped=split.skipped,
        expiry=first_expiry(cluster, backlog, sample.bytes_per_offset()),
        message_bytes=sample.read_bytes / len(sample.messages),
        passes=None if divider is None else divider.divided(split.passes, split.messages),
        rejected=split.rejected,
        warnings=warnings,
    )


def _fetch_pace(cluster: Cluster, backlog: Backlog, group: str) -> tuple[float, float, float]:
    """Measure how fast a fetch thread reads messages, and return three durations in seconds.

    The first is the time until the first message arrives, the second the time from one message to
    the next, and the third the time that it takes to make a message from a record.
    """
    thread = FetchThread(
        cluster.settings,
        group=group,
        topic=backlog.topic,
        topic_id=backlog.topic_id,
        ranges={
            n: (part.start, part.end) for n, part in backlog.partitions.items() if part.offsets
        },
        queue_bytes=FETCH_BYTES,
        prefetch_bytes=FETCH_BYTES,
        partition_load=lambda number: 0,
        load_bytes=FETCH_BYTES,
        notify=lambda: None,
    )
    begun_s = time.perf_counter()
    first_s, last_s, spent_s = 0.0, begun_s, 0.0
    count = 0
    thread.start()
    try:
        while thread.failure is None and not (thread.done and not thread.queue.bytes):
            batch = thread.next_batch()
            now_s = time.perf_counter()
            if batch is not None:
                first_s = first_s or now_s
                count += sum(1 for _ in batch.messages)
                last_s = time.perf_counter()
                spent_s += last_s - now_s
            elif now_s - begun_s > FIRST_WAIT_S:
                break
            else:
                time.sleep(0.0005)
            if first_s and (now_s - first_s > PACE_S or count >= PACE_MESSAGES):
                break
    finally:
        thread.stop()
    if thread.failure is not None:
        raise thread.failure
    if not count:
        return 0.0, 0.0, 0.0
    return first_s - begun_s, (last_s - first_s) / count, spent_s / count


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

        The handler only sleeps, and so briefly that this process is the bottleneck. Each
        sub-message has a lane of its own. The measurement takes about half a second.
        """
        workers = min(CONCURRENCY_MOST, max(CONCURRENCY_LEAST, self.concurrency))
        if not self.is_async:
            workers = min(THREADS_MOST, self.concurrency)
        return self._drain(SUB_MESSAGES, workers, workers * LATENCY_PER_WORKER_S, None)

    def together_s(self, batching: Batching) -> float:
        """Measure the processor time per sub-message when calls are full, in seconds."""
        together = batching.most if batching.most > 1 else TOGETHER
        most = CONCURRENCY_MOST if self.is_async else THREADS_MOST
        calls = max(1, min(most, self.concurrency, IN_CALLS_MOST // together))
        in_calls = calls * together
        subs = max(SUB_MESSAGES, ROUNDS * in_calls)
        latency_s = in_calls * LATENCY_PER_WORKER_S / 10
        return self._drain(subs, calls, latency_s, Batching(most=together))

    def _drain(self, subs: int, workers: int, latency_s: float, batching: Batching | None) -> float:
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

    It notes when the warm-up ended, and when the last sub-message began.
    """

    def __init__(self, latency_s: float, subs: int) -> None:
        self._latency_s = latency_s
        self._warm = WARM_UP * subs
        self._begun = 0
        # Each is a number of sub-messages that had begun, and the time: ``_first`` at the end of
        # the warm-up, and ``_last`` when the last sub-message began.
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
