"""The groups of options that several commands share; every option also by variable."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from drainer import wings
from drainer.cli.connecting import Kafka
from drainer.cli.groups import argument, option, options
from drainer.cli.values import (
    parse_byte_rate,
    parse_concurrency,
    parse_deadline,
    parse_duration,
    parse_pairs,
    parse_rate,
    parse_size,
)
from drainer.engine.control import clean_reason
from drainer.errors import UsageError
from drainer.loader import load_handler
from drainer.model.classes import PriorityClasses
from drainer.model.concurrency import Concurrency
from drainer.model.failures import AfterDead, FailureSettings, Limit, OnFailure
from drainer.model.order import Order
from drainer.model.rate_cap import CapCurve
from drainer.model.rules import RuleSettings, SkipRule
from drainer.model.settings import LocalSettings
from drainer.operations.start import Request
from drainer.policy.rules.rule_filter import RuleFilter
from drainer.policy.rules.selection import Selection
from drainer.store.plan_file import PlanPlace, parse_place
from drainer.view.report.file import ReportFile

NEW_DRAIN = FailureSettings(retries=3)

_HANDLER = "package.module:Name, path/to/file.py:Name, or print, count, produce."
_WHAT, _TALKING = "Backlog", "Output"
_DROPS = "it leaves sub-messages out"
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
            f"{text!r} is not a count or a share", hint="Give one, such as 100, 1% or none."
        ) from None


def load_limits(text: str) -> CapCurve:
    """The curve of a file of limits, or of a rate such as 50MB/s. Raises LimitsRefused."""
    with suppress(UsageError):
        return CapCurve.bound(parse_byte_rate(text))
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
        basic=True,
        metavar="NAME",
        help="Consumer group of the backlog; it must have no live members.",
    )
    handler: str = option(basic=True, metavar="REFERENCE", help=_HANDLER)
    from_: str = option(
        basic=True,
        default="committed",
        metavar="START",
        help="committed, committed-or-earliest, committed-or-end, earliest, OFFSET or @ISO-TIME.",
    )
    until: str = option(
        default="end", metavar="END", help="Where to end (exclusive): end, OFFSET or @ISO-TIME."
    )
    order: Order = option(
        default=Order.SUB_KEY,
        risk="every value but sub-key gives up the order of sub-keys",
        help="Order to keep. All but sub-key are only for comparison.",
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
        help="Most calls in flight. auto raises it while throughput grows.",
    )
    buffer_bytes: int = option(
        default="256MiB",
        parse=parse_size,
        resumes=True,
        help="Memory for messages that are read but not done.",
    )
    plan: PlanPlace | None = option(
        default=None,
        parse=parse_place,
        metavar="FILE|URI",
        help="Offset plan (URI: Spark only). Default: TOPIC.GROUP.plan.json in this folder.",
    )
    plan_interval_s: float = option(
        default="1s",
        parse=parse_duration,
        resumes=True,
        help="Interval between plan writes and commits.",
    )
    grace_s: float = option(
        default="10s",
        parse=parse_duration,
        resumes=True,
        help="Time that the first Ctrl-C waits for calls in flight.",
    )
    handler_options: Mapping[str, str] = option(
        "--set",
        basic=True,
        default=(),
        many=str,
        parse=parse_pairs,
        resumes=True,
        pairs=True,
        help="Option for the handler; repeatable. The plan does not keep it.",
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
        basic=True,
        default=None,
        metavar="DURATION",
        help="Time the handler takes for one sub-message: 10ms, or p50=8ms,p99=120ms.",
    )
    latency_from: Path | None = option(
        default=None,
        metavar="FILE",
        help="Read the latency from an earlier plan, JSON summary or report.",
    )
    deadline: datetime | None = option(
        basic=True,
        default=None,
        parse=parse_deadline,
        resumes=True,
        help="Time to be done by. drainer warns when it will be missed.",
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
        help="Delay before the second attempt; doubles each time. Default: 200ms.",
    )
    retry_max_delay_s: float | None = option(
        default=None, parse=parse_duration, help="Longest delay between attempts. Default: 30s."
    )
    timeout_s: float | None = option(
        default=None, parse=parse_duration, help="Time limit of one attempt; 0: none. Default: 30s."
    )
    on_failure: OnFailure | None = option(
        basic=True,
        default=None,
        metavar="ACTION",
        help="halt, dead-letter, park or skip when all retries failed. Default: halt.",
    )
    on_split_failure: OnFailure | None = option(
        default=None,
        metavar="ACTION",
        help="The same for a message that split rejects. Default: --on-failure.",
    )
    after_dead: AfterDead | None = option(
        metavar="ACTION",
        default=None,
        help="Continue or park a lane after a dead letter. Default: continue.",
    )
    dead_letter_topic: str | None = option(
        default=None,
        metavar="TOPIC",
        help="Dead-letter topic; drainer creates it if missing. Default: TOPIC.GROUP.dead.",
    )
    max_failures: Limit | None = option(
        basic=True,
        default=None,
        parse=parse_limit,
        metavar="N|N%|none",
        help="Halt when more sub-messages are given up (all runs). Default: 50%.",
    )
    breaker: bool | None = option(
        "--breaker/--no-breaker",
        default=None,
        show_default=False,
        help="During a downstream outage, wait and give nothing up. Default: yes.",
    )
    max_outage_s: float | None = option(
        default=None, parse=parse_duration, help="Halt when an outage lasts longer. Default: 1h."
    )
    max_doubt_s: float | None = option(
        default=None,
        parse=parse_duration,
        help="How long an unclear failure may count as an outage. Default: 1m.",
    )
    rate: float | None = option(
        default=None,
        parse=parse_rate,
        metavar="N/s|none",
        help="Most sub-messages started per second, retries included. Default: none.",
    )

    @property
    def said(self) -> dict[str, Any]:
        """What was, by field. Raises UsageError when it makes no sense together."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        said = {name: value for name, value in given.items() if value is not None}
        if self.dead_letter_topic and self.on_split_failure is not OnFailure.DEAD_LETTER:
            if self.on_failure not in (None, OnFailure.DEAD_LETTER):
                raise UsageError(
                    f"--dead-letter-topic has no effect with --on-failure {self.on_failure.value}",
                    hint="Remove one of them.",
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

    skip_keys: tuple[str, ...] = option(
        "--skip-key",
        risk=_DROPS,
        default=(),
        many=str,
        metavar="KEY",
        help="Skip all sub-messages of this sub-key; repeatable.",
    )
    skips: tuple[str, ...] = option(
        "--skip",
        risk=_DROPS,
        default=(),
        many=str,
        metavar="EXPRESSION",
        help="Skip sub-messages that match, such as \"payload.kind == 'mail'\"; repeatable.",
    )
    rules: Path | None = option(default=None, metavar="FILE", help="TOML file of named rules.")
    max_per_key: int | None = option(
        default=None,
        risk=_DROPS,
        metavar="N",
        min=1,
        help="Keep the first N per sub-key. Halts above 100,000 sub-keys.",
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
            raise UsageError(str(error), hint="Fix the rules.") from None
        RuleFilter(found)
        return found


@options(_WHAT)
class First:
    """What is drained before the rest (kept in the plan)."""

    # A variable would be cut at each space, which expressions have.
    firsts: tuple[str, ...] = option(
        "--first",
        basic=True,
        envvar=None,
        default=(),
        many=str,
        metavar="EXPRESSION",
        help='Drain matches first, such as "payload.customer == 42", or none; repeatable.',
    )
    onlys: tuple[str, ...] = option(
        "--only",
        envvar=None,
        default=(),
        many=str,
        metavar="EXPRESSION",
        help="Drain only matches; a resume drains the rest. Repeatable.",
    )

    def over(self, known: PriorityClasses | None = None) -> PriorityClasses | None:
        """Those known, with what was said as the next ones; None when nothing was said.

        Raises UsageError when an expression can't be understood.
        """
        if self.firsts and self.onlys:
            raise UsageError("--first excludes --only", hint="Remove one of them.")
        only = bool(self.onlys)
        wheres = tuple(dict.fromkeys(map(str.strip, self.onlys or self.firsts)))
        if wheres == ("none",) and not only:
            return (known or PriorityClasses()).asked((), only=False)
        for where in wheres:
            try:
                Selection(where)
            except UsageError as error:
                name = "--only" if only else "--first"
                raise UsageError(f"{name}: {error}", hint=error.hint) from None
        return (known or PriorityClasses()).asked(wheres, only=only) if wheres else None


def _read_rules(path: Path) -> RuleSettings:
    try:
        return RuleSettings.from_table(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(
            f"can't read the rules file {path}: {error}",
            hint="Write it in TOML: tables [[skip]], each with a name, and keys or when.",
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
        classes=first.over() or PriorityClasses(),
    )


REASON: Any = option(
    default=None,
    envvar=None,
    parse=clean_reason,
    panel=_TALKING,
    metavar="TEXT",
    help="Why you do this; the plan's history keeps it.",
)
Reason: TypeAlias = Annotated[str | None, REASON]
NoRules: TypeAlias = Annotated[
    bool, option(default=False, envvar=None, panel=_RULES, help="Drop the plan's rules.")
]
Limits: TypeAlias = Annotated[
    CapCurve | None,
    option(
        "--broker-limits",
        default=None,
        parse=load_limits,
        panel=_LIMITS,
        metavar="FILE|SIZE/s",
        help="Stay within limits that `drainer limits` measured, or within 50MB/s, say.",
    ),
]
OtherLimits: TypeAlias = Annotated[
    str | None,
    option(
        "--broker-limits",
        default=None,
        panel=_LIMITS,
        metavar="FILE|SIZE/s|none",
        help="Replace the plan's limits; none: remove them.",
    ),
]
DryRun: TypeAlias = Annotated[
    bool,
    option(basic=True, default=False, help="Run every check and print the preview, then stop."),
]
AcceptGap: TypeAlias = Annotated[
    bool,
    option(
        default=False,
        envvar=None,
        panel=_WHAT,
        help="Continue after deleted records; drainer reports them as lost.",
    ),
]
SameSplit: TypeAlias = Annotated[
    bool,
    option(
        default=False,
        envvar=None,
        panel=_WHAT,
        help="Confirm that the changed handler splits as before.",
    ),
]
YES: Any = option("-y", basic=True, default=False, envvar=None, panel=_TALKING, help="Don't ask.")
Yes: TypeAlias = Annotated[bool, YES]
REPORT: Any = option(
    basic=True,
    default=None,
    parse=parse_report,
    resumes=True,
    panel=_TALKING,
    metavar="FILE.html",
    help="Write an HTML report with charts to this file.",
)
Report: TypeAlias = Annotated[ReportFile | None, REPORT]
HandlerArgument: TypeAlias = Annotated[str, argument("HANDLER", help=_HANDLER)]
HandlerOption: TypeAlias = Annotated[
    str, option(basic=True, panel=_WHAT, metavar="REFERENCE", help=_HANDLER)
]
PlanArgument: TypeAlias = Annotated[
    PlanPlace, argument("PLAN", parse=parse_place, help="Offset plan of a drain: file or URI.")
]
