"""What a drain runs on: this process, or what a wing brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from drainer.core.dispatch import Dispatcher
from drainer.core.plan import OffsetPlan
from drainer.engine.checkpointer import Lock
from drainer.engine.local import LocalDrain
from drainer.engine.ports import Ports, Source
from drainer.engine.runtime import Runtime
from drainer.engine.settings import LocalSettings
from drainer.engine.status import Status, Summary
from drainer.kafka.cluster import Cluster
from drainer.kafka.commit import Committer
from drainer.kafka.fetch import FetchThread
from drainer.kafka.writer import Writers
from drainer.loader import LoadedHandler
from drainer.operations.policy import LetterWriter
from drainer.policy.rate_cap import RateLimiter
from drainer.store.plan_file import PlanFile


@dataclass(frozen=True, slots=True)
class HeldDrain:
    """A drain that was found safe, with its plan and its group held: all that an engine needs.

    Attributes:
        letters_topic: where dead letters go; None for a drain that writes none.
        message_bytes: the mean size of messages, as far as it is known.
        observe: is called with the status about twice a second.
        give_up: ends the process, from another thread, as ``LocalDrain`` says.
    """

    plan: OffsetPlan
    file: PlanFile
    handler: LoadedHandler
    running: LocalSettings
    cluster: Cluster
    committer: Committer
    lock: Lock
    letters_topic: str | None
    message_bytes: float
    observe: Callable[[Status], None]
    give_up: Callable[[], None]
    runtime: Runtime

    def read_committed(self) -> Mapping[int, int | None]:
        """The group's offsets. Raises BrokerUnreachable."""
        return self.cluster.committed(self.plan.group, self.plan.topic, list(self.plan.partitions))


# Runs a drain to its end, whatever that is. Raises Refused when it can't begin.
Engine = Callable[[HeldDrain], Summary]


@dataclass(frozen=True, slots=True)
class InProcess:
    """The engine of this process. ``wrap`` may put something before what it reads from."""

    wrap: Callable[[Source, Dispatcher], Source] = lambda source, _: source

    def __call__(self, held: HeldDrain) -> Summary:
        plan, running, settings = held.plan, held.running, held.cluster.settings
        pace = None
        if plan.limits is not None:
            pace = RateLimiter(plan.limits, message_bytes=held.message_bytes)
        writers = Writers(settings, plan.limits)

        def open_source(dispatcher: Dispatcher, notify: Callable[[], None]) -> Source:
            unfetched = {n: each for n, each in dispatcher.ledgers.items() if not each.complete}
            thread = FetchThread(
                settings,
                group=plan.group,
                topic=plan.topic,
                topic_id=plan.topic_id,
                ranges={n: (each.watermark, each.end) for n, each in unfetched.items()},
                queue_bytes=running.buffer_bytes // 4,
                prefetch_bytes=running.buffer_bytes // 4,
                partition_load=lambda number: unfetched[number].pending_bytes,
                load_bytes=running.buffer_bytes // 2,
                notify=notify,
                pace=pace,
                connect=held.cluster.connect,
                runtime=held.runtime,
            )
            return self.wrap(thread, dispatcher)

        letters = None
        if held.letters_topic is not None:
            letters = LetterWriter(settings, plan, held.letters_topic, held.runtime)
        try:
            summary = LocalDrain(
                plan,
                held.file,
                held.handler,
                running,
                Ports(
                    open_source=open_source,
                    committer=held.committer,
                    lock=held.lock,
                    read_committed=held.read_committed,
                    dead_letters=letters,
                    write_to=writers,
                    read_pace=pace,
                    write_pace=writers.pace,
                    runtime=held.runtime,
                ),
                held.observe,
                held.give_up,
            ).run()
            return replace(summary, left_alone=held.handler.left_alone)
        finally:
            if letters is not None:
                letters.close(0)


IN_PROCESS = InProcess()
