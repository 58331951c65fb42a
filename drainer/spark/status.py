"""What Spark adds to a drain's status: its wave and tasks, in words, rows, fields and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from drainer.core.codec import builtins
from drainer.engine.status import Metric, Row, Status
from drainer.view import figures
from drainer.view.layout import Pieces
from drainer.view.page import Tone
from drainer.view.progress import reading_capped_by

ENDED = "ended"  # of a task
TASKS_SHOWN = 12  # in the live view
TASKS_LOGGED = 8
NAMED = 3  # stragglers in a sentence
QUIET_S = 5.0  # without a word; a task says something each second at least
_RANKS = {"handling": 0, "reading": 2, "waiting": 3, ENDED: 4}


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One of Spark's tasks, by what it said last.

    Attributes:
        task: the number of the deal, and its own there, as "12.0".
        attempt: how often Spark has begun it, from 1.
        host: where it runs.
        state: what it does, in a word: reading, waiting, handling, ended.
        running: sub-messages in the handler.
        lanes: sub-keys with something waiting or running.
        ready: lanes that only wait for a worker.
        finished: sub-messages, in this attempt.
        rate: sub-messages per second, over the last few seconds.
        quiet_s: since its last word.
        straggler: whether the others wait for it.
    """

    task: str
    attempt: int
    host: str
    state: str
    running: int
    lanes: int
    ready: int
    finished: int
    rate: float
    quiet_s: float
    straggler: bool = False


@dataclass(frozen=True, slots=True)
class SparkStatus:
    """The wave that is handled and its tasks, in their order.

    Attributes:
        wave: its number, from 1; 0 while the first one is read.
        waves: about how many there are, None while it can't be known.
        ahead: whether the next one is being read, or waits.
        wave_s: seconds since this one began.
    """

    wave: int
    waves: int | None = None
    ahead: bool = False
    wave_s: float = 0.0
    tasks: tuple[TaskStatus, ...] = ()

    def limit(self, status: Status) -> str:
        if waited_for := self.stragglers:
            return f"the slowest tasks: the wave waits for {waited_for}"
        if status.running >= 0.95 * status.concurrency:
            return "the handler: every worker is busy"
        if not status.running and not status.lanes:
            return reading_capped_by(status) or "reading: the tasks wait for their wave"
        if status.lanes_ready > status.concurrency:
            return "the executors: workers can't be fed fast enough"
        return "order: few sub-keys of the wave are left, and go one at a time"

    @property
    def facts(self) -> list[tuple[str, str]]:
        """``3 of ~12, for 42s, the next one is read meanwhile``, tasks by state, and stragglers."""
        for_s = f"for {figures.duration(self.wave_s)}"
        of = "" if self.waves is None else f" of ~{figures.count(self.waves)}"
        ahead = ", the next one is read meanwhile" if self.ahead else ""
        wave = f"{figures.count(self.wave)}{of}, {for_s}{ahead}"
        facts = [("wave", wave if self.wave else f"the first one is being read, {for_s}")]
        if self.tasks:
            facts.append(("tasks", f"{figures.count(len(self.tasks))} ({self._states})"))
        if waited_for := self.stragglers:
            facts.append(("stragglers", waited_for))
        return facts

    def rows(self, room: int) -> list[Pieces]:
        """A heading, a row a task, and how many more there are."""
        if not self.tasks:
            return []
        shown = self.slowest[: min(room, TASKS_SHOWN)]
        state = max(5, *(len(task.state) for task in shown))
        heading, *cells = figures.aligned(
            [
                ("task", "doing".ljust(state), "busy", "lanes wait", "finished", "per s"),
                *(
                    (
                        task.task,
                        task.state.ljust(state),
                        figures.count(task.running),
                        figures.count(task.ready),
                        figures.count(task.finished),
                        figures.rate(task.rate),
                    )
                    for task in shown
                ),
            ]
        )
        several_hosts = len({task.host for task in self.tasks}) > 1
        rows: list[Pieces] = [[("  ".join(heading), Tone.QUIET)]]
        for task, row in zip(shown, cells, strict=True):
            late = Tone.WARN if task.straggler else Tone.QUIET
            tone = late if task.straggler or task.state == ENDED else Tone.PLAIN
            note = _note(task, several_hosts)
            rows.append([("  ".join(row), tone), (f"  {note}" if note else "", late)])
        if more := len(self.tasks) - len(shown):
            total = f"of all {figures.count(len(self.tasks))}: {self._states}"
            rows.append([(f"and {figures.count(more)} more; {total}", Tone.QUIET)])
        return rows

    def as_json(self) -> dict[str, Any]:
        slowest = builtins(self.slowest[:TASKS_LOGGED])
        return builtins(self) | {"tasks": len(self.tasks), "slowest_tasks": slowest}

    @property
    def metrics(self) -> tuple[Metric[Any], ...]:
        return METRICS

    @property
    def stragglers(self) -> str:
        """The tasks that the others wait for, by their numbers."""
        found = [task for task in self.tasks if task.straggler]
        shown = [
            f"{task.task} on {_short(task.host)}" if task.host else task.task
            for task in found[:NAMED]
        ]
        if len(found) > NAMED:
            shown.append(f"{figures.count(len(found) - NAMED)} more")
        return ", ".join(shown)

    @property
    def slowest(self) -> list[TaskStatus]:
        """Stragglers first, then those that handle, slow before fast; what has ended comes last.

        Of rates that are nearly the same the order is that of the tasks: rows shall not jump.
        """
        return sorted(
            self.tasks,
            key=lambda task: (not task.straggler, _rank(task.state), float(f"{task.rate:.1g}")),
        )

    @property
    def states(self) -> Counter[str]:
        """How many tasks are in each."""
        return Counter(task.state for task in self.tasks)

    @property
    def straggling(self) -> int:
        return sum(task.straggler for task in self.tasks)

    @property
    def quiet_s(self) -> float:
        """The longest silence of a task that has not ended."""
        return max((task.quiet_s for task in self.tasks if task.state != ENDED), default=0.0)

    @property
    def _states(self) -> str:
        ranked = sorted(self.states.items(), key=lambda item: _rank(item[0]))
        return ", ".join(f"{figures.count(number)} {state}" for state, number in ranked)


def _note(task: TaskStatus, several_hosts: bool) -> str:
    words = ["straggler"] if task.straggler else []
    if task.attempt > 1:
        words.append(f"attempt {task.attempt}")
    if task.state != ENDED and task.quiet_s >= QUIET_S:
        words.append(f"silent {figures.duration(task.quiet_s)}")
    if several_hosts and task.host:
        words.append(_short(task.host))
    return ", ".join(words)


def _short(host: str) -> str:
    # An address stays whole; of a name its first part will do.
    name = host.partition(".")[0]
    return host if name.isdecimal() or not name else name


def _rank(state: str) -> int:
    return _RANKS.get(state, 1)


def _tasks(found: SparkStatus) -> Iterable[Row]:
    return (((state,), number) for state, number in found.states.items())


_gauge = Metric[SparkStatus].gauge
METRICS = (
    _gauge("wave", "wave", "On Spark: the wave that is handled, from 1."),
    _gauge("waves", "waves", "On Spark: about how many waves there are; missing while unknown."),
    _gauge("wave_age_seconds", "wave_s", "On Spark: since the wave began that is handled."),
    Metric("drainer_tasks", "gauge", "On Spark: tasks by what they do.", _tasks, ("state",)),
    _gauge("stragglers", "straggling", "On Spark: tasks that the others wait for."),
    _gauge(
        "task_quiet_seconds_max",
        "quiet_s",
        "On Spark: the longest that a task that has not ended said nothing.",
    ),
)
