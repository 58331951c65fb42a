"""Spark's part of a drain's status: the slice and the tasks, as sentences, fields and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drainer.metrics.names import Metric, MetricRow
from drainer.model.claims import Shard
from drainer.model.codec import builtins
from drainer.model.status import Status
from drainer.view import figures

STATES = HANDLING, READING, SILENT, WAITING, ENDED = (
    *("handling", "reading", "silent", "waiting", "ended"),
)
NAMED = 3  # A sentence names this many tasks.
LOGGED = 8  # A line of the log names this many tasks.


@dataclass(frozen=True, slots=True)
class SparkStatus:
    """The slice that is handled, and the tasks.

    Attributes:
        slice: the number of the newest slice that was read, from 1; 0 while the first one is read.
        slices: about how many slices there are; None while that can't be known.
        ahead: whether the next slice is being read.
        slice_s: the age of the slice.
        tasks: the number of tasks by state.
        stragglers: tasks that the others wait for, such as "12.0 on worker-1": the number of the
            slice, the number of the shard, and its host.
        silent: tasks that report nothing.
        repeated: the number of attempts that failed or were lost, so that Spark repeated the task.
        quiet_s: the longest time since the last report of a task that has not ended.
    """

    slice: int
    slices: int | None = None
    ahead: bool = False
    slice_s: float = 0.0
    tasks: Mapping[str, int] = field(default_factory=dict)
    stragglers: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    repeated: int = 0
    quiet_s: float = 0.0

    def limit(self, status: Status) -> str | None:
        """Return what keeps the drain from going faster; None if Spark is not the reason."""
        if self.silent:
            return f"tasks that report nothing: the slice waits for {_named(self.silent)}"
        if self.stragglers:
            return f"the slowest tasks: the slice waits for {_named(self.stragglers)}"
        if status.limits.lanes_ready > status.limits.concurrency or status.limits.behind_barriers:
            return None
        if status.limits.in_flight or status.limits.lanes:
            return "order: few sub-keys of the slice are left, each one at a time"
        return None if status.caps.read_binds else "reading: the tasks wait for their slice"

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The lines on the slice (``3 of ~12, for 42s``), on the number of tasks by state, and on
        tasks that are silent or late."""
        for_s = f"for {figures.duration(self.slice_s)}"
        of = "" if self.slices is None else f" of ~{figures.count(self.slices)}"
        ahead = ", while the next one is read" if self.ahead else ""
        slice = f"{figures.count(self.slice)}{of}, {for_s}{ahead}"
        facts = [("slice", slice if self.slice else f"reading the first one, {for_s}")]
        if self.tasks:
            found = ((state, self.tasks.get(state, 0)) for state in STATES)
            states = ", ".join(
                f"{figures.count(number)} {state}" for state, number in found if number
            )
            facts.append(("tasks", f"{figures.count(sum(self.tasks.values()))} ({states})"))
        late = (("silent", self.silent), ("stragglers", self.stragglers))
        return [*facts, *((name, _named(tasks)) for name, tasks in late if tasks)]

    def as_json(self) -> dict[str, Any]:
        shown = {"stragglers": self.stragglers[:LOGGED], "silent": self.silent[:LOGGED]}
        return builtins(self) | shown

    @property
    def metrics(self) -> tuple[Metric[Any], ...]:
        return METRICS

    @property
    def straggling(self) -> int:
        return len(self.stragglers)


def task_name(name: str, host: str) -> str:
    """Return the name of a task, such as ``7.0 on worker-1``.

    A host's name is cut to its first part. An IP address stays whole.
    """
    return f"{name}{_on(host)}"


def repeat_words(host: str, shard: Shard, *, finished: bool, failed: bool) -> str:
    """Return the line on a task that Spark repeats.

    Either it had ``finished``, and Spark has lost its result, or it ``failed``, or it fell silent.
    """
    task = f"the task of shard {shard.number}{_on(host)}"
    if finished:
        return f"{task} had finished, but Spark lost its result, and repeats it"
    if failed:
        return f"{task} failed; Spark repeats it"
    return f"{task} fell silent: its Python worker or executor is gone; Spark repeats it"


def _on(host: str) -> str:
    short = host.partition(".")[0]
    return f" on {host if short.isdecimal() else short}" if host else ""


def _named(each: Sequence[object]) -> str:
    more = len(each) - NAMED
    beyond = (f"{figures.count(more)} more",) if more > 0 else ()
    return ", ".join((*map(str, each[:NAMED]), *beyond))


def _tasks(found: SparkStatus) -> Iterable[MetricRow]:
    return (((state,), number) for state, number in found.tasks.items())


_gauge = Metric[SparkStatus].gauge
METRICS = (
    _gauge("slice", "slice", "On Spark: the current slice, from 1."),
    _gauge("slices", "slices", "On Spark: estimated number of slices; absent while unknown."),
    _gauge("slice_age_seconds", "slice_s", "On Spark: age of the current slice."),
    Metric(
        "drainer_tasks",
        "gauge",
        f"On Spark: tasks by state: {', '.join(STATES)}.",
        _tasks,
        ("state",),
    ),
    _gauge("stragglers", "straggling", "On Spark: tasks that the others wait for."),
    _gauge("task_quiet_seconds_max", "quiet_s", "On Spark: longest silence of a running task."),
)
