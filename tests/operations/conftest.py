"""A topic with a backlog, its group, and its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from builders import changed, counts, progress_at
from drainer.handler import Handler
from drainer.handlers import Count
from drainer.kafka.cluster import Cluster
from drainer.loading.loader import LoadedHandler
from drainer.model.claims import ALL
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Progress
from drainer.model.settings import LocalSettings
from drainer.model.status import Summary
from drainer.operations.drain import Callbacks, drain
from drainer.operations.resume import ResumeRequest, prepare_resume
from drainer.operations.start import Prepared, Request, prepare
from drainer.store.plan_file import PlanFile
from kafka.topic import Topic

MESSAGES = 30
REFERENCE = "count"


def finished(watermark: int) -> Progress:
    """All below the watermark is done, and nothing else was read."""
    return progress_at(watermark, messages=counts(done=watermark))


@dataclass
class Story:
    """One backlog of one partition, for one group, with its plan in a folder."""

    cluster: Cluster
    topic: Topic
    file: PlanFile

    @property
    def group(self) -> str:
        return f"g-{self.topic.name}"

    @property
    def committed(self) -> int | None:
        return self.cluster.committed(self.group, self.topic.name, (0,))[0]

    @property
    def left(self) -> list[str]:
        """The names of what lies in the plan's folder."""
        return sorted(path.name for path in self.file.path.parent.iterdir())

    def put_group(self, offset: int) -> None:
        self.cluster.alter_committed(self.group, self.topic.name, {0: offset})

    def prepared(
        self,
        handler: Handler | None = None,
        from_: str | None = None,
        until: str = "end",
        partitions: tuple[int, ...] = (),
    ) -> Prepared:
        request = Request(
            self.topic.name,
            self.group,
            LoadedHandler(REFERENCE, handler or Count()),
            partitions,
            from_=from_ or ("earliest" if self.committed is None else "committed"),
            until=until,
            plan_path=self.file.path,
        )
        return prepare(self.cluster, request, LocalSettings())

    def prepared_to_resume(self, handler: Handler | None = None, *, asks: bool = False) -> Prepared:
        loaded, request = self.file.load(), ResumeRequest(asks=asks)
        found = prepare_resume(self.cluster, self.file, loaded, LocalSettings(), request)
        return found if handler is None else replace(found, handler=LoadedHandler("h", handler))

    def drain(
        self, prepared: Prepared, print_line: Callable[[str], None] = lambda _: None
    ) -> Summary:
        return drain(self.cluster, prepared, LocalSettings(), Callbacks(print_line=print_line))

    def write_plan(self, watermark: int) -> OffsetPlan:
        """Write the plan of a drain that came to this watermark and could not commit it."""
        claims = {ALL: {0: finished(watermark)}}
        plan = changed(self.prepared().plan, claims=claims)
        self.file.write(plan)
        return plan


@pytest.fixture
def story(cluster: Cluster, bootstrap: str, topic_name: str, tmp_path: Path) -> Iterator[Story]:
    topic = Topic(bootstrap, topic_name)
    topic.produce([str(n) for n in range(MESSAGES)])
    folder = tmp_path / "work"
    folder.mkdir()
    made = Story(cluster, topic, PlanFile(folder / "orders.plan.json"))
    cluster.group(made.group)  # waits for its coordinator
    yield made
    topic.discard()
