"""The facts of a running drain, for the live view, the lines, the log and the HTML page.

Each fact is made in one place, so all four agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import nsmallest
from threading import Lock

from drainer.engine.history import History
from drainer.model.account import Event, clock
from drainer.model.latency import Latency
from drainer.model.listed import clock_time, given_up_words
from drainer.model.progress import OTHERWISE
from drainer.model.settings import JOURNAL_INTERVAL_S
from drainer.model.status import (
    FailureStatus,
    HealthStatus,
    HeldBack,
    LimitStatus,
    PartitionStatus,
    ProgressStatus,
    Status,
    share_finished,
)
from drainer.store.place import absolute, parse_place
from drainer.text.escape import shorten
from drainer.view import figures, priority
from drainer.view.course import deepest_lanes, plots, troubles
from drainer.view.limit import advice, limit, limit_of
from drainer.view.page import (
    OK,
    STOPPED,
    WARN,
    Cell,
    Column,
    Field,
    Line,
    Page,
    Table,
    Tone,
    section,
)
from drainer.view.verdict import deadline_field, ending, judged

WITHOUT_EXTRA = "<!doctype html><title>drainer</title><p>This page needs drainer[report].</p>"
_HOTTEST_SHOWN, _KEY_SHOWN = 3, 24
_MINUTES_ARE_CLEAR = timedelta(minutes=10)  # A time that is earlier needs its seconds.
_MOST_LEFT, _ERRORS_LOGGED = 8, 5  # The partitions and errors in a line of the log.


class LivePage:
    """The HTML page of a running drain. Any thread may ask for it while the drain adds statuses."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lock = Lock()
        self._last: tuple[Status, datetime] | None = None
        self._ended: Page | None = None
        self._plan = ""  # The full path, because the page is read in other folders.

    def add(self, status: Status) -> None:
        with self._lock:
            self._history.add(status)
            # It is looked up once, because the working folder may be removed meanwhile.
            self._plan = self._plan or str(absolute(parse_place(status.plan)))
            self._last = replace(status, plan=self._plan), datetime.now().astimezone()

    def end(self, page: Page) -> None:
        """Show this page from now on, because the drain has ended."""
        self._ended = page

    def __call__(self, nonce: str) -> str:
        """Return the page as HTML, with ``nonce`` on its script. A status must have been added."""
        try:
            from drainer.view.report.page import html  # noqa: PLC0415 - an extra, and slow
        except ImportError:
            return WITHOUT_EXTRA
        with self._lock:
            assert self._last is not None
            page = self._ended or _page(*self._last, self._history)
        return html(page, datetime.now().astimezone(), nonce)


def _page(status: Status, now: datetime, history: History) -> Page:
    """Make the page of a drain whose ``status`` was taken at ``now``.

    ``now`` has the time zone in which times are shown.
    """
    begun = now - timedelta(seconds=status.timing.elapsed_s)
    changes = (Line(event_words(each, now)) for each in reversed(status.control.changes))
    errors = (Line(f"{figures.count(n)} × {kind}") for kind, n in status.failures.errors)
    share = figures.percent(share_finished(status.progress.partitions))
    share += priority.of_what(status.progress)
    return Page(
        verdict(status, now),
        (
            section("Diagnosis", causes(status)),
            section("Progress", facts(status)),
            section("Partitions", _partitions(status.progress)),
            section("Errors", errors),
            section("Changes", changes),
            section("Charts", plots(history, begun, status.timing.latency)),
            section("Outages and pauses", troubles(history, begun, now)),
            section("Deepest lanes", deepest_lanes(history)),
        ),
        subject=f"Drain of {status.topic} for group {status.group}, {share} done",
        details=tuple(Line(text, tone, WARN) for text, tone in beside_verdict(status)),
        times=(now,),
        data=status_fields(status),
    )


def _partitions(progress: ProgressStatus) -> Table | None:
    most_left = sorted(progress.partitions, key=lambda part: part.finished + part.start - part.end)
    rows: list[tuple[str | Cell, ...]] = [
        (*partition_cells(part), Cell("", bar=share_finished((part,)))) for part in most_left
    ]
    columns: tuple[str | Column, ...] = (Column("partition"), *partition_heading(progress), "")
    return Table(columns, tuple(rows)) if rows else None


def status_fields(status: Status) -> dict[str, object]:
    """Return a status as an object of bounded size for a log collector.

    It has only the partitions with the most left, the most frequent errors, and a few percentiles.
    """
    progress, timing = status.progress, status.timing
    most_left = nsmallest(_MOST_LEFT, progress.partitions, lambda p: p.watermark - p.end)
    errors = status.failures.errors[:_ERRORS_LOGGED]
    short = replace(
        status,
        progress=replace(progress, partitions=tuple(most_left)),
        failures=replace(status.failures, errors=errors),
        timing=replace(timing, latency=None, latency_recent=None),
    )
    return short.as_json() | {
        "latency": _percentiles(timing.latency),
        "latency_recent": _percentiles(timing.latency_recent),
        "limited_by": limit_of(status).name.lower(),
    }


def _percentiles(latency: Latency | None) -> dict[str, float] | None:
    if latency is None:
        return None
    return {name: getattr(latency, name) for name in ("mean_s", "p50_s", "p95_s", "p99_s")}


def warnings(status: Status) -> Iterator[tuple[str, str, Tone]]:
    """Yield the warnings that can't wait, each as the name of its event, its text and its tone."""
    progress = status.progress
    if status.health.trouble is not None:
        yield "trouble", trouble_words(status.health.trouble, status), Tone.WARN
    for warning in blocking_warnings(status.health):
        yield "blocked", warning, Tone.WARN
    if progress.is_late:
        end = expected_end(status) or next(deadline_field(progress.deadline)).value
        late = f"the drain will miss its deadline: {end}; limited by {limit(status)}"
        yield "deadline", late, Tone.BAD
    if status.control.stopping is not None:
        yield "stopping", f"stopping: {status.control.stopping}", Tone.WARN


def trouble_words(trouble: str, status: Status) -> str:
    """Return the trouble with all times that are known of it.

    An outage becomes ``outage since 17:02:11 (1m 10s): … refuses connections; next try in 8s, halts
    at 18:02``.
    """
    outage, silent_s = status.failures.outage, status.health.silent_s
    if silent_s is not None:
        return f"{trouble} since {figures.duration(silent_s)}"
    if outage is None:
        return f"trouble: {trouble}"
    since, halts = outage.since.astimezone(), outage.halts.astimezone()
    form = "%H:%M:%S" if halts - since < _MINUTES_ARE_CLEAR else "%H:%M"
    now = since + timedelta(seconds=outage.for_s)
    at, since_at = clock_time(halts, now, form), clock_time(since, now, "%H:%M:%S")
    what = "outage" if status.failures.in_outage else "trouble"
    begun = f"{what} since {since_at} ({figures.duration(outage.for_s)}): {trouble}"
    next_s = outage.next_try_s
    tries = "" if next_s is None else f"next try in {figures.duration(next_s)}, "
    return f"{begun}; {tries}halts at {at}"


def obstacle(status: Status) -> str | None:
    """Return the trouble, or else what holds the watermark back; None if nothing is in the way."""
    if status.health.trouble is not None:
        return trouble_words(status.health.trouble, status)
    return next((f"watermark {held_back_words(each)}" for each in status.limits.held_back), None)


def blocking_warnings(health: HealthStatus) -> Iterator[str]:
    """Yield a warning if the handler blocks the event loop."""
    if health.blocked_by is not None:
        yield (
            f"the handler blocks the event loop at {health.blocked_by}, and nothing"
            " else runs while it does. Declare `handle` as a plain `def`, which runs on threads, or"
            " await an async client there"
        )


def event_words(event: Event, now: datetime | None = None) -> str:
    """Return ``18:32:07 changed by ana@db1: concurrency 500 → 50 (the database is slow)``."""
    return f"{clock(event.at, now)} {event}"


def time_left(status: Status, now: datetime | None = None, *, of_all: bool = False) -> str:
    """Return ``25m 40s left, done at 17:31``; without the end while the drain does not go on.

    While a class is drained, its time comes first, unless only the time ``of_all`` is wanted.
    """
    if status.progress.eta_s is None:
        return "no estimate yet"
    left = f"{figures.duration(status.progress.eta_s)} left"
    if not of_all and (of_class := priority.time_left(status.progress)):
        left = f"{of_class}, {left} for all"
    return expected_end(status, now, left)


def expected_end(status: Status, now: datetime | None = None, how_long: str = "") -> str:
    """Return the expected end after ``how_long``; nothing if no end is known."""
    progress, control = status.progress, status.control
    goes_on = not progress.complete and control.stopping is None and control.paused is None
    eta_s, deadline = progress.eta_s if goes_on else None, progress.deadline
    end = "selected by" if progress.only_classes else "done at"
    if deadline is not None and deadline.late and eta_s is not None and eta_s <= deadline.left_s:
        now = deadline.at - timedelta(seconds=deadline.left_s)
        return f"{ending(how_long, eta_s, now=now, end=end)}, but late at the last minute's pace"
    return ending(how_long, eta_s, deadline, now, end=end)


def verdict(status: Status, now: datetime | None = None, *, of_all: bool = False) -> Line:
    """Return the headline of a status: how much time is left, or why the drain does not go on."""
    progress, control = status.progress, status.control
    if progress.complete:
        if given_up := given_up_words(progress.sub_messages):
            return Line(f"Drained, {given_up}", Tone.WARN, WARN)
        return Line("Drained", Tone.GOOD, OK)
    if control.stopping is not None:
        return Line(f"Stopping: {control.stopping}", Tone.WARN, STOPPED)
    if control.paused is not None:
        calls = figures.counted(status.limits.in_flight, "call")
        return Line(f"P{control.paused.in_words(now)[1:]}; {calls} in flight", Tone.WARN, STOPPED)
    if share_finished(progress.partitions) >= 1:  # The drain follows its topic.
        return Line("Waits for more", Tone.GOOD)
    return judged(time_left(status, now, of_all=of_all), progress.deadline)


def beside_verdict(status: Status) -> Iterator[tuple[str, Tone]]:
    """Yield the warnings that the verdict does not contain, each with its tone."""
    for event, text, tone in warnings(status):
        if event not in ("deadline", "stopping"):
            yield text, tone


def causes(status: Status) -> Iterator[Field]:
    """Yield what limits the drain, what can be done about it, and what a kill would repeat."""
    ending = share_finished(status.progress.partitions) >= 1 or status.control.stopping is not None
    if not ending:
        yield Field("limited by", limit(status))
        if found := advice(status):
            yield Field("to do", found)
    words = [f"plan saved {figures.duration(status.timing.plan_age_s)} ago"]
    if status.limits.in_flight or not ending:
        calls = figures.counted(status.limits.in_flight, "call")
        lately = f"the last {figures.duration(JOURNAL_INTERVAL_S)}"
        if status.engine_status is not None:  # Tasks write their records at another interval.
            lately = "what tasks have not recorded"
        words.append(f"a kill now repeats {calls} in flight and {lately}")
    yield Field("safe", "; ".join(words))


def facts(status: Status) -> Iterator[Field]:
    """Yield how far the drain is, how fast it is, and how it uses its workers and memory."""
    progress, latency = status.progress, status.timing.latency_recent
    if progress.lag is not None:
        behind, ago_s = figures.counted(progress.lag.messages, "message"), progress.lag.seconds
        note = "" if ago_s is None else f"all written before {figures.duration(ago_s)} ago is done"
        yield Field("behind the log", behind, note)
    yield from _done(progress)
    if failed := failure_words(status.failures):
        often = "".join(
            f"{figures.count(times)} × {kind}" for kind, times in status.failures.errors[:1]
        )
        yield Field("failures", failed, often, Tone.WARN)
    now, average = figures.rate(progress.rate_now), figures.rate(progress.rate_average)
    yield Field("speed", f"{now} sub-messages/s", f"average {average}")
    if status.engine_status is not None:
        yield from (Field(label, value) for label, value in status.engine_status.facts)
    yield from _workers(status.limits)
    yield from watermark_fields(status.limits)
    if latency is not None:
        yield Field("latency", figures.latency(latency), "of the last 10s")
    if not expected_end(status):
        yield from deadline_field(progress.deadline)
    yield from _memory(status.limits)


def _done(progress: ProgressStatus) -> Iterator[Field]:
    """Yield the progress of priority classes, of messages, and of sub-messages."""
    yield from priority.fields_now(progress)
    messages = figures.count(sum(part.messages_finished for part in progress.partitions))
    if not progress.complete:  # Afterwards it is known which offsets had no message.
        total = sum(part.end - part.start for part in progress.partitions)
        messages += f" of ~{figures.count(total)}"
    yield Field("messages", priority.messages_words(progress, messages))
    subs = progress.sub_messages
    others = figures.tally(*((getattr(subs, each.value), each.value) for each in OTHERWISE))
    if subs.unsplit:
        whom = "them" if subs.unsplit == subs.given_up else f"{figures.count(subs.unsplit)} of them"
        others += f": split rejected {whom}"
    words = ", ".join(filter(None, (f"{figures.count(subs.done)} done", others)))
    yield Field("sub-messages", words, tone=Tone.BAD if subs.given_up else Tone.PLAIN)


def _workers(limits: LimitStatus) -> Iterator[Field]:
    count = figures.count
    yield Field(
        "workers",
        f"{count(limits.workers_busy)} of {count(limits.concurrency)} busy",
        f"{count(limits.lanes_ready)} of {count(limits.lanes)} lanes wait for one",
    )
    if limits.auto is not None:
        yield Field("concurrency", f"{count(limits.auto.limit)} (auto, {limits.auto.why})")


def watermark_fields(limits: LimitStatus) -> Iterator[Field]:
    """Yield what holds the watermark back that has stood longest, while it stands."""
    for first in limits.held_back[:1]:
        more = len(limits.held_back) - 1
        note = f"and {figures.counted(more, 'more partition')}" if more else ""
        yield Field("watermark", held_back_words(first), note)


def held_back_words(found: HeldBack) -> str:
    """Return ``held back by 0:470, sub-key 'd-root' (423 before it), for 20s``."""
    words = [f"held back by {found.partition}:{found.offset}"]
    if found.key is not None:
        before = f" ({figures.count(found.before)} before it)" if found.before else ""
        place = " (waits for a worker)" if found.is_ready else before
        words.append(f"sub-key {shorten(found.key, _KEY_SHOWN)}{place}")
    return ", ".join((*words, f"for {figures.duration(found.for_s)}"))


def _memory(limits: LimitStatus) -> Iterator[Field]:
    hottest = ", ".join(
        f"{shorten(key, 18)} {figures.count(waiting)}"
        for key, waiting in limits.hottest[:_HOTTEST_SHOWN]
    )
    if hottest:
        yield Field("hot lanes", hottest)
    sizes = map(figures.size, (limits.buffered_bytes, limits.buffer_bytes))
    yield Field("buffer", " of ".join(sizes))


def failure_words(failures: FailureStatus) -> str:
    """Return ``410 failed attempts on 96 sub-messages, 300 retries``; empty if none failed."""
    attempts = "failed attempt" if failures.failures == 1 else "failed attempts"
    if subs := failures.failed_sub_messages:
        attempts += f" on {figures.counted(subs, 'sub-message')}"
    return figures.tally(
        (failures.failures, attempts),
        (failures.retries, "retry" if failures.retries == 1 else "retries"),
        (failures.waiting, "to retry"),
        (failures.timeouts, "timed out"),
        (failures.late, "overdue"),
        (failures.outages, "× outage"),
        (failures.parked_lanes, "× parked lane"),
    )


def partition_heading(progress: ProgressStatus) -> tuple[str, ...]:
    """Return the names of the cells that ``partition_cells`` returns after the number."""
    done = "selected done" if progress.only_classes else "done"
    return "watermark", "committed", "end", done


def partition_cells(part: PartitionStatus) -> tuple[str, ...]:
    """Return a partition's number, watermark, committed offset and end, and the share done."""
    share = figures.percent(share_finished((part,)))
    ends = str(part.watermark), figures.offset(part.committed), str(part.end)
    return (str(part.partition), *ends, share)
