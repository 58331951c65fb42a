"""The preview: what a drain is about to do, in the words it is shown in before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drainer.model.codec import JsonRecord, builtins
from drainer.model.option import Concurrency
from drainer.model.plan import OffsetPlan, OpenTransaction
from drainer.model.rate_cap import Cap

if TYPE_CHECKING:
    from drainer.core.batches import Batching


@dataclass(frozen=True, slots=True)
class PartitionAction:
    """One partition's part: offsets ``[start, end)``, and where the group stands now.

    ``committed`` is None when the group has no offset there. ``finished`` counts messages that an
    earlier run of this drain finished.
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

    @property
    def is_spark(self) -> bool:
        return self.name == SPARK


_OF_TERMS = (
    *("topic", "topic_id", "cluster_id", "group", "handler", "order", "isolation"),
    *("failures", "redrive", "commits"),
)


@dataclass(frozen=True, slots=True)
class Preview:
    """All that a person should know before confirming; ``plan`` is what the drain begins with."""

    plan: OffsetPlan
    concurrency: Concurrency
    buffer_bytes: int
    plan_path: Path | str  # a URI
    partitions: tuple[PartitionAction, ...]
    resumes: bool = False
    checks: tuple[str, ...] = ()  # what was looked at and found right, a sentence each
    warnings: tuple[str, ...] = ()
    makes_topic: str | None = None  # for dead letters
    batching: Batching | None = None  # when the handler takes several sub-messages at once
    engine: ShownEngine = ShownEngine()
    cap: Cap | None = None  # of what is read, at the messages' mean size
    open_transactions: tuple[OpenTransaction, ...] = ()  # that the backlog ends at
    needs_yes: bool = False  # a warning that only --yes confirms

    @property
    def message_bytes(self) -> float:
        """The mean size of messages, as far as it is known; 1 if it is not."""
        return 1.0 if self.cap is None else self.cap.message_bytes

    @property
    def offsets(self) -> int:
        """The size of the backlog in offsets; holes make the count of messages smaller."""
        return sum(part.offsets for part in self.partitions)

    def as_json(self) -> dict[str, Any]:
        """The object that ``-o json`` prints for a dry run."""
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
