"""The summary of a drain that ended: the account, where the group stands, and how to go on."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

from rich.text import Text

from drainer.core.progress import Counts
from drainer.engine.action import SPARK
from drainer.engine.status import AutoStatus, PartitionResult, Summary
from drainer.errors import DrainerError
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
    command,
    field,
    printable,
    table,
)
from drainer.view.log import LogTerminal, latency_fields
from drainer.view.rules import rule_lines
from drainer.view.terminal import Terminal

ERRORS_SHOWN = 5


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
    terminal.show(_headline(summary), urgent=unhappy or bool(summary.sub_messages.dead))
    if summary.status != "empty":
        terminal.say("")
        show_account(terminal, summary.messages, summary.sub_messages, urgent=not summary.conserved)
    lines = [*_engine(summary), *_concurrency(summary.auto), *rule_lines(summary.rules)]
    lines += cap_lines(summary)
    lines += [*_failures(summary), *_left_alone(summary)]
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
    if unhappy and summary.plan is not None:
        terminal.show(_resume(summary.plan), urgent=True)


def _log_summary(terminal: LogTerminal, summary: Summary) -> None:
    if summary.cause is not None:
        terminal.fail(summary.cause)
    level = logging.INFO
    if summary.status not in ("done", "empty") or not summary.conserved:
        level = logging.ERROR
    elif summary.sub_messages.dead:
        level = logging.WARNING
    fields = summary.as_json() | {
        "conserved": summary.conserved,
        "latency": latency_fields(summary.latency),
    }
    if summary.status in ("interrupted", "halted") and summary.plan is not None:
        fields["resume"] = command("resume", summary.plan)
    headline = _headline(summary).plain.lstrip(f"{OK}{BAD}■! ").replace("\n  ", "; ")
    terminal.event(level, "summary", headline, **fields)


def show_cut_short(terminal: Terminal, error: DrainerError, plan: Path) -> None:
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
    terminal.show(_resume(str(plan)), urgent=True)


def show_account(
    terminal: Terminal, messages: Counts, sub_messages: Counts, *, urgent: bool = False
) -> None:
    """The law of conservation as a table: read = done + dead + skipped + pending."""
    rows = table("", "read", "done", "dead", "skipped", "pending", "")
    for label, counts in (("messages", messages), ("sub-messages", sub_messages)):
        rows.add_row(
            Text(f"  {label}"),
            figures.count(counts.read),
            figures.count(counts.done),
            Text(figures.count(counts.dead), BAD_STYLE if counts.dead else ""),
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
        lines.append(Text(f"    {figures.count(times)} x {printable(kind)}", QUIET_STYLE))
    if (more := len(failures.errors) - ERRORS_SHOWN) > 0:
        lines.append(Text(f"    and {counted(more, 'other error')}", QUIET_STYLE))
    topic = failures.dead_letter_topic
    if topic is not None and summary.sub_messages.dead:
        option = f"--dead-letter-topic {shlex.quote(topic)}"
        lines.append(field("dead letters", topic))
        lines.append(field("to see them", f"drainer dead list {option}"))
        if summary.left_alone is None:
            lines.append(field("to redrive", f"drainer redrive {option} --handler …"))
    return lines


def _left_alone(summary: Summary) -> list[Text]:
    found = summary.left_alone
    if not found:
        return []
    alone = figures.counted(sum(found.values()), "record")
    lines = [field("left alone", alone, "they stay for another redrive")]
    for why, number in sorted(found.items(), key=lambda item: (-item[1], item[0])):
        lines.append(Text(f"    {figures.count(number)} x {printable(why)}", QUIET_STYLE))
    return lines


def _headline(summary: Summary) -> Text:
    dead, finished = summary.sub_messages.dead, ""
    match summary.status:
        case "empty":
            return Text.assemble((f"{OK} Nothing to drain", GOOD_STYLE), ": the backlog is empty")
        case "done":
            verb = "Drained" if summary.left_alone is None else "Redriven"
            head = (f"{OK} {verb}", GOOD_STYLE + HEAD_STYLE)
            if dead and summary.exit_code:  # of a redrive: in this run
                head = (f"! {verb}, with {figures.counted(dead, 'dead letter')}", WARN_STYLE)
            messages = figures.counted(summary.messages.finished, "message")
            subs = figures.counted(summary.sub_messages.finished, "sub-message")
            finished = f": {messages}, {subs}"
            if summary.sub_messages.skipped:
                finished += f", {figures.count(summary.sub_messages.skipped)} of them skipped"
        case "interrupted":
            head = (f"■ Interrupted{_to_go(summary)}", WARN_STYLE)
        case _:
            status = printable(summary.status).capitalize()
            head = (f"{BAD} {status}{_to_go(summary)}", BAD_STYLE)
    # The account is of all runs of a drain, these are of the last one.
    took, pace = figures.duration(summary.elapsed_s), figures.rate(summary.sub_messages_per_s)
    run = f"\n  this run took {took}, at {pace} sub-messages/s"
    return Text.assemble(head, finished, (run, QUIET_STYLE))


def _to_go(summary: Summary) -> str:
    # What is finished above the watermark is among them, so it may be fewer.
    left = sum(max(0, part.end - part.watermark) for part in summary.partitions.values())
    return f", at most {figures.counted(left, 'offset')} to go" if left else ""


def _resume(plan: str) -> Text:
    return Text.assemble(("resume: ", HEAD_STYLE), printable(command("resume", plan)))


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
            return Text(f"{figures.counted(part.end - part.watermark, 'offset')} to go", WARN_STYLE)
        case _:
            return Text(OK, GOOD_STYLE)
