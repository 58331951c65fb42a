"""The command ``drainer run``."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Annotated

import typer

from drainer.cli.command import changing
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.engines import EngineOptions
from drainer.cli.metrics import OversightOptions
from drainer.cli.options import DrainOptions, DryRun, Latency, Limits, OrResume, Plan
from drainer.engine.preview import PROCESS, SPARK
from drainer.errors import EXIT_DONE, Interrupted, Passing, UsageError, raised_as
from drainer.loading.extensions import Extension
from drainer.model.settings import DEFAULT_FAILURES, FailureSettings, LocalSettings
from drainer.model.status import Summary
from drainer.view.terminal import Terminal


@changing
def run(
    context: typer.Context,
    what: DrainOptions,
    kafka: ConnectionOptions,
    dry_run: DryRun,
    plan: Plan,
    or_resume: OrResume,
    running: LocalSettings,
    failures: Annotated[FailureSettings, DEFAULT_FAILURES],
    latency: Latency,
    engines: EngineOptions,
    limits: Limits,
    oversight: OversightOptions,
    terminal: Terminal,
) -> int:
    """Drain a group's backlog of a topic through a handler.

    drainer prints a preview, and touches nothing before you confirm. The first Ctrl-C stops the drain
    safely and prints how to resume. The second stops it at once. The plan is valid either way.

    Examples:

    - `drainer run --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092`
    - `drainer run --topic orders --group indexer --handler count -b localhost:9092 --dry-run --latency 10ms --deadline 08:00`
    - `drainer run --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --retries 5 --on-failure dead-letter --max-failures 1%`
    - `drainer run --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --first "payload.customer == 42"`
    - `drainer run --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --engine spark -c 2000`
    - `drainer run --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --or-resume --yes`
    - `drainer run --topic orders --group indexer --handler print -b localhost:9092 --partition 3 --from earliest --yes -o json`
    """  # noqa: E501 - an example has to be on one line to be copied
    # These import the engine and librdkafka, which the help does not need.
    from drainer.cli import draining  # noqa: PLC0415
    from drainer.operations.group import await_inactive  # noqa: PLC0415
    from drainer.operations.hand_over import handed_over  # noqa: PLC0415
    from drainer.operations.repeat import prepare_run  # noqa: PLC0415
    from drainer.operations.resume import ResumeRequest  # noqa: PLC0415

    with oversight.serving(terminal) as metrics:
        engines.ensure_used(context)
        spark = engines.spark(plan, resumes=or_resume)
        if latency is not None and not dry_run:
            raise UsageError("--latency only applies to an estimate", hint="Add --dry-run.")
        question = None
        if dry_run:
            question = Extension.ESTIMATE.load().question_of(latency, running)
        settings = kafka.settings()
        given = what, settings.extras, kafka, failures, limits, running.options, plan
        request = draining.request_of(*given)
        # A scheduler tries again after exit code 4, and --or-resume makes that safe.
        retried = raised_as(Interrupted, Passing)
        with retried if or_resume else nullcontext(), connect(settings) as cluster:
            names = request.group, request.topic
            await_group = partial(await_inactive, cluster, *names, running, terminal.print_line)
            hand_over_s = 0.0 if dry_run else running.hand_over_s
            prepared = prepare_run(
                *(cluster, request, running),
                or_resume=or_resume,
                state=engines.state,
                again=ResumeRequest(
                    engine=PROCESS if spark is None else SPARK, asks=dry_run or not oversight.yes
                ),
                wait=await_group,
                hand_over=partial(
                    handed_over, cluster, most_s=hand_over_s, print_line=terminal.print_line
                ),
            )
            if isinstance(prepared, Summary):
                return draining.show_ended(terminal, prepared, oversight)
            prepared = engines.resolve(prepared, spark)
            if dry_run and not prepared.action.resumes:
                estimate = Extension.ESTIMATE.load().estimate_dry_run
                action, found = estimate(terminal, cluster, prepared, request, question)
                draining.report_dry_run(context, terminal, action, found, report=oversight.report)
                return EXIT_DONE
            return draining.preview_and_drain(
                *(context, terminal, cluster, prepared, running, metrics, oversight),
                dry_run=dry_run,
            )
