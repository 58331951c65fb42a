"""Spark's tasks and waves in words, and as rows of the live view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.style import Style

from drainer.engine.status import ENDED, Status, TaskStatus, WaveStatus
from drainer.view import figures
from drainer.view.capping import reading_capped_by
from drainer.view.layout import QUIET_STYLE, WARN_STYLE

TASKS_SHOWN = 12
NAMED = 3  # stragglers in a sentence
QUIET_S = 5.0  # without a word; a task says something each second at least
_PLAIN = Style.null()
_RANKS = {"handling": 0, "reading": 2, "waiting": 3, ENDED: 4}

Line = list[tuple[str, Style]]


def wave_words(wave: WaveStatus) -> str:
    """``3 of ~12, for 42s, the next one is read meanwhile``; before the first it has number 0."""
    if not wave.number:
        return f"the first one is being read, for {figures.duration(wave.seconds)}"
    of = "" if wave.of is None else f" of ~{figures.count(wave.of)}"
    ahead = ", the next one is read meanwhile" if wave.ahead else ""
    return f"{figures.count(wave.number)}{of}, for {figures.duration(wave.seconds)}{ahead}"


def tasks_words(tasks: Sequence[TaskStatus]) -> str:
    """``5 handling, 3 ended``."""
    states = Counter(task.state for task in tasks)
    ranked = sorted(states.items(), key=lambda item: _rank(item[0]))
    return ", ".join(f"{figures.count(number)} {state}" for state, number in ranked)


def stragglers(tasks: Sequence[TaskStatus]) -> str | None:
    """The tasks that the others wait for, by their claims; None when there are none."""
    found = [task for task in tasks if task.straggler]
    if not found:
        return None
    shown = [
        f"{task.claim} on {_short(task.host)}" if task.host else task.claim
        for task in found[:NAMED]
    ]
    if len(found) > NAMED:
        shown.append(f"{figures.count(len(found) - NAMED)} more")
    return ", ".join(shown)


def slowest(tasks: Sequence[TaskStatus]) -> list[TaskStatus]:
    """Stragglers first, then those that handle, slow before fast; what has ended comes last.

    Of rates that are nearly the same the order is that of the tasks: rows shall not jump.
    """
    return sorted(
        tasks, key=lambda task: (not task.straggler, _rank(task.state), _coarse(task.rate))
    )


def spark_limit(status: Status) -> str:
    """What keeps a drain on Spark from going faster, in a few words."""
    waited_for = stragglers(status.tasks)
    if waited_for is not None:
        return f"the slowest tasks: the wave waits for {waited_for}"
    if status.running >= 0.95 * status.concurrency:
        return "the handler: every worker is busy"
    if not status.running and not status.lanes:
        return reading_capped_by(status) or "reading: the tasks wait for their wave"
    if status.lanes_ready > status.concurrency:
        return "the executors: workers can't be fed fast enough"
    return "order: few sub-keys of the wave are left, and go one at a time"


def task_rows(tasks: Sequence[TaskStatus], room: int) -> Iterator[Line]:
    """A heading, a row a task, and how many more there are: ``room`` rows at most beside these."""
    shown = slowest(tasks)[:room]
    columns = (
        ("task", [task.claim for task in shown]),
        ("busy", [figures.count(task.running) for task in shown]),
        ("lanes wait", [figures.count(task.ready) for task in shown]),
        ("finished", [figures.count(task.finished) for task in shown]),
        ("per s", [figures.rate(task.rate) for task in shown]),
    )
    widths = [max(len(title), *map(len, cells)) for title, cells in columns]
    state = max(5, *(len(task.state) for task in shown))
    several_hosts = len({task.host for task in tasks}) > 1

    def line(words: Sequence[str], doing: str) -> str:
        first, *rest = (word.rjust(width) for word, width in zip(words, widths, strict=True))
        return "  ".join((first, doing.ljust(state), *rest))

    yield [(line([title for title, _ in columns], "doing"), QUIET_STYLE)]
    for row, task in enumerate(shown):
        text = line([cells[row] for _, cells in columns], task.state)
        style = WARN_STYLE if task.straggler else QUIET_STYLE if task.state == ENDED else _PLAIN
        found: Line = [(text, style)]
        if note := _note(task, several_hosts):
            found.append((f"  {note}", WARN_STYLE if task.straggler else QUIET_STYLE))
        yield found
    if more := len(tasks) - len(shown):
        total = f"of all {figures.count(len(tasks))}: {tasks_words(tasks)}"
        yield [(f"and {figures.count(more)} more; {total}", QUIET_STYLE)]


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
    # An address stays whole; of a name its first part tells it from others.
    name = host.partition(".")[0]
    return host if name.isdecimal() or not name else name


def _rank(state: str) -> int:
    return _RANKS.get(state, 1)


def _coarse(rate: float) -> float:
    return float(f"{rate:.1g}")
