"""The status as plain lines, for output that is no screen: a file, a pager, a job's log."""

from __future__ import annotations

import logging
from dataclasses import replace
from heapq import nsmallest
from typing import Self

from drainer.engine.status import Status
from drainer.model.codec import builtins
from drainer.view import figures
from drainer.view.limit import limit, limit_of
from drainer.view.progress import asked_words, facts, share_finished, warnings
from drainer.view.terminal import Terminal

INTERVAL_S = 5.0  # of the drain's own time; a night's log stays short enough to read
_SHOWN = 8  # partitions in a line; in the log those with most to go
_ERRORS_LOGGED = 5


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
        self._warned: set[tuple[str, str]] = set()  # what is not to be said again
        self._asked = 0  # events that were said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None and self._last is not self._said:
            self._say(self._last)

    def update(self, status: Status) -> None:
        """Writes what is due. Never waits for a reader that has stopped reading."""
        self._last = status
        if not self._terminal.is_ready:
            return
        if self._due_s is None:
            fields = {"plan_path": status.plan_path, "concurrency": status.concurrency}
            who = {"topic": status.topic, "group": status.group}
            self._terminal.event(logging.INFO, "begin", start_line(status), **who, **fields)
            self._due_s = status.elapsed_s + INTERVAL_S
        new, self._asked = status.asked_total - self._asked, status.asked_total
        for event in status.asked[-new:] if new else ():
            self._terminal.event(logging.INFO, event.what, asked_words(event), **event.as_json())
        self._warn(status)
        if status.elapsed_s >= self._due_s:
            self._say(status)

    def _warn(self, status: Status) -> None:
        for event, text, _ in warnings(status):
            known = (event, text if event in ("trouble", "stopping") else "")
            if known not in self._warned:
                self._warned.add(known)
                self._terminal.event(logging.WARNING, event, text)
        over = {known for known in self._warned if known[0] == "trouble"}
        if status.trouble is None and over:
            self._warned -= over
            self._terminal.event(logging.INFO, "trouble_over", "trouble over")

    def _say(self, status: Status) -> None:
        line = status_line(status)
        self._terminal.event(logging.INFO, "progress", line, **status_fields(status))
        self._said = status
        self._due_s = status.elapsed_s + INTERVAL_S


def start_line(status: Status) -> str:
    """What is drained, once."""
    total = figures.count(sum(part.end - part.start for part in status.partitions))
    parts = figures.counted(len(status.partitions), "partition")
    concurrency = figures.count(status.concurrency)
    if status.auto is not None:
        concurrency = f"auto, {figures.count(status.auto.most)} at most"
    return (
        f"draining {status.topic} for group {status.group}: ~{total} messages in {parts},"
        f" concurrency {concurrency}, plan {status.plan_path}"
    )


def status_line(status: Status) -> str:
    """``12s  41.2%  eta 3m 20s  messages 1,234,567 of ~3,000,000 done  …``."""
    words = [
        figures.duration(status.elapsed_s),
        figures.percent(share_finished(status.partitions)),
    ]
    if not all(part.complete for part in status.partitions):
        words.append(f"eta {figures.duration(status.eta_s)}")
        if status.stopping is None:
            words.append(f"limited by {limit(status)}")
    for each in facts(status):
        note = f" ({each.note})" if each.note else ""
        words.append(f"{each.label} {each.value}{note}")
    if status.paused is not None:
        words.append("paused")
    if status.trouble is not None:
        words.append("in trouble")  # a line of its own said which
    committed = [
        f"{part.partition}:{figures.offset(part.committed)}" for part in status.partitions[:_SHOWN]
    ]
    if (more := len(status.partitions) - len(committed)) > 0:
        committed.append(f"+{more} more")
    words.append(f"committed {' '.join(committed) or 'none'}")
    return "  ".join(words)


def status_fields(status: Status) -> dict[str, object]:
    """The same for a log collector, of bounded size; of latencies only the recent ones."""
    bounded = replace(
        status,
        partitions=tuple(nsmallest(_SHOWN, status.partitions, lambda p: p.watermark - p.end)),
        hottest=tuple((figures.sub_key(key, 60), waiting) for key, waiting in status.hottest),
        failures=replace(status.failures, errors=status.failures.errors[:_ERRORS_LOGGED]),
        latency=None,
        latency_recent=None,
        engine=None,
    )
    found, latency = builtins(bounded), status.latency_recent
    found["limited_by"] = limit_of(status).name.lower()
    del found["latency"]
    if latency is not None:
        names = ("mean_s", "p50_s", "p95_s", "p99_s")
        found["latency_recent"] = {name: getattr(latency, name) for name in names}
    if status.engine is not None:
        found["engine"] = status.engine.as_json()
    return found
