"""The meter: turns a running drain into the status that is shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic

from drainer.core.dispatch import Dispatcher
from drainer.core.plan import OffsetPlan
from drainer.core.progress import Counts
from drainer.engine.latencies import Latencies
from drainer.engine.status import AutoStatus, FailureStatus, PartitionStatus, RuleStatus, Status

WINDOW_S = 5.0  # what "now" means for the rate
ETA_WINDOW_S = 30.0  # calmer: an estimate that jumps is no help
HOTTEST = 5


class Meter:
    """Measures one run; ask it about twice a second."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        latencies: Latencies,
        *,
        concurrency: int,
        buffer_bytes: int,
        plan_path: str,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._dispatcher = dispatcher
        self._latencies = latencies
        self.concurrency = concurrency
        self._buffer_bytes = buffer_bytes
        self._plan_path = plan_path
        self._clock = clock
        self._started = clock()
        _, subs = self._tally()
        self._finished_before = subs.finished
        self._samples: deque[tuple[float, int, int]] = deque()

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started

    @property
    def rate_average(self) -> float:
        """Sub-messages per second of this run."""
        _, subs = self._tally()
        return (subs.finished - self._finished_before) / max(self.elapsed_s, 1e-9)

    def status(
        self,
        plan: OffsetPlan,
        *,
        plan_age_s: float,
        stopping: str | None,
        failures: FailureStatus,
        trouble: str | None,
        auto: AutoStatus | None = None,
    ) -> Status:
        now = self._clock()
        messages, subs = self._tally()
        dispatcher = self._dispatcher
        lanes = dispatcher.lanes
        unread = sum(ledger.end - ledger.position for ledger in dispatcher.ledgers.values())
        rate_now = self._rate(now, WINDOW_S, subs.finished, 1)
        message_rate = self._rate(now, ETA_WINDOW_S, messages.finished, 2)
        self._samples.append((now, subs.finished, messages.finished))
        while self._samples[0][0] < now - ETA_WINDOW_S:
            self._samples.popleft()
        return Status(
            topic=plan.topic,
            group=plan.group,
            elapsed_s=now - self._started,
            messages=messages,
            sub_messages=subs,
            rate_now=rate_now,
            rate_average=(subs.finished - self._finished_before) / max(now - self._started, 1e-9),
            eta_s=(unread + messages.pending) / message_rate if message_rate else None,
            running=lanes.running,
            concurrency=self.concurrency,
            lanes=len(lanes),
            lanes_ready=lanes.ready,
            hottest=tuple(lanes.hottest(HOTTEST)),
            buffered_bytes=dispatcher.pending_bytes,
            buffer_bytes=self._buffer_bytes,
            plan_path=self._plan_path,
            plan_age_s=plan_age_s,
            partitions=tuple(self._partitions(plan)),
            stopping=stopping,
            failures=failures,
            trouble=trouble,
            latency=self._latencies.overall(),
            latency_recent=self._latencies.recent(),
            auto=auto,
            rules=self.rules(),
        )

    def rules(self) -> RuleStatus:
        return RuleStatus.of(self._dispatcher.sieve)

    def _partitions(self, plan: OffsetPlan) -> list[PartitionStatus]:
        return [
            PartitionStatus(
                partition=number,
                start=plan.partitions[number].start,
                end=ledger.end,
                position=ledger.position,
                watermark=ledger.watermark,
                committed=plan.partitions[number].committed,
                messages_finished=ledger.tally()[0].finished,
            )
            for number, ledger in self._dispatcher.ledgers.items()
        ]

    def _rate(self, now: float, window_s: float, count: int, column: int) -> float:
        for sample in self._samples:
            if sample[0] >= now - window_s:
                return (count - sample[column]) / max(now - sample[0], 1e-9)
        return 0.0

    def _tally(self) -> tuple[Counts, Counts]:
        messages, subs = Counts(), Counts()
        for ledger in self._dispatcher.ledgers.values():
            more_messages, more_subs = ledger.tally()
            messages, subs = messages + more_messages, subs + more_subs
        return messages, subs
