"""The status as plain lines, for output that is no screen: a file, a pager, a job's log."""

from __future__ import annotations

import logging
from typing import Self

from drainer.model.status import Status
from drainer.view import figures
from drainer.view.limit import limit
from drainer.view.status import event_words, facts, share_finished, status_fields, warnings
from drainer.view.terminal import Terminal

INTERVAL_S = 5.0  # of the drain's own time; a night's log stays short enough to read
_SHOWN = 8  # partitions in a line


class LineView:
    """A context manager; ``update`` it as often as wanted, it writes a line each few seconds.

    Also at once when the drain is stopping or in trouble, or no longer is, and once at the end.
    Times are the status's, so it needs no clock.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._last: Status | None = None  # the latest seen, to end with
        self._printed: Status | None = None  # the latest written
        self._due_s: float | None = None  # None until the first line is written
        self._warned: set[tuple[str, str]] = set()  # what is not to be printed again
        self._changes_seen = 0  # events that were printed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None and self._last is not self._printed:
            self._print(self._last)

    def update(self, status: Status) -> None:
        """Writes what is due. Never waits for a reader that has stopped reading."""
        self._last = status
        if not self._terminal.is_ready:
            return
        if self._due_s is None:
            fields = {"plan_path": status.plan_path, "concurrency": status.limits.concurrency}
            who = {"topic": status.topic, "group": status.group}
            self._terminal.event(logging.INFO, "begin", start_line(status), **who, **fields)
            self._due_s = status.timing.elapsed_s + INTERVAL_S
        control = status.control
        new, self._changes_seen = control.changes_total - self._changes_seen, control.changes_total
        for event in control.changes[-new:] if new else ():
            self._terminal.event(logging.INFO, event.what, event_words(event), **event.as_json())
        self._warn(status)
        if status.timing.elapsed_s >= self._due_s:
            self._print(status)

    def _warn(self, status: Status) -> None:
        for event, text, _ in warnings(status):
            known = (event, text if event in ("trouble", "stopping") else "")
            if known not in self._warned:
                self._warned.add(known)
                self._terminal.event(logging.WARNING, event, text)
        over = {known for known in self._warned if known[0] == "trouble"}
        if status.health.trouble is None and over:
            self._warned -= over
            self._terminal.event(logging.INFO, "trouble_over", "trouble over")

    def _print(self, status: Status) -> None:
        line = status_line(status)
        self._terminal.event(logging.INFO, "progress", line, **status_fields(status))
        self._printed = status
        self._due_s = status.timing.elapsed_s + INTERVAL_S


def start_line(status: Status) -> str:
    """Name what is drained, once."""
    total = figures.count(sum(part.end - part.start for part in status.progress.partitions))
    parts = figures.counted(len(status.progress.partitions), "partition")
    concurrency = figures.count(status.limits.concurrency)
    if status.limits.auto is not None:
        concurrency = f"auto, {figures.count(status.limits.auto.most)} at most"
    return (
        f"draining {status.topic} for group {status.group}: ~{total} messages in {parts},"
        f" concurrency {concurrency}, plan {status.plan_path}"
    )


def status_line(status: Status) -> str:
    """``12s  41.2%  eta 3m 20s  messages 1,234,567 of ~3,000,000 done  …``."""
    words = [
        figures.duration(status.timing.elapsed_s),
        figures.percent(share_finished(status.progress.partitions)),
    ]
    if not all(part.complete for part in status.progress.partitions):
        words.append(f"eta {figures.duration(status.progress.eta_s)}")
        if status.control.stopping is None:
            words.append(f"limited by {limit(status)}")
    for each in facts(status):
        note = f" ({each.note})" if each.note else ""
        words.append(f"{each.label} {each.value}{note}")
    if status.control.paused is not None:
        words.append("paused")
    if status.health.trouble is not None:
        words.append("in trouble")  # a line of its own names it
    committed = [
        f"{part.partition}:{figures.offset(part.committed)}"
        for part in status.progress.partitions[:_SHOWN]
    ]
    if (more := len(status.progress.partitions) - len(committed)) > 0:
        committed.append(f"+{more} more")
    words.append(f"committed {' '.join(committed) or 'none'}")
    return "  ".join(words)
