"""``drainer estimate``."""

from __future__ import annotations

from typing import Annotated

import typer

from drainer.cli import capping as c
from drainer.cli import options as o
from drainer.cli import policy as p
from drainer.cli import rules as r
from drainer.cli.answer import answering
from drainer.cli.draining import connect
from drainer.cli.values import parse_concurrency, parse_pairs, parse_size
from drainer.core.order import Order
from drainer.engine.settings import LocalSettings
from drainer.errors import UsageError
from drainer.insight.cli import estimating as e
from drainer.insight.measurement import backlog_of
from drainer.kafka.settings import ClientSettings
from drainer.loader import load_handler
from drainer.operations.start import Request
from drainer.policy.rules.settings import RuleSettings
from drainer.view.report.file import ReportFile
from drainer.view.terminal import Terminal


def estimate(
    context: typer.Context,
    topic: o.Topic,
    group: o.Group,
    handler: o.HandlerReference,
    bootstrap_server: o.BootstrapServer = None,
    partition: o.Partitions = None,
    from_: o.From = "committed",
    until: o.Until = "end",
    order: o.OrderBy = Order.SUB_KEY,
    latency: e.LatencyOption = None,
    latency_from: e.LatencyFrom = None,
    canary: Annotated[
        int | None,
        typer.Option(
            "--canary",
            envvar="DRAINER_CANARY",
            metavar="N",
            min=1,
            help="The same by handling the first N messages for real, once confirmed. They count as"
            " drained: the offsets are committed, and `drainer resume` goes on from the plan.",
            rich_help_panel="How long it will take",
        ),
    ] = None,
    deadline: e.Deadline = None,
    concurrency: o.Concurrency = "100",
    buffer: o.Buffer = "256MiB",
    rate: p.RateOption = None,
    skip_key: r.SkipKeys = None,
    skip: r.Skips = None,
    rules: r.RulesFile = None,
    limit_per_key: r.LimitPerKey = None,
    over_limit: r.OverLimitOption = None,
    plan: o.PlanPath = None,
    set_: o.Set = None,
    limits: c.LimitsOption = None,
    client_config: o.ClientConfig = None,
    client_property: o.ClientProperty = None,
    report: o.ReportPath = None,
    yes: o.Yes = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Say how long a drain will take, and what binds, before it is begun.

    Reads a sample of the backlog, splits it, and runs the real lanes on it on a virtual clock; for
    other orders and concurrencies, too. Nothing is handled and no group is touched, unless --canary
    is asked for.

    Examples:

    - `drainer estimate --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --latency 10ms`
    - `drainer estimate --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --latency p50=8ms,p99=120ms -c 500 --deadline 08:00`
    - `drainer estimate --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --canary 1000`
    """  # noqa: E501 - an example has to be on one line to be copied
    terminal = Terminal(json=json, quiet=quiet, debug=debug)
    with answering(terminal):
        page = ReportFile(report) if report else None
        given = e.given_latency(latency, latency_from)
        if given is None and canary is None:
            raise UsageError(
                "how long does the handler take for one sub-message?",
                hint="say --latency 10ms (or p50=8ms,p99=120ms), --latency-from PLAN of an earlier"
                " drain, or --canary 1000 to find out with the first 1,000 messages",
            )
        if given is not None and canary is not None:
            raise UsageError(
                "--canary measures the latency that --latency or --latency-from give",
                hint="say one of them",
            )
        settings = ClientSettings.load(bootstrap_server, client_config, client_property or ())
        running = LocalSettings(
            concurrency=parse_concurrency(concurrency),
            buffer_bytes=parse_size(buffer),
            options=parse_pairs(set_ or (), "--set"),
        )
        failures = p.failure_settings(p.NEW_DRAIN, **{**p.NOTHING_SAID, "rate": rate})
        by, measured = e.given_deadline(deadline), latency_from is not None
        asking = e.Asking(given, by, running, measured, page)
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
            failures=failures,
            limits=c.given_limits(limits),
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
            if canary is not None:
                code = e.send_canary_and_estimate(
                    context, terminal, cluster, request, asking, canary, yes
                )
                raise typer.Exit(code)
            backlog = backlog_of(cluster, request)
            found = e.estimate_and_show(terminal, cluster, backlog, request, asking)
        if json:
            terminal.data({**e.head_of(request), "estimate": found.as_json()})
