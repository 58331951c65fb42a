"""The summary of a drain that ended: the account, where the group stands, and how to go on."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

from rich.text import Text

from drainer.core.listed import name_lost
from drainer.core.parked import ParkedLanes
from drainer.core.progress import Counts
from drainer.core.ranges import count
from drainer.engine.preview import SPARK
from drainer.engine.status import AutoStatus, PartitionResult, Resuming, Summary
from drainer.errors import DrainerError, Signalled
from drainer.view import figures
from drainer.view.capping import cap_lines
from drainer.view.layout import (
    BAD,
    BAD_STYLE,
    GOOD_STYLE,
    HEAD_STYLE,
    OK,
    QUIET_STYLE,
    SHOWN,
    WARN_STYLE,
    field,
    table,
)
from drainer.view.log import LogTerminal, latency_fields
from drainer.view.panel import blocking_warning
from drainer.view.rules import rule_lines
from drainer.view.terminal import Terminal

ERRORS_SHOWN = 5
PARKED_WIDTH = 60  # characters of a key


def show_summary(terminal: Terminal, summary: Summary) -> None:
    """What happened first, then the account that proves it, last the way on.

    With ``terminal.json`` the summary goes to stdout as data as well. Quiet shows only what is
    wrong: an account that does not add up, dead letters, an error and how to resume.
    """
    if terminal.json:
        terminal.data(summary.as_json())
    unhappy = summary.status not in ("done", "empty")
    if isinstance(terminal, LogTerminal):
        _log_summary(terminal, summary)
        return
    for line in _headline(summary):
        terminal.show(line, urgent=unhappy or summary.exit_code > 0)
    if summary.status != "empty":
        terminal.say("")
        show_account(terminal, summary.messages, summary.sub_messages, urgent=not summary.conserved)
    lines = [*_engine(summary), *_concurrency(summary.auto), *rule_lines(summary.rules)]
    lines += cap_lines(summary)
    lines += [*_failures(summary), *_left_alone(summary), *_beside(summary)]
    lines += [field("note", note) for note in summary.notes]
    lines += _blocking(summary.blocked_by)
    if lines:
        terminal.say("")
    for line in lines:
        terminal.show(line)
    if summary.partitions:
        terminal.say("")
        _show_partitions(terminal, summary)
    if summary.plan is not None:
        terminal.say("")
        terminal.show(field("plan", summary.plan))
    if summary.latency is not None:
        terminal.show(field("latency", figures.latency(summary.latency), "of handle, in this run"))
    if unhappy:
        terminal.say("")
    if summary.cause is not None:
        terminal.fail(summary.cause)
    _show_way_on(terminal, summary)


def _log_summary(terminal: LogTerminal, summary: Summary) -> None:
    if summary.cause is not None:
        terminal.fail(summary.cause)
    level = logging.INFO
    if isinstance(summary.cause, Signalled):
        level = logging.WARNING
    elif summary.status not in ("done", "empty") or not summary.conserved:
        level = logging.ERROR
    elif summary.sub_messages.given_up or summary.lost:
        level = logging.WARNING
    fields = summary.as_json() | {
        "conserved": summary.conserved,
        "latency": latency_fields(summary.latency),
    }
    headline = "; ".join(line.plain.strip(f"{OK}{BAD}■! ") for line in _headline(summary))
    terminal.event(level, "summary", headline, **fields)


def show_cut_short(terminal: Terminal, error: DrainerError, plan: Path, resuming: Resuming) -> None:
    """The end of a drain that can't be asked for its account: the error, and how to resume."""
    if terminal.json:
        terminal.data(
            {
                "status": "interrupted",
                "exit_code": error.exit_code,
                "error": str(error),
                "hint": error.hint,
                "plan": str(plan),
            }
        )
    terminal.fail(error)
    _show_resume(terminal, resuming.command(str(plan)), resuming)


def show_account(
    terminal: Terminal, messages: Counts, sub_messages: Counts, *, urgent: bool = False
) -> None:
    """The law of conservation as a table: read = done + dead + failed + skipped + pending."""
    rows = table("", "read", "done", "dead", "failed", "skipped", "pending", "")
    for label, counts in (("messages", messages), ("sub-messages", sub_messages)):
        rows.add_row(
            Text(f"  {label}"),
            figures.count(counts.read),
            figures.count(counts.done),
            Text(figures.count(counts.dead), BAD_STYLE if counts.dead else ""),
            Text(figures.count(counts.failed), BAD_STYLE if counts.failed else ""),
            figures.count(counts.skipped),
            Text(figures.count(counts.pending), WARN_STYLE if counts.pending else ""),
            Text(f"{OK} adds up", GOOD_STYLE)
            if counts.conserved
            else Text(f"{BAD} DOES NOT ADD UP", BAD_STYLE),
        )
    terminal.show(rows, urgent=urgent)


def _engine(summary: Summary) -> list[Text]:
    if summary.engine != SPARK:
        return []
    waves = "" if summary.waves is None else figures.counted(summary.waves, "wave")
    tasks = "" if summary.tasks is None else f"by {figures.counted(summary.tasks, 'task')}"
    return [field("engine", "Spark", " ".join(filter(None, (waves, tasks))))]


def _concurrency(auto: AutoStatus | None) -> list[Text]:
    if auto is None:
        return []
    if auto.settled is None:
        return [field("concurrency", f"auto, {figures.count(auto.limit)} at the end", auto.why)]
    note = (
        "" if auto.best_per_s is None else f"{figures.rate(auto.best_per_s)} sub-messages/s there"
    )
    return [field("concurrency", f"auto, settled at {figures.count(auto.settled)}", note)]


def _blocking(place: str | None) -> list[Text]:
    return [] if place is None else [Text(f"! {blocking_warning(place)}", WARN_STYLE)]


def _failures(summary: Summary) -> list[Text]:
    failures, counted = summary.failures, figures.counted
    words = [
        words
        for number, words in (
            (failures.failures, counted(failures.failures, "failed attempt")),
            (failures.retries, counted(failures.retries, "retry", "retries")),
            (failures.timeouts, counted(failures.timeouts, "timeout")),
            (failures.outages, counted(failures.outages, "outage")),
            (failures.parked_lanes, counted(failures.parked_lanes, "parked lane")),
        )
        if number
    ]
    lines = [field("failures", ", ".join(words), "in this run")] if words else []
    for kind, times in failures.errors[:ERRORS_SHOWN]:
        lines.append(Text(f"    {figures.count(times)} x {kind}", QUIET_STYLE))
    if (more := len(failures.errors) - ERRORS_SHOWN) > 0:
        lines.append(Text(f"    and {counted(more, 'other error')}", QUIET_STYLE))
    lines += parked_lines(summary.parked)
    topic = failures.dead_letter_topic
    if topic is not None and summary.sub_messages.dead:
        option = f"--dead-letter-topic {shlex.quote(topic)}"
        lines.append(field("dead letters", topic))
        lines.append(field("to see them", f"drainer dead list {option}"))
        if summary.left_alone is None:
            lines.append(field("to redrive", f"drainer redrive {option} --handler …"))
    return lines


def parked_lines(parked: ParkedLanes) -> list[Text]:
    """The first parked lanes by name, with the place that each waits at and the error there."""
    if not parked.total:
        return []
    lines = [field("parked lanes", figures.count(parked.total), "a lane, its place and its error")]
    for lane in parked.shown():
        key = figures.shorten(lane["key"], PARKED_WIDTH)
        lines.append(Text(f"    {key} at {lane['place']}: {lane['error']}", QUIET_STYLE))
    if parked.more:
        lines.append(Text(f"    and {figures.count(parked.more)} more", QUIET_STYLE))
    return lines


def _left_alone(summary: Summary) -> list[Text]:
    found = summary.left_alone
    if not found:
        return []
    alone = figures.counted(sum(found.values()), "record")
    lines = [field("left alone", alone, "they stay for another redrive")]
    for why, number in sorted(found.items(), key=lambda item: (-item[1], item[0])):
        lines.append(Text(f"    {figures.count(number)} x {why}", QUIET_STYLE))
    return lines


def _beside(summary: Summary) -> list[Text]:
    # What is in no account, for it was never delivered.
    lines = []
    if summary.lost:
        lines.append(field("lost", name_lost(summary.lost), "deleted by retention, unread"))
    if summary.held:
        count = sum(each.offsets for each in summary.held)
        offsets = f"{figures.counted(count, 'offset')} behind an open transaction"
        lines.append(field("held back", offsets, "not part of this drain"))
        lines += [Text(f"    {each}", QUIET_STYLE) for each in summary.held[:ERRORS_SHOWN]]
        if (more := len(summary.held) - ERRORS_SHOWN) > 0:
            lines.append(Text(f"    and {figures.counted(more, 'other partition')}", QUIET_STYLE))
    return lines


def _headline(summary: Summary) -> list[Text]:
    finished = ""
    match summary.status:
        case "empty":
            empty = (f"{OK} Nothing to drain", GOOD_STYLE)
            return [Text.assemble(empty, ": the backlog is empty")]
        case "done":
            verb = "Drained" if summary.left_alone is None else "Redriven"
            head = (f"{OK} {verb}", GOOD_STYLE + HEAD_STYLE)
            if summary.exit_code:  # of a redrive: in this run
                head = (f"! {verb}, {shortcomings(summary)}", WARN_STYLE)
            messages = figures.counted(summary.messages.finished, "message")
            subs = figures.counted(summary.sub_messages.finished, "sub-message")
            finished = f": {messages}, {subs}"
            if summary.sub_messages.skipped:
                finished += f", {figures.count(summary.sub_messages.skipped)} of them skipped"
        case "interrupted":
            head = (f"■ Interrupted{_to_go(summary)}", WARN_STYLE)
        case _:
            status = summary.status.capitalize()
            head = (f"{BAD} {status}{_to_go(summary)}", BAD_STYLE)
    # The account is of all runs of a drain, these are of the last one.
    took, pace = figures.duration(summary.elapsed_s), figures.rate(summary.sub_messages_per_s)
    run = f"  this run took {took}, at {pace} sub-messages/s"
    return [Text.assemble(head, finished), Text(run, QUIET_STYLE)]


def shortcomings(summary: Summary) -> str:
    """What a drain that ended did not handle: ``with 3 dead letters, 100 records lost``."""
    lost = sum(map(count, summary.lost.values()))
    gave_up = figures.given_up(summary.sub_messages)
    words = [f"with {gave_up}"] if gave_up else []
    if lost:
        words.append(f"at most {figures.counted(lost, 'record')} lost")
    return ", ".join(words)


def _to_go(summary: Summary) -> str:
    left = summary.to_go  # holes are among them, so it may be fewer messages
    return f", at most {figures.counted(left, 'offset')} to go" if left else ""


def _show_way_on(terminal: Terminal, summary: Summary) -> None:
    if summary.resume is not None:
        _show_resume(terminal, summary.resume, summary.resuming)
    if summary.undo is not None:
        terminal.show(_way_on("undo", summary.undo), urgent=True)


def _show_resume(terminal: Terminal, line: str, resuming: Resuming) -> None:
    terminal.show(_way_on("resume", line), urgent=True)
    if resuming.needs:
        needs = ", ".join(resuming.needs)
        terminal.show(
            Text(f"  with {needs} as before: what may be secret is not shown"), urgent=True
        )


def _way_on(what: str, line: str) -> Text:
    return Text.assemble((f"{what}: ", HEAD_STYLE), line)


def _show_partitions(terminal: Terminal, summary: Summary) -> None:
    # What is not as it should be comes first, so that it is never in the part that isn't shown.
    by_need = sorted(summary.partitions.items(), key=lambda item: (rank(item[1]), item[0]))
    shown, rest = by_need[:SHOWN], by_need[SHOWN:]
    rows = table("partition", "end", "watermark", "committed", "")
    for number, part in shown:
        rows.add_row(
            str(number),
            str(part.end),
            str(part.watermark),
            "none" if part.committed is None else str(part.committed),
            _verdict(part),
        )
    terminal.show(rows, urgent=any(rank(part) == 0 for part in summary.partitions.values()))
    if rest:
        unfinished = sum(rank(part) < 2 for _, part in rest)
        tail = f"{unfinished} of them not finished" if unfinished else f"{OK} all at their end"
        terminal.show(Text(f"and {len(rest)} more partitions, {tail}", QUIET_STYLE))


def rank(part: PartitionResult) -> int:
    """0 what is wrong, 1 what is unfinished, 2 what is as it should be."""
    if part.committed != part.watermark and part.watermark > part.start:
        return 0
    return 1 if part.watermark < part.end else 2


def _verdict(part: PartitionResult) -> Text:
    match rank(part):
        case 0 if part.committed is not None and part.committed > part.watermark:
            return Text(f"{BAD} committed past the watermark", BAD_STYLE)
        case 0:
            return Text(f"{BAD} committed is not the watermark", BAD_STYLE)
        case 1:
            return Text(f"{figures.counted(part.to_go, 'offset')} to go", WARN_STYLE)
        case _:
            return Text(OK, GOOD_STYLE)
