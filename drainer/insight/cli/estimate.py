"""``drainer estimate``, the estimate of ``run --dry-run``, and the page that both show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import Annotated

import typer

from drainer.cli.command import basic, command, without
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.declared import next_command
from drainer.cli.draining import request_of
from drainer.cli.options import LATENCY, DrainOptions, Limits
from drainer.engine.preview import SPARK, Preview
from drainer.errors import Refused, UsageError
from drainer.insight import bounds
from drainer.insight.cli.inspect import expiry_warning
from drainer.insight.distribution import Distribution, latency_from
from drainer.insight.estimate import DeadlineVerdict, Estimate, Question, make_estimate
from drainer.insight.measurement import Measured, backlog_of
from drainer.kafka.backlog import remaining
from drainer.kafka.cluster import Cluster
from drainer.model.order import Order
from drainer.model.settings import BESIDE_OTHERS, DEFAULT_FAILURES, FailureSettings, LocalSettings
from drainer.operations.start import Prepared, Request
from drainer.text.mask import short_key
from drainer.view import figures
from drainer.view.page import Cell, Column, Field, Line, Page, Table, Tone, section
from drainer.view.policy import skip_lines
from drainer.view.preview import preview_page
from drainer.view.terminal import Terminal
from drainer.view.verdict import ending, judged

ASSUMED, ASSUMED_SOURCE = "10ms", "assumed"  # A dry run without a latency assumes this one.
_BINDING = {
    bounds.CONCURRENCY: (
        "concurrency: more at once would be faster, if the downstream can take it"
    ),
    bounds.LANE: "order: one sub-message at a time",
    bounds.FETCH: "reading: the broker delivers messages no faster",
    bounds.SPLIT: "split: this process spends its time there",
    bounds.HANDLE: "the processor time of handle; more concurrency does not help",
    bounds.CPU: "this process, which is out of CPU; more concurrency does not help",
    bounds.BARRIERS: "barriers: each waits for everything before it",
    bounds.READ_CAP: "the brokers' limits on reading; more concurrency does not help",
    bounds.WRITE_CAP: "the brokers' limits on writing; more concurrency does not help",
    bounds.NOTHING: "nothing",
}
# What lowers each bound. For concurrency and --rate, ``_needs`` names a number.
_LOWERED_BY = {
    bounds.LANE: "finer sub-keys or `coalesce`",
    bounds.FETCH: "a place nearer to the brokers",
    bounds.SPLIT: "a faster split",
    bounds.HANDLE: "less computing in handle, or --engine spark",
    bounds.CPU: "larger sub-messages, or --engine spark",
    bounds.BARRIERS: "fewer barriers",
    bounds.READ_CAP: "higher --broker-limits",
    bounds.WRITE_CAP: "higher --broker-limits",
}


@command
def estimate(
    context: typer.Context,
    what: DrainOptions,
    kafka: ConnectionOptions,
    latency: Annotated[str | None, replace(LATENCY, basic=True)],
    running: Annotated[
        LocalSettings,
        without("grace_s", "buffer_bytes", "reason", *BESIDE_OTHERS),
        basic("deadline"),
    ],
    failures: Annotated[FailureSettings, DEFAULT_FAILURES],
    limits: Limits,
    terminal: Terminal,
) -> None:
    """Estimate how long a drain takes and what limits it.

    drainer reads a sample of the backlog, splits it, and measures what a sub-message costs on this
    machine. It also compares other orders and concurrencies. It handles nothing and touches no group.

    Examples:

    - `drainer estimate --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --latency 10ms`
    - `drainer estimate --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --latency p50=8ms,p99=120ms -c 500 --deadline 08:00`
    """  # noqa: E501 - an example has to be on one line to be copied
    if latency is None:
        raise UsageError(
            "an estimate needs the time that the handler takes for one sub-message",
            hint="Add --latency 10ms, or --latency PLAN of an earlier drain.",
        )
    question = question_of(latency, running)
    settings = kafka.settings()
    request = request_of(what, settings.extras, kafka, failures, limits, running.options)
    with connect(settings) as cluster:
        frozen = backlog_of(cluster, request)
        found = make_estimate(cluster, frozen, request, question, terminal.print_line)
    of = {"topic": request.topic, "group": request.group}
    page, way = estimate_page(found), next_command(context, "run", leave_out=("latency",))
    terminal.answer({"status": "estimated", **of, "estimate": found.as_json(), "next": way}, page)


def question_of(latency: str | None, running: LocalSettings) -> Question:
    """Make the question for an estimate from options. Without a latency, ``ASSUMED`` is used.

    Raises UsageError if the latency can't be understood.
    """
    text = latency or ASSUMED
    if (file := Path(text)).is_file() or file.suffix in (".json", ".html"):
        return Question(latency_from(file), text, True, running)
    source = f"--latency {text}" if latency else ASSUMED_SOURCE
    return Question(Distribution.parse(text), source, False, running)


def estimate_dry_run(
    terminal: Terminal, cluster: Cluster, prepared: Prepared, request: Request, question: Question
) -> tuple[Preview, dict[str, object]]:
    """Show the preview and the estimate of a dry run, and return both for its JSON object.

    Everything is measured before anything is shown, so that a warning of retention comes first. If
    there can be no estimate, for example because ``split`` fails, a warning says why.
    """
    action = prepared.action
    try:
        backlog = remaining(cluster, prepared.plan)
        found = make_estimate(cluster, backlog, request, question, terminal.print_line)
    except Refused as error:
        terminal.present(preview_page(action))
        terminal.warn(f"no estimate: {error}")
        return action, {"estimate": None}
    # The preview has its own warnings on options that match nothing.
    page = estimate_page(replace(found, measured=replace(found.measured, warnings=())))
    action = replace(action, warnings=(*page.warnings, *action.warnings))
    terminal.present(preview_page(action))
    if not terminal.json:
        terminal.show([], result=True)
    if action.engine.name == SPARK:
        terminal.warn("the times below are for one process")
    hints: tuple[str, ...] = ()
    if question.source == ASSUMED_SOURCE:
        hints = (f"drainer assumes {ASSUMED} per call: add --latency 10ms, or --latency PLAN.",)
    terminal.present(replace(page, warnings=(), hints=hints))
    return action, {"estimate": found.as_json()}


def estimate_page(found: Estimate, now: datetime | None = None) -> Page:
    """Make the page of an estimate: the time, its limit, other orders and concurrencies, the basis.

    If retention would delete messages before they are drained, a warning comes first.
    ``now`` is the time from which the end is counted.
    """
    too_near = expiry_warning(found.measured.expiry, found.seconds)
    warnings = [*([] if too_near is None else [too_near]), *found.measured.warnings]
    rejected, first = found.measured.rejected
    if rejected:
        many = figures.counted(rejected, "message")
        warnings.append(f"split rejects about {many}, which are left out; first, {first}")
    classes = found.first.table(found.requested, found.workload) if found.first else None
    empty = not found.workload.messages
    return Page(
        _headline(found, now),
        ()
        if empty
        else (
            section(
                "The answer",
                None if found.verdict is None else _verdict(found, found.verdict),
                _range(found),
                Field("limited by", binding(found, found.requested)),
                _skipped(found.measured),
            ),
            section("Priority classes", classes),
            section("By order", _orders(found)),
            section("By concurrency", _table(found)),
            section("Basis", _grounds(found)),
        ),
        subject=f"Draining {found.request.topic} for group {found.request.group}",
        warnings=tuple(warnings),
        data={"estimate": found.as_json()},
    )


def _range(estimate: Estimate) -> Field:
    """Return how long the drain may take, and what that depends on or comes from."""
    least_s, most_s = map(figures.duration, estimate.range_s)
    grounds = "from measured drains"
    if estimate.setting.latency.processor_s is None:
        grounds = "if `handle` only waits: its processor time is unknown"
    return Field("range", f"{least_s} to {most_s}", grounds)


def _skipped(measured: Measured) -> Iterator[Field]:
    if (found := measured.skipped) is not None:
        about = "" if measured.workload.whole else "~"
        yield from skip_lines("would skip", found.by_rule, found.sub_messages, about)


def binding(estimate: Estimate, found: bounds.Forecast) -> str:
    """Return what limits a forecast, in words."""
    hottest = found.hottest
    if found.bound == bounds.LANE and hottest is not None:
        if found.order is Order.PARTITION:
            return "order: one sub-message at a time per partition"
        what = "message key" if found.order is Order.KEY else "sub-key"
        share = hottest.sub_messages / max(1, estimate.workload.sub_messages)
        together = ""
        if hottest.calls < hottest.sub_messages:
            together = f", in {figures.counted(round(hottest.calls), 'call')} at least"
        return (
            f"the hottest lane: {what} {short_key(hottest.key)} has"
            f" {figures.counted(round(hottest.sub_messages), 'sub-message')}"
            f" ({figures.percent(share)}){together}, one at a time"
        )
    if found.bound == bounds.RATE:
        rate = figures.rate(estimate.setting.rate or 0)
        return f"--rate: {rate} per second; more concurrency does not help"
    return _BINDING[found.bound]


def _headline(estimate: Estimate, now: datetime | None) -> Line:
    requested, workload = estimate.requested, estimate.workload
    if not workload.messages:
        return Line("nothing to drain: the backlog is empty", Tone.STRONG)
    about = "" if workload.whole else "~"
    what = (
        f"{about}{figures.counted(workload.messages, 'message')},"
        f" {about}{figures.counted(workload.sub_messages, 'sub-message')},"
        f" {figures.count(requested.concurrency)} at once, {requested.order.value} order"
    )
    takes = _takes(estimate)
    if estimate.question.source == ASSUMED_SOURCE:
        takes += f", assuming {ASSUMED} a call"
    if estimate.verdict is None:  # Otherwise the verdict below says when that is.
        takes = ending(takes, estimate.seconds, now=now)
    return Line(takes, Tone.STRONG, more=f"  ({what})")


def _takes(estimate: Estimate) -> str:
    return f"takes about {figures.duration(estimate.seconds)}"


def _verdict(estimate: Estimate, found: DeadlineVerdict) -> Line:
    words, least = ending(_takes(estimate), estimate.seconds, found), found.least_concurrency
    if found.late:
        words += f"; needs {_needs(estimate, found)}"
    elif least is not None and least < estimate.requested.concurrency:
        words += f"; {figures.count(least)} at once would be enough"
    # An assumed latency shows neither that the deadline is met nor that it is missed.
    return judged(words, None if estimate.question.source == ASSUMED_SOURCE else found)


def _needs(estimate: Estimate, found: DeadlineVerdict) -> str:
    """Return what a drain needs to meet a deadline that it will miss."""
    if found.least_concurrency is not None:
        return f"--concurrency {found.least_concurrency}"
    fastest, rate = estimate.table[-1], estimate.setting.rate
    if fastest.bound == bounds.CONCURRENCY:
        return f"more than {figures.count(fastest.concurrency)} at once"
    needed = _LOWERED_BY.get(fastest.bound, "a higher --rate")
    left_s = (found.margin_s or 0.0) + max(estimate.requested.bounds.values())
    if fastest.bound == bounds.RATE and rate is not None and left_s > 0:
        needed = f"--rate {ceil(rate * fastest.bounds[bounds.RATE] / left_s)}/s"
    if fastest.bound == bounds.LANE and fastest.order is not Order.SUB_KEY:
        needed = "a finer order, such as --tune order=sub-key"
    if estimate.requested.bounds[bounds.CONCURRENCY] > left_s:
        return f"{needed}, and more concurrency"
    return f"{needed}; more concurrency is not enough"


def _orders(estimate: Estimate) -> Table:
    rows = tuple(
        (
            _emphasised(f"  {order.value} order", order is estimate.request.order),
            figures.duration(found.seconds),
            figures.duration(found.serial_s),
            Cell(found.bound, Tone.QUIET),
        )
        for order, found in estimate.orders.items()
    )
    return Table(("", "takes", "hottest lane alone", Column("limited by")), rows)


def _table(estimate: Estimate) -> Table:
    table, asked = estimate.table, estimate.requested.concurrency
    # Of the rows that --rate decides, which are all the same, one is shown.
    at_rate = [each.concurrency for each in table if each.bound == bounds.RATE]
    left_out = {*at_rate} - {asked if asked in at_rate else min(at_rate, default=asked)}
    longest = max(found.seconds for found in table)
    rows = tuple(
        (
            _emphasised(figures.count(found.concurrency), requested),
            _emphasised(figures.duration(found.seconds), requested),
            Cell("", bar=found.seconds / longest if longest else 0.0),
            Cell(found.bound, Tone.QUIET),
        )
        for found in table
        if found.concurrency not in left_out
        for requested in [found.concurrency == asked]
    )
    return Table(("at once", "takes", "", Column("limited by")), rows, shown=len(rows))


def _emphasised(text: str, requested: bool) -> Cell:
    return Cell(text, Tone.STRONG if requested else Tone.PLAIN)


def _grounds(estimate: Estimate) -> list[Field]:
    setting = estimate.setting
    latency, costs = setting.latency, setting.costs
    fan_out = max(1.0, estimate.workload.fan_out)
    each_s = costs.sub_message_s + costs.message_s / fan_out
    handle = "unknown" if latency.processor_s is None else _short(latency.processor_s)
    of_it = f"split {_short(setting.split_s / fan_out)}, handle {handle}"
    lines = [
        Field(
            "latency",
            f"{_short(latency.mean_s)} on average, p99 {_short(latency.quantile(0.99))}",
            estimate.question.source,
        ),
        Field("processor", f"{_short(each_s)} per sub-message", f"measured; {of_it}"),
        *(
            Field("limits", f"{figures.rate(cap)} messages/s", f"{what}, at most")
            for what, cap in (("read", setting.read_cap), ("written", setting.write_cap))
            if cap is not None
        ),
    ]
    requested, batching = estimate.requested, setting.batching
    if batching is not None:
        subs = figures.counted(estimate.workload.sub_messages, "sub-message")
        calls = f"{figures.count(round(requested.calls))} for {subs}"
        folded = f"{figures.count(round(requested.folded))} coalesced into others"
        lines.append(Field("calls", calls, folded if batching.coalesce is not None else ""))
    lines += [Field("note" if not n else "", note) for n, note in enumerate(estimate.notes)]
    return lines


def _short(seconds: float) -> str:
    if 0 < seconds < 0.0005:
        return f"{seconds * 1e6:.0f}µs"
    return f"{seconds * 1e3:.1f}ms" if 0 < seconds < 0.0095 else figures.duration(seconds)
