"""Drains on Spark against a real broker, and checks whether they kept the laws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import SparkSession

from command import recorder
from command.record import Place, Record
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.letters.redrive import prepare_redrive
from drainer.loading.loader import load_handler
from drainer.model.option import Concurrency
from drainer.model.order import Order
from drainer.model.plan import OffsetPlan
from drainer.model.rate_cap import CapCurve
from drainer.model.settings import FailureSettings, LocalSettings, OnFailure
from drainer.model.status import Status, Summary
from drainer.model.terms import LetterFilter, RedriveSettings
from drainer.operations.drain import Callbacks, drain
from drainer.operations.engine import IN_PROCESS
from drainer.operations.resume import ResumeRequest, prepare_resume
from drainer.operations.start import Prepared, Request, prepare
from drainer.spark.api import SparkEngine
from drainer.spark.session.session import Session
from drainer.spark.session.settings import SLICE, STATE, TASKS, SparkSettings
from drainer.store.plan_file import PlanFile
from scenarios.fill import create_topic, fill

HANDLER = Path(recorder.__file__)
Op = str | list[str] | None  # a sub-key, several of them, or a barrier
Ops = Sequence[Op]  # of a message; a text that begins with "!" is rejected by split


FIXED = ("hot", "fixed")  # what a message that split rejects has, once the handler is repaired


def value_of(ops: Ops) -> bytes:
    return ops.encode() if isinstance(ops, str) else orjson.dumps(ops)


@dataclass
class Story:
    """A topic with messages, a group, and a record of what was handled."""

    settings: ClientSettings
    topic: str
    folder: Path
    handler: str = f"{HANDLER}:OnTheLoop"
    messages: dict[int, list[Ops]] = field(default_factory=dict)  # by partition
    printed: list[str] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    spark: SparkSession | None = None

    @property
    def group(self) -> str:
        return f"g-{self.topic}"

    @property
    def record(self) -> Record:
        return Record(self.folder / "record")

    @property
    def plan_path(self) -> Path:
        return self.folder / "plan.json"

    @property
    def state(self) -> str:
        return f"{self.plan_path}.state"

    @property
    def plan(self) -> OffsetPlan:
        return PlanFile(self.plan_path).load().plan

    def fill(self, *partitions: Iterable[Ops]) -> None:
        create_topic(self.settings, self.topic, len(partitions))
        self.messages = {number: list(each) for number, each in enumerate(partitions)}
        fill(
            self.settings,
            self.topic,
            (
                (b"one", value_of(ops), number)
                for number, each in self.messages.items()
                for ops in each
            ),
        )

    def run(
        self,
        *,
        failures: FailureSettings | None = None,
        order: Order = Order.SUB_KEY,
        limits: CapCurve | None = None,
        **running: Any,
    ) -> Summary:
        """Drain from the beginning of the topic. ``running`` is for ``_drain``."""
        request = replace(
            self._request,
            from_="earliest",
            order=order,
            failures=failures or FailureSettings(),
            limits=limits,
        )
        return self._drain(lambda cluster, local: prepare(cluster, request, local), **running)

    def resume(self, **running: Any) -> Summary:
        file = PlanFile(self.plan_path)
        return self._drain(
            lambda cluster, local: prepare_resume(
                cluster, file, file.load(), local, ResumeRequest(asks=True)
            ),
            **running,
        )

    def redrive(self, sub_keys: Iterable[str] = (), **running: Any) -> Summary:
        """Redrive the letters of these sub-keys, or of all, from a topic of dead letters."""
        policy = FailureSettings(retries=0, on_failure=OnFailure.DEAD_LETTER, breaker=False)
        request = replace(self._request, failures=policy)
        meant = RedriveSettings(LetterFilter(sub_keys=tuple(sub_keys)))
        return self._drain(
            lambda cluster, local: prepare_redrive(cluster, request, meant, local),
            slice_bytes=230,
            **running,
        )

    @property
    def _request(self) -> Request:
        handler = load_handler(self.handler)
        return Request(self.topic, self.group, handler, plan_path=self.plan_path)

    def _drain(
        self,
        make: Callable[[Cluster, LocalSettings], Prepared],
        *,
        tasks: int | None = 2,
        concurrency: int | Concurrency = 20,
        slice_bytes: int = 2**31,
        **options: str,
    ) -> Summary:
        """Drain with so many tasks on Spark, or in this process (None).

        ``options`` are those of the handler.
        """
        local = LocalSettings(
            concurrency=concurrency,
            plan_interval_s=0.2,
            options={"record": str(self.record.path), "life": "1", **options},
        )
        master = "local[2]" if self.spark is None else Session(self.spark).master
        conf = {SLICE: str(slice_bytes), STATE: self.state}
        if tasks is not None:
            conf[TASKS] = str(tasks)
        engine = SparkEngine(SparkSettings(master, conf), self.spark)
        with Cluster.connect(self.settings) as cluster:
            prepared = replace(make(cluster, local), engine=IN_PROCESS if tasks is None else engine)
            callbacks = Callbacks(self.statuses.append, self.printed.append)
            return drain(cluster, prepared, local, callbacks)

    @property
    def everything(self) -> set[Place]:
        return {
            (number, offset, index)
            for number, each in self.messages.items()
            for offset, ops in enumerate(each)
            for index in range(len(FIXED if isinstance(ops, str) else ops))
        }

    @property
    def repeated(self) -> int:
        """The number of calls for sub-messages that an earlier call had begun."""
        return sum(self.record.repeats().values()) - len(self.record.repeats())

    def ensure_all(self) -> None:
        """Ensure that everything was handled, in order."""
        assert set(self.record.done()) == self.everything
        self.record.check_order()

    def ensure_done(self, summary: Summary, *, repeated: int | None = 0) -> None:
        """Ensure that a drain ended well, and that everything was handled by now, in order."""
        assert (summary.exit_code, summary.cause) == (0, None)
        self.ensure_all()
        assert summary.sub_messages.done == len(self.everything)
        assert repeated is None or self.repeated == repeated

    @property
    def committed(self) -> dict[int, int | None]:
        with Cluster.connect(self.settings) as cluster:
            return cluster.committed(self.group, self.topic, tuple(self.messages))
