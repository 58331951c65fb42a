"""The preview: the facts on a drain that a person is shown before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drainer.model.codec import JsonRecord, builtins
from drainer.model.deadline import DeadlineStatus
from drainer.model.option import Concurrency
from drainer.model.plan import OffsetPlan, OpenTransaction
from drainer.model.rate_cap import Cap
from drainer.model.settings import JOURNAL_INTERVAL_S
from drainer.model.shown import Shown

if TYPE_CHECKING:
    from drainer.core.batches import Batching


@dataclass(frozen=True, slots=True)
class PartitionAction:
    """What a drain will do in one partition: it drains the offsets ``[start, end)``.

    ``committed`` is the group's offset now, or None if it has none. ``finished`` is how many
    messages earlier runs of this drain have finished.
    """

    partition: int
    start: int
    end: int
    committed: int | None
    finished: int = 0

    @property
    def offsets(self) -> int:
        return self.end - self.start


PROCESS, SPARK = "process", "spark"


class EngineName(StrEnum):
    """The values of ``--engine``."""

    PROCESS = PROCESS
    SPARK = SPARK


@dataclass(frozen=True, slots=True)
class ShownEngine(JsonRecord):
    """The engine that the drain runs on, as the preview shows it.

    ``title`` describes it in words. ``settings`` has, by name, what a person may want to change.
    """

    name: str = PROCESS
    title: str = "this process"
    settings: Mapping[str, str] = field(default_factory=dict)


_OF_TERMS = (
    *("topic", "topic_id", "cluster_id", "group", "handler", "order", "isolation"),
    *("failures", "redrive", "commits"),
)


@dataclass(frozen=True, slots=True)
class Preview(Shown):
    """Everything that a person should know before confirming. The drain begins with ``plan``."""

    _page = "drainer.view.preview:preview_page"

    plan: OffsetPlan
    concurrency: Concurrency
    buffer_bytes: int
    plan_path: Path | str  # A path, or a URI as text.
    partitions: tuple[PartitionAction, ...]
    resumes: bool = False
    checks: tuple[str, ...] = ()  # What was checked and found right, each as a sentence.
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # What is neither a check nor a warning, each as a sentence.
    makes_plan_place: str | None = None  # What will be created to keep the plan in.
    journal_interval_s: float = JOURNAL_INTERVAL_S  # A kill repeats what finished in this time.
    makes_topic: str | None = None  # The dead-letter topic that will be created, if it is missing.
    batching: Batching | None = None  # None if a call of the handler has one sub-message.
    engine: ShownEngine = ShownEngine()
    cap: Cap | None = None  # The cap on what is read, at the mean size of the messages.
    open_transactions: tuple[OpenTransaction, ...] = ()  # Those before which the backlog ends.
    deadline: DeadlineStatus | None = None
    follows: bool = False  # Whether the end of the backlog moves with the log.
    needs_yes: bool = False  # Whether there is a warning that only --yes confirms.
    new_group: bool = False  # Whether Kafka has no group of this name yet.
    examples: tuple[str, ...] = ()  # What ``split`` makes of some messages, a line for each.

    @property
    def offsets(self) -> int:
        """The size of the backlog in offsets; holes make the count of messages smaller."""
        return sum(part.offsets for part in self.partitions)

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``-o json`` prints for a dry run."""
        apart = ("plan", "plan_path", "batching", "concurrency")
        plain = {name: getattr(self.plan.terms, name) for name in _OF_TERMS}
        plain |= {each.name: getattr(self, each.name) for each in fields(self)}
        return builtins({name: value for name, value in plain.items() if name not in apart}) | {
            "partitions": {str(part.partition): builtins(part) for part in self.partitions},
            "bundling": None if self.batching is None else self.batching.as_json(),
            "concurrency": self.concurrency.as_json(),
            "plan": str(self.plan_path),
            "offsets": self.offsets,
        }
