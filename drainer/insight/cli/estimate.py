"""``drainer estimate``, and the estimate of ``run --dry-run``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from drainer.cli.command import basic, command, without
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.draining import request_of
from drainer.cli.options import (
    BacklogOptions,
    LatencyOptions,
    Limits,
    PayloadOptions,
    PriorityOptions,
)
from drainer.engine.preview import Preview
from drainer.errors import EXIT_DONE, Refused, UsageError
from drainer.insight.distribution import Distribution, latency_from
from drainer.insight.estimate import Estimate, Question, make_estimate, most_at_once
from drainer.insight.measurement import backlog_of, measure_backlog
from drainer.insight.view.estimate import estimate_page
from drainer.kafka.backlog import Backlog, remaining
from drainer.kafka.cluster import Cluster
from drainer.model.settings import NEW_DRAIN, FailureSettings, LocalSettings
from drainer.operations.start import Prepared, Request
from drainer.view.preview import preview_page
from drainer.view.terminal import Terminal

ASSUMED, ASSUMED_SOURCE = "10ms", "assumed"  # A dry run without a latency assumes this one.


@command
def estimate(
    backlog: BacklogOptions,
    payload: PayloadOptions,
    priority: PriorityOptions,
    kafka: ConnectionOptions,
    latency: Annotated[LatencyOptions, basic("latency")],
    running: Annotated[
        LocalSettings, without("grace_s", "buffer_bytes", "reason"), basic("deadline")
    ],
    failures: Annotated[FailureSettings, NEW_DRAIN],
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
    if not latency.is_given:
        raise UsageError(
            "an estimate needs the time that the handler takes for one sub-message",
            hint="Add --latency 10ms, or --latency PLAN of an earlier drain.",
        )
    question = question_of(latency, running)
    settings = kafka.settings()
    handler = payload.load(backlog.handler, settings.extras)
    request = request_of(backlog, handler, priority, kafka, failures, limits, None)
    request = request.configured(running.options)
    with connect(settings) as cluster:
        found = _estimated(terminal, cluster, backlog_of(cluster, request), request, question)
    head = {"status": "estimated", "exit_code": EXIT_DONE}
    what = {"topic": request.topic, "group": request.group}
    terminal.data({**head, **what, "estimate": found.as_json()})
    terminal.present(estimate_page(found))


def question_of(given: LatencyOptions, running: LocalSettings) -> Question:
    """Return the question that these options ask. Without a latency, one is assumed.

    Raises UsageError if the latency can't be understood.
    """
    text = given.latency or ASSUMED
    if (file := Path(text)).is_file() or file.suffix in (".json", ".html"):
        return Question(latency_from(file), text, True, running, running.deadline)
    source = f"--latency {text}" if given.latency else ASSUMED_SOURCE
    return Question(Distribution.parse(text), source, False, running, running.deadline)


def _estimated(
    terminal: Terminal, cluster: Cluster, backlog: Backlog, request: Request, question: Question
) -> Estimate:
    concurrency = most_at_once(request, question.running)
    measured = measure_backlog(cluster, backlog, request, concurrency, terminal.print_line)
    return make_estimate(backlog, measured, request, question)


def estimate_dry_run(
    terminal: Terminal, cluster: Cluster, prepared: Prepared, request: Request, question: Question
) -> tuple[Preview, dict[str, object]]:
    """Show the preview and the estimate of a dry run, and return both for its JSON object.

    It measures before it shows anything, so that a warning of retention comes first. A handler
    that can't split is a warning.
    """
    action = prepared.action
    try:
        found = _estimated(terminal, cluster, remaining(cluster, prepared.plan), request, question)
    except Refused as error:
        terminal.present(preview_page(action))
        terminal.warn(f"no estimate: {error}")
        return action, {"estimate": None}
    page = estimate_page(found)
    action = replace(action, warnings=(*page.warnings, *action.warnings))
    terminal.present(preview_page(action))
    if not terminal.json:
        terminal.show([], result=True)
    if action.engine.is_spark:
        terminal.warn("the times below are for one process")
    hints: tuple[str, ...] = ()
    if question.source == ASSUMED_SOURCE:
        hints = (f"drainer assumes {ASSUMED} per call: add --latency 10ms, or --latency PLAN.",)
    terminal.present(replace(page, warnings=(), hints=hints))
    return action, {"estimate": found.as_json()}
