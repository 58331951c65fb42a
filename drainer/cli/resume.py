"""``drainer resume``."""

from __future__ import annotations

import typer

from drainer.cli import capping as c
from drainer.cli import engines as g
from drainer.cli import options as o
from drainer.cli import policy as p
from drainer.cli import rules as r
from drainer.cli.answer import answering, speaking
from drainer.cli.draining import (
    confirm_and_drain,
    connect,
    local_settings,
    settings_of_plan,
    tell_dry_run,
)
from drainer.cli.metrics import serving
from drainer.insight.cli import estimating as e
from drainer.insight.engine_choice import EngineName, Looked, settle_engine
from drainer.limits.capping import settle_cap
from drainer.operations.resume import prepare_resume
from drainer.policy.rules.settings import RuleSettings
from drainer.store.plan_file import PlanFile
from drainer.view.preview import show_preview
from drainer.view.report.file import ReportFile


def resume(
    context: typer.Context,
    plan: o.PlanArgument,
    bootstrap_server: o.BootstrapServer = None,
    concurrency: o.Concurrency = "100",
    buffer: o.Buffer = "256MiB",
    plan_interval: o.PlanInterval = "1s",
    grace: o.Grace = "10s",
    set_: o.Set = None,
    retries: p.Retries = None,
    retry_delay: p.RetryDelay = None,
    retry_max_delay: p.RetryMaxDelay = None,
    timeout: p.Timeout = None,
    on_failure: p.OnFailureOption = None,
    after_dead: p.AfterDeadOption = None,
    dead_letter_topic: p.DeadLetterTopic = None,
    max_dead: p.MaxDead = None,
    max_consecutive: p.MaxConsecutive = None,
    breaker: p.UseBreaker = None,
    max_outage: p.MaxOutage = None,
    max_doubt: p.MaxDoubt = None,
    rate: p.RateOption = None,
    skip_key: r.SkipKeys = None,
    skip: r.Skips = None,
    rules: r.RulesFile = None,
    limit_per_key: r.LimitPerKey = None,
    over_limit: r.OverLimitOption = None,
    no_rules: r.NoRules = False,
    accept_gap: o.AcceptGap = False,
    dry_run: o.DryRun = False,
    deadline: e.Deadline = None,
    engine: g.EngineOption = EngineName.AUTO,
    master: g.Master = None,
    spark_conf: g.SparkConf = None,
    wave: g.Wave = "2GiB",
    state: g.State = None,
    tasks: g.Tasks = None,
    archive: g.Archives = None,
    limits: c.LimitsAnew = None,
    client_config: o.ClientConfig = None,
    client_property: o.ClientProperty = None,
    report: o.ReportPath = None,
    metrics_port: o.MetricsPort = None,
    metrics_host: o.MetricsHost = "127.0.0.1",
    metrics_linger: o.MetricsLinger = "0s",
    log_format: o.LogFormatOption = o.LogFormat.TEXT,
    yes: o.Yes = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Go on with a drain that was interrupted, halted or killed.

    What is to be drained is in the plan, what to do when the handler fails, and what rules leave
    out; only how to drain it can be said anew. It may go on with another engine than it began with.

    Examples:

    - `drainer resume orders.indexer.plan.json`
    - `drainer resume orders.indexer.plan.json --dry-run`
    - `drainer resume orders.indexer.plan.json --concurrency 500 --yes`
    - `drainer resume orders.indexer.plan.json --engine spark -c 2000`
    """
    with (
        speaking(log_format, json=json, quiet=quiet, debug=debug) as terminal,
        answering(terminal),
        serving(terminal, metrics_port, metrics_host, metrics_linger) as metrics,
    ):
        page = ReportFile(report) if report else None
        running = local_settings(concurrency, buffer, plan_interval, grace, set_)
        asked = g.engine_request(
            context,
            engine,
            master=master,
            spark_conf=spark_conf,
            wave=wave,
            state=state,
            tasks=tasks,
            archive=archive,
        )
        by = e.given_deadline(deadline)
        file = PlanFile(plan)
        loaded = file.load()
        failures = p.failure_settings(
            loaded.plan.failures,
            retries=retries,
            retry_delay=retry_delay,
            retry_max_delay=retry_max_delay,
            timeout=timeout,
            on_failure=on_failure,
            after_dead=after_dead,
            dead_letter_topic=dead_letter_topic,
            max_dead=max_dead,
            max_consecutive=max_consecutive,
            breaker=breaker,
            max_outage=max_outage,
            max_doubt=max_doubt,
            rate=rate,
        )
        ruled = r.rule_settings(
            RuleSettings() if no_rules else loaded.plan.rules,
            skip_key=skip_key,
            skip=skip,
            rules=rules,
            limit_per_key=limit_per_key,
            over_limit=over_limit,
        )
        capped = c.limits_anew(limits, loaded.plan.limits)
        settings = settings_of_plan(
            terminal,
            plan,
            loaded.plan,
            bootstrap_server,
            client_config,
            client_property,
            yes=yes,
            loads=True,
        )
        with connect(settings) as cluster:
            prepared = prepare_resume(
                cluster, file, loaded, running, failures, rules=ruled, accept_gap=accept_gap
            )
            prepared = settle_cap(cluster, prepared, capped)

            def look() -> Looked | str:
                return e.look_at_plan(terminal, cluster, prepared, running)

            prepared = settle_engine(prepared, asked, running, look)
            show_preview(terminal, prepared.action)
            if dry_run:
                tell_dry_run(terminal, prepared.action, report=page)
                return
            code = confirm_and_drain(
                context,
                terminal,
                cluster,
                prepared,
                running,
                metrics,
                yes=yes,
                deadline=by,
                report=page,
            )
            raise typer.Exit(code)
