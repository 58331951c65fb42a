"""What a person asks of a running drain: the facts of the live view and of lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from drainer.model.event import Event, clock
from drainer.model.status import DeadlineStatus, FailureStatus, PartitionStatus, Status
from drainer.view import figures
from drainer.view.limit import advice, limit
from drainer.view.page import BAD, OK, STOPPED, Field, Line, Tone

_HOTTEST_SHOWN = 3
LANE_SHOWN = 40


def share_finished(partitions: Iterable[PartitionStatus]) -> float:
    """How much of a backlog is finished, 0 to 1: 1 only when it is complete.

    In sub-messages, of which those to come are estimated. While nothing was read they can't be, and
    offsets count: those below the watermark, or messages if these are more.
    """
    parts = tuple(partitions)
    if all(part.complete for part in parts):
        return 1.0
    lefts = [part.sub_messages_left for part in parts]
    done = sum(part.sub_messages_finished for part in parts)
    total = done + sum(filter(None, lefts))
    if None in lefts:
        done = sum(map(finished, parts))
        total = sum(part.end - part.start for part in parts)
    return min(done / total, 0.9999) if total > 0 else 0.0


def warnings(status: Status) -> Iterator[tuple[str, str, Tone]]:
    """What can't wait: the name of the event, its text and its tone."""
    if status.health.trouble is not None:
        yield "trouble", f"trouble: {status.health.trouble}", Tone.WARN
    if status.health.blocked_by is not None:
        yield "blocked", blocking_warning(status.health.blocked_by), Tone.WARN
    if status.progress.deadline is not None and status.progress.deadline.missed:
        warning = f"the drain will miss its deadline, {deadline_words(status.progress.deadline)}"
        yield "deadline", f"{warning}; limited by {limit(status)}", Tone.BAD
    if status.control.stopping is not None:
        yield "stopping", f"stopping: {status.control.stopping}", Tone.WARN


def blocking_warning(place: str) -> str:
    return (
        f"the handler blocks the event loop at {place}: nothing else runs meanwhile. Declare"
        " `handle` as a plain `def`, which runs on threads, or await an async client there"
    )


def asked_words(event: Event) -> str:
    """``18:32:07 changed by ana@db1: concurrency 500 → 50 (the database is slow)``."""
    return f"{clock(event.at)} {event}"


def verdict(status: Status) -> Line:
    """Whether it will be done in time, first of all."""
    left, known = figures.duration(status.progress.eta_s), status.progress.eta_s is not None
    if all(part.complete for part in status.progress.partitions):
        return Line("All drained", Tone.GOOD, OK)
    if status.control.stopping is not None:
        return Line(f"Stopping: {status.control.stopping}", Tone.WARN, STOPPED)
    if status.control.paused is not None:
        calls = figures.counted(status.limits.running, "call")
        return Line(f"P{str(status.control.paused)[1:]}; {calls} in flight", Tone.WARN, STOPPED)
    deadline, turn = status.progress.deadline, status.progress.turn
    if deadline is None or deadline.margin_s is None:
        words = f"{left} left" if known else "No estimate yet"
        if turn is not None and turn.eta_s is not None:
            words = f"{figures.duration(turn.eta_s)} left for what comes first, {left} for all"
        return Line(words, Tone.STRONG)
    at = f"{deadline.at.astimezone():%d %b %H:%M}"
    margin = figures.duration(abs(deadline.margin_s))
    if deadline.margin_s >= 0:
        return Line(f"Meets the deadline {at}, with {margin} to spare", Tone.GOOD, OK)
    return Line(
        f"Misses the deadline {at} by {margin}", Tone.BAD if deadline.missed else Tone.WARN, BAD
    )


def beside_verdict(status: Status) -> Iterator[tuple[str, Tone]]:
    """The warnings that the verdict doesn't give."""
    for event, text, tone in warnings(status):
        if event not in ("deadline", "stopping"):
            yield text, tone


def causes(status: Status) -> Iterator[Field]:
    """What limits it, what can be done, and what a kill would cost: in that order."""
    ending = share_finished(status.progress.partitions) >= 1 or status.control.stopping is not None
    if not ending:
        yield Field("limited by", limit(status))
        if found := advice(status):
            yield Field("to do", found)
    calls = figures.counted(status.limits.running, "call")
    saved = f"plan saved {figures.duration(status.timing.plan_age_s)} ago"
    yield Field("safe", f"{saved}; a kill now repeats {calls} in flight")


def facts(status: Status) -> Iterator[Field]:
    """How far it is, how fast, and what keeps it from being faster."""
    count = figures.count
    yield from class_times(status)
    messages = sum(part.messages_finished for part in status.progress.partitions)
    total = sum(part.end - part.start for part in status.progress.partitions)
    passed = f"{count(messages)} of ~{count(total)}"
    searched = f"searched {passed} for messages to drain first"
    yield Field("messages", f"{passed} done" if status.progress.turn is None else searched)
    subs = status.progress.sub_messages
    told = figures.tally(
        *((subs.skipped, "skipped"), (subs.failed, "failed"), (subs.dead, "dead")),
        (subs.unsplit, "of these messages that split rejected"),
    )
    done = f"{count(subs.done)} done"
    tone = Tone.BAD if subs.given_up else Tone.PLAIN
    yield Field("sub-messages", f"{done}, {told}" if told else done, tone=tone)
    if failed := failure_words(status.failures):
        often = "".join(f"{count(times)} x {kind}" for kind, times in status.failures.errors[:1])
        yield Field("failures", failed, often, Tone.WARN)
    now, average = (
        figures.rate(status.progress.rate_now),
        figures.rate(status.progress.rate_average),
    )
    yield Field("speed", f"{now} sub-messages/s", f"average {average}")
    if status.engine is not None:
        for label, value in status.engine.facts:
            yield Field(label, value)
    yield Field(
        "workers",
        f"{count(status.limits.workers_busy)} of {count(status.limits.concurrency)} busy",
        f"{count(status.limits.lanes_ready)} of {count(status.limits.lanes)} lanes wait for one",
    )
    if status.limits.auto is not None:
        yield Field(
            "concurrency", f"{count(status.limits.auto.limit)} (auto, {status.limits.auto.why})"
        )
    if status.timing.latency_recent is not None:
        yield Field("latency", figures.latency(status.timing.latency_recent), "of the last 10s")
    if status.progress.deadline is not None:
        tone = Tone.BAD if status.progress.deadline.late else Tone.PLAIN
        yield Field("deadline", deadline_words(status.progress.deadline), tone=tone)
    hottest = ", ".join(
        f"{figures.sub_key(key, 18)} {count(waiting)}"
        for key, waiting in status.limits.hottest[:_HOTTEST_SHOWN]
    )
    if hottest:
        yield Field("hottest lanes", hottest)
    buffered, buffer = (
        figures.size(status.limits.buffered_bytes),
        figures.size(status.limits.buffer_bytes),
    )
    yield Field("buffer", f"{buffered} of {buffer}")


def class_times(status: Status) -> Iterator[Field]:
    """When each class is drained, and when all is."""
    for number, each in enumerate(status.progress.classes):
        done = f"{figures.count(each.sub_messages.finished)} done"
        if each.left is not None:
            total = figures.count(each.sub_messages.finished + each.left)
            done = f"{figures.count(each.sub_messages.finished)} of ~{total} done"
        if each.ended is not None:
            done += f" by {clock(each.ended)}"
        elif each.eta_s is not None:
            done = f"by {_time_in(each.eta_s)}, {done}"
        if each.held:
            done += f"; {figures.count(each.held)} wait for the rest"
        where = figures.shorten(each.where, LANE_SHOWN)
        yield Field("then" if number else "first", where, done)
    if status.progress.classes and status.progress.eta_s is not None:
        yield Field("all", f"by {_time_in(status.progress.eta_s)}")


def _time_in(seconds: float) -> str:
    at = datetime.now().astimezone() + timedelta(seconds=seconds)
    return f"{at:%H:%M:%S}" if seconds < 3600 else f"{at:%d %b %H:%M}"


def failure_words(failures: FailureStatus) -> str:
    """``410 failed attempts on 96 sub-messages, 300 retries``; nothing if none failed."""
    attempts = "failed attempt" if failures.failures == 1 else "failed attempts"
    if subs := failures.failed_sub_messages:
        attempts += f" on {figures.counted(subs, 'sub-message')}"
    return figures.tally(
        (failures.failures, attempts),
        (failures.retries, "retry" if failures.retries == 1 else "retries"),
        (failures.waiting, "to retry"),
        (failures.timeouts, "timed out"),
        (failures.late, "overdue"),
        (failures.outages, "x outage"),
        (failures.parked_lanes, "x parked lane"),
    )


def deadline_words(deadline: DeadlineStatus) -> str:
    """``14 Mar 08:00: 20m 00s to spare`` and the like, in this machine's zone."""
    at = f"{deadline.at.astimezone():%d %b %H:%M}"
    if deadline.margin_s is None:
        return f"{at}, in {figures.duration(deadline.left_s)}"
    if deadline.margin_s >= 0:
        return f"{at}: {figures.duration(deadline.margin_s)} to spare"
    return f"{at}: {figures.duration(-deadline.margin_s)} too late"


def partition_cells(part: PartitionStatus) -> tuple[str, ...]:
    """Its number, watermark, committed offset and end, and how much is done."""
    share = figures.percent(share_finished((part,)))
    ends = str(part.watermark), figures.offset(part.committed), str(part.end)
    return (str(part.partition), *ends, share)


def finished(part: PartitionStatus) -> int:
    """Of its offsets, at least."""
    offsets = part.end - part.start
    return min(offsets, max(part.messages_finished, part.watermark - part.start))
