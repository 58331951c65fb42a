"""The command ``drainer resume``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from drainer.cli.command import ChangesTo, changing, only
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.engines import EngineOptions
from drainer.cli.metrics import OversightOptions
from drainer.cli.options import (
    AcceptGap,
    CodeOptions,
    DryRun,
    OtherLimits,
    PayloadOptions,
    PlanArgument,
    PriorityOptions,
    SameSplit,
)
from drainer.engine.preview import PROCESS, SPARK
from drainer.model.destinations import REGISTRY
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.view.terminal import Terminal


@changing
def resume(
    context: typer.Context,
    plan: PlanArgument,
    priority: PriorityOptions,
    kafka: ConnectionOptions,
    code: CodeOptions,
    registry: Annotated[PayloadOptions, only("registry")],
    accept_gap: AcceptGap,
    same_split: SameSplit,
    dry_run: DryRun,
    running: LocalSettings,
    failures: Annotated[Mapping[str, Any], ChangesTo(FailureSettings)],
    engines: EngineOptions,
    limits: OtherLimits,
    oversight: OversightOptions,
    terminal: Terminal,
) -> int:
    """Resume a drain that was interrupted, halted or killed.

    The plan holds the backlog, the handler, the failure policy and what to skip. An option that
    is given here overrides the plan. Another engine may finish the drain. drainer shows the plan's
    handler and asks once, before it loads it. It asks again only if the checks find something to
    warn of. With --yes, name a handler of your own, too.

    Examples:

    - `drainer resume orders.indexer.plan.json`
    - `drainer resume orders.indexer.plan.json --dry-run`
    - `drainer resume orders.indexer.plan.json --handler my_handlers.py:Reindex --yes`
    - `drainer resume orders.indexer.plan.json --first "payload.customer == 42"`
    - `drainer resume orders.indexer.plan.json --engine spark -c 2000`
    """
    # These import the engine and librdkafka, which the help does not need.
    from drainer.cli.draining import preview_and_drain  # noqa: PLC0415
    from drainer.operations.group import await_inactive  # noqa: PLC0415
    from drainer.operations.resume import ResumeRequest, prepare_resume  # noqa: PLC0415

    with oversight.serving(terminal) as metrics:
        engines.ensure_used(context)
        spark = engines.spark(plan, resumes=True)
        file = kafka.plan_at(plan, engines.state)
        if not dry_run:
            file.ensure_free()
        known = file.load(without_reports=True).plan
        changed = known.terms.failures.changed(failures)
        if registry.registry is not None:
            own = f"{REGISTRY}url={registry.registry}"
            kafka = replace(kafka, client_properties=(*kafka.client_properties, own))
        unnamed = code.unnamed(known, plan, loads := running.options or {})
        if code.handler is not None:
            known = replace(known, terms=replace(known.terms, handler=code.handler))
        settings, confirmed = kafka.settings_by_plan(
            *(context, terminal, file, known),
            yes=oversight.yes,
            loads=loads,
            unnamed=unnamed,
            then="" if dry_run else "resume the drain",
        )
        loaded = file.load()
        classes = priority.over(loaded.plan.account.classes)
        request = ResumeRequest(
            *(changed, classes, kafka.client_config, accept_gap, same_split, code.handler, limits),
            engine=PROCESS if spark is None else SPARK,
            asks=dry_run or not oversight.yes,
        )
        with connect(settings) as cluster:
            terms = known.terms
            await_inactive(cluster, terms.group, terms.topic, running, terminal.print_line)
            prepared = prepare_resume(cluster, file, loaded, running, request)
            prepared = engines.resolve(prepared, spark)
            return preview_and_drain(
                *(context, terminal, cluster, prepared, running, metrics, oversight),
                dry_run=dry_run,
                confirmed=confirmed,
            )
