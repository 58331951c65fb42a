"""The output of ``drainer limits``: the preview, the progress, and the page of results."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

from drainer.limits.measure import PreparedLimits
from drainer.limits.search.boundary import Boundary, MeasuredLimits, as_json
from drainer.limits.search.settings import LimitSettings
from drainer.limits.search.trial import End, Point, Signals, Verdict
from drainer.limits.trials import USUAL_TRIALS, LimitsStatus, usual_s
from drainer.model.listed import listed
from drainer.view import figures
from drainer.view.live import RunningLine
from drainer.view.page import Cell, Column, Field, Line, Page, Table, Tone, section
from drainer.view.terminal import Terminal

_VERDICTS = {Verdict.CLIENTS: "clients were the limit"}
_ENDS = {
    End.MOST: "lower bound: the highest rate tried; raise --max-rate to try more",
    End.CLIENTS: "lower bound: clients could do no more; add executors, or cores",
    End.NONE: "no traffic was safe",
    End.UNCLEAR: "unclear: no trial gave a verdict",
    End.WIDE: "wider than --precision",
}


def show_limits_action(
    terminal: Terminal, prepared: PreparedLimits, bootstrap_servers: str, master: str
) -> None:
    """Print the preview: the traffic, its topics, and test topics that drainer will remove."""
    limits = prepared.limits
    settings = limits.settings
    brokers, path = figures.counted(limits.brokers, "broker"), str(prepared.file.path)
    kept = figures.counted(len(limits.trials), "trial")
    terminal.items(
        Line("Measure how much traffic the brokers tolerate", Tone.STRONG),
        Field("cluster", f"{brokers} at {bootstrap_servers}", f"id {limits.cluster_id}"),
    )
    if prepared.left_behind:
        topics = ", ".join(prepared.left_behind)
        terminal.items(Field("left behind", topics, "test topics of killed runs, removed now"))
    if not limits.missing:
        terminal.items(Field("known", f"all boundaries, from {kept} in {path}"))
        return
    sizes = ", ".join(map(figures.size, settings.message_bytes))
    why = "by --max-rate"
    if settings.max_mb_per_s is None:
        why = "at first, doubled while it is safe; --max-rate bounds it"
    producers = figures.counted(settings.max_producers, "producer")
    pace = limits.bytes_per_s_most / settings.max_producers / 1e3
    terminal.items(
        Field("test topic", listed(prepared.targets.topics), "deleted at the end"),
        Field("boundaries", f"messages of {sizes}", ", ".join(traffic_words(settings))),
        Field(
            "at most",
            f"{_mb(limits.bytes_per_s_most)} MB/s",
            f"{why}; {producers} of {pace:,.1f} kB/s each",
        ),
        _each_trial(limits),
        Field("decided by", decided_by(settings)),
        Field("runs on", f"Spark at {master}"),
        Field("result", path, f"{kept} in it" if limits.trials else ""),
    )


class SearchView(RunningLine):
    """Prints a line per trial and per boundary. On a screen, a last line shows what runs now.

    The trials and boundaries of ``known`` are not printed.
    """

    def __init__(self, terminal: Terminal, known: MeasuredLimits) -> None:
        super().__init__(terminal)
        self._known = known

    def update(self, status: LimitsStatus) -> None:
        """Print the trials and boundaries that are new. During a trial, draw the last line."""
        if status.point is None:
            self._write(status)
        else:
            self.draw(_running(status, status.point))

    def _write(self, status: LimitsStatus) -> None:
        took, left = figures.duration(status.elapsed_s), figures.duration(status.left_s)
        limits, known = status.limits, self._known
        for trial in limits.trials[len(known.trials) :]:
            verdict = _VERDICTS.get(trial.verdict, trial.verdict.value)
            words = ", ".join([f"{_point_words(trial.point)}: {verdict}", *trial.why])
            self._terminal.print_line(f"{took}  {words}  (about {left} left)")
        for boundary in limits.boundaries[len(known.boundaries) :]:
            rate = f"{figures.rate(boundary.messages_per_s)} messages/s ({between(boundary)})"
            size = figures.size(boundary.message_bytes)
            self._terminal.print_line(f"{took}  {size}  boundary: {rate}, {ended(boundary)}")
        self._known = limits


def _running(status: LimitsStatus, point: Point) -> str:
    words = [_point_words(point), status.phase]
    found = status.found
    if found is not None and found.overloaded is not None:
        levels = found.safe, found.overloaded
        points = (status.limits.point(status.message_bytes, level) for level in levels)
        words.append("between " + " and ".join(figures.rate(p.messages_per_s) for p in points))
    if status.signals is not None:
        baseline_ms = status.limits.baseline.get(status.message_bytes)
        words.append(signal_words(status.signals, baseline_ms))
    words.append(f"about {figures.duration(status.left_s)} left")
    return "   ".join(words)


def between(boundary: Boundary) -> str:
    """Return the range in which a boundary lies, in messages/s."""
    low = figures.rate(boundary.low)
    return f"above {low}" if boundary.high is None else f"{low} to {figures.rate(boundary.high)}"


def ended(boundary: Boundary) -> str:
    """Return what decided a boundary, or why it is not known more precisely."""
    why = "; ".join(boundary.why)
    if boundary.end is End.WIDE and boundary.is_open:
        return "lower bound: no trial overloaded the brokers"
    words = _ENDS.get(boundary.end, "")
    if boundary.end in (End.MOST, End.UNCLEAR) or not why:
        return words
    return f"{words}: {why}" if words else why


def signal_words(signals: Signals, baseline_ms: float | None) -> str:
    """Return each signal in a few words. Signals that were not measured are left out."""
    words = [f"sent {figures.rate(signals.sent_per_s)}/s"]
    if signals.round_trip_ms is not None:
        unloaded = "" if baseline_ms is None else f" (unloaded {baseline_ms:,.1f} ms)"
        words.append(f"round trip {signals.round_trip_ms:,.1f} ms{unloaded}")
    shares = {
        "handlers idle": signals.handlers_idle,
        "in-sync replicas changing": signals.isr_changing,
        "falling behind": signals.falling_behind,
        "throttled": signals.throttled,
        "clients busy": signals.clients_busy,
    }
    words += [f"{name} {share:.0%}" for name, share in shares.items() if share is not None]
    if signals.errors:
        words.append(figures.counted(signals.errors, "error"))
    return ", ".join(words)


def decided_by(settings: LimitSettings) -> str:
    """Describe the measurements that decide whether brokers are overloaded."""
    if settings.jmx:
        return (
            "request handlers of the brokers (JMX), in-sync replicas, and the clients' measurements"
        )
    return "the clients' measurements, and in-sync replicas; --jmx host:port adds request handlers"


def _each_trial(limits: MeasuredLimits) -> Field:
    settings = limits.settings
    all_s = min(USUAL_TRIALS, settings.trials) * limits.missing * usual_s(settings)
    warm_up, window = map(figures.duration, (settings.warm_up_s, settings.window_s))
    words = f"{warm_up} to warm up, {window} watched"
    return Field("each trial", words, f"about {figures.duration(all_s)} in all")


def traffic_words(settings: LimitSettings) -> tuple[str, ...]:
    """Return the properties of the traffic besides the message size, each in a few words."""
    return (
        f"{figures.counted(settings.consumer_groups, 'group')} reading",
        f"{figures.counted(settings.partitions, 'partition')} per broker",
        figures.counted(settings.topics, "topic"),
        f"{settings.payload} payloads",
        f"compression {settings.compression}",
    )


def _point_words(point: Point) -> str:
    producers = figures.counted(point.producers, "producer")
    rate = f"{figures.rate(point.messages_per_s)} messages/s, {_mb(point.bytes_per_s)} MB/s"
    return f"{figures.size(point.message_bytes)}  {rate} ({producers})"


def _mb(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:,.1f}"


def limits_page(path: Path, limits: MeasuredLimits) -> Page:
    """Return the page with the boundaries, what decided them, and what a drain may use of them.

    ``path`` is the file of these limits. The page's data for programs include every trial.
    """
    settings, ways_on = limits.settings, list[Field]()
    if not limits.missing:
        use = f"drainer run … --broker-limits {shlex.quote(str(path))}"
        ways_on.append(Field("use them", use))
    return Page(
        _headline(limits),
        (
            section("Boundaries", _boundaries(limits)),
            section(
                "Basis",
                Field("safe", f"{figures.share(settings.safe_share)} of the boundary"),
                Field("traffic", ", ".join(traffic_words(settings))),
                Field("decided by", decided_by(settings)),
                Field("limits", str(path)),
            ),
        ),
        subject=f"{figures.counted(limits.brokers, 'broker')} of cluster {limits.cluster_id}",
        warnings=tuple(_warnings(limits)),
        ways_on=tuple(ways_on),
        times=(datetime.fromtimestamp(limits.at, UTC),),
        data=as_json(limits),
    )


def _headline(limits: MeasuredLimits) -> Line:
    best = max(limits.boundaries, key=limits.mb_per_s_a_broker, default=None)
    if best is None or not (rate := limits.mb_per_s_a_broker(best)):
        return Line("no boundary is known yet", Tone.STRONG)
    prefix = "at least" if best.is_open else "up to"
    size = figures.size(best.message_bytes)
    return Line(f"{prefix} {rate:,.1f} MB/s per broker, at {size}", Tone.STRONG)


def _boundaries(limits: MeasuredLimits) -> Table | None:
    rows = tuple(
        (
            Cell(figures.size(each.message_bytes), Tone.STRONG),
            ("≥ " if each.is_open else "") + figures.rate(each.messages_per_s),
            f"{limits.mb_per_s_a_broker(each):,.1f}",
            between(each),
            figures.rate(limits.settings.safe_share * each.messages_per_s),
            figures.rate(limits.settings.safe_share * each.read_per_s),
            figures.count(each.trials),
            Cell(ended(each), Tone.QUIET if each.end is End.NARROW else Tone.WARN),
        )
        for each in sorted(limits.boundaries, key=lambda each: each.message_bytes)
    )
    figured = ("messages/s", "MB/s per broker", "between", "safe to write", "safe to read")
    columns = (Column(""), *figured, "trials", Column("decided by", wide=True))
    return Table(columns, rows, shown=len(rows)) if rows else None


def _warnings(limits: MeasuredLimits) -> list[str]:
    """Return warnings on boundaries that are not known well enough, and how to get them."""
    found = [] if not limits.missing else ["The search is not complete: repeat the command."]
    for each in limits.boundaries:
        if each.end is End.WIDE:
            more = each.trials >= limits.settings.trials
            found.append(
                f"{figures.size(each.message_bytes)}: the boundary is {between(each)} messages/s,"
                f" wider than {figures.share(limits.settings.precision)} on either side. "
                + ("Raise --trials, and repeat the command." if more else "Lower --max-rate.")
            )
    return found
