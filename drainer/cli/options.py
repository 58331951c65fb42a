"""The options that several commands share; every one also by environment variable and profile."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from drainer.cli.groups import argument, option, options
from drainer.cli.values import (
    parse_concurrency,
    parse_deadline,
    parse_duration,
    parse_pairs,
    parse_size,
)
from drainer.core.order import Order
from drainer.engine.settings import LocalSettings
from drainer.errors import UsageError
from drainer.policy.concurrency import Concurrency
from drainer.view.report.file import ReportFile
from drainer.wings import Extra, insist_on

_HANDLER = (
    "package.module:Name, path/to/file.py:Name, or the name of an installed handler"
    " (built in: print, count, produce)."
)
_TALKING = "Talking"


def insist_on_concurrency(text: str) -> str:
    # Looked at where it was said: a flag, a variable, or a profile file.
    try:
        parse_concurrency(text)
    except UsageError as error:
        raise typer.BadParameter(f"{error}; {error.hint}") from None
    return text


def parse_report(path: str) -> ReportFile:
    """Raises Refused at once when there could be no report at the end."""
    insist_on(Extra.REPORT, "--report")
    return ReportFile(Path(path))


@options("What to drain")
class Records:
    """Records of a topic."""

    topic: str = option("--topic", help="Topic to drain.")
    partitions: tuple[int, ...] = option(
        "--partition",
        default=(),
        many=int,
        parse=lambda given: tuple(sorted(set(given))),
        min=0,
        help="Partition to drain; repeat for several. Default: all.",
    )


@options("What to drain")
class What(Records):
    """The backlog, and the handler that it goes through."""

    group: str = option(
        "--group", help="Consumer group whose backlog it is. It must have no live member."
    )
    handler: str = option("--handler", help=_HANDLER)
    from_: str = option(
        "--from",
        default="committed",
        metavar="committed[-or-earliest|-or-end]|earliest|OFFSET|@ISO-TIME",
        help="Where the backlog begins. Partitions without a committed offset are refused unless"
        " this says where they begin. A time means the first record, by offset, stamped then or"
        " later.",
    )
    until: str = option(
        "--until",
        default="end",
        metavar="end|OFFSET|@ISO-TIME",
        help="Where the backlog ends: before this offset, or the first record of that time or"
        " later. Frozen when the drain is planned.",
    )
    order: Order = option(
        "--order",
        default=Order.SUB_KEY,
        help="What order is kept for. The other orders than sub-key are the conventional ones, to"
        " compare with and for handlers that can't split.",
    )


@options("How to drain it")
class How:
    """How a drain runs in this process; none of it changes what is drained."""

    concurrency: Concurrency = option(
        "--concurrency",
        "-c",
        default="100",
        parse=parse_concurrency,
        resumes=True,
        metavar="N|auto|auto:MAX",
        callback=insist_on_concurrency,
        help="Sub-messages in the handler at once. More drains faster until the downstream"
        " saturates; each may be handled again after a crash. auto finds where throughput stops"
        " growing, up to 2,000 (200 for a handler on threads) or MAX.",
    )
    buffer_bytes: int = option(
        "--buffer",
        default="256MiB",
        parse=parse_size,
        resumes=True,
        metavar="SIZE",
        help="Memory for what is fetched and not finished. More lets it look further ahead for"
        " other sub-keys behind a hot one.",
    )
    plan: Path | None = option(
        "--plan",
        default=None,
        help="Where the offset plan is kept. Default: TOPIC.GROUP.plan.json in this folder.",
    )
    plan_interval_s: float = option(
        "--plan-interval",
        default="1s",
        parse=parse_duration,
        resumes=True,
        metavar="DURATION",
        help="How often the plan is written and the group's offset committed.",
    )
    grace_s: float = option(
        "--grace",
        default="10s",
        parse=parse_duration,
        resumes=True,
        metavar="DURATION",
        help="How long the first Ctrl-C lets what is in the handler finish.",
    )
    handler_options: Mapping[str, str] = option(
        "--set",
        default=(),
        many=str,
        parse=parse_pairs,
        resumes=True,
        pairs=True,
        metavar="NAME=VALUE",
        help="An option of the handler's own (context.options); repeat for several. Not kept in"
        " the plan: say it again to resume.",
    )

    def settings(self) -> LocalSettings:
        return LocalSettings(
            concurrency=self.concurrency,
            buffer_bytes=self.buffer_bytes,
            plan_interval_s=self.plan_interval_s,
            grace_s=self.grace_s,
            options=self.handler_options,
        )


@options("How long it will take")
class HowLong:
    """What an estimate is made from, and held to."""

    latency: str | None = option(
        "--latency",
        default=None,
        metavar="10ms|p50=8ms,p99=120ms",
        help="How long the handler takes for one sub-message: one duration, or quantiles.",
    )
    latency_from: Path | None = option(
        "--latency-from",
        default=None,
        metavar="FILE",
        help="The same from an earlier drain of this handler: its plan, or what --json printed.",
    )
    deadline: datetime | None = option(
        "--deadline",
        default=None,
        parse=lambda text: parse_deadline(text, datetime.now(UTC)),
        metavar="08:00|6h|ISO-TIME",
        help="By when it has to be drained: the next 08:00 here, a time from now, or a moment."
        " Says whether that will be met, as soon as it won't, and why.",
    )

    @property
    def is_given(self) -> bool:
        """Whether there is a latency to make an estimate from."""
        return self.latency is not None or self.latency_from is not None


DryRun: TypeAlias = Annotated[
    bool,
    option(
        "--dry-run",
        default=False,
        help="Say what it would do, with every safety check; touch nothing.",
    ),
]
AcceptGap: TypeAlias = Annotated[
    bool,
    option(
        "--accept-gap",
        default=False,
        envvar=None,
        panel="What to drain",
        help="Go on behind records that retention deleted before they were handled. They are named"
        " as lost, in the plan and in every summary.",
    ),
]
Yes: TypeAlias = Annotated[
    bool, option("--yes", "-y", default=False, panel=_TALKING, help="Don't ask.")
]
Report: TypeAlias = Annotated[
    ReportFile | None,
    option(
        "--report",
        default=None,
        parse=parse_report,
        panel=_TALKING,
        metavar="FILE.html",
        help="Write what was found, with charts, as one HTML page that needs nothing but itself. An"
        " earlier report is written over; any other file is not.",
    ),
]
HandlerOption: TypeAlias = Annotated[str, option("--handler", panel="What to drain", help=_HANDLER)]
PlanArgument: TypeAlias = Annotated[
    Path, argument("PLAN", help="The offset plan that a drain wrote.")
]
