"""An offset plan on the terminal, and the checks that were made on one."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from pathlib import Path

from rich.text import Text

from drainer.command import command
from drainer.core.listed import name_lost
from drainer.core.plan import ALL, OffsetPlan
from drainer.mask import mask_text
from drainer.view import figures
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
    verdict,
)
from drainer.view.policy import policy_fields, redrive_field
from drainer.view.rules import rule_fields
from drainer.view.summary import parked_lines, show_account
from drainer.view.terminal import Terminal

PARKED_SHOWN, PARKED_WIDTH = 3, 24  # lanes, and characters of each


def show_plan(terminal: Terminal, plan: OffsetPlan, path: Path | None = None) -> None:
    """How far a drain has come, and with a path the commands that go on from it."""
    terminal.show(_headline(plan))
    terminal.say("")
    _show_partitions(terminal, plan)
    terminal.say("")
    show_account(terminal, *plan.counts())
    terminal.say("")
    for line in _fields(plan):
        terminal.show(line)
    if path is not None:
        terminal.say("")
        if not plan.complete:
            terminal.show(field("to resume", command("resume", path)))
        terminal.show(field("to undo", command("plan undo", path)))


def show_before_connecting(
    terminal: Terminal,
    plan: OffsetPlan,
    path: Path,
    brokers: str,
    client_config: Path | None,
    *,
    loads: bool,
) -> None:
    """What a plan has this machine do, before any of it is done. Shown even when quiet."""
    rows = [
        field("plan", str(path), f"begun {plan.created}"),
        field("topic", plan.topic, f"for group {plan.group}"),
        field(
            "connects to", brokers, "as the plan says" if brokers == plan.bootstrap_servers else ""
        ),
        field("with", str(client_config) if client_config else "no client properties"),
        *([field("loads", plan.handler, "which runs its code")] if loads else []),
    ]
    for row in rows:
        terminal.show(row, urgent=True)


def show_checks(terminal: Terminal, checks: Sequence[tuple[str, bool, str]]) -> None:
    """Each (name, whether it holds, sentence or nothing); what fails is shown even when quiet."""
    failed = sum(not ok for _, ok, _ in checks)
    for name, ok, sentence in checks:
        terminal.show(verdict(ok, f"{name}: {sentence}" if sentence else name), urgent=not ok)
    if failed:
        of = figures.counted(len(checks), "check")
        terminal.show(Text(f"{BAD} {failed} of {of} failed", BAD_STYLE), urgent=True)
    else:
        passed = figures.counted(len(checks), "check")
        terminal.show(Text(f"{OK} {passed} passed", GOOD_STYLE))


def _headline(plan: OffsetPlan) -> Text:
    title = f"{plan.topic}, for group {plan.group}: "
    if plan.complete:
        return Text.assemble((title, HEAD_STYLE), (f"{OK} drained", GOOD_STYLE))
    left = sum(map(plan.to_go, plan.partitions))
    state = f"at most {figures.counted(left, 'offset')} to go"
    return Text.assemble((title, HEAD_STYLE), (state, WARN_STYLE))


def _fields(plan: OffsetPlan) -> list[Text]:
    written = figures.counted(plan.generation, "time")
    return [
        field("drain", plan.drain_id, f"begun {plan.created}"),
        field("written", plan.updated, written),
        field("topic", plan.topic, f"id {plan.topic_id}"),
        field("group", plan.group),
        field("cluster", plan.cluster_id, f"at {plan.bootstrap_servers}"),
        field("client config", plan.client_config or "none"),
        field("handler", plan.handler),
        field("order", plan.order),
        field("isolation", plan.isolation),
        *([redrive_field(plan.redrive)] if plan.redrive else []),
        *policy_fields(plan.failures),
        *rule_fields(plan.rules, plan.ruled, plan.failures.dead_letter_topic),
        *([_parked(plan)] if plan.parked else []),
        *parked_lines(plan.parked_lanes),
        *([field("lost", name_lost(plan.lost), "to retention, unread")] if plan.lost else []),
    ]


def _parked(plan: OffsetPlan) -> Text:
    lanes = figures.counted(len(plan.parked), "lane")
    shown = map(mask_text, plan.parked[:PARKED_SHOWN])
    first = ", ".join(figures.shorten(text, PARKED_WIDTH) for text in shown)
    more = ", …" if len(plan.parked) > PARKED_SHOWN else ""
    return field("parked", f"{lanes}: {first}{more}", "--after-dead continue goes on with them")


def _show_partitions(terminal: Terminal, plan: OffsetPlan) -> None:
    if not plan.partitions:
        terminal.show(Text("  no partitions", QUIET_STYLE))
        return
    to_go = {number: plan.to_go(number) for number in plan.partitions}
    shown = set(nlargest(SHOWN, to_go, key=to_go.__getitem__))
    rows = table(
        "partition",
        "[start, end)",
        "was at",
        "committed",
        "watermark",
        "finished above",
        "to go",
    )
    for number, part in plan.partitions.items():
        if number not in shown:
            continue
        rows.add_row(
            str(number),
            f"[{part.start}, {part.end})",
            _offset(part.prior),
            _offset(part.committed),
            str(plan.watermark(number)),
            _above(plan, number),
            figures.count(to_go[number]) if to_go[number] else Text(OK, GOOD_STYLE),
        )
    terminal.show(rows)
    rest = [number for number in plan.partitions if number not in shown]
    if rest:
        left = figures.counted(sum(to_go[number] for number in rest), "offset")
        more = figures.counted(len(rest), "more partition")
        terminal.show(Text(f"and {more}, {left} to go", QUIET_STYLE))


def _above(plan: OffsetPlan, number: int) -> str:
    progress = plan.claims[ALL][number]
    told = [figures.count(sum(end - first for first, end in progress.finished))]
    if progress.partial:
        told.append(f"{figures.count(len(progress.partial))} part")
    if plan.shared(number):
        told.append(f"what {figures.counted(len(plan.others), 'claim')} say")
    return " + ".join(told)


def _offset(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
