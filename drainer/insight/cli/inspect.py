"""``drainer inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from drainer.cli import capping as c
from drainer.cli import engines as g
from drainer.cli import options as o
from drainer.cli import rules as r
from drainer.cli.answer import answering
from drainer.cli.draining import connect
from drainer.cli.values import parse_concurrency
from drainer.engine.preview import cap_json
from drainer.engine.settings import LocalSettings
from drainer.engine.status import RuleStatus
from drainer.errors import UsageError
from drainer.insight.cli import estimating as e
from drainer.insight.engine_choice import EngineName
from drainer.insight.inspect import SAMPLE_MESSAGES, SAMPLE_MOST, InspectRequest
from drainer.insight.inspect import inspect as look_at
from drainer.insight.view.inspect import show_inspection, show_rules_asked
from drainer.insight.view.reading import ReadingView
from drainer.kafka.settings import ClientSettings
from drainer.loader import load_handler
from drainer.operations.start import Request
from drainer.policy.rules.rule_filter import RuleFilter
from drainer.policy.rules.settings import RuleSettings
from drainer.view.capping import show_cap
from drainer.view.report.file import ReportFile
from drainer.view.report.write import write_inspection_report
from drainer.view.terminal import Terminal

if TYPE_CHECKING:
    from drainer.insight.spark.inspect import OnSpark

Sample = Annotated[
    int,
    typer.Option(
        "--sample",
        envvar="DRAINER_SAMPLE",
        min=1,
        max=SAMPLE_MOST,
        help="Messages to read, evenly over the backlog. More make the shares more certain.",
    ),
]
Full = Annotated[
    bool,
    typer.Option(
        "--full",
        envvar="DRAINER_FULL",
        help="Read the whole backlog instead of a sample. Ctrl-C ends it.",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", envvar="DRAINER_SEED", help="Another one, other places to read.")
]
LookTasks = Annotated[
    int | None,
    typer.Option(
        "--tasks",
        envvar="DRAINER_TASKS",
        metavar="N",
        help="How many of Spark's tasks read and split, each a range of one partition. Default: as"
        " many as pay, and at least one a core.",
        rich_help_panel="What it runs on",
    ),
]
LookEngine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        envvar="DRAINER_ENGINE",
        help="Who reads with --full: this process, or Spark for what is too much for one. auto"
        " takes Spark when a master is named.",
        rich_help_panel="What it runs on",
    ),
]


def inspect(
    context: typer.Context,
    topic: o.Topic,
    group: o.GroupToAsk,
    handler: o.HandlerToAsk = None,
    bootstrap_server: o.BootstrapServer = None,
    partition: o.Partitions = None,
    from_: o.From = "committed",
    until: o.Until = "end",
    sample: Sample = SAMPLE_MESSAGES,
    full: Full = False,
    seed: Seed = 0,
    skip_key: r.SkipKeys = None,
    skip: r.Skips = None,
    rules: r.RulesFile = None,
    limit_per_key: r.LimitPerKey = None,
    latency: e.LatencyOption = None,
    latency_from: e.LatencyFrom = None,
    concurrency: o.Concurrency = "100",
    engine: LookEngine = EngineName.AUTO,
    master: g.Master = None,
    spark_conf: g.SparkConf = None,
    tasks: LookTasks = None,
    limits: c.LimitsOption = None,
    client_config: o.ClientConfig = None,
    client_property: o.ClientProperty = None,
    report: o.ReportPath = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """InspectRequest at a backlog: how bad it is, why, and how long it will be there.

    Reads only: nothing is handled or committed, and the group may be active. With a handler, whose
    split is called and nothing else, it tells how the work is spread over sub-keys, and names a hot
    one; and what rules would leave out. With a latency, too, it warns when retention would delete
    the head of the backlog before a drain ends.

    Examples:

    - `drainer inspect --topic orders --group indexer -b localhost:9092`
    - `drainer inspect --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --full`
    - `drainer inspect --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --full --engine spark`
    - `drainer inspect --topic orders --group indexer --handler my_handlers.py:Reindex -b localhost:9092 --skip "payload.kind == 'set_email'"`
    """  # noqa: E501 - an example has to be on one line to be copied
    terminal = Terminal(json=json, quiet=quiet, debug=debug)
    with answering(terminal):
        page = ReportFile(report) if report else None
        spark = g.spark_look(
            context, engine, full=full, master=master, spark_conf=spark_conf, tasks=tasks
        )
        asked = r.rule_settings(
            RuleSettings(),
            skip_key=skip_key,
            skip=skip,
            rules=rules,
            limit_per_key=limit_per_key,
            over_limit=None,
        )
        if asked.limit_per_key is not None and not full:
            raise UsageError(
                "what a limit would leave out shows only when all is read", hint="add --full"
            )
        rule_filter = RuleFilter(asked)
        look = InspectRequest(
            topic=topic,
            group=group,
            handler=load_handler(handler) if handler else None,
            partitions=tuple(sorted(set(partition or ()))),
            from_=from_,
            until=until,
            messages=None if full else sample,
            seed=seed,
            rule=rule_filter.skips if asked else None,
        )
        given = e.given_latency(latency, latency_from)
        if given is not None and look.handler is None:
            raise UsageError(
                "how long a drain takes shows only in what the handler's split makes",
                hint="name it with --handler; count has the default one, a sub-message a message",
            )
        capped = c.given_limits(limits)
        settings = ClientSettings.load(bootstrap_server, client_config, client_property or ())
        survey_all: OnSpark | None = None
        if spark is not None:
            # PySpark is imported only where it is wanted: that takes its time.
            from drainer.insight.spark import inspect as on_spark  # noqa: PLC0415

            file = None if client_config is None else str(client_config.absolute())
            connection = on_spark.Connection(bootstrap_server, file, tuple(client_property or ()))
            survey_all = on_spark.OnSpark(
                spark, connection, look.handler, asked, terminal.say, verbose=debug
            )
        with connect(settings) as cluster, ReadingView(terminal) as view:
            found = look_at(cluster, look, view.update, survey_all)
            seconds = None
            if given is not None and look.handler is not None and found.messages:
                running = LocalSettings(concurrency=parse_concurrency(concurrency))
                request = Request(
                    topic=topic,
                    group=group,
                    handler=look.handler,
                    partitions=look.partitions,
                    from_=from_,
                    until=until,
                    rules=asked,
                    limits=capped,
                )
                asking = e.Asking(given, None, running, latency_from is not None)
                seconds = e.estimate_seconds(terminal, cluster, request, asking)
        show_inspection(terminal, found, seconds)
        cap = None
        if capped is not None and found.messages and found.bytes:
            cap = capped.cap(found.bytes / found.messages)
            show_cap(terminal, cap, found.messages)
        status = RuleStatus.of(rule_filter) if survey_all is None else survey_all.rule_status
        if asked:
            show_rules_asked(terminal, asked, found, status)
        if json:
            undecided = status.as_json()["undecided"]
            told = {"undecided": undecided, "drain_seconds": seconds}
            if cap is not None:
                told["cap"] = cap_json(cap)
            terminal.data({**found.as_json(), **told})
        write_inspection_report(terminal, page, found, seconds)
