"""The options that several commands share; every one also by environment variable and profile."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from drainer.cli.values import parse_concurrency
from drainer.core.order import Order
from drainer.errors import UsageError

_WHAT = "What to drain"
_HOW = "How to drain it"
_KAFKA = "Kafka"
_TALK = "Talking"
_WATCH = "Watching it"


class LogFormat(StrEnum):
    """How a drain tells on standard error what it does."""

    TEXT = "text"
    JSON = "json"


def insist_on_concurrency(text: str) -> str:
    # Looked at where it was said: a flag, a variable, or a profile file.
    try:
        parse_concurrency(text)
    except UsageError as error:
        raise typer.BadParameter(f"{error}; {error.hint}") from None
    return text


Topic = Annotated[
    str,
    typer.Option("--topic", envvar="DRAINER_TOPIC", help="Topic to drain.", rich_help_panel=_WHAT),
]
Group = Annotated[
    str,
    typer.Option(
        "--group",
        envvar="DRAINER_GROUP",
        help="Consumer group whose backlog it is. It must have no live member.",
        rich_help_panel=_WHAT,
    ),
]
HandlerReference = Annotated[
    str,
    typer.Option(
        "--handler",
        envvar="DRAINER_HANDLER",
        help="package.module:Name, path/to/file.py:Name, or the name of an installed handler"
        " (built in: print, count, produce).",
        rich_help_panel=_WHAT,
    ),
]
GroupToAsk = Annotated[
    str,
    typer.Option(
        "--group",
        envvar="DRAINER_GROUP",
        help="Consumer group whose backlog it is; it may be active.",
        rich_help_panel=_WHAT,
    ),
]
HandlerToAsk = Annotated[
    str | None,
    typer.Option(
        "--handler",
        envvar="DRAINER_HANDLER",
        help="Whose split tells how the work is spread; nothing is handled. Named as for run.",
        rich_help_panel=_WHAT,
    ),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        envvar="DRAINER_PARTITION",
        help="Partition to drain; repeat for several. Default: all.",
        min=0,
        rich_help_panel=_WHAT,
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        envvar="DRAINER_FROM",
        metavar="committed[-or-earliest|-or-end]|earliest|OFFSET|@ISO-TIME",
        help="Where the backlog begins. Partitions without a committed offset are refused unless"
        " this says where they begin. A time means the first record, by offset, stamped then or"
        " later.",
        rich_help_panel=_WHAT,
    ),
]
Until = Annotated[
    str,
    typer.Option(
        "--until",
        envvar="DRAINER_UNTIL",
        metavar="end|OFFSET|@ISO-TIME",
        help="Where the backlog ends: before this offset, or the first record of that time or"
        " later. Frozen when the drain is planned.",
        rich_help_panel=_WHAT,
    ),
]
AcceptGap = Annotated[
    bool,
    typer.Option(
        "--accept-gap",
        help="Go on behind records that retention deleted before they were handled. They are named"
        " as lost, in the plan and in every summary.",
        rich_help_panel=_WHAT,
    ),
]
OrderBy = Annotated[
    Order,
    typer.Option(
        "--order",
        envvar="DRAINER_ORDER",
        help="What order is kept for. The other orders than sub-key are the conventional ones, to"
        " compare with and for handlers that can't split.",
        rich_help_panel=_WHAT,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        envvar="DRAINER_DRY_RUN",
        help="Say what it would do, with every safety check; touch nothing.",
    ),
]
Concurrency = Annotated[
    str,
    typer.Option(
        "--concurrency",
        "-c",
        envvar="DRAINER_CONCURRENCY",
        metavar="N|auto|auto:MAX",
        callback=insist_on_concurrency,
        help="Sub-messages in the handler at once. More drains faster until the downstream"
        " saturates; each may be handled again after a crash. auto finds where throughput stops"
        " growing, up to 2,000 (200 for a handler on threads) or MAX.",
        rich_help_panel=_HOW,
    ),
]
Buffer = Annotated[
    str,
    typer.Option(
        "--buffer",
        envvar="DRAINER_BUFFER",
        metavar="SIZE",
        help="Memory for what is fetched and not finished. More lets it look further ahead for"
        " other sub-keys behind a hot one.",
        rich_help_panel=_HOW,
    ),
]
PlanPath = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        envvar="DRAINER_PLAN",
        help="Where the offset plan is kept. Default: TOPIC.GROUP.plan.json in this folder.",
        rich_help_panel=_HOW,
    ),
]
PlanInterval = Annotated[
    str,
    typer.Option(
        "--plan-interval",
        envvar="DRAINER_PLAN_INTERVAL",
        metavar="DURATION",
        help="How often the plan is written and the group's offset committed.",
        rich_help_panel=_HOW,
    ),
]
Grace = Annotated[
    str,
    typer.Option(
        "--grace",
        envvar="DRAINER_GRACE",
        metavar="DURATION",
        help="How long the first Ctrl-C lets what is in the handler finish.",
        rich_help_panel=_HOW,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        envvar="DRAINER_SET",
        metavar="NAME=VALUE",
        help="An option of the handler's own (context.options); repeat for several. Not kept in"
        " the plan: say it again to resume.",
        rich_help_panel=_HOW,
    ),
]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="DRAINER_BOOTSTRAP_SERVER",
        metavar="HOST:PORT",
        help="Brokers to begin with, comma-separated.",
        rich_help_panel=_KAFKA,
    ),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        envvar="DRAINER_CLIENT_CONFIG",
        help="File of librdkafka properties (SASL, SSL). The place for secrets: they are never"
        " printed or kept in a plan.",
        rich_help_panel=_KAFKA,
    ),
]
ClientProperty = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        envvar="DRAINER_CLIENT_PROPERTY",
        metavar="KEY=VALUE",
        help="A librdkafka property; repeat for several. Others on this machine can see it in the"
        " process list: keep secrets in --client-config.",
        rich_help_panel=_KAFKA,
    ),
]
Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", envvar="DRAINER_YES", help="Don't ask.", rich_help_panel=_TALK),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        envvar="DRAINER_JSON",
        help="One JSON object on standard output at the end.",
        rich_help_panel=_TALK,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", envvar="DRAINER_QUIET", help="Only errors.", rich_help_panel=_TALK
    ),
]
Debug = Annotated[
    bool,
    typer.Option("--debug", envvar="DRAINER_DEBUG", help="Show tracebacks.", rich_help_panel=_TALK),
]
ReportPath = Annotated[
    Path | None,
    typer.Option(
        "--report",
        envvar="DRAINER_REPORT",
        metavar="FILE.html",
        help="Write what was found, with charts, as one HTML page that needs nothing but itself. An"
        " earlier report is written over; any other file is not.",
        rich_help_panel=_TALK,
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        envvar="DRAINER_METRICS_PORT",
        min=0,
        max=65535,
        help="Serve metrics for Prometheus on this port while it runs; 0 for a free one, which is"
        " told.",
        rich_help_panel=_WATCH,
    ),
]
MetricsHost = Annotated[
    str,
    typer.Option(
        "--metrics-host",
        envvar="DRAINER_METRICS_HOST",
        help="Address to serve them on. Only this machine can scrape the default; 0.0.0.0 is for"
        " everybody who reaches the machine, who then also reads the hottest sub-keys.",
        rich_help_panel=_WATCH,
    ),
]
MetricsLinger = Annotated[
    str,
    typer.Option(
        "--metrics-linger",
        envvar="DRAINER_METRICS_LINGER",
        metavar="DURATION",
        help="Go on serving them for so long after the end, so that the last scrape sees how it"
        " ended: twice the scrape interval, say. Ctrl-C cuts it short.",
        rich_help_panel=_WATCH,
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar="DRAINER_LOG_FORMAT",
        help="json writes standard error as one JSON object a line, for a log collector, and asks"
        " nothing: say --yes with it.",
        rich_help_panel=_WATCH,
    ),
]
HandlerArgument = Annotated[
    str,
    typer.Argument(
        metavar="HANDLER",
        envvar="DRAINER_HANDLER",
        help="package.module:Name, path/to/file.py:Name, or the name of an installed handler.",
    ),
]
PlanArgument = Annotated[
    Path, typer.Argument(metavar="PLAN", help="The offset plan that a drain wrote.")
]
