"""A drain of messages in memory, without Kafka, to measure the engine or to test a handler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from math import inf
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory

from drainer.engine.control import Control
from drainer.engine.local import LocalDrain
from drainer.engine.ports import DeadLetters, DrainContext, Fetched, Ports
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import DrainerError
from drainer.loading.loader import LoadedHandler
from drainer.message import Message, Origin
from drainer.model.account import Account, PartitionPlan
from drainer.model.claims import ALL
from drainer.model.order import Order
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Progress
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.terms import Terms
from drainer.store.plan_file import PlanFile


@contextmanager
def drain_of(
    messages: Sequence[Message],
    handler: LoadedHandler,
    running: LocalSettings,
    failures: FailureSettings | None = None,
    open_letters: Callable[[str], DeadLetters] | None = None,
    runtime: Runtime = THIS_PROCESS,
) -> Iterator[LocalDrain]:
    """Make a drain that can be run within the block. Its plan is kept in a temporary folder.

    Raises ValueError when the offsets of a partition don't rise.
    """
    failures = failures or FailureSettings()
    origin = messages[0].origin if messages else None
    plan = plan_in_memory(ends_of(messages), handler.reference, failures, runtime.now(), origin)
    with TemporaryDirectory(prefix="drainer-") as folder:
        file = PlanFile(Path(folder) / "plan.json")
        file.write(plan)
        context = DrainContext(
            plan=plan,
            file=file,
            handler=handler,
            control=Control(running),
            lock=NoLock(),
            read_committed=dict,
            runtime=runtime,
        )
        yield LocalDrain(context, Ports(lambda _, notify: _Source(messages, notify), open_letters))


def ends_of(messages: Sequence[Message]) -> Mapping[int, int]:
    """Return the offset after the last message, by partition.

    Raises ValueError when the offsets of a partition don't rise.
    """
    ends: dict[int, int] = {}
    for each in messages:
        if each.offset < ends.get(each.partition, 0):
            raise ValueError(
                f"{each} does not follow the message before it: offsets must rise. Set offset=…,"
                " or make them with drainer.testing.messages."
            )
        ends[each.partition] = each.offset + 1
    return ends


@dataclass(frozen=True, slots=True)
class _Batch:
    messages: Sequence[Message]
    reached: dict[int, int]


class _Source:
    """A source that delivers messages in their order."""

    trouble: str | None = None
    failure: DrainerError | None = None

    def __init__(self, messages: Sequence[Message], notify: Callable[[], None]) -> None:
        runs = [list(run) for _, run in groupby(messages, attrgetter("partition"))]
        self._batches = iter([_Batch(run, dict(ends_of(run))) for run in runs])
        self.start = notify

    def next_batch(self) -> Fetched | None:
        return next(self._batches, None)

    def stop(self) -> None:
        pass


class NoLock:
    """The lock of a drain beside which there can be no other."""

    lost: DrainerError | None = None
    silence: tuple[str, float] | None = None
    sure_until_s = inf


def plan_in_memory(
    ends: Mapping[int, int],
    handler: str,
    failures: FailureSettings,
    created: str,
    origin: Origin | None = None,
) -> OffsetPlan:
    """Return a plan for messages that are in no group's backlog.

    ``ends`` has the offset after the last message, by partition.
    """
    terms = Terms(
        drain_id="in-memory",
        created=created,
        cluster_id="",
        bootstrap_servers="",
        client_config=None,
        isolation="read_committed",
        topic=origin.topic if origin else "",
        topic_id=origin.topic_id if origin else "",
        topic_partitions=len(ends),
        group="in-memory",
        handler=handler,
        order=Order.SUB_KEY.value,
        failures=failures,
    )
    partitions = {number: PartitionPlan(0, end, None, None) for number, end in ends.items()}
    claims = {ALL: {number: Progress(0) for number in ends}}
    return OffsetPlan(terms, Account(created, 1, partitions, claims))
