"""Options that several commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from drainer.errors import UsageError
from drainer.loading.extensions import Extension, ensure_installed
from drainer.model.option import (
    Option,
    ValueType,
    each_once,
    number,
    option,
    options_of,
    parse_byte_rate,
)
from drainer.model.order import Order
from drainer.model.predicate import EXPRESSIONS
from drainer.model.priority import NO_CLASSES, PriorityClasses
from drainer.model.rate_cap import CapCurve
from drainer.model.settings import LocalSettings
from drainer.model.terms import PayloadSettings, Unkeyed
from drainer.split.keys import BARRIER, KEYS
from drainer.store.place import PlanPlace, is_in_topic, parse_place, topic_and_name
from drainer.view.report.file import ReportFile

if TYPE_CHECKING:
    from drainer.loading.loader import LoadedHandler
    from drainer.model.plan import OffsetPlan

_HANDLER = "Handler: package.module:Name, path/to/file.py:Name, print, count, produce or http."
_LIMITS = "Broker limits"

_backlog = partial(option, panel="Backlog")
handler_option = partial(
    _backlog, short="-H", basic=True, metavar="REFERENCE", proposes="handler", resumes=True
)
_payload = partial(option, panel="Payloads")
_format = partial(_payload, metavar="FORMAT", resumes=True)


def parse_report(path: str) -> ReportFile:
    """Return the file of a report. Raises Refused now if no report could be written at the end."""
    ensure_installed("report", "--report")
    return ReportFile(Path(path))


def load_limits(text: str) -> CapCurve:
    """Return the limits in a file, or a rate such as 50MB/s.

    Raises LimitsRefused for a file, and UsageError for what begins like a rate and is not a file.
    """
    try:
        return CapCurve.bound(parse_byte_rate(text))
    except UsageError as error:
        if re.match(r"\d+(\.\d+)? *[a-zA-Z]*(/|$)", text) and not os.path.lexists(text):
            error.hint = f"{error.hint} For sub-messages, use --rate 500/s."
            raise
    curve: CapCurve = Extension.LIMITS.load().load_limits(Path(text))
    return curve


def load_other_limits(text: str) -> CapCurve | Literal[False]:
    """Return other limits than those of the plan, or False for none.

    Raises what ``load_limits`` raises.
    """
    return text.strip().lower() != "none" and load_limits(text)


PLAN = ValueType("PLAN", parse_place)


def parse_present(text: str) -> PlanPlace:
    """Return the place of a plan that was written before. Raises PlanRefused if it is not there."""
    from drainer.control.place import ensure_present  # noqa: PLC0415 - the help does not need it

    place = parse_place(text)
    if is_in_topic(place):
        topic_and_name(place)
    ensure_present(place)
    return place


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """The topic and the partitions that a command reads."""

    topic: str = _backlog(
        "Topic of the backlog.", short="-t", basic=True, metavar="NAME", proposes="topic"
    )
    partitions: tuple[int, ...] = _backlog(
        "Partition of the backlog; repeat for several.",
        (),
        each_once(number(0)),
        unset="all",
        name="--partition",
        basic=True,
    )


@dataclass(frozen=True, kw_only=True)
class InspectedOptions(RecordOptions):
    """A backlog, and optionally the handler that it goes through."""

    group: str = _backlog(
        "Consumer group of the backlog. It must have no members while it drains.",
        short="-g",
        basic=True,
        metavar="NAME",
        proposes="group",
    )
    handler: str | None = handler_option(
        "Handler whose split shows the spread over sub-keys. It handles nothing.", None
    )
    from_: str = _backlog(
        "Start: committed, committed-or-earliest, committed-or-end, earliest, OFFSET or @ISO-TIME.",
        "committed",
        basic=True,
        metavar="START",
    )
    until: str = _backlog(
        "End (exclusive): end, OFFSET, +N for the next N offsets of each partition, or @ISO-TIME.",
        "end",
        basic=True,
        metavar="END",
    )
    no_commit: bool = _backlog(
        "Drain a range again: the group keeps its offsets and consumers.",
        False,
        risk="consumers of the group may handle the same sub-keys at the same time",
    )


@dataclass(frozen=True, kw_only=True)
class BacklogOptions(InspectedOptions):
    """The backlog to drain, and the handler that it goes through."""

    handler: str = handler_option(_HANDLER)
    order: Order = _backlog(
        "Ordering guarantee. Use sub-key; the others are for benchmarks.",
        Order.SUB_KEY,
        risk="every value but sub-key gives up the order of sub-keys",
        tune=True,
    )


@dataclass(frozen=True, kw_only=True)
class PayloadOptions:
    """Options for how messages are decoded and split. The fields are those of PayloadSettings.

    The plan keeps them, and a resume can't change them, because messages would then split into
    other sub-messages. A resume may name the registry again, because a registry that only the plan
    names gets no login.
    """

    split: str | None = _payload(
        "Path or expression of a list in the message. Its elements become the sub-messages.",
        None,
        unset="the handler's split",
        basic=True,
        metavar="PATH",
    )
    # No variable sets it, because click splits a variable at spaces, which expressions contain.
    keys: tuple[str, ...] = _payload(
        "Sub-key of a sub-message, such as payload.thread_id. Repeatable: it waits in each lane.",
        (),
        KEYS,
        unset="the handler's, or the message's key",
        name="--key",
        basic=True,
        envvar=None,
    )
    barrier: str | None = _payload(
        "Matching sub-messages wait for all before them, and all after them wait.", None, BARRIER
    )
    unkeyed: Unkeyed = _payload("Lane of sub-messages without a sub-key.", Unkeyed.OWN_LANE)

    value_format: str | None = _format(
        "Format: raw, json, avro, protobuf, json-schema, or package.module:decoder.",
        None,
        unset="raw",
    )
    key_format: str | None = _format(
        "Format of keys. The formats are those of --value-format.", None, unset="raw", tune=True
    )
    registry: str | None = _payload(
        "Address of the schema registry, without a login.",
        None,
        unset="schema.registry.url of the client's file",
        metavar="URL",
        resumes=True,
    )

    def load(self, reference: str, extras: Mapping[str, str]) -> LoadedHandler:
        """Load a handler, which gets messages decoded and split by these options.

        ``extras`` are the properties of the client's file for the handler and the registry. Raises
        UsageError or Refused.
        """
        from drainer.loading.loader import load_handler  # noqa: PLC0415 - the help does not need it

        return load_handler(reference, self.settings, extras)

    @property
    def settings(self) -> PayloadSettings:
        names = [each.name for each in fields(PayloadOptions)]
        found = PayloadSettings(**{name: getattr(self, name) for name in names})
        return found if found.of_registry else replace(found, registry=None)


_OF_PLAN = {"default": None, "unset": "the plan's, after a confirmation", "envvar": None}


@dataclass(frozen=True, kw_only=True)
class CodeOptions:
    """Options that name the code of a plan again.

    They are needed because ``--yes`` does not confirm code that only the plan names. They can't be
    set by a variable or a profile, because those may be meant for another drain.
    """

    handler: str | None = handler_option(
        "The plan's handler, which --yes requires. It may be at another path.", **_OF_PLAN
    )
    value_format: str | None = _format(
        "The plan's own decoder of values, which --yes does not confirm.", **_OF_PLAN
    )
    key_format: str | None = _format(
        "The plan's own decoder of keys, which --yes does not confirm.", tune=True, **_OF_PLAN
    )

    def unnamed(
        self, plan: OffsetPlan, path: PlanPlace, options: Mapping[str, str]
    ) -> list[tuple[str, str]]:
        """Return the code that only the plan names, each piece with the option that names it.

        ``options`` are those options of the handler that were given. Raises UsageError if the
        plan's handler is a class that no command can load. It also does if a format is given that
        is not the plan's, because messages would then split into other sub-messages.
        """
        # The help does without these.
        from drainer.loading.loader import foreign_code  # noqa: PLC0415
        from drainer.model.resuming import local_class  # noqa: PLC0415

        terms = plan.terms
        if self.handler is None and (local := local_class(terms.handler)):
            # A plan that a person has edited may lack --handler among its options of the last run,
            # but the call has to name the class.
            words = (*plan.account.resuming.options, "--handler", terms.handler)
            resuming = replace(plan.account.resuming, options=words)
            raise UsageError(
                f"no command can load the handler {terms.handler}, which a program or a notebook"
                " defined",
                hint=f"{resuming.way(path)}. Or put the class into a file, and add"
                f" --handler FILE.py:{local}",
            )
        given = {"handler": self.handler, "options": options.get("split")}
        for name in ("value_format", "key_format"):
            given[name], known = getattr(self, name), getattr(terms.payloads, name) or "raw"
            if given[name] not in (None, known):
                raise UsageError(
                    f"the plan was made with the format {known}, not {given[name]}",
                    hint="Leave the format out.",
                )
        declared = {**options_of(LocalSettings), **options_of(CodeOptions)}
        found = ((name, text) for name, text in foreign_code(terms) if given[name] is None)
        return [declared[name].typed(text) for name, text in found]


@dataclass(frozen=True, kw_only=True)
class PriorityOptions:
    """The priority classes that are drained before the rest. The plan keeps them."""

    # No variable sets these, because click splits a variable at spaces, which expressions contain.
    firsts: tuple[str, ...] | None = _backlog(
        'Drain matching sub-messages first, such as "payload.customer == 42". Repeatable.'
        " On resume, none removes the plan's.",
        None,
        EXPRESSIONS,
        name="--first",
        basic=True,
        envvar=None,
    )
    onlys: tuple[str, ...] | None = _backlog(
        "Drain only matching sub-messages. A resume drains the rest. Repeatable.",
        None,
        EXPRESSIONS,
        name="--only",
        basic=True,
        envvar=None,
    )

    def over(self, known: PriorityClasses = NO_CLASSES) -> PriorityClasses:
        """Return the known classes for another run, with those that are given as the next ones.

        Raises UsageError if the options contradict each other.
        """
        if self.firsts is not None and self.onlys is not None:
            raise UsageError("--first excludes --only", hint="Remove one of them.")
        if self.onlys == ():
            raise UsageError("--only none would drain nothing", hint="Remove it.")
        wheres = self.firsts if self.onlys is None else self.onlys
        if wheres is None:
            return known.resumed()
        return known.requested(wheres, only=self.onlys is not None)


@dataclass(frozen=True, kw_only=True)
class DrainOptions(PriorityOptions, PayloadOptions, BacklogOptions):
    """What is drained: the backlog, how it is split, and what of it comes first."""


plan_argument = partial(Option, kind=PLAN, is_argument=True, proposes="plan")
PlanArgument: TypeAlias = Annotated[
    PlanPlace,
    plan_argument(
        "Offset plan of a drain: file or URI.", name="PLAN", kind=ValueType("PLAN", parse_present)
    ),
]
Plan: TypeAlias = Annotated[
    PlanPlace | None,
    Option(
        "Offset plan: a file, s3://, gs:// or az://, or kafka://TOPIC, a compacted topic.",
        None,
        PLAN,
        unset="TOPIC.GROUP.plan.json in this folder",
        panel="Drain",
        metavar="FILE|URI",
    ),
]
OrResume: TypeAlias = Annotated[
    bool,
    Option(
        "If the plan is there, resume its drain, or repeat how it ended. For schedulers.",
        False,
        panel="Drain",
    ),
]
Limits: TypeAlias = Annotated[
    CapCurve | None,
    Option(
        "Limit traffic by a result of `drainer limits`, or to a rate.",
        None,
        ValueType("FILE|SIZE/s", load_limits),
        name="--broker-limits",
        panel=_LIMITS,
    ),
]
OtherLimits: TypeAlias = Annotated[
    CapCurve | Literal[False] | None,
    Option(
        "Replace the plan's limits; none removes them.",
        None,
        ValueType("FILE|SIZE/s|none", load_other_limits),
        name="--broker-limits",
        panel=_LIMITS,
    ),
]
LATENCY = Option(
    "Time per call: 10ms, p50=8ms,p99=120ms, or the plan, summary or report of a drain.",
    None,
    panel="Estimate",
    metavar="DURATION|FILE",
)
Latency: TypeAlias = Annotated[str | None, LATENCY]
DryRun: TypeAlias = Annotated[
    bool, Option("Run every check and print the preview, then stop.", False, basic=True)
]
AcceptGap: TypeAlias = Annotated[
    bool,
    Option(
        "Resume even though retention deleted records, which are reported as lost.",
        False,
        envvar=None,
        panel="Backlog",
    ),
]
SameSplit: TypeAlias = Annotated[
    bool,
    Option(
        "Confirm that the changed handler splits as before.", False, envvar=None, panel="Backlog"
    ),
]
Reason: TypeAlias = Annotated[str | None, options_of(LocalSettings)["reason"]]
YES = Option("Skip the confirmation.", False, short="-y", basic=True, envvar=None, panel="Output")
Yes: TypeAlias = Annotated[bool, YES]
REPORT = Option(
    "Write an HTML report with charts to this file.",
    None,
    ValueType("FILE.html", parse_report),
    resumes=True,
    panel="Output",
)
Report: TypeAlias = Annotated[ReportFile | None, REPORT]
HandlerArgument: TypeAlias = Annotated[
    str, Option(_HANDLER, name="HANDLER", is_argument=True, proposes="handler")
]
