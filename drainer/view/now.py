"""The page of a drain that runs: its verdict first, then why, what to do, and the figures."""

from __future__ import annotations

from datetime import datetime, timedelta
from threading import Lock

from drainer.engine.history import History
from drainer.model.status import Status
from drainer.view import figures
from drainer.view.course import deepest_lanes, plots, troubles
from drainer.view.lines import status_fields
from drainer.view.page import WARN, Cell, Column, Line, Page, Table, section
from drainer.view.progress import (
    asked_words,
    beside_verdict,
    causes,
    facts,
    finished,
    partition_cells,
    share_finished,
    verdict,
)

WITHOUT_EXTRA = "<!doctype html><title>drainer</title><p>This page needs drainer[report].</p>"


class LivePage:
    """The page of a drain, for threads that show it while the drain's own one adds statuses."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lock = Lock()
        self._last: tuple[Status, datetime] | None = None
        self._ended: Page | None = None

    def add(self, status: Status) -> None:
        with self._lock:
            self._history.add(status)
            self._last = status, datetime.now().astimezone()

    def end(self, page: Page) -> None:
        """This one is shown from now on."""
        self._ended = page

    def __call__(self, nonce: str) -> str:
        """As HTML, whose script has this nonce; there must be a status."""
        try:
            from drainer.view.report.page import html  # noqa: PLC0415 - an extra, and slow
        except ImportError:
            return WITHOUT_EXTRA
        with self._lock:
            assert self._last is not None
            status, at = self._last
            page = self._ended or now_page(status, self._history, at)
        return html(page, datetime.now().astimezone(), nonce)


def now_page(status: Status, history: History, now: datetime) -> Page:
    """As of its last status; ``now`` has the zone to tell it in."""
    begun = now - timedelta(seconds=status.timing.elapsed_s)
    asked = (Line(asked_words(each)) for each in reversed(status.control.changes))
    errors = (Line(f"{figures.count(n)} x {kind}") for kind, n in status.failures.errors)
    share = figures.percent(share_finished(status.progress.partitions))
    return Page(
        verdict(status),
        (
            section("Diagnosis", causes(status)),
            section("Progress", facts(status)),
            section("Partitions", _partitions(status)),
            section("What failed", errors),
            section("Changes", asked),
            section("Charts", plots(history, begun, status.timing.latency)),
            section("Outages and pauses", troubles(history, begun)),
            section("Deepest lanes", deepest_lanes(history)),
        ),
        subject=f"Drain of {status.topic} for group {status.group}, {share} done",
        details=tuple(Line(text, tone, WARN) for text, tone in beside_verdict(status)),
        times=(now,),
        data=status_fields(status),
    )


def _partitions(status: Status) -> Table | None:
    parts = sorted(
        status.progress.partitions, key=lambda part: finished(part) + part.start - part.end
    )
    rows: list[tuple[str | Cell, ...]] = [
        (*partition_cells(part), Cell("", bar=share_finished((part,)))) for part in parts
    ]
    columns = (Column("partition"), "watermark", "committed", "end", "done", "")
    return Table(columns, tuple(rows)) if rows else None
