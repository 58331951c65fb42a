"""The status as plain lines, for output that is no screen: a file, a pager, a job's log."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from drainer.engine.status import Status
from drainer.view import figures
from drainer.view.capping import cap_in_line
from drainer.view.deadline import deadline_warning, deadline_words
from drainer.view.panel import blocking_warning, share_finished
from drainer.view.tasks import stragglers, tasks_words, wave_words
from drainer.view.terminal import Terminal

INTERVAL_S = 5.0  # of the drain's own time; a night's log stays short enough to read
_SHOWN = 8  # partitions whose committed offset is told


class LineView:
    """A context manager; ``update`` it as often as wanted, it writes a line each few seconds.

    Also at once when the drain is stopping or in trouble, or no longer is, and once at the end.
    Times are the status's, so it needs no clock.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._last: Status | None = None  # the latest seen, to end with
        self._said: Status | None = None  # the latest written
        self._due_s: float | None = None  # None until the first line is written
        self._trouble: str | None = None
        self._told_of_blocking = False
        self._stopping: str | None = None
        self._warned = False  # of the deadline

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._last is not None and self._last is not self._said:
            self._say(self._last)

    def update(self, status: Status) -> None:
        """Writes what is due. Never waits for a reader that has stopped reading."""
        self._last = status
        if not self._terminal.is_ready:
            return
        if self._due_s is None:
            self._begin(status)
            self._due_s = status.elapsed_s + INTERVAL_S
        if status.stopping != self._stopping:
            self._stopping = status.stopping
            if status.stopping is not None:
                self._tell_stopping(status.stopping)
        if status.trouble != self._trouble:
            self._trouble = status.trouble
            self._tell_trouble(status.trouble)
        if status.blocked_by is not None and not self._told_of_blocking:
            self._told_of_blocking = True
            self._terminal.warn(blocking_warning(status.blocked_by))
        if not self._warned and (warning := deadline_warning(status)) is not None:
            self._warned = True
            self._terminal.warn(warning)
        if status.elapsed_s >= self._due_s:
            self._say(status)

    def _begin(self, status: Status) -> None:
        self._terminal.say(start_line(status))

    def _tell_stopping(self, why: str) -> None:
        self._terminal.warn(f"stopping: {why}")

    def _tell_trouble(self, trouble: str | None) -> None:
        if trouble is None:
            self._terminal.say("trouble over")
        else:
            self._terminal.warn(f"trouble: {trouble}")

    def _tell(self, status: Status) -> None:
        self._terminal.say(status_line(status))

    def _say(self, status: Status) -> None:
        self._tell(status)
        self._said = status
        self._due_s = status.elapsed_s + INTERVAL_S


def start_line(status: Status) -> str:
    """What is drained, once."""
    total = figures.count(sum(part.end - part.start for part in status.partitions))
    parts = figures.counted(len(status.partitions), "partition")
    return (
        f"draining {status.topic} for group {status.group}: ~{total} messages in {parts},"
        f" concurrency {_concurrency(status)}, plan {status.plan_path}"
    )


def status_line(status: Status) -> str:
    """``12s  41.2%  1,234,567 of ~3,000,000 messages  89,123 sub-messages/s (avg …)  …``."""
    total = figures.count(sum(part.end - part.start for part in status.partitions))
    finished = figures.count(sum(part.messages_finished for part in status.partitions))
    words = [
        figures.duration(status.elapsed_s),
        figures.percent(share_finished(status.partitions)),
        f"{finished} of ~{total} messages",
        f"{figures.rate(status.rate_now)} sub-messages/s (avg {figures.rate(status.rate_average)})",
        f"eta {figures.duration(status.eta_s)}",
        *_deadline(status),
        f"lanes {status.running} running {status.lanes_ready} waiting",
        f"buffer {figures.size(status.buffered_bytes)}",
    ]
    if status.wave is not None:
        words.append(f"wave {wave_words(status.wave)}")
    if status.tasks:
        words.append(f"tasks {figures.count(len(status.tasks))} ({tasks_words(status.tasks)})")
    if (waited_for := stragglers(status.tasks)) is not None:
        words.append(f"stragglers {waited_for}")
    if status.auto is not None:
        limit = figures.count(status.auto.limit)
        words.append(f"concurrency {limit} (auto, {status.auto.why})")
    words += cap_in_line(status)
    failures = status.failures
    if failures.failures or failures.retries:
        words.append(f"failures {figures.count(failures.failures)}")
        words.append(f"retries {figures.count(failures.retries)}")
    if failures.parked_lanes:
        words.append(f"parked lanes {figures.count(failures.parked_lanes)}")
    if status.sub_messages.skipped:
        words.append(f"skipped {figures.count(status.sub_messages.skipped)}")
    if status.sub_messages.failed:
        words.append(f"failed {figures.count(status.sub_messages.failed)}")
    if status.sub_messages.dead:
        words.append(f"dead {figures.count(status.sub_messages.dead)}")
    if status.trouble is not None:
        words.append("in trouble")  # which was told when it began
    words.append(f"committed {_committed(status)}")
    return "  ".join(words)


def _concurrency(status: Status) -> str:
    if status.auto is None:
        return figures.count(status.concurrency)
    return f"auto, {figures.count(status.auto.most)} at most"


def _deadline(status: Status) -> list[str]:
    return [] if status.deadline is None else [f"deadline {deadline_words(status.deadline)}"]


def _committed(status: Status) -> str:
    shown = [
        f"{part.partition}:{'none' if part.committed is None else part.committed}"
        for part in status.partitions[:_SHOWN]
    ]
    more = len(status.partitions) - len(shown)
    if more:
        shown.append(f"+{more} more")
    return " ".join(shown) or "none"
