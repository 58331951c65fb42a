"""``drainer resume``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from drainer.cli.connecting import Kafka, connect
from drainer.cli.draining import preview_and_drain, settle_cap
from drainer.cli.engines import Engines
from drainer.cli.groups import changing, defaults, only, without
from drainer.cli.hooks import Oversight
from drainer.cli.options import (
    AcceptGap,
    DryRun,
    Failing,
    First,
    How,
    HowLong,
    NoRules,
    OtherLimits,
    PlanArgument,
    Rules,
    SameSplit,
    load_limits,
)
from drainer.model.rules import RuleSettings
from drainer.operations.resume import prepare_resume
from drainer.store.plan_file import plan_at
from drainer.view.terminal import Terminal


@changing
def resume(
    context: typer.Context,
    plan: PlanArgument,
    first: First,
    kafka: Kafka,
    accept_gap: AcceptGap,
    same_split: SameSplit,
    dry_run: DryRun,
    how: Annotated[How, without("plan")],
    failing: Annotated[Failing, defaults("the plan's")],
    rules: Rules,
    no_rules: NoRules,
    how_long: Annotated[HowLong, only("deadline")],
    engines: Engines,
    limits: OtherLimits,
    oversight: Oversight,
    terminal: Terminal,
) -> int:
    """Resume a drain that was interrupted, halted or killed.

    The plan holds the backlog, the handler, the failure policy and the rules. An option given here
    overrides the plan. Another engine may finish the drain.

    Examples:

    - `drainer resume orders.indexer.plan.json`
    - `drainer resume orders.indexer.plan.json --dry-run`
    - `drainer resume orders.indexer.plan.json --concurrency 500 --yes`
    - `drainer resume orders.indexer.plan.json --first "payload.customer == 42"`
    - `drainer resume orders.indexer.plan.json --engine spark -c 2000`
    """
    with oversight.serving(terminal) as metrics:
        running = how.settings(how_long.deadline, oversight.reason)
        # Any engine may have to be told where tasks reported.
        meant = engines if engines.may_be_spark else replace(engines, state=None)
        spark = meant.spark(plan)
        file = plan_at(plan, engines.state)
        known = file.load(alone=True).plan
        failures = failing.over(known.failures)
        ruled = rules.over(RuleSettings() if no_rules else known.rules)
        curve = known.limits
        if limits is not None:
            curve = None if limits.strip().lower() == "none" else load_limits(limits)
        settings = kafka.settings_by_plan(terminal, file, known, yes=oversight.yes, loads=True)
        loaded = file.load()
        known = loaded.plan
        if kafka.client_config is not None:  # its login goes with where this resume connects
            known = replace(known, client_config=str(kafka.client_config.absolute()))
        with connect(settings) as cluster:
            prepared = prepare_resume(
                *(cluster, file, loaded, running, failures, known),
                rules=ruled,
                classes=first.over(known.classes),
                accept_gap=accept_gap,
                same_split=same_split,
            )
            prepared = settle_cap(cluster, prepared, curve)
            prepared = engines.settle(prepared, spark)
            return preview_and_drain(
                *(context, terminal, cluster, prepared, running, metrics, oversight),
                dry_run=dry_run,
            )
