"""``drainer run``."""

from __future__ import annotations

import typer

from drainer.cli import capping as c
from drainer.cli import engines as g
from drainer.cli import options as o
from drainer.cli import policy as p
from drainer.cli import rules as r
from drainer.cli.answer import answering, speaking
from drainer.cli.draining import confirm_and_drain, connect, local_settings, tell_dry_run
from drainer.cli.metrics import serving
from drainer.core.order import Order
from drainer.errors import UsageError
from drainer.insight.cli import estimating as e
from drainer.insight.engine_choice import EngineName, Looked, settle_engine
from drainer.kafka.settings import ClientSettings
from drainer.limits.capping import settle_cap
from drainer.loader import load_handler
from drainer.operations.start import Request, prepare
from drainer.policy.rules.settings import RuleSettings
from drainer.view.preview import show_preview
from drainer.view.report.file import ReportFile


def run(
    context: typer.Context,
    topic: o.Topic,
    group: o.Group,
    handler: o.HandlerReference,
    bootstrap_server: o.BootstrapServer = None,
    partition: o.Partitions = None,
    from_: o.From = "committed",
    until: o.Until = "end",
    order: o.OrderBy = Order.SUB_KEY,
    dry_run: o.DryRun = False,
    concurrency: o.Concurrency = "100",
    buffer: o.Buffer = "256MiB",
    plan: o.PlanPath = None,
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
    latency: e.LatencyOption = None,
    latency_from: e.LatencyFrom = None,
    deadline: e.Deadline = None,
    engine: g.EngineOption = EngineName.AUTO,
    master: g.Master = None,
    spark_conf: g.SparkConf = None,
    wave: g.Wave = "2GiB",
    state: g.State = None,
    tasks: g.Tasks = None,
    archive: g.Archives = None,
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
    """Drain the backlog of a topic for a group, through a handler.

    Shows the preview and asks before it touches anything. Ctrl-C once stops it safely and
    prints how to resume; twice stops it at once. The plan is true either way.

    Examples:

    - `drainer run --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092`
    - `drainer run --topic orders --group indexer --handler count -b localhost:9092 --dry-run --latency 10ms --deadline 08:00`
    - `drainer run --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --retries 5 --on-failure dead-letter --max-dead 1%`
    - `drainer run --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --engine spark -c 2000`
    - `drainer run --topic orders --group indexer --handler print -b localhost:9092 --partition 3 --from earliest --yes --json`
    """  # noqa: E501 - an example has to be on one line to be copied
    with (
        speaking(log_format, json=json, quiet=quiet, debug=debug) as terminal,
        answering(terminal),
        serving(terminal, metrics_port, metrics_host, metrics_linger) as metrics,
    ):
        page = ReportFile(report) if report else None
        running = local_settings(concurrency, buffer, plan_interval, grace, set_)
        given = e.given_latency(latency, latency_from)
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
        if given is not None and not dry_run and not asked.is_open:
            raise UsageError(
                "--latency and --latency-from are for an estimate, and nothing is left to decide by"
                " one",
                hint="add --dry-run, or leave the engine to --engine auto without a master",
            )
        by = e.given_deadline(deadline)
        capped = c.given_limits(limits)
        settings = ClientSettings.load(bootstrap_server, client_config, client_property or ())
        request = Request(
            topic=topic,
            group=group,
            handler=load_handler(handler),
            partitions=tuple(sorted(set(partition or ()))),
            from_=from_,
            until=until,
            order=order,
            plan_path=plan,
            client_config=client_config,
            failures=p.failure_settings(
                p.NEW_DRAIN,
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
            ),
            limits=capped,
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
            prepared = settle_cap(cluster, prepare(cluster, request, running), capped)
            asking = e.Asking(given, by, running, latency_from is not None, page)
            if dry_run:
                action, found = e.estimate_dry_run(
                    terminal, cluster, prepared, request, asking, asked
                )
                tell_dry_run(terminal, action, found, report=page)
                return

            def look() -> Looked | str:
                if given is None or not prepared.action.offsets:
                    return ""
                return e.look_for_engine(terminal, cluster, prepared.plan, request, asking)

            prepared = settle_engine(prepared, asked, running, look)
            show_preview(terminal, prepared.action)
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
