"""Looking at a backlog before it is drained: what it is made of, and what it costs here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from drainer.core.dispatch import identify
from drainer.core.plan import OffsetPlan
from drainer.core.rules import RuleSettings
from drainer.core.sieve import Sieve
from drainer.core.simulate import Costs
from drainer.core.workload import Keys, Stretch, Workload
from drainer.engine.calibration import Real, calibrate
from drainer.engine.loop import hurried_interpreter
from drainer.errors import Refused
from drainer.handler import Context
from drainer.kafka.backlog import (
    Backlog,
    PartitionBacklog,
    freeze,
    parse_from,
    parse_until,
)
from drainer.kafka.cluster import Cluster
from drainer.kafka.fetch import FetchThread
from drainer.kafka.sample import Sample, sample_backlog
from drainer.loader import LoadedHandler, describe
from drainer.message import Message, Origin, SubMessage
from drainer.operations.start import Request

SAMPLED_MOST = 50_000  # messages
SPLIT_MOST = 1_000_000  # sub-messages
WHOLE_MOST = 200_000  # messages of a backlog that is read as a whole
PACE_S, PACE_MESSAGES = 0.3, 100_000  # how long to read on and on, to see how fast that goes
FIRST_WAIT_S = 10.0
FETCH_BYTES = 64 * 1024 * 1024  # a default drain's
QUIET_S = 1.5  # how long nobody needs to be told what is being done

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """A backlog as it was looked at: what it is made of, and what it costs to read and split."""

    workload: Workload
    costs: Costs
    split_s: float
    late_s: float = 0.0  # how much later than asked the event loop wakes who waits


def backlog_of(cluster: Cluster, request: Request) -> Backlog:
    """The backlog that a drain would freeze now. Raises as ``freeze``."""
    return freeze(
        cluster,
        request.topic,
        request.group,
        request.partitions or None,
        parse_from(request.from_),
        parse_until(request.until),
    )


def remaining(cluster: Cluster, plan: OffsetPlan) -> Backlog:
    """What of a plan's backlog is still to be drained, but for what finished past a watermark."""
    return Backlog(
        cluster_id=plan.cluster_id,
        topic=plan.topic,
        topic_id=plan.topic_id,
        isolation=cluster.settings.isolation,
        partitions={
            number: PartitionBacklog(
                number,
                min(plan.watermark(number), part.end),
                part.end,
                part.committed,
                part.start,
                part.end,
                part.leader_epoch,
            )
            for number, part in plan.partitions.items()
        },
    )


def look_at(
    cluster: Cluster,
    backlog: Backlog,
    handler: LoadedHandler,
    group: str,
    *,
    concurrency: int,
    options: Mapping[str, str] | None = None,
    rules: RuleSettings | None = None,
    say: Say = lambda text: None,
) -> Measured:
    """Samples and splits a backlog, and measures what fetch, split and engine cost here.

    What ``rules`` skip is left out; a limit is not asked, for of a sample it says nothing. Nothing
    is handled, and no group is touched. Raises Refused when the topic can't be read or ``split``
    fails.
    """
    tell = Teller(say)
    tell("reading a sample of the backlog")
    most = WHOLE_MOST if backlog.offsets <= WHOLE_MOST else SAMPLED_MOST
    sample = sample_backlog(cluster, backlog, most)
    if not sample.messages:
        return Measured(Workload((), Keys()), Costs(), 0.0)
    with hurried_interpreter():
        tell("splitting it")
        splitter = _Splitter(handler, _context(backlog.topic, group, concurrency, options))
        try:
            workload, split_s = _split(sample, _Ruled(splitter, rules or RuleSettings()))
        except BaseException:
            splitter.close()
            raise
        tell("measuring how fast it can be fetched")
        begin_s, fetch_s, wrap_s = _fetch_pace(cluster, backlog, group)
        tell("measuring what a sub-message costs on this machine")
        real = Real(
            {n: (part.start, part.end) for n, part in backlog.partitions.items()},
            lambda dispatcher, notify: _fetch(cluster, backlog, group, notify),
            None if handler.split is None else splitter,
        )
        try:
            calibrated = calibrate(
                fan_out=workload.fan_out,
                concurrency=concurrency,
                is_async=handler.is_async,
                real=real,
            )
        finally:
            splitter.close()
    message_s = split_s + wrap_s
    costs = Costs(
        # What was measured has both, so that they are not counted twice.
        sub_message_s=max(
            calibrated.sub_message_s / 2,
            calibrated.sub_message_s - message_s / max(1.0, workload.fan_out),
        ),
        message_s=message_s,
        fetch_s=fetch_s,
        begin_s=begin_s,
    )
    return Measured(workload, costs, split_s, calibrated.late_s)


class _Splitter:
    """Calls ``split``; opens the handler only when it can't do without, and then closes it."""

    def __init__(self, handler: LoadedHandler, context: Context) -> None:
        self._handler = handler
        self._context = context
        self._opened = False

    def __call__(self, message: Message) -> Sequence[SubMessage]:
        split = self._handler.split
        if split is None:
            return [SubMessage(message.key, message.value)]
        try:
            return list(split(message))
        except Exception as error:
            if not self._opened:
                self._opened = True
                asyncio.run(self._handler.open(self._context))
                return self(message)
            raise Refused(
                f"split failed at {message}: {describe(error)}",
                hint="mend the handler; nothing was handled or committed",
            ) from error

    def close(self) -> None:
        if self._opened:
            asyncio.run(self._handler.close())


class _Ruled:
    """Calls a splitter, and leaves out what rules skip."""

    def __init__(self, splitter: _Splitter, rules: RuleSettings) -> None:
        self._splitter = splitter
        self._sieve = Sieve(replace(rules, limit_per_key=None)) if rules.skip else None

    def __call__(self, message: Message) -> Sequence[SubMessage]:
        subs = self._splitter(message)
        if self._sieve is None:
            return subs
        identify(message, subs)
        return [sub for sub in subs if self._sieve.skips(sub) is None]


def _split(sample: Sample, split: _Ruled) -> tuple[Workload, float]:
    """The workload, and what it took to split one message."""
    lengths = {number: end - start for number, (start, end) in sample.ranges.items()}
    looked_at = dict.fromkeys(lengths, 0)
    for window in sample.windows:
        looked_at[window.partition] += window.end - window.start
    fan_out = _first_fan_out(sample, split)
    share = min(1.0, SPLIT_MOST / max(1.0, fan_out * len(sample.messages)))
    keys, stretches = Keys(), []
    spent_s, count = 0.0, 0
    for window in sample.windows:
        shapes = []
        for message in window.messages[: max(1, round(len(window.messages) * share))]:
            begun_s = time.perf_counter()
            subs = split(message)
            spent_s += time.perf_counter() - begun_s
            shapes.append(keys.shape(message, subs))
        count += len(shapes)
        # Where a log has holes, its windows have them too.
        times = lengths[window.partition] / max(1, looked_at[window.partition])
        stretches.append(Stretch(window.partition, shapes, len(window.messages) * times))
    return Workload(stretches, keys), spent_s / max(1, count)


def _first_fan_out(sample: Sample, split: _Ruled) -> float:
    some = sample.messages[:: max(1, len(sample.messages) // 100)]
    return sum(len(split(message)) for message in some) / max(1, len(some))


def _fetch(
    cluster: Cluster, backlog: Backlog, group: str, notify: Callable[[], None]
) -> FetchThread:
    parts = {n: part for n, part in backlog.partitions.items() if part.offsets}
    return FetchThread(
        cluster.settings,
        group=group,
        origins={n: Origin(backlog.topic, backlog.topic_id, n) for n in parts},
        starts={n: part.start for n, part in parts.items()},
        ends={n: part.end for n, part in parts.items()},
        queue_bytes=FETCH_BYTES,
        prefetch_bytes=FETCH_BYTES,
        partition_load=lambda number: 0,
        load_bytes=FETCH_BYTES,
        notify=notify,
    )


def _fetch_pace(cluster: Cluster, backlog: Backlog, group: str) -> tuple[float, float, float]:
    """Until the first message, from one to the next, and to make a message of a record."""
    thread = _fetch(cluster, backlog, group, lambda: None)
    begun_s = time.perf_counter()
    first_s, last_s, spent_s = 0.0, begun_s, 0.0
    count = 0
    thread.start()
    try:
        while thread.failure is None and not (thread.done and not thread.queued_bytes):
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


def _context(
    topic: str, group: str, concurrency: int, options: Mapping[str, str] | None
) -> Context:
    return Context(topic, group, "estimate", concurrency, dict(options or {}))


class Teller:
    """Says what is being done once it has taken so long that somebody may wonder."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._told_s = time.monotonic()

    def __call__(self, text: str) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s > QUIET_S:
            self._told_s = now_s
            self._say(f"{text} …")
