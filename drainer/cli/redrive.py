"""``drainer redrive``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from drainer.cli import capping as c
from drainer.cli import letters as l
from drainer.cli import options as o
from drainer.cli import policy as p
from drainer.cli import rules as r
from drainer.cli.answer import answering, speaking
from drainer.cli.draining import confirm_and_drain, connect, local_settings, tell_dry_run
from drainer.cli.metrics import serving
from drainer.kafka.settings import ClientSettings
from drainer.limits.capping import settle_cap
from drainer.loader import load_handler
from drainer.operations.redrive import RedriveRequest, prepare_redrive
from drainer.policy.failures import OnFailure
from drainer.policy.redrive import RedriveSettings
from drainer.policy.rules.settings import RuleSettings
from drainer.view.preview import show_preview
from drainer.view.report.file import ReportFile

DEAD_AGAIN = replace(p.NEW_DRAIN, on_failure=OnFailure.DEAD_LETTER)


def redrive(
    context: typer.Context,
    dead_letter_topic: l.DeadLetterTopic,
    handler: o.HandlerReference,
    bootstrap_server: o.BootstrapServer = None,
    reason: l.Reasons = None,
    sub_key: l.SubKeys = None,
    error: l.ErrorTexts = None,
    from_topic: l.FromTopics = None,
    from_group: l.FromGroups = None,
    from_handler: l.FromHandlers = None,
    mixed: Annotated[
        bool,
        typer.Option(
            "--mixed",
            envvar="DRAINER_MIXED",
            help="Redrive letters of several topics, groups or handlers at once.",
        ),
    ] = False,
    max_redrives: Annotated[
        int,
        typer.Option(
            "--max-redrives",
            envvar="DRAINER_MAX_REDRIVES",
            min=1,
            help="Leave letters alone that were redriven so often already, and died each time.",
        ),
    ] = 3,
    group: l.RedriveGroup = None,
    dry_run: o.DryRun = False,
    concurrency: o.Concurrency = "100",
    buffer: o.Buffer = "256MiB",
    plan: l.RedrivePlan = None,
    plan_interval: o.PlanInterval = "1s",
    grace: o.Grace = "10s",
    set_: o.Set = None,
    retries: p.Retries = None,
    retry_delay: p.RetryDelay = None,
    retry_max_delay: p.RetryMaxDelay = None,
    timeout: p.Timeout = None,
    on_failure: p.OnFailureOption = None,
    after_dead: p.AfterDeadOption = None,
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
    limits: c.LimitsOption = None,
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
    """Run dead letters through a handler again, in the order of their lanes.

    It is a drain of the dead-letter topic, up to its end now: resumable, committed, with a plan of
    its own. The handler gets each sub-message as it was, under the id that it had. Letters that
    the filters leave out stay for another redrive, and so does what is not a dead letter. One that
    fails again is written again, and left alone after --max-redrives. Letters of several topics,
    groups or handlers are refused without --mixed.

    Examples:

    - `drainer redrive --dead-letter-topic orders.indexer.dead --handler my_handlers.py:Reindex -b localhost:9092`
    - `drainer redrive --dead-letter-topic orders.indexer.dead --handler my_handlers.py:Reindex -b localhost:9092 --error timeout --yes`
    """  # noqa: E501 - an example has to be on one line to be copied
    with (
        speaking(log_format, json=json, quiet=quiet, debug=debug) as terminal,
        answering(terminal),
        serving(terminal, metrics_port, metrics_host, metrics_linger) as metrics,
    ):
        page = ReportFile(report) if report else None
        running = local_settings(concurrency, buffer, plan_interval, grace, set_)
        capped = c.given_limits(limits)
        settings = ClientSettings.load(bootstrap_server, client_config, client_property or ())
        letters = l.letter_filter(
            reason=reason,
            sub_key=sub_key,
            error=error,
            from_topic=from_topic,
            from_group=from_group,
            from_handler=from_handler,
        )
        request = RedriveRequest(
            topic=dead_letter_topic,
            handler=load_handler(handler),
            redrive=RedriveSettings(letters, max_redrives),
            failures=p.failure_settings(
                DEAD_AGAIN,
                retries=retries,
                retry_delay=retry_delay,
                retry_max_delay=retry_max_delay,
                timeout=timeout,
                on_failure=on_failure,
                after_dead=after_dead,
                dead_letter_topic=None,
                max_dead=max_dead,
                max_consecutive=max_consecutive,
                breaker=breaker,
                max_outage=max_outage,
                max_doubt=max_doubt,
                rate=rate,
            ),
            group=group,
            plan_path=plan,
            client_config=client_config,
            mixed=mixed,
            rules=r.rule_settings(
                RuleSettings(),
                skip_key=skip_key,
                skip=skip,
                rules=rules,
                limit_per_key=limit_per_key,
                over_limit=over_limit,
            ),
        )
        with connect(settings) as cluster:
            prepared = settle_cap(cluster, prepare_redrive(cluster, request, running), capped)
            show_preview(terminal, prepared.action)
            if dry_run:
                tell_dry_run(terminal, prepared.action, report=page)
                return
            raise typer.Exit(
                confirm_and_drain(
                    context, terminal, cluster, prepared, running, metrics, yes=yes, report=page
                )
            )
