"""The meter: turns a running drain into the status that is shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable

from drainer.core.dispatch import Dispatcher
from drainer.core.latency import Latency
from drainer.core.plan import OffsetPlan
from drainer.core.progress import Counts
from drainer.engine.latencies import Latencies
from drainer.engine.rates import Rates
from drainer.engine.status import EngineStatus, PartitionStatus, RuleStatus, Status

HOTTEST = 5


class Measures(ABC):
    """What an engine measures of one run; it is asked about twice a second."""

    def __init__(
        self,
        finished: int,
        *,
        concurrency: int,
        buffer_bytes: int,
        plan_path: str,
        clock: Callable[[], float],
    ) -> None:
        """``finished`` sub-messages were so before the run."""
        self.concurrency = concurrency
        self._buffer_bytes = buffer_bytes
        self._plan_path = plan_path
        self._rates = Rates(finished, clock)

    @abstractmethod
    def counts(self) -> tuple[Counts, Counts]:
        """The account of messages and of sub-messages."""

    @abstractmethod
    def overall(self) -> Latency | None:
        """The handler's latency in this run."""

    @abstractmethod
    def rules(self) -> RuleStatus: ...

    def _status(
        self,
        plan: OffsetPlan,
        partitions: Iterable[PartitionStatus],
        *,
        running: int,
        lanes: int,
        lanes_ready: int,
        hottest: Iterable[tuple[Hashable, int]],
        buffered_bytes: int,
        latency_recent: Latency | None,
        engine: EngineStatus | None = None,
    ) -> Status:
        parts, deepest = tuple(partitions), tuple(hottest)
        messages, subs = self.counts()
        unread = sum(part.end - part.position for part in parts)
        longest = max((waiting for _, waiting in deepest), default=0)
        moment = self._rates.look(messages, subs, unread, running, longest)
        return Status(
            topic=plan.topic,
            group=plan.group,
            elapsed_s=moment.elapsed_s,
            messages=messages,
            sub_messages=subs,
            rate_now=moment.rate_now,
            rate_average=moment.rate_average,
            eta_s=moment.eta_s,
            running=running,
            concurrency=self.concurrency,
            lanes=lanes,
            lanes_ready=lanes_ready,
            hottest=deepest,
            buffered_bytes=buffered_bytes,
            buffer_bytes=self._buffer_bytes,
            plan_path=self._plan_path,
            partitions=parts,
            latency=self.overall(),
            latency_recent=latency_recent,
            rules=self.rules(),
            engine=engine,
        )


class Meter(Measures):
    """Measures a run in this process."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        latencies: Latencies,
        *,
        concurrency: int,
        buffer_bytes: int,
        plan_path: str,
        clock: Callable[[], float],
    ) -> None:
        self._dispatcher = dispatcher
        self._latencies = latencies
        super().__init__(
            self.counts()[1].finished,
            concurrency=concurrency,
            buffer_bytes=buffer_bytes,
            plan_path=plan_path,
            clock=clock,
        )

    def status(self, plan: OffsetPlan) -> Status:
        lanes = self._dispatcher.lanes
        parts = plan.partitions
        return self._status(
            plan,
            (
                PartitionStatus(
                    partition=number,
                    start=parts[number].start,
                    end=ledger.end,
                    position=ledger.position,
                    watermark=ledger.watermark,
                    committed=parts[number].committed,
                    messages_finished=ledger.tally()[0].finished,
                )
                for number, ledger in self._dispatcher.ledgers.items()
            ),
            running=lanes.running,
            lanes=len(lanes),
            lanes_ready=lanes.ready,
            hottest=lanes.hottest(HOTTEST),
            buffered_bytes=self._dispatcher.pending_bytes,
            latency_recent=self._latencies.recent(),
        )

    def overall(self) -> Latency | None:
        return self._latencies.overall()

    def rules(self) -> RuleStatus:
        return RuleStatus.of(self._dispatcher.rule_filter)

    def counts(self) -> tuple[Counts, Counts]:
        messages, subs = Counts(), Counts()
        for ledger in self._dispatcher.ledgers.values():
            more_messages, more_subs = ledger.tally()
            messages, subs = messages + more_messages, subs + more_subs
        return messages, subs
