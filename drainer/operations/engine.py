"""The engines that can run a drain: this process, or one that an extension provides."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from drainer.core.dispatch import Dispatcher
from drainer.engine.local import LocalDrain
from drainer.engine.ports import DrainContext, Ports, Source
from drainer.kafka.cluster import Cluster
from drainer.kafka.fetch import FetchThread
from drainer.kafka.following import FollowedLog
from drainer.kafka.lock import GroupLock
from drainer.kafka.writer import TopicWriter
from drainer.model.plan import OffsetPlan
from drainer.model.rate_cap import Cap
from drainer.model.status import Summary
from drainer.operations.letters import letter_writers
from drainer.policy.rate_cap import BrokerCaps
from drainer.store.saved_plan import SavedPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalContext(DrainContext):
    """The context of a drain that reads from a cluster."""

    file: SavedPlan
    lock: GroupLock
    cluster: Cluster
    cap: Cap | None  # The cap on reading that the preview shows.


class Engine(Protocol):
    """Runs a drain, and returns its summary however it ends.

    Raises Refused when the drain can't begin.
    """

    @property
    def session_s(self) -> float:
        """Seconds for which the lock keeps other drains out if this process does not respond."""

    @property
    def start_s(self) -> float:
        """The approximate time until the first call of the handler, in seconds."""

    def beginning(self, plan: OffsetPlan) -> AbstractContextManager[Engine]:
        """Begin to start what takes seconds, before the drain of this plan has its lock.

        What the drain does not use ends with the block.
        """

    def __call__(self, context: LocalContext) -> Summary: ...


@dataclass(frozen=True, slots=True)
class InProcess:
    """The engine that drains in this process. ``wrap`` may replace the source of messages."""

    wrap: Callable[[Source, Dispatcher], Source] = lambda source, _: source
    session_s = 0.0  # If this process does not respond, its handler does not run either.
    start_s = 0.0

    def beginning(self, _: OffsetPlan) -> AbstractContextManager[Engine]:
        return nullcontext(self)

    def __call__(self, context: LocalContext) -> Summary:
        plan, running, settings = context.plan, context.running, context.cluster.settings
        caps = BrokerCaps(plan.terms.limits, context.cap)
        follows = running.follows and context.this_pass.is_last
        log = FollowedLog(context.cluster, plan) if follows else None

        def open_source(dispatcher: Dispatcher, notify: Callable[[], None]) -> Source:
            unfetched = {n: each for n, each in dispatcher.ledgers.items() if not each.complete}
            thread = FetchThread(
                settings,
                group=plan.terms.group,
                topic=plan.terms.topic,
                topic_id=plan.terms.topic_id,
                ranges={n: (each.watermark, each.end) for n, each in unfetched.items()},
                queue_bytes=running.buffer_bytes // 4,
                prefetch_bytes=running.buffer_bytes // 4,
                partition_load=lambda number: dispatcher.ledgers[number].moving_bytes,
                load_bytes=running.buffer_bytes // 2,
                notify=notify,
                pace=caps.reading,
                prepare=context.handler.prepare,
                patience_s=plan.terms.failures.max_outage_s,
                moving=None if log is None else log.moving,
                runtime=context.runtime,
            )
            return self.wrap(thread, dispatcher)

        with letter_writers(settings, plan, context.runtime) as open_letters:
            write_to = partial(TopicWriter, settings, pace=caps.writing)
            extras = settings.extension
            ports = Ports(
                *(open_source, open_letters, write_to, extras, caps.complete_status), log=log
            )
            summary = LocalDrain(context, ports).run()
            return replace(summary, left_alone=context.handler.left_alone)


IN_PROCESS = InProcess()
