"""The estimate on the terminal: how long by order, what binds, and what more workers would gain."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich.text import Text

from drainer.command import command
from drainer.core.order import Order
from drainer.engine.status import Summary
from drainer.insight.estimate import DeadlineVerdict, Estimate
from drainer.insight.forecast import forecast as f
from drainer.insight.forecast.distribution import Distribution
from drainer.insight.forecast.forecast import Forecast
from drainer.insight.splitting import Skipped
from drainer.insight.view.bars import bar_of
from drainer.insight.view.retention import doomed_warning
from drainer.view import figures
from drainer.view.layout import HEAD_STYLE, QUIET_STYLE, field, table, verdict
from drainer.view.summary import show_account
from drainer.view.terminal import Terminal

_BAR = 24  # characters
NAME_WIDTH = 60  # characters of a rule
_BINDING = {
    f.CONCURRENCY: "concurrency: more at once is faster, as long as the downstream bears it",
    f.LANE: "order: one sub-message at a time",
    f.FETCH: "the fetch: messages don't come faster from the broker",
    f.SPLIT: "split: this process spends its time in it",
    f.CPU: "this process: its processor is full; more at once gains nothing",
    f.ORDER: "order: barriers, or sub-messages with several sub-keys, hold others back",
    f.READ_CAP: "the brokers' limits: more would be read than they bear",
    f.WRITE_CAP: "the brokers' limits: more would be written than they bear",
    f.NOTHING: "nothing",
}
_CLOCK, _DATE = "%H:%M", "%Y-%m-%d %H:%M"


def show_estimate(terminal: Terminal, estimate: Estimate, *, warned: bool = False) -> None:
    """The answer first, then why, by order and by concurrency, and what it rests on.

    Before all of it, that retention would be quicker than the drain, unless that was ``warned`` of.
    """
    too_near = doomed_warning(estimate.doomed, estimate.asked.seconds)
    if too_near is not None and not warned:
        terminal.warn(too_near)
    terminal.show(_headline(estimate))
    if not estimate.workload.messages:
        return
    show_skipped(terminal, estimate.skipped, whole=estimate.workload.whole)
    terminal.say("")
    if estimate.verdict is not None:
        terminal.show(_verdict(estimate, estimate.verdict))
    terminal.show(field("bound by", binding(estimate, estimate.asked)))
    terminal.say("")
    _show_orders(terminal, estimate)
    terminal.say("")
    _show_table(terminal, estimate)
    terminal.say("")
    for line in _grounds(estimate):
        terminal.show(line)


def skipped_words(skipped: Skipped | None, *, whole: bool) -> str:
    """What the rules leave out of the work; empty without rules."""
    if skipped is None:
        return ""
    about = "" if whole else "~"
    return (
        f"the rules skip {about}{figures.count(skipped.total)} of"
        f" {about}{figures.counted(skipped.sub_messages, 'sub-message')}"
    )


def show_skipped(terminal: Terminal, skipped: Skipped | None, *, whole: bool) -> None:
    """The same, and by rule when there are several."""
    if skipped is None:
        return
    about = "" if whole else "~"
    terminal.show(Text(skipped_words(skipped, whole=whole)))
    if len(skipped.by_rule) > 1:
        for name, number in sorted(skipped.by_rule.items(), key=lambda item: -item[1]):
            text = f"  {about}{figures.count(number)} by {figures.shorten(name, NAME_WIDTH)}"
            terminal.show(Text(text, QUIET_STYLE))


def show_canary(terminal: Terminal, summary: Summary) -> None:
    """How the first messages went."""
    counted = figures.counted
    terminal.show(
        verdict(
            True,
            f"the canary is over: {counted(summary.messages.done, 'message')},"
            f" {counted(summary.sub_messages.done, 'sub-message')} handled in"
            f" {figures.duration(summary.elapsed_s)}; committed, and in the plan",
        )
    )
    show_account(terminal, summary.messages, summary.sub_messages, urgent=not summary.conserved)
    terminal.say("")


def show_typical(
    terminal: Terminal,
    typical: Sequence[tuple[Distribution, Forecast]],
    deadline: datetime | None,
) -> None:
    """How long it would take with some latencies, and how to be told for the handler's own."""
    concurrency = typical[0][1].concurrency
    terminal.show(Text(f"How long it takes, {figures.count(concurrency)} at once", HEAD_STYLE))
    rows = table("a sub-message", "the drain", "")
    for latency, found in typical:
        rows.add_row(
            figures.duration(latency.mean_s),
            figures.duration(found.seconds),
            Text(found.bound, QUIET_STYLE),
        )
    terminal.show(rows)
    what = "whether the deadline is met" if deadline is not None else "how long it will take"
    terminal.hint(
        f"to know {what}, say how long the handler takes: --latency 10ms or --latency-from PLAN"
    )


def show_way_on(terminal: Terminal, plan: Path) -> None:
    """How to drain the rest."""
    terminal.say("")
    terminal.show(field("to go on", command("resume", plan)))


def binding(estimate: Estimate, found: Forecast) -> str:
    """What binds, in words, with the way out where there is one."""
    hottest = found.hottest
    if found.bound == f.LANE and hottest is not None:
        if found.order is Order.PARTITION:
            return "order: one sub-message at a time per partition"
        what = "message key" if found.order is Order.KEY else "sub-key"
        share = hottest.sub_messages / max(1, estimate.workload.sub_messages)
        together = ""
        if hottest.calls < hottest.sub_messages:
            together = f", in {figures.counted(round(hottest.calls), 'call')} at least"
        return (
            f"the hottest lane: {what} {figures.sub_key(hottest.key)} has"
            f" {figures.counted(round(hottest.sub_messages), 'sub-message')}"
            f" ({figures.percent(share)}){together}, one at a time"
        )
    if found.bound == f.RATE:
        return f"--rate: {figures.rate(estimate.question.rate or 0)} a second"
    return _BINDING[found.bound]


def _headline(estimate: Estimate) -> Text:
    asked, workload = estimate.asked, estimate.workload
    if not workload.messages:
        return Text(
            f"Nothing to drain: the backlog of {estimate.group} on {estimate.topic} is empty",
            HEAD_STYLE,
        )
    line = Text(f"Draining {estimate.topic} for {estimate.group} takes about ", HEAD_STYLE)
    line.append(figures.duration(asked.seconds), HEAD_STYLE)
    about = "" if workload.whole else "~"
    line.append(
        f"  {about}{figures.counted(workload.messages, 'message')},"
        f" {about}{figures.counted(workload.sub_messages, 'sub-message')},"
        f" {figures.count(asked.concurrency)} at once, {asked.order.value} order",
        QUIET_STYLE,
    )
    return line


def _verdict(estimate: Estimate, found: DeadlineVerdict) -> Text:
    at = found.deadline
    day = _CLOCK if found.left_s < 24 * 3600 else _DATE
    by = f"by {at.strftime(day)}, in {figures.duration(found.left_s)}"
    least = found.least_concurrency
    if found.met:
        less = ""
        if least is not None and least < estimate.question.concurrency:
            less = f"; {figures.count(least)} at once would do"
        return verdict(
            True, f"drained {by}, with {figures.duration(found.margin_s)} to spare{less}"
        )
    late = f"not drained {by}: {figures.duration(-found.margin_s)} too late"
    if least is not None:
        return verdict(False, f"{late}; it takes --concurrency {least}")
    return verdict(False, f"{late}, and no concurrency is enough")


def _show_orders(terminal: Terminal, estimate: Estimate) -> None:
    rows = table("", "takes", "hottest lane alone", "")
    for order, found in estimate.orders.items():
        rows.add_row(
            Text(f"  {order.value} order", HEAD_STYLE if order is estimate.question.order else ""),
            figures.duration(found.seconds),
            figures.duration(found.serial_s),
            Text(found.bound, QUIET_STYLE),
        )
    terminal.show(rows)


def _show_table(terminal: Terminal, estimate: Estimate) -> None:
    longest = max(found.seconds for found in estimate.table)
    rows = table("at once", "takes", "", "")
    for found in estimate.table:
        asked = found.concurrency == estimate.question.concurrency
        rows.add_row(
            Text(f"  {figures.count(found.concurrency)}", HEAD_STYLE if asked else ""),
            Text(figures.duration(found.seconds), HEAD_STYLE if asked else ""),
            Text(bar_of(found.seconds / longest if longest else 0.0, _BAR), "green"),
            Text(found.bound, QUIET_STYLE),
        )
    terminal.show(rows)


def _grounds(estimate: Estimate) -> list[Text]:
    latency, costs = estimate.question.latency, estimate.setting.costs
    each_s = costs.sub_message_s + costs.message_s / max(1.0, estimate.workload.fan_out)
    lines = [
        field(
            "latency",
            f"{_short(latency.mean_s)} on average, {_short(latency.quantile(0.99))} for one in a"
            " hundred",
            estimate.question.latency_source,
        ),
        field("processor", f"{_short(each_s)} for each sub-message", "measured here, now"),
    ]
    for what, cap in (("read", estimate.setting.read_cap), ("written", estimate.setting.write_cap)):
        if cap is not None:
            lines.append(field("limits", f"{figures.rate(cap)} messages/s", f"{what} at most"))
    asked, bundling = estimate.asked, estimate.setting.bundling
    if bundling is not None:
        folded = f"{figures.count(round(asked.folded))} folded into others"
        lines.append(
            field(
                "calls",
                f"{figures.count(round(asked.calls))} for"
                f" {figures.counted(estimate.workload.sub_messages, 'sub-message')}",
                folded if bundling.coalesce is not None else "",
            )
        )
    lines += [field("note" if not n else "", note) for n, note in enumerate(estimate.notes)]
    return lines


def _short(seconds: float) -> str:
    if 0 < seconds < 0.0005:
        return f"{seconds * 1e6:.0f}µs"
    return f"{seconds * 1e3:.1f}ms" if seconds < 0.0095 else figures.duration(seconds)
