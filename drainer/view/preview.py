"""The preview on the terminal: what is about to happen, shown before anyone says yes."""

from __future__ import annotations

from heapq import nlargest
from logging import INFO

from rich.text import Text

from drainer.command import command
from drainer.core.bundles import BatchOf, Bundling
from drainer.engine.preview import Engine, PartitionAction, Preview
from drainer.policy.concurrency import Concurrency
from drainer.view import figures
from drainer.view.capping import cap_field
from drainer.view.layout import (
    HEAD_STYLE,
    QUIET_STYLE,
    SHOWN,
    WARN_STYLE,
    field,
    table,
    verdict,
)
from drainer.view.log import LogTerminal
from drainer.view.policy import policy_fields, redrive_field
from drainer.view.rules import rule_fields
from drainer.view.terminal import Terminal

_ORDERS = {
    "sub-key": "one sub-message at a time per sub-key, many sub-keys at once",
    "key": "one sub-message at a time per message key",
    "partition": "one sub-message at a time per partition",
    "none": "no order is kept at all",
}

_STATES = {"empty": "no members", "dead": "no such group yet"}


def show_preview(terminal: Terminal, action: Preview) -> None:
    """Warnings first, then the backlog, what it is drained with, the checks, and the way back."""
    for warning in action.warnings:
        terminal.warn(warning)
    if isinstance(terminal, LogTerminal):
        headline = "; ".join(line.plain.strip() for line in _headline(action))
        terminal.event(INFO, "plan_of_action", headline, **action.as_json())
        return
    if action.warnings:
        terminal.say("")
    for line in _headline(action):
        terminal.show(line)
    terminal.say("")
    _show_partitions(terminal, action)
    terminal.say("")
    for line in _settings(action):
        terminal.show(line)
    if action.checks:
        terminal.say("")
    for check in action.checks:
        terminal.show(verdict(True, check))
    terminal.say("")
    terminal.show(field("plan", str(action.plan_path), "progress is kept here"))
    terminal.show(field("to undo", command("plan undo", action.plan_path)))


def _headline(action: Preview) -> list[Text]:
    if action.redrive is not None:
        verb = (
            "Go on redriving the dead letters of" if action.resumes else "Redrive dead letters of"
        )
    else:
        verb = "Resume the drain of" if action.resumes else "Drain"
    parts = figures.counted(len(action.partitions), "partition")
    offsets = figures.counted(action.offsets, "offset")
    text = f"{verb} {action.topic} for group {action.group}: {offsets} in {parts}"
    headline = [Text(text, HEAD_STYLE)]
    finished = sum(part.finished for part in action.partitions)
    if finished:
        already = figures.counted(finished, "message")
        headline.append(Text(f"  {already} finished already, which won't be handled again"))
    return headline


def _settings(action: Preview) -> list[Text]:
    return [
        field("topic", action.topic, f"id {action.topic_id}"),
        field("group", action.group, _STATES.get(action.group_state, action.group_state)),
        field("cluster", action.cluster_id, f"at {action.bootstrap_servers}"),
        field("handler", action.handler, _together(action.bundling)),
        field("order", action.order, _ORDERS.get(action.order, "")),
        field("concurrency", *_concurrency(action.concurrency, action.bundling)),
        *engine_fields(action.engine),
        field("buffer", figures.size(action.buffer_bytes), "read ahead at most"),
        field("isolation", action.isolation),
        *([cap_field(action.cap)] if action.cap else []),
        *([redrive_field(action.redrive)] if action.redrive else []),
        *policy_fields(action.failures, makes_topic=action.makes_topic is not None),
        *rule_fields(action.rules, letters=_letters(action)),
    ]


def engine_fields(engine: Engine) -> list[Text]:
    """What it runs on and why; of Spark what a person may want to change."""
    if not engine.is_spark:
        return [field("engine", "this process", engine.why)]
    tasks = "one task a core"
    if engine.tasks is not None:
        tasks = figures.counted(engine.tasks, "task") + " at once"
    fields = [
        field("engine", f"Spark on {engine.master}", engine.why),
        field("waves", f"{figures.size(engine.wave_bytes or 0)} each", f"handled by {tasks}"),
        field("state", engine.state or "", "what tasks finished, until the end"),
    ]
    if engine.archives:
        fields.append(field("archives", ", ".join(engine.archives)))
    if engine.conf:
        shown = ", ".join(f"{name}={value}" for name, value in engine.conf.items())
        fields.append(field("spark conf", shown))
    return fields


def _together(bundling: Bundling | None) -> str:
    if bundling is None:
        return ""
    words = ["folds neighbours of a sub-key"] if bundling.coalesce is not None else []
    if bundling.most > 1:
        what = "sub-keys" if bundling.of is BatchOf.LANES else "sub-messages of one sub-key"
        words.append(f"up to {figures.count(bundling.most)} {what} in a call")
    return ", ".join(words)


def _concurrency(concurrency: Concurrency, bundling: Bundling | None) -> tuple[str, str]:
    if not concurrency.is_auto:
        what = "sub-messages in the handler" if bundling is None else "calls of the handler at once"
        return figures.count(concurrency.most), what
    most = figures.count(concurrency.most)
    if concurrency.most_threads < concurrency.most:
        most += f" ({figures.count(concurrency.most_threads)} on threads)"
    begins = f"begins with {figures.count(concurrency.first)}"
    return "auto", f"{begins}, grows while throughput does, to {most} at most"


def _letters(action: Preview) -> str:
    made = ", which will be made" if action.makes_topic is not None else ""
    return f"{action.failures.dead_letter_topic}{made}"


def _show_partitions(terminal: Terminal, action: Preview) -> None:
    parts = action.partitions
    if not parts:
        terminal.show(Text("  no partitions", QUIET_STYLE))
        return
    leaps = any(part.leaps for part in parts)
    resumes = action.resumes
    shown = set(nlargest(SHOWN, parts, key=lambda part: part.offsets))
    rows = table(
        "partition",
        "backlog [start, end)",
        "offsets",
        "group is at",
        "commits up to",
        *(["passed over"] if leaps else []),
        *(["finished"] if resumes else []),
    )
    for part in parts:
        if part in shown:
            rows.add_row(*_row(part), *_extras(part.leaps, part.finished, leaps, resumes))
    rest = [part for part in parts if part not in shown]
    if rest:
        rows.add_row(
            f"{len(rest)} more",
            "",
            figures.count(sum(part.offsets for part in rest)),
            "",
            "",
            *_extras(sum(p.leaps for p in rest), sum(p.finished for p in rest), leaps, resumes),
        )
    if len(parts) > 1:
        rows.add_row(
            "total",
            "",
            figures.count(action.offsets),
            "",
            "",
            *_extras(sum(p.leaps for p in parts), sum(p.finished for p in parts), leaps, resumes),
            style=HEAD_STYLE,
        )
    terminal.show(rows)


def _row(part: PartitionAction) -> list[str | Text]:
    return [
        str(part.partition),
        f"[{part.start}, {part.end})",
        figures.count(part.offsets),
        Text("no offset", WARN_STYLE) if part.committed is None else str(part.committed),
        str(part.end) if part.offsets else Text("nothing to do", QUIET_STYLE),
    ]


def _extras(leapt: int, finished: int, leaps: bool, resumes: bool) -> list[Text]:
    extras = []
    if leaps:
        extras.append(Text(figures.count(leapt), WARN_STYLE if leapt else QUIET_STYLE))
    if resumes:
        extras.append(Text(figures.count(finished)))
    return extras
