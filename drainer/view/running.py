"""The drains on this machine, as a page, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from drainer.control.client import FoundDrain
from drainer.text.escape import command
from drainer.view import figures
from drainer.view.page import Cell, Column, Field, Line, Page, Table, Tone, section
from drainer.view.status import share_finished

# A drain answers twice a second. It counts as silent if its last answer is older than this.
SILENT_S = 5.0


def state_of(found: FoundDrain) -> str:
    """Return the state of a drain in a word or two."""
    status = found.status
    if found.left is not None:
        return "killed" if found.left.account.running else "stopped"
    if status is None:
        return "silent" if found.age_s > SILENT_S else "starting"
    signs = (
        (status.control.stopping is not None, "stopping"),
        (found.age_s > SILENT_S, "silent"),
        (status.control.paused is not None, "paused"),
        (status.health.in_trouble, "in trouble"),
    )
    return next((state for shows, state in signs if shows), "draining")


def running_page(found: Sequence[FoundDrain]) -> Page:
    """Make a page with a row for each drain, and how to resume those that no process works on."""
    columns = ("plan", "topic", "group", "engine", "state", "done", "left", "since", "pid")
    rows = tuple(map(_row, found))
    table = Table(
        tuple(name if name in ("done", "left", "pid") else Column(name) for name in columns),
        rows,
        shown=len(rows),
    )
    commands = [resume for each in found if (resume := _resume(each))]
    running = len(found) - len(commands)
    head = (
        f"{figures.counted(running, 'drain')} {'runs' if running == 1 else 'run'} on this machine"
    )
    if commands:
        head += f"; {len(commands)} in this folder can be resumed"
    return Page(
        Line(head),
        (section("", table if found else None),),
        ways_on=tuple(Field("resume", each) for each in commands),
    )


def found_line(found: FoundDrain) -> str:
    """Return ``orders for indexer  draining  41.2%  3m 20s left  89,000 sub-messages/s``."""
    about, status = found.about, found.status
    words = [f"{about.topic} for {about.group}", state_of(found)]
    if status is not None:
        words += [_done(found), f"{_left(found)} left"]
        words.append(f"{figures.rate(status.progress.rate_now)} sub-messages/s")
    return "  ".join(words)


def found_as_json(found: FoundDrain) -> dict[str, Any]:
    """Return a drain as JSON of bounded size.

    ``done`` is a share from 0 to 1. The fields of the status are None before the first one.
    """
    status = {} if found.status is None else found.status.as_json()
    return found.about.as_json() | {
        "pid": found.pid or None,
        "state": state_of(found),
        "done": _share(found),
        "resume": _resume(found),
        "age_s": found.age_s,
        **{name: status.get(name) for name in _OF_STATUS},
    }


_OF_STATUS = ("eta_s", "rate_now", "in_flight", "concurrency", "paused", "trouble")


def _row(found: FoundDrain) -> tuple[str | Cell, ...]:
    about, state = found.about, state_of(found)
    calm = state in ("draining", "starting")
    return (
        _short(about.plan),
        about.topic,
        about.group,
        about.engine,
        Cell(state, Tone.PLAIN if calm else Tone.WARN),
        _done(found),
        _left(found),
        f"{datetime.fromisoformat(about.since).astimezone():%d %b %H:%M}",
        str(found.pid or "-"),
    )


def _done(found: FoundDrain) -> str:
    share = _share(found)
    return "-" if share is None else figures.percent(share)


def _share(found: FoundDrain) -> float | None:
    if found.left is not None:
        parts = found.left.account.partitions
        total = sum(part.end - part.start for part in parts.values())
        return 1 - sum(map(found.left.account.to_go, parts)) / total
    return None if found.status is None else share_finished(found.status.progress.partitions)


def _resume(found: FoundDrain) -> str | None:
    return None if found.left is None else command("resume", _short(found.about.plan))


def _left(found: FoundDrain) -> str:
    status = found.status
    return "-" if status is None else figures.duration(status.progress.eta_s)


def _short(plan: str) -> str:
    """Return a plan's path relative to the working directory, if it lies below that."""
    path, here = Path(plan), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else plan
