"""Spark's part of a drain's status: its wave and tasks, in words, fields and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from drainer.metrics.names import Metric, MetricRow
from drainer.model.codec import builtins
from drainer.model.status import Status
from drainer.view import figures

STATES = HANDLING, READING, WAITING, ENDED = "handling", "reading", "waiting", "ended"  # of a task
NAMED = 3  # stragglers in a sentence
LOGGED = 8  # and in a line of the log


@dataclass(frozen=True, slots=True)
class SparkStatus:
    """The wave that is handled, and its tasks."""

    wave: int  # its number, from 1; 0 while the first one is read
    waves: int | None = None  # about how many there are, None while it can't be known
    ahead: bool = False
    wave_s: float = 0.0
    tasks: Mapping[str, int] = field(default_factory=dict)  # how many there are, by what they do
    # Those that the others wait for, as "12.0 on worker-1": number of the deal, their own there,
    # and host.
    stragglers: tuple[str, ...] = ()
    quiet_s: float = 0.0  # the longest that a task which has not ended was silent

    def limit(self, status: Status) -> str | None:
        if self.stragglers:
            return f"the slowest tasks: the wave waits for {self._named}"
        if status.limits.lanes_ready > status.limits.concurrency:
            return None
        if status.limits.running or status.limits.lanes:
            return "order: few sub-keys of the wave are left, each one at a time"
        capped = status.limits.read_cap is not None and status.limits.read_cap.binds
        return None if capped else "reading: the tasks wait for their wave"

    @property
    def facts(self) -> list[tuple[str, str]]:
        """``3 of ~12, for 42s, reading the next one meanwhile``, tasks by state, and stragglers."""
        for_s = f"for {figures.duration(self.wave_s)}"
        of = "" if self.waves is None else f" of ~{figures.count(self.waves)}"
        ahead = ", reading the next one meanwhile" if self.ahead else ""
        wave = f"{figures.count(self.wave)}{of}, {for_s}{ahead}"
        facts = [("wave", wave if self.wave else f"reading the first one, {for_s}")]
        if self.tasks:
            found = ((state, self.tasks.get(state, 0)) for state in STATES)
            states = ", ".join(
                f"{figures.count(number)} {state}" for state, number in found if number
            )
            facts.append(("tasks", f"{figures.count(sum(self.tasks.values()))} ({states})"))
        if self.stragglers:
            facts.append(("stragglers", self._named))
        return facts

    def as_json(self) -> dict[str, Any]:
        return builtins(self) | {"stragglers": self.stragglers[:LOGGED]}

    @property
    def metrics(self) -> tuple[Metric[Any], ...]:
        return METRICS

    @property
    def straggling(self) -> int:
        return len(self.stragglers)

    @property
    def _named(self) -> str:
        more = self.straggling - NAMED
        beyond = (f"{figures.count(more)} more",) if more > 0 else ()
        return ", ".join((*self.stragglers[:NAMED], *beyond))


def straggler(name: str, host: str) -> str:
    """Return an executor's name for the status: an address stays whole, of a host's name its first
    part will do."""
    short = host.partition(".")[0]
    return f"{name} on {host if short.isdecimal() else short}" if host else name


def _tasks(found: SparkStatus) -> Iterable[MetricRow]:
    return (((state,), number) for state, number in found.tasks.items())


_gauge = Metric[SparkStatus].gauge
METRICS = (
    _gauge("wave", "wave", "On Spark: the current wave, from 1."),
    _gauge("waves", "waves", "On Spark: estimated number of waves; absent while unknown."),
    _gauge("wave_age_seconds", "wave_s", "On Spark: age of the current wave."),
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
