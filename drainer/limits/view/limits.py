"""What brokers bear on the terminal: what will be tried, what was found, and two findings."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from drainer.limits.leftovers import Leftovers
from drainer.limits.measure import PreparedLimits
from drainer.limits.request import differences
from drainer.limits.search.boundary import Boundary, Limits
from drainer.limits.search.comparison import Change, Comparison
from drainer.limits.search.point import End, Point, Signals, Trial, Verdict
from drainer.limits.search.settings import Axis, LimitSettings, Value
from drainer.limits.trials import USUAL_TRIALS
from drainer.view import figures
from drainer.view.layout import (
    BAD,
    BAD_STYLE,
    GOOD_STYLE,
    HEAD_STYLE,
    OK,
    QUIET_STYLE,
    WARN_STYLE,
    field,
    table,
)
from drainer.view.terminal import Terminal

NAMES_SHOWN = 4
SURROUNDINGS_S = 6.0  # of a trial: clients connect, brokers come to rest

MARKS = {
    Verdict.SAFE: (OK, GOOD_STYLE),
    Verdict.OVERLOADED: (BAD, BAD_STYLE),
    Verdict.CLIENTS: ("!", WARN_STYLE),
    Verdict.UNCLEAR: ("?", WARN_STYLE),
}
_ENDS = {
    End.MOST: "lower bound: the most that was allowed",
    End.CLIENTS: "lower bound: clients could do no more",
    End.NONE: "no traffic was safe",
    End.UNCLEAR: "unclear: trials told nothing",
    End.TRIALS: "less narrow than asked",
}
_KNOW_NO_WHY = (End.MOST, End.UNCLEAR)
VERDICTS = {
    Verdict.SAFE: "safe",
    Verdict.OVERLOADED: "overloaded",
    Verdict.CLIENTS: "clients were the limit",
    Verdict.UNCLEAR: "unclear",
}


def show_limits_action(terminal: Terminal, prepared: PreparedLimits, master: str) -> None:
    """What is about to be done, and to which topic and groups."""
    limits, request = prepared.limits, prepared.request
    settings = limits.settings
    terminal.show(Text("Find out how much traffic the brokers bear", HEAD_STYLE))
    brokers = figures.counted(limits.brokers, "broker")
    terminal.show(
        field("cluster", f"{brokers} at {prepared.bootstrap_servers}", f"id {limits.cluster_id}")
    )
    kept = figures.counted(len(limits.trials), "trial")
    if limits.complete:
        terminal.show(field("known", f"all of it, from {kept} in {request.out}"))
        return
    partitions = figures.counted(settings.most(Axis.PARTITIONS), "partition")
    terminal.show(field("test topic", prepared.topic, f"{partitions}, deleted at the end"))
    terminal.show(field("groups", _range_of(prepared.groups), "deleted at the end"))
    values = ", ".join(value_words(settings.axis, value) for value in settings.values)
    what = "messages of " if settings.axis is Axis.MESSAGE_BYTES else ""
    terminal.show(field("boundaries", f"{what}{values}", held_fixed(settings)))
    most = mb_words(settings.bytes_per_s_most)
    why = "by --max-mb-per-s" if request.bytes_per_s_most is not None else "set --max-mb-per-s"
    producers = figures.counted(settings.producers_most, "producer")
    pace = settings.pace_bytes_per_s / 1e3
    terminal.show(field("at most", f"{most} MB/s", f"{why}; {producers} of {pace:,.1f} kB/s each"))
    terminal.show(field("each trial", *_each_trial(prepared)))
    terminal.show(field("decided by", decided_by(settings)))
    terminal.show(field("runs on", f"Spark at {master}"))
    terminal.show(field("result", str(request.out), f"{kept} in it" if limits.trials else ""))
    if prepared.live:
        others = prepared.live.words(NAMES_SHOWN)
        terminal.warn(f"others use this cluster, and will notice: {others}")
    if settings.compressibility == 0 and _compresses(settings):
        terminal.warn("random payloads don't compress; --compressibility 50% makes them")
    if prepared.left_behind:
        topics = figures.counted(len(prepared.left_behind.topics), "test topic")
        groups = figures.counted(len(prepared.left_behind.groups), "group")
        terminal.warn(
            f"there are {topics} and {groups} of other runs;"
            f" `drainer limits cleanup -b {prepared.bootstrap_servers}` removes what they left"
        )


def show_limits(terminal: Terminal, limits: Limits, path: Path) -> None:
    """The boundaries, what decided, and what a drain may use."""
    settings = limits.settings
    terminal.say("")
    rows = table("", "messages/s", "MB/s a broker", "between", "safe cap", "trials", "")
    for boundary in limits.boundaries:
        name, rate, wide, mb, cap, _, trials, why = boundary_cells(limits, boundary)
        style = WARN_STYLE if unsure(boundary) else QUIET_STYLE
        rows.add_row(
            Text(name, HEAD_STYLE), rate, mb, wide, f"{cap} messages/s", trials, Text(why, style)
        )
    terminal.show(rows)
    terminal.say("")
    share = figures.share(settings.safe_share)
    terminal.show(field("safe cap", f"{share} of the boundary", "what a drain may use"))
    terminal.show(field("decided by", decided_by(settings)))
    for warning in warnings(limits):
        terminal.warn(warning)
    terminal.show(field("limits", str(path)))
    if settings.axis is Axis.MESSAGE_BYTES and limits.complete:
        file = shlex.quote(str(path))
        terminal.show(field("to use them", f"drainer run … --limits {file}"))


def show_comparison(terminal: Terminal, found: Comparison, before: Limits, after: Limits) -> None:
    """What moved, by how much, and whether that is more than the two are unsure of."""
    axis = before.settings.axis
    for name, limits in (("before", before), ("after", after)):
        brokers = figures.counted(limits.brokers, "broker")
        terminal.show(field(name, brokers, f"cluster {limits.cluster_id}"))
    terminal.say("")
    rows = table("", "before", "after", "MB/s a broker", "moved by", "")
    for change in found.changes:
        rows.add_row(
            Text(value_words(axis, change.value), HEAD_STYLE),
            f"{at_least(change.before)}{figures.rate(change.before.messages_per_s)}/s",
            f"{at_least(change.after)}{figures.rate(change.after.messages_per_s)}/s",
            f"{before.mb_per_s_a_broker(change.before):,.1f}"
            f" → {after.mb_per_s_a_broker(change.after):,.1f}",
            _moved(change),
            Text(_how_sure(change), QUIET_STYLE),
        )
    terminal.show(rows)
    terminal.say("")
    if not found.same_cluster:
        terminal.show(field("clusters", "two different ones"))
    shown = replace(before.settings, values=after.settings.values)
    for words in differences(shown, after.settings):
        terminal.show(field("other setting", words))
    for name, values in (("A alone", found.only_before), ("B alone", found.only_after)):
        if values:
            terminal.show(field(name, ", ".join(value_words(axis, value) for value in values)))


def show_leftovers(terminal: Terminal, found: Leftovers) -> None:
    """What can be removed, by name, and what is in use."""
    if not found.own and not found.in_use:
        terminal.say("nothing of drainer limits is on this cluster")
        return
    for topic in found.own.topics:
        terminal.show(field("topic", topic))
    for group in found.own.groups:
        terminal.show(field("group", group))
    for name in found.in_use.topics:
        terminal.warn(f"{name} is written to now by another run: it is left alone")


def value_words(axis: Axis, value: Value) -> str:
    """``1 KiB``, ``5 groups``, ``40 partitions``, ``zstd``."""
    match axis:
        case Axis.MESSAGE_BYTES:
            return figures.size(int(value))
        case Axis.CONSUMER_GROUPS:
            return figures.counted(int(value), "group")
        case Axis.PARTITIONS:
            return figures.counted(int(value), "partition")
        case Axis.COMPRESSION:
            return f"{value}" if value != "none" else "uncompressed"


def boundary_cells(limits: Limits, boundary: Boundary) -> tuple[str, ...]:
    """Value, messages/s, between what, MB/s a broker, safe cap in messages/s and in MB/s, trials,
    and what limits it."""
    cap = limits.safe_per_s(boundary)
    return (
        value_words(limits.settings.axis, boundary.value),
        at_least(boundary) + figures.rate(boundary.messages_per_s),
        between(boundary),
        f"{limits.mb_per_s_a_broker(boundary):,.1f}",
        figures.rate(cap),
        mb_words(cap * boundary.message_bytes),
        figures.count(boundary.trials),
        ended(boundary),
    )


def warnings(limits: Limits) -> list[str]:
    """Why boundaries are not what was asked for."""
    told = []
    for each in limits.boundaries:
        name, why = value_words(limits.settings.axis, each.value), ended(each)
        if each.is_open and each.safe_producers == limits.settings.producers_most:
            most = mb_words(limits.settings.bytes_per_s_most)
            why = (
                f"even {most} MB/s, the most that was allowed, did not overload the brokers; a"
                " higher --max-mb-per-s would find out more"
            )
        elif each.end is End.CLIENTS:
            why += "; the brokers may bear more: add executors, or cores"
        elif not unsure(each):
            continue
        told.append(f"{name}: {why}")
    return told


def between(boundary: Boundary) -> str:
    """The range in which a boundary lies, in messages/s."""
    low = figures.rate(boundary.low)
    return f"above {low}" if boundary.high is None else f"{low} to {figures.rate(boundary.high)}"


def ended(boundary: Boundary) -> str:
    """What limits it, or why that isn't known."""
    why = "; ".join(boundary.why)
    if boundary.end is End.TRIALS and boundary.is_open:
        return "lower bound: nothing that was tried overloaded the brokers"
    said = _ENDS.get(boundary.end, "")
    if boundary.end in _KNOW_NO_WHY or not why:
        return said
    return f"{said}: {why}" if said else why


def unsure(boundary: Boundary) -> bool:
    """Whether the boundary is not what was asked for."""
    return boundary.end is not End.NARROW


def at_least(boundary: Boundary) -> str:
    """What to put before its figure."""
    return "≥ " if boundary.is_open else ""


def mb_words(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:,.1f}"


def point_words(point: Point) -> str:
    """``52,000 messages/s, 53.2 MB/s (130 producers)``."""
    producers = figures.counted(point.producers, "producer")
    rate = figures.rate(point.messages_per_s)
    return f"{rate} messages/s, {mb_words(point.bytes_per_s)} MB/s ({producers})"


def trial_words(trial: Trial) -> str:
    """``52,000 messages/s, 53.2 MB/s (130 producers): overloaded, request handlers idle 14%``."""
    said = f"{point_words(trial.point)}: {VERDICTS[trial.verdict]}"
    return f"{said}, {trial.why}" if trial.why else said


def signal_words(signals: Signals, baseline_ms: float | None) -> list[str]:
    """Each signal in a few words; those that nobody could look at are left out."""
    told = [f"sent {figures.rate(signals.sent_per_s)}/s"]
    if signals.round_trip_ms > 0:
        unloaded = "" if baseline_ms is None else f" (unloaded {_ms(baseline_ms)})"
        told.append(f"round trip {_ms(signals.round_trip_ms)}{unloaded}")
    if signals.handlers_idle is not None:
        told.append(f"handlers idle {_share(signals.handlers_idle)}")
    if signals.isr_changing is not None:
        told.append(f"in-sync replicas changing {_share(signals.isr_changing)}")
    told.append(f"falling behind {_share(signals.falling_behind)}")
    told.append(f"throttled {_share(signals.throttled)}")
    told.append(f"clients busy {_share(signals.clients_busy)}")
    if signals.errors:
        told.append(figures.counted(signals.errors, "error"))
    return told


def _ms(milliseconds: float) -> str:
    if not math.isfinite(milliseconds):
        return figures.UNKNOWN
    return f"{milliseconds:.1f} ms" if milliseconds < 9.95 else f"{milliseconds:,.0f} ms"


def _share(fraction: float) -> str:
    return f"{fraction * 100:.0f}%" if math.isfinite(fraction) else figures.UNKNOWN


def decided_by(settings: LimitSettings) -> str:
    """Where signals come from."""
    if settings.jmx:
        return "request handlers and in-sync replicas of the brokers (JMX), and what clients see"
    return "what clients see, and in-sync replicas; --jmx host:port would show request handlers"


def held_fixed(settings: LimitSettings) -> str:
    """What is the same for all values of the axis."""
    rest = [
        (Axis.MESSAGE_BYTES, f"messages of {figures.size(settings.message_bytes)}"),
        (Axis.CONSUMER_GROUPS, f"{figures.counted(settings.consumer_groups, 'group')} reading"),
        (Axis.PARTITIONS, figures.counted(settings.partitions, "partition")),
        (Axis.COMPRESSION, value_words(Axis.COMPRESSION, settings.compression)),
    ]
    told = [words for axis, words in rest if axis is not settings.axis]
    if settings.compressibility:
        told.append(f"{figures.share(settings.compressibility)} of a payload compressible")
    return ", ".join(told)


def _each_trial(prepared: PreparedLimits) -> tuple[str, str]:
    request, limits = prepared.request, prepared.limits
    warm_up, window = request.pauses.warm_up_s, request.window_s
    each_s = warm_up + window + SURROUNDINGS_S
    to_go = len(limits.settings.values) - len(limits.boundaries)
    usual = min(USUAL_TRIALS, request.trials_most) * to_go * each_s
    told = f"{figures.plain_duration(warm_up)} to warm up, {figures.plain_duration(window)} watched"
    if request.shared:
        told += ", ended within about a second of overload"
    return told, f"some {figures.duration(usual)} in all"


def _compresses(settings: LimitSettings) -> bool:
    if settings.axis is Axis.COMPRESSION:
        return any(value != "none" for value in settings.values)
    return settings.compression != "none"


def _range_of(names: Sequence[str]) -> str:
    if not names:
        return "none"
    if len(names) == 1:
        return names[0]
    return f"{names[0]} … .{names[-1].rpartition('.')[2]}"


def _moved(change: Change) -> str:
    if change.ratio is None:
        return figures.UNKNOWN
    if change.before.is_open or change.after.is_open:
        return f"{(change.ratio - 1) * 100:+.0f}% of what was tried"
    return f"{(change.ratio - 1) * 100:+.0f}%"


def _how_sure(change: Change) -> str:
    if change.certain:
        return "more than they are unsure of"
    if change.before.is_open or change.after.is_open:
        return "a lower bound is among them"
    return "within what they are unsure of"
