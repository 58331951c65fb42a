"""The meter: turns a running drain into the status that is shown."""

from __future__ import annotations

from collections.abc import Callable

from drainer.core.dispatch import Dispatcher
from drainer.core.latency import Latency
from drainer.core.plan import OffsetPlan
from drainer.core.progress import Counts
from drainer.engine.latencies import Latencies
from drainer.engine.rates import Rates
from drainer.engine.status import AutoStatus, FailureStatus, PartitionStatus, RuleStatus, Status

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
        clock: Callable[[], float],
    ) -> None:
        self._dispatcher = dispatcher
        self._latencies = latencies
        self.concurrency = concurrency
        self._buffer_bytes = buffer_bytes
        self._plan_path = plan_path
        self._rates = Rates(self._tally()[1].finished, clock)

    @property
    def elapsed_s(self) -> float:
        return self._rates.elapsed_s

    @property
    def rate_average(self) -> float:
        """Sub-messages per second of this run."""
        return self._rates.average(self._tally()[1])

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
        messages, subs = self._tally()
        dispatcher = self._dispatcher
        lanes = dispatcher.lanes
        unread = sum(ledger.end - ledger.position for ledger in dispatcher.ledgers.values())
        hottest = tuple(lanes.hottest(HOTTEST))
        longest = max((waiting for _, waiting in hottest), default=0)
        moment = self._rates.look(messages, subs, unread, lanes.running, longest)
        return Status(
            topic=plan.topic,
            group=plan.group,
            elapsed_s=moment.elapsed_s,
            messages=messages,
            sub_messages=subs,
            rate_now=moment.rate_now,
            rate_average=moment.rate_average,
            eta_s=moment.eta_s,
            running=lanes.running,
            concurrency=self.concurrency,
            lanes=len(lanes),
            lanes_ready=lanes.ready,
            hottest=hottest,
            buffered_bytes=dispatcher.pending_bytes,
            buffer_bytes=self._buffer_bytes,
            plan_path=self._plan_path,
            plan_age_s=plan_age_s,
            partitions=tuple(self._partitions(plan)),
            stopping=stopping,
            failures=failures,
            trouble=trouble,
            latency=self.overall(),
            latency_recent=self._latencies.recent(),
            auto=auto,
            rules=self.rules(),
        )

    def overall(self) -> Latency | None:
        """The handler's latency in this run."""
        return self._latencies.overall()

    def rules(self) -> RuleStatus:
        return RuleStatus.of(self._dispatcher.rule_filter)

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

    def _tally(self) -> tuple[Counts, Counts]:
        messages, subs = Counts(), Counts()
        for ledger in self._dispatcher.ledgers.values():
            more_messages, more_subs = ledger.tally()
            messages, subs = messages + more_messages, subs + more_subs
        return messages, subs
