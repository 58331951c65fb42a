"""``drainer estimate``, and what ``run --dry-run`` shares with it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from drainer.cli.answer import ensure_confirmed
from drainer.cli.command import changing_when, only, without
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.draining import end_at_once, request_of, resuming_with, within_limits
from drainer.cli.engines import EngineOptions
from drainer.cli.options import (
    BacklogOptions,
    LatencyOptions,
    Limits,
    PayloadOptions,
    Plan,
    PriorityOptions,
    Report,
    Yes,
)
from drainer.engine.preview import PROCESS, SPARK, EngineChoice, EngineName, Preview
from drainer.errors import EXIT_DONE, Refused, UsageError
from drainer.insight.canary import send_canary
from drainer.insight.estimate import Estimate, Question, make_estimate, most_at_once
from drainer.insight.forecast.distribution import Distribution, latency_from
from drainer.insight.forecast.on_spark import Cores
from drainer.insight.measurement import backlog_of, measure_backlog
from drainer.insight.view.estimate import canary_page, estimate_page, show_moves
from drainer.kafka.backlog import Backlog, remaining
from drainer.kafka.cluster import Cluster
from drainer.model.option import Option, number
from drainer.model.settings import NEW_DRAIN, FailureSettings, LocalSettings
from drainer.operations.engine import IN_PROCESS
from drainer.operations.start import Prepared, Request, prepare
from drainer.spark.session.settings import SparkLook
from drainer.store.plan_file import plan_at
from drainer.view import figures
from drainer.view.live import progress_view
from drainer.view.preview import preview_page
from drainer.view.report.file import ReportFile, write_page
from drainer.view.summary import show_summary
from drainer.view.terminal import Terminal

NO_CORES = "drainer knows the cluster's cores only once Spark runs there"
ASSUMED, ASSUMED_SOURCE = "10ms", "assumed"  # for a dry run without a latency


@changing_when(lambda given: given.get("canary") is not None)
def estimate(
    context: typer.Context,
    backlog: BacklogOptions,
    payload: PayloadOptions,
    priority: PriorityOptions,
    kafka: ConnectionOptions,
    latency: LatencyOptions,
    canary: Annotated[
        int | None,
        Option(
            "Handle the first N messages for real, and measure them.",
            None,
            number(1),
            risk="it calls the handler for real",
            panel="Estimate",
        ),
    ],
    plan: Plan,
    running: Annotated[LocalSettings, without("plan_interval_s", "grace_s", "reason")],
    engines: Annotated[
        EngineOptions, only("engine", "master", "remote", "spark_conf", "wave_bytes", "tasks")
    ],
    failures: Annotated[FailureSettings, NEW_DRAIN],
    limits: Limits,
    report: Report,
    yes: Yes,
    terminal: Terminal,
) -> int | None:
    """Estimate how long a drain takes and what limits it.

    drainer simulates the drain from a sample of the backlog. It also compares other orders and
    concurrencies. Without --canary, it handles nothing and touches no group. A canary is the start of a
    drain: it moves the group, and leaves a plan to resume.

    Examples:

    - `drainer estimate --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --latency 10ms`
    - `drainer estimate --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --latency p50=8ms,p99=120ms -c 500 --deadline 08:00`
    - `drainer estimate --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --canary 1000`
    """  # noqa: E501 - an example has to be on one line to be copied
    if canary is not None:
        _ensure_canary_fits(latency, priority, engines)
    elif not latency.is_given:
        raise UsageError(
            "an estimate needs the time that the handler takes for one sub-message",
            hint="Add --latency 10ms, --latency-from PLAN of an earlier drain, or --canary 1000 to"
            " measure it on the first 1,000 messages.",
        )
    question = question_of(latency, running, engines)
    if canary is not None:
        question = replace(question, engine=EngineName.PROCESS, cores=None)
    elif engines.may_be_spark and question.cores is None:
        if engines.engine is EngineName.SPARK:
            raise UsageError(NO_CORES, hint="Add --tasks N.")
        terminal.warn(f"the estimate is for this process: {NO_CORES}; add --tasks N")
    settings = kafka.settings()
    handler = payload.load(backlog.handler, settings.extras)
    request = request_of(backlog, handler, priority, kafka, failures, limits, plan)
    request = request.configured(running.options)
    with connect(settings) as cluster:
        if canary is not None:
            return send_canary_and_estimate(
                context, terminal, cluster, request, question, canary, report, yes=yes
            )
        found = backlog_of(cluster, request)
        estimate_and_show(terminal, cluster, found, request, question, report)
    return None


def _ensure_canary_fits(
    latency: LatencyOptions, priority: PriorityOptions, engines: EngineOptions
) -> None:
    """Raises UsageError for options that exclude a canary."""
    if latency.is_given:
        raise UsageError(
            "--canary measures the latency, so --latency and --latency-from don't apply",
            hint="Give one of them.",
        )
    if priority.firsts or priority.onlys:
        raise UsageError(
            "--canary handles the first messages of the backlog, so --first and --only don't apply",
            hint="Remove them, or replace --canary with --latency.",
        )
    if engines.engine is EngineName.SPARK:
        raise UsageError("--canary runs in this process", hint="Remove --engine.")


def question_of(given: LatencyOptions, running: LocalSettings, engines: EngineOptions) -> Question:
    """The question of these options; without a latency one is assumed. Raises UsageError when
    both latencies were given, or one can't be understood."""
    if given.latency is not None and given.latency_from is not None:
        raise UsageError("--latency excludes --latency-from", hint="Remove one of them.")
    text, file = given.latency or ASSUMED, given.latency_from
    if file is not None:
        question = Question(latency_from(file), str(file), True, running, running.deadline)
    else:
        source = f"--latency {text}" if given.latency else ASSUMED_SOURCE
        question = Question(Distribution.parse(text), source, False, running, running.deadline)
    if not engines.may_be_spark:
        return question
    look = SparkLook.of(engines.master, engines.spark_conf, engines.tasks, engines.remote)
    if (number := look.cores) is None:
        return question
    # What a drain runs on is not chosen by an assumption.
    engine = engines.engine if given.is_given else EngineName.SPARK
    return replace(question, engine=engine, cores=Cores(number, engines.wave_bytes))


def estimate_and_show(
    terminal: Terminal,
    cluster: Cluster,
    backlog: Backlog,
    request: Request,
    question: Question,
    report: ReportFile | None,
    go_on: Path | str | None = None,
    **more: object,
) -> None:
    """Samples the backlog, simulates, and prints the estimate; ``go_on`` is the plan to resume.

    ``more`` is of the object. Raises Refused.
    """
    found = _estimated(terminal, cluster, backlog, request, question)
    page = estimate_page(found, go_on)
    head = {"status": "estimated", "exit_code": EXIT_DONE}
    what = {"topic": request.topic, "group": request.group}
    terminal.data({**head, **what, **more, "estimate": found.as_json()})
    terminal.present(page)
    write_page(terminal, report, lambda now: replace(page, times=(now,)))


def _estimated(
    terminal: Terminal, cluster: Cluster, backlog: Backlog, request: Request, question: Question
) -> Estimate:
    concurrency = most_at_once(request, question.running)
    measured = measure_backlog(cluster, backlog, request, concurrency, terminal.print_line)
    return make_estimate(backlog, measured, request, question, terminal.print_line)


def estimate_dry_run(
    terminal: Terminal,
    cluster: Cluster,
    prepared: Prepared,
    request: Request,
    question: Question,
    report: ReportFile | None,
) -> tuple[Preview, dict[str, object]]:
    """The preview and the estimate of a dry run; gives both as the object has them.

    Measures before it shows anything, so that a warning of retention comes first.
    Without a latency one is assumed. A handler that can't split is a warning.
    """
    try:
        prepared, found = _chosen(terminal, cluster, prepared, request, question)
    except Refused as error:
        action = prepared.action
        terminal.present(preview_page(action))
        terminal.warn(f"no estimate: {error}")
        return action, {"estimate": None}
    action, page = prepared.action, estimate_page(found)
    action = replace(action, warnings=(*page.warnings, *action.warnings))
    terminal.present(preview_page(action))
    if not terminal.json:
        terminal.show([], result=True)
    if action.engine.is_spark and question.cores is None:
        terminal.warn(f"the times below are for this process: {NO_CORES}; add --tasks N")
    hints: tuple[str, ...] = ()
    if question.source == ASSUMED_SOURCE:
        hints = (f"drainer assumes {ASSUMED} per call: add --latency, or --latency-from PLAN.",)
    terminal.present(replace(page, warnings=(), hints=hints))
    write_page(terminal, report, lambda now: replace(page, times=(now,)))
    return action, {"estimate": found.as_json()}


def choose_engine(
    terminal: Terminal, cluster: Cluster, prepared: Prepared, request: Request, question: Question
) -> Prepared:
    """Move what was prepared for Spark, because a master is named, to the quicker engine."""
    if question.cores is None:
        return prepared
    try:
        return _chosen(terminal, cluster, prepared, request, question)[0]
    except Refused as error:
        terminal.warn(f"no estimate, so drainer can't choose the engine by it: {error}")
        return prepared


def _chosen(
    terminal: Terminal, cluster: Cluster, prepared: Prepared, request: Request, question: Question
) -> tuple[Prepared, Estimate]:
    action = prepared.action
    if not action.engine.is_spark:  # it can't be
        question = replace(question, engine=EngineName.PROCESS, cores=None)
    elif isinstance(action.plan_path, str):  # at a URI, which is for Spark
        question = replace(question, engine=EngineName.SPARK)
    backlog = remaining(cluster, prepared.plan)
    found = _estimated(terminal, cluster, backlog, request, question)
    if question.engine is not EngineName.AUTO:
        return prepared, found
    here_s, there_s = (figures.duration(found.by_engine[name]) for name in (PROCESS, SPARK))
    why = f"estimated: {here_s} in this process, {there_s} on Spark"
    engine = replace(action.engine, why=why)
    if found.engine == PROCESS:
        prepared, engine = replace(prepared, engine=IN_PROCESS), EngineChoice(PROCESS, why)
    return replace(prepared, action=replace(action, engine=engine)), found


def send_canary_and_estimate(
    context: typer.Context,
    terminal: Terminal,
    cluster: Cluster,
    request: Request,
    question: Question,
    first: int,
    report: ReportFile | None,
    *,
    yes: bool,
) -> int:
    """Handles the first messages, once that is confirmed, and estimates the rest from them.

    Gives the exit code.
    """
    prepared = within_limits(cluster, prepare(cluster, request, question.running), request.limits)
    action = prepared.action
    if not action.offsets:
        backlog = backlog_of(cluster, request)
        estimate_and_show(terminal, cluster, backlog, request, question, report, canary=None)
        return EXIT_DONE
    terminal.preview(preview_page(action))
    messages = f"{min(first, action.offsets):,} message{'' if first == 1 else 's'}"
    commits = f"commit for {request.group}" if request.commits else "commit nothing"
    ensure_confirmed(
        terminal,
        f"Handle the first {messages} of {request.topic} for real, and {commits}?",
        yes=yes,
        needs_yes=action.needs_yes,
    )
    resuming = resuming_with(context, prepared.plan, question.deadline)
    with progress_view(terminal) as view:
        give_up = partial(end_at_once, terminal, view, action.plan_path, lambda: resuming)
        summary = send_canary(
            cluster, prepared, question.running, first, view.update, terminal.print_line, give_up
        )
    summary = replace(summary, resuming=resuming)
    if summary.cause is not None:
        show_summary(terminal, summary)
        show_moves(terminal, prepared.plan, action.plan_path, summary)
        if report is not None:
            terminal.warn("no report was written: the canary stopped early")
        return summary.exit_code
    terminal.present(canary_page(summary))
    show_moves(terminal, prepared.plan, action.plan_path, summary)
    plan = plan_at(action.plan_path).load().plan
    if (latency := summary.last.timing.latency) is not None:
        source = f"a canary of {summary.messages.done:,} messages, {latency.count:,} calls"
        measured = Distribution.measured(latency)
        question = replace(question, latency=measured, source=source, measured=True)
    rest = remaining(cluster, plan)
    go_on = None if plan.account.complete else action.plan_path
    estimate_and_show(
        *(terminal, cluster, rest, request, question, report, go_on),
        exit_code=summary.exit_code,
        plan=summary.plan,
        canary=summary.as_json(),
    )
    return summary.exit_code
