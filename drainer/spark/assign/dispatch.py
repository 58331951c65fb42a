"""Dispatches: jobs that handle parts of waves, with their tasks and what is known of each task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from drainer.model.claims import Shard
from drainer.model.progress import Counts
from drainer.model.unhandled import Unhandled
from drainer.spark.state.records import TaskStatus
from drainer.spark.state.state import Attempt


@dataclass(slots=True)
class DispatchedTask:
    """A task of a dispatch, with the parts of waves that it was given and what it has reported.

    Attributes:
        name: the number of the dispatch, and the number of the task in it.
        waves: the wave of each claim that it has a part of.
        subs: the number of sub-messages that it was given.
        left: by claim, the partitions that are not done.
        counts: the account of its sub-messages by partition.
        unhandled: the counts of what it finished without a call of the handler.
        attempt, status: the newest attempt at the task, and its newest status.
        reported_s: when it reported last.
        ended: whether Spark has ended the task.
    """

    name: str
    waves: Mapping[str, int]
    subs: int
    left: dict[str, set[int]]
    counts: dict[int, Counts] = field(default_factory=dict)
    unhandled: Unhandled = field(default_factory=Unhandled)
    attempt: Attempt | None = None
    status: TaskStatus | None = None
    reported_s: float = 0.0
    ended: bool = False

    @property
    def unfinished(self) -> list[str]:
        """The claims whose parts are not done."""
        return [claim for claim, left in self.left.items() if left]

    @property
    def shards_left(self) -> tuple[Shard, ...]:
        """The shards whose parts are not done."""
        return tuple(sorted(map(Shard.parse, self.unfinished)))

    @property
    def share_done(self) -> float:
        """The share of its sub-messages that is finished."""
        return Counts.sum(self.counts.values()).finished / max(1, self.subs)

    @property
    def is_over(self) -> bool:
        """Whether the task, or Spark, has reported that it has nothing left to do."""
        return self.ended or (self.status is not None and self.status.borrowed is None)

    @property
    def host(self) -> str:
        return self.status.host if self.status else ""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The parts of waves that one job handles. Later dispatches have higher numbers."""

    number: int
    tasks: tuple[DispatchedTask, ...]

    @property
    def waves(self) -> set[int]:
        """The numbers of the waves that it has parts of."""
        return {wave for task in self.tasks for wave in task.waves.values()}

    @property
    def name(self) -> str:
        return f"dispatch {self.number} of wave {', '.join(map(str, sorted(self.waves)))}"

    @property
    def busy(self) -> int:
        """The number of tasks that have something left to handle, or wait for a slot."""
        return sum(1 for task in self.tasks if task.unfinished)

    @property
    def has_begun(self) -> bool:
        """Whether a task of it has begun."""
        return any(task.attempt for task in self.tasks)
