"""Dispatches: jobs that handle parts of waves, each with its tasks and what is known of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from drainer.model.claims import Claim
from drainer.model.progress import Counts
from drainer.model.unhandled import Unhandled
from drainer.spark.state.records import TaskStatus
from drainer.spark.state.state import Attempt


@dataclass(slots=True)
class DispatchedTask:
    """Task of a dispatch: the parts of waves that it was given, its account, and how it is."""

    name: str  # number of the dispatch, and its own there
    waves: Mapping[str, int]  # by claim
    subs: int  # that it was given
    left: dict[str, set[int]]  # partitions that are not done, by claim
    counts: dict[int, Counts] = field(default_factory=dict)  # by partition
    unhandled: Unhandled = field(default_factory=Unhandled)
    attempt: Attempt | None = None  # the last one
    status: TaskStatus | None = None  # that it reported last
    reported_s: float = 0.0
    ended: bool = False

    @property
    def unfinished(self) -> list[str]:
        """Claims whose parts are not done."""
        return [claim for claim, left in self.left.items() if left]

    @property
    def shards_left(self) -> tuple[int, ...]:
        return tuple(sorted(Claim.parse(claim).number for claim in self.unfinished))

    @property
    def share_done(self) -> float:
        """Share of its sub-messages that is finished."""
        return Counts.sum(self.counts.values()).finished / max(1, self.subs)

    @property
    def is_over(self) -> bool:
        """Whether it has no more to do, as it reported, or as Spark did."""
        return self.ended or (self.status is not None and self.status.borrowed is None)

    @property
    def host(self) -> str:
        return self.status.host if self.status else ""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One job's parts of waves; its ``number`` rises."""

    number: int
    tasks: tuple[DispatchedTask, ...]

    @property
    def waves(self) -> set[int]:
        """Numbers of the waves that it has parts of."""
        return {wave for task in self.tasks for wave in task.waves.values()}

    @property
    def name(self) -> str:
        return f"dispatch {self.number} of wave {', '.join(map(str, sorted(self.waves)))}"

    @property
    def busy(self) -> int:
        """Number of tasks that have something left to handle, or wait for a slot."""
        return sum(1 for task in self.tasks if task.unfinished)

    @property
    def has_begun(self) -> bool:
        """Whether a task of it has."""
        return any(task.attempt for task in self.tasks)
