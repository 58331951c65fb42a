"""The groups of options that several commands share; every option also by variable."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from drainer import wings
from drainer.cli.connecting import Kafka
from drainer.cli.groups import argument, option, options
from drainer.cli.values import (
    parse_concurrency,
    parse_deadline,
    parse_duration,
    parse_pairs,
    parse_rate,
    parse_size,
)
from drainer.core.classes import Classes
from drainer.core.order import Order
from drainer.engine.control import reason_of
from drainer.engine.settings import LocalSettings
from drainer.errors import UsageError
from drainer.loader import load_handler
from drainer.operations.start import Request
from drainer.policy.concurrency import Concurrency
from drainer.policy.failures import AfterDead, FailureSettings, Limit, OnFailure
from drainer.policy.rate_cap import CapCurve
from drainer.policy.rules.rule_filter import RuleFilter
from drainer.policy.rules.selection import Selection
from drainer.policy.rules.settings import RuleSettings, SkipRule
from drainer.store.plan_file import PlanPlace, parse_place
from drainer.view.report.file import ReportFile

NEW_DRAIN = FailureSettings(retries=3)

_HANDLER = "package.module:Name, path/to/file.py:Name, or an installed name: print, count, produce."
_WHAT, _TALKING = "Backlog", "Output"
_RULES = "Skip rules (kept in the plan)"
_LIMITS = "Broker limits"


def parse_report(path: str) -> ReportFile:
    """Raises Refused at once when there could be no report at the end."""
    wings.insist_on(wings.Extra.REPORT, "--report")
    return ReportFile(Path(path))


def parse_limit(text: str) -> Limit:
    """``100``, ``1%`` or ``none``. Raises UsageError."""
    try:
        return Limit.parse(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is neither a count nor a share", hint="as in 100, 1% or none"
        ) from None


def load_limits(text: str) -> CapCurve:
    """The curve of a file of limits. Raises LimitsRefused."""
    curve: CapCurve = wings.load(wings.Hook.LOAD_LIMITS)(Path(text))
    return curve


@options(_WHAT)
class Records:
    """Records of a topic."""

    topic: str = option(basic=True, metavar="NAME", help="Topic to drain.")
    partitions: tuple[int, ...] = option(
        "--partition",
        default=(),
        many=int,
        parse=lambda given: tuple(sorted(set(given))),
        min=0,
        help="Partition to drain; repeat for several. Default: all.",
    )


@options(_WHAT)
class What(Records):
    """The backlog, and the handler that it goes through."""

    group: str = option(
        basic=True, metavar="NAME", help="Its consumer group, without live members."
    )
    handler: str = option(basic=True, metavar="REFERENCE", help=_HANDLER)
    from_: str = option(
        basic=True,
        default="committed",
        metavar="START",
        help="committed[-or-earliest|-or-end], earliest, OFFSET or @ISO-TIME.",
    )
    until: str = option(
        default="end",
        metavar="END",
        help="Before which it ends: end, OFFSET or @ISO-TIME.",
    )
    order: Order = option(
        default=Order.SUB_KEY, help="What order is kept for. Others are for comparison."
    )


@options("Drain")
class How:
    """How a drain runs in this process; none of it changes what is drained."""

    concurrency: Concurrency = option(
        "-c",
        basic=True,
        default="100",
        parse=parse_concurrency,
        resumes=True,
        help="Sub-messages in the handler at once; auto finds how many pay.",
    )
    buffer_bytes: int = option(
        default="256MiB",
        parse=parse_size,
        resumes=True,
        help="Memory for what is fetched and not finished.",
    )
    plan: PlanPlace | None = option(
        default=None,
        parse=parse_place,
        metavar="FILE|URI",
        help="Offset plan; a URI is for Spark. Default: TOPIC.GROUP.plan.json in this folder.",
    )
    plan_interval_s: float = option(
        default="1s",
        parse=parse_duration,
        resumes=True,
        help="How often the plan is written and the offset committed.",
    )
    grace_s: float = option(
        default="10s",
        parse=parse_duration,
        resumes=True,
        help="How long the first Ctrl-C waits for calls in flight.",
    )
    handler_options: Mapping[str, str] = option(
        "--set",
        basic=True,
        default=(),
        many=str,
        parse=parse_pairs,
        resumes=True,
        pairs=True,
        help="An option for the handler; repeatable. Not kept in the plan.",
    )

    def settings(
        self, deadline: datetime | None = None, reason: str | None = None
    ) -> LocalSettings:
        return LocalSettings(
            reason=reason,
            deadline=deadline,
            concurrency=self.concurrency,
            buffer_bytes=self.buffer_bytes,
            plan_interval_s=self.plan_interval_s,
            grace_s=self.grace_s,
            options=self.handler_options,
        )


@options("Estimate")
class HowLong:
    """What an estimate is made from, and held to."""

    latency: str | None = option(
        default=None,
        metavar="10ms|p50=8ms,p99=120ms",
        help="How long the handler takes for one sub-message.",
    )
    latency_from: Path | None = option(
        default=None,
        metavar="FILE",
        help="The same from an earlier drain's plan or JSON summary.",
    )
    deadline: datetime | None = option(
        basic=True,
        default=None,
        parse=parse_deadline,
        help="By when to drain; warns as soon as that will be missed.",
    )

    @property
    def is_given(self) -> bool:
        """Whether there is a latency to make an estimate from."""
        return self.latency is not None or self.latency_from is not None


@options("Failures (kept in the plan)")
class Failing:
    """What was said of failures; the fields are those of FailureSettings.

    None of them has a default here: a new drain begins from ``NEW_DRAIN``, and one that goes on
    from what its plan says.
    """

    retries: int | None = option(
        basic=True, default=None, metavar="N", min=0, help="Attempts after the first. Default: 3."
    )
    retry_delay_s: float | None = option(
        default=None,
        parse=parse_duration,
        help="Wait before the second attempt; doubles each time. Default: 200ms.",
    )
    retry_max_delay_s: float | None = option(
        default=None,
        parse=parse_duration,
        help="The longest such wait. Default: 30s.",
    )
    timeout_s: float | None = option(
        default=None,
        parse=parse_duration,
        help="How long one attempt may take; 0 for no limit. Default: 30s.",
    )
    on_failure: OnFailure | None = option(
        basic=True,
        default=None,
        help="What follows when retries are spent. Default: halt.",
    )
    after_dead: AfterDead | None = option(
        default=None,
        help="Whether a lane goes on behind a dead letter. Default: continue.",
    )
    dead_letter_topic: str | None = option(
        default=None,
        metavar="TOPIC",
        help="Where dead letters go, created if missing. Default: TOPIC.GROUP.dead.",
    )
    max_failures: Limit | None = option(
        basic=True,
        default=None,
        parse=parse_limit,
        metavar="N|N%|none",
        help="Halt when more are given up, over all runs. Default: 50%.",
    )
    breaker: bool | None = option(
        "--breaker/--no-breaker",
        default=None,
        show_default=False,
        help="Wait while the downstream is away, giving nothing up. Default: yes.",
    )
    max_outage_s: float | None = option(
        default=None,
        parse=parse_duration,
        help="Halt when the downstream is away for longer. Default: 1h.",
    )
    max_doubt_s: float | None = option(
        default=None,
        parse=parse_duration,
        help="How long a lone failure may count as an outage. Default: 1m.",
    )
    rate: float | None = option(
        default=None,
        parse=parse_rate,
        metavar="RATE|none",
        help="Most sub-messages started per second, with retries. Default: none.",
    )

    @property
    def said(self) -> dict[str, Any]:
        """What was, by field. Raises UsageError when it makes no sense together."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        said = {name: value for name, value in given.items() if value is not None}
        if self.dead_letter_topic is not None:
            if self.on_failure not in (None, OnFailure.DEAD_LETTER):
                raise UsageError(
                    f"--dead-letter-topic is of no use with --on-failure {self.on_failure.value}",
                    hint="Leave one of them out.",
                )
            said["on_failure"] = OnFailure.DEAD_LETTER
        if self.rate == inf:
            said["rate"] = None
        return said

    def over(self, known: FailureSettings = NEW_DRAIN) -> FailureSettings:
        """What is known, with what was said over it. Raises UsageError."""
        return replace(known, **self.said)


@options(_RULES)
class Rules:
    """What was said of sub-messages that are left out; as with failures, over what is known."""

    # Of those that repeat a variable would be cut at each space, which expressions have.
    skip_keys: tuple[str, ...] = option(
        "--skip-key",
        envvar=None,
        default=(),
        many=str,
        metavar="KEY",
        help="Skip all sub-messages of this sub-key; repeatable.",
    )
    skips: tuple[str, ...] = option(
        "--skip",
        envvar=None,
        default=(),
        many=str,
        metavar="EXPRESSION",
        help="Skip what this is true of, as \"payload.kind == 'mail'\"; repeatable.",
    )
    rules: Path | None = option(
        default=None, metavar="FILE", help="A TOML file of rules with names."
    )
    max_per_key: int | None = option(
        default=None,
        metavar="N",
        min=1,
        help="Skip all but the first N of each sub-key; halts above 100,000.",
    )

    def over(self, known: RuleSettings | None = None) -> RuleSettings:
        """What is known, with what was said over it.

        Rules that skip are taken as a whole: any of them said here takes the place of all those
        known. Raises UsageError when they can't be understood.
        """
        known = known or RuleSettings()
        said = RuleSettings() if self.rules is None else _read_rules(self.rules)
        typed = (
            *map(SkipRule.typed_key, dict.fromkeys(self.skip_keys)),
            *map(SkipRule.typed, dict.fromkeys(self.skips)),
        )
        try:
            found = replace(
                known,
                skip=(*said.skip, *typed) or known.skip,
                max_per_key=self.max_per_key or said.max_per_key or known.max_per_key,
            )
        except ValueError as error:
            raise UsageError(str(error), hint="Give each rule a name of its own.") from None
        RuleFilter(found)
        return found


@options(_WHAT)
class First:
    """What is drained before the rest (kept in the plan)."""

    firsts: tuple[str, ...] = option(
        "--first",
        basic=True,
        envvar=None,
        default=(),
        many=str,
        metavar="EXPRESSION",
        help='Drain this before the rest, as "payload.customer == 42"; repeatable. Or none.',
    )
    onlys: tuple[str, ...] = option(
        "--only",
        envvar=None,
        default=(),
        many=str,
        metavar="EXPRESSION",
        help="Drain only this; the rest stays for a resume. Repeatable.",
    )

    def over(self, known: Classes | None = None) -> Classes | None:
        """Those known, with what was said as the next ones; None when nothing was said.

        Raises UsageError when an expression can't be understood.
        """
        if self.firsts and self.onlys:
            raise UsageError("--first and --only contradict each other", hint="Give one of them.")
        only = bool(self.onlys)
        wheres = tuple(dict.fromkeys(map(str.strip, self.onlys or self.firsts)))
        if wheres == ("none",) and not only:
            return (known or Classes()).asked((), only=False)
        for where in wheres:
            try:
                Selection(where)
            except UsageError as error:
                name = "--only" if only else "--first"
                raise UsageError(f"{name}: {error}", hint=error.hint) from None
        return (known or Classes()).asked(wheres, only=only) if wheres else None


def _read_rules(path: Path) -> RuleSettings:
    try:
        return RuleSettings.from_table(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(
            f"the rules file {path} can't be read: {error}",
            hint="It is TOML: see docs/reference/rules.md.",
        ) from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}", hint=error.hint) from None


def request_of(
    what: What,
    first: First,
    how: How,
    kafka: Kafka,
    failing: Failing,
    rules: Rules,
    limits: CapCurve | None,
) -> Request:
    """What ``run`` and ``estimate`` ask for. Raises UsageError, or as loading a handler does."""
    return Request(
        topic=what.topic,
        group=what.group,
        handler=load_handler(what.handler),
        partitions=what.partitions,
        from_=what.from_,
        until=what.until,
        order=what.order,
        plan_path=how.plan,
        client_config=kafka.client_config,
        failures=failing.over(),
        limits=limits,
        rules=rules.over(),
        classes=first.over() or Classes(),
    )


Reason: TypeAlias = Annotated[
    str | None,
    option(
        "--reason",
        default=None,
        parse=reason_of,
        panel=_TALKING,
        metavar="TEXT",
        help="Why; kept in the plan's history.",
    ),
]
NoRules: TypeAlias = Annotated[
    bool,
    option("--no-rules", default=False, panel=_RULES, help="Go on without the plan's rules."),
]
Limits: TypeAlias = Annotated[
    CapCurve | None,
    option(
        "--broker-limits",
        default=None,
        parse=load_limits,
        panel=_LIMITS,
        metavar="FILE",
        help="Stay within these limits of `drainer limits`. Kept in the plan.",
    ),
]
OtherLimits: TypeAlias = Annotated[
    str | None,
    option(
        "--broker-limits",
        default=None,
        panel=_LIMITS,
        metavar="FILE|none",
        help="Other limits than those in the plan, or none.",
    ),
]
DryRun: TypeAlias = Annotated[
    bool,
    option(
        "--dry-run", basic=True, default=False, help="Make every check, show the preview, stop."
    ),
]
AcceptGap: TypeAlias = Annotated[
    bool,
    option(
        "--accept-gap",
        default=False,
        envvar=None,
        panel=_WHAT,
        help="Go on behind deleted records; they are reported as lost.",
    ),
]
SameSplit: TypeAlias = Annotated[
    bool,
    option(
        "--same-split",
        default=False,
        envvar=None,
        panel=_WHAT,
        help="The handler's code has changed, and its split gives the same.",
    ),
]
Yes: TypeAlias = Annotated[
    bool,
    option(
        "--yes", "-y", basic=True, default=False, envvar=None, panel=_TALKING, help="Don't ask."
    ),
]
Report: TypeAlias = Annotated[
    ReportFile | None,
    option(
        "--report",
        basic=True,
        default=None,
        parse=parse_report,
        panel=_TALKING,
        metavar="FILE.html",
        help="Write what was found, with charts, as one HTML page.",
    ),
]
HandlerOption: TypeAlias = Annotated[str, option("--handler", panel=_WHAT, help=_HANDLER)]
PlanArgument: TypeAlias = Annotated[
    PlanPlace,
    argument("PLAN", parse=parse_place, help="The offset plan that a drain wrote: file or URI."),
]
