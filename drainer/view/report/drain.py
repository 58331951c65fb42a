"""The report of a drain that ended: what came of it, whether it adds up, and how it went."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from drainer.core.listed import listed, name_lost
from drainer.engine.history import History
from drainer.engine.preview import Preview
from drainer.engine.status import PartitionResult, Summary
from drainer.view import figures
from drainer.view.layout import BAD, OK, SHOWN
from drainer.view.report.chart import zone
from drainer.view.report.course import course
from drainer.view.report.page import Moment, render
from drainer.view.summary import rank, shortcomings

ERRORS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class PartitionRow:
    number: int
    part: PartitionResult
    verdict: str
    style: str


@dataclass(frozen=True, slots=True)
class HotRow:
    key: str
    depth: int
    share: float  # percent of the deepest


@dataclass(frozen=True, slots=True)
class RuleRow:
    name: str
    skipped: int
    dead: int
    undecided: int
    why: str  # the first reason of those


@dataclass(frozen=True, slots=True)
class TroubleRow:
    at: str
    lasted_s: float
    text: str


def drain_page(action: Preview, summary: Summary, history: History, ended: datetime) -> str:
    """The page for a drain that ended just now; ``ended`` is in the zone that it is to be told in.

    Everything is of this run, but for the account and what the watermarks have reached.
    """
    begun = ended - timedelta(seconds=summary.elapsed_s)
    style, mark, headline = _headline(summary)
    return render(
        "drain.html",
        ended,
        summary.as_json(),
        title=f"{headline}: {action.topic} for {action.group}",
        style=style,
        mark=mark,
        headline=headline,
        topic=action.topic,
        group=action.group,
        redriven=action.redrive is not None,
        resumes=action.resumes,
        begun=Moment.of(begun) if summary.elapsed_s else None,
        ended=Moment.of(ended),
        summary=summary,
        cause=summary.error,
        hint=summary.hint,
        resume=_absolute(summary).resume,
        resume_needs=summary.resuming.needs,
        undo=_absolute(summary).undo,
        partitions=_partitions(summary),
        shown=SHOWN,
        charts=course(history, begun, summary.latency, bundled=action.bundling is not None),
        troubles=[
            TroubleRow(
                f"{begun + timedelta(seconds=trouble.begins_s):%H:%M:%S}",
                trouble.ends_s - trouble.begins_s,
                trouble.text,
            )
            for trouble in history.troubles
        ],
        troubles_more=history.troubles_more,
        zone=zone(begun),
        rules=_rules(summary),
        failures=_failures(summary),
        errors_shown=ERRORS_SHOWN,
        parked=summary.parked.shown() if summary.parked.total else [],
        dead_commands=_dead_commands(action, summary),
        left_alone=sorted((summary.left_alone or {}).items(), key=lambda item: (-item[1], item[0])),
        hottest=_hottest(history),
        fields=_fields(action, summary),
        warnings=action.warnings,
    )


def _headline(summary: Summary) -> tuple[str, str, str]:
    """The style, the mark and the words."""
    left = summary.to_go
    to_go = f", at most {figures.counted(left, 'offset')} to go" if left else ""
    match summary.status:
        case "empty":
            return "good", OK, "Nothing to drain"
        case "done":
            verb = "Drained" if summary.left_alone is None else "Redriven"
            if summary.exit_code:
                return "warn", "!", f"{verb}, {shortcomings(summary)}"
            return "good", OK, verb
        case "interrupted":
            return "warn", "■", f"Interrupted{to_go}"
        case other:
            return "bad", BAD, f"{other.capitalize()}{to_go}"


def _absolute(summary: Summary) -> Summary:
    # A page is read in another folder than that of the command.
    if summary.plan is None:
        return summary
    return replace(summary, plan=str(Path(summary.plan).absolute()))


def _partitions(summary: Summary) -> list[PartitionRow]:
    ranked = sorted(summary.partitions.items(), key=lambda item: (rank(item[1]), item[0]))
    return [PartitionRow(number, part, *_verdict(summary, part)) for number, part in ranked]


def _verdict(summary: Summary, part: PartitionResult) -> tuple[str, str]:
    if summary.status == "empty":
        return OK, "good"  # nothing was committed, nor had to be
    match rank(part):
        case 0 if part.committed is not None and part.committed > part.watermark:
            return f"{BAD} committed past the watermark", "bad"
        case 0:
            return f"{BAD} committed is not the watermark", "bad"
        case 1:
            return f"{figures.counted(part.to_go, 'offset')} to go", "warn"
        case _:
            return OK, "good"


def _failures(summary: Summary) -> str:
    found, counted = summary.failures, figures.counted
    words = (
        (found.failures, counted(found.failures, "failed attempt")),
        (found.retries, counted(found.retries, "retry", "retries")),
        (found.timeouts, counted(found.timeouts, "timeout")),
        (found.outages, counted(found.outages, "outage")),
        (found.parked_lanes, counted(found.parked_lanes, "parked lane")),
    )
    return ", ".join(text for number, text in words if number)


def _rules(summary: Summary) -> list[RuleRow]:
    rules = summary.rules
    names = dict.fromkeys((*rules.skipped_by, *rules.dead_by, *rules.undecided))
    rows = [
        RuleRow(
            name,
            rules.skipped_by.get(name, 0),
            rules.dead_by.get(name, 0),
            rules.undecided.get(name, 0),
            rules.why.get(name, ""),
        )
        for name in names
    ]
    return sorted(rows, key=lambda row: (-row.skipped - row.dead, row.name))


def _dead_commands(action: Preview, summary: Summary) -> list[str]:
    topic = summary.failures.dead_letter_topic
    if topic is None or not summary.sub_messages.dead:
        return []
    options = ["--dead-letter-topic", topic, "-b", action.bootstrap_servers]
    commands = [["drainer", "dead", "list", *options]]
    if summary.left_alone is None:
        commands.append(["drainer", "redrive", *options, "--handler", action.handler])
    return [shlex.join(words) for words in commands]


def _hottest(history: History) -> list[HotRow]:
    found = [(key, depth) for key, depth in history.hottest if depth > 1]
    return [
        HotRow(figures.sub_key(key, 60), depth, round(100 * depth / found[0][1], 1))
        for key, depth in found
    ]


def _fields(action: Preview, summary: Summary) -> list[tuple[str, str]]:
    policy = action.failures
    found = [
        ("topic", f"{action.topic} (id {action.topic_id})"),
        ("group", action.group),
        ("cluster", f"{action.cluster_id}, by {action.bootstrap_servers}"),
        ("isolation", action.isolation),
        ("handler", action.handler),
        ("order", action.order),
        ("engine", _engine(action, summary)),
        ("concurrency", _concurrency(action, summary)),
        ("buffer", figures.size(action.buffer_bytes)),
        ("on failure", f"{policy.on_failure.value}, after {_retries(policy.retries)}"),
    ]
    if policy.rate is not None:
        found.append(("rate", f"at most {figures.rate(policy.rate)} sub-messages/s"))
    if summary.lost:
        found.append(("lost to retention", name_lost(summary.lost)))
    if summary.held:
        found.append(("held back by open transactions", listed(summary.held)))
    if summary.plan is not None:
        found.append(("plan", str(Path(summary.plan).absolute())))
    found.append(("exit code", str(summary.exit_code)))
    return found


def _engine(action: Preview, summary: Summary) -> str:
    if not action.engine.is_spark:
        return "one process"
    told = f"Spark on {action.engine.master}"
    if summary.waves is not None:
        told += f", {figures.counted(summary.waves, 'wave')}"
    return told if summary.tasks is None else f"{told} by {figures.counted(summary.tasks, 'task')}"


def _concurrency(action: Preview, summary: Summary) -> str:
    auto = summary.auto
    if auto is None:
        return str(action.concurrency)
    if auto.settled is None:
        return f"{action.concurrency}, {figures.count(auto.limit)} at the end ({auto.why})"
    return f"{action.concurrency}, settled at {figures.count(auto.settled)}"


def _retries(number: int) -> str:
    return figures.counted(number, "retry", "retries") if number else "no retry"
