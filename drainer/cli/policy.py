"""The options of the failure policy, which ``run``, ``resume`` and ``redrive`` share.

None of them has a default here: a new drain begins from ``NEW_DRAIN``, and one that goes on from
what its plan says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import typer

from drainer.cli.values import parse_duration, parse_rate
from drainer.errors import UsageError
from drainer.policy.failures import AfterDead, FailureSettings, Limit, OnFailure

NEW_DRAIN = FailureSettings(retries=3)
NOTHING_SAID: dict[str, Any] = dict.fromkeys(
    (
        *("retries", "retry_delay", "retry_max_delay", "timeout", "on_failure", "after_dead"),
        *("dead_letter_topic", "max_dead", "max_consecutive", "breaker", "max_outage"),
        *("max_doubt", "rate"),
    )
)

_FAILING = "When the handler fails (kept in the plan)"


def _option(name: str, metavar: str | None, help_: str, **more: Any) -> Any:
    variable = name.split("/", maxsplit=1)[0].removeprefix("--").upper().replace("-", "_")
    return typer.Option(
        name,
        envvar=f"DRAINER_{variable}",
        metavar=metavar,
        help=help_,
        rich_help_panel=_FAILING,
        show_default=False,
        **more,
    )


Retries = Annotated[
    int | None,
    _option(
        "--retries",
        "N",
        "Attempts after the first. One that waits for its next attempt holds up its lane, and no"
        " worker. Default: 3.",
        min=0,
    ),
]
RetryDelay = Annotated[
    str | None,
    _option(
        "--retry-delay",
        "DURATION",
        "Wait before the second attempt; doubles with each, with jitter. Default: 200ms.",
    ),
]
RetryMaxDelay = Annotated[
    str | None, _option("--retry-max-delay", "DURATION", "The longest such wait. Default: 30s.")
]
Timeout = Annotated[
    str | None,
    _option(
        "--timeout",
        "DURATION",
        "How long one attempt may take; 0 for no limit. An async handler is cancelled; a thread"
        " can't be, so it keeps its lane until it returns. Default: 30s.",
    ),
]
OnFailureOption = Annotated[
    OnFailure | None,
    _option(
        "--on-failure",
        None,
        "When retries are spent: halt the drain; write a dead letter and go on; park the lane and"
        " drain all others; or skip the sub-message. Default: halt.",
    ),
]
AfterDeadOption = Annotated[
    AfterDead | None,
    _option(
        "--after-dead",
        None,
        "What follows a dead letter on its lane: go on with it, or park it until a resume says"
        " continue. Default: continue.",
    ),
]
DeadLetterTopic = Annotated[
    str | None,
    _option(
        "--dead-letter-topic",
        "TOPIC",
        "Where dead letters go; made if it is missing. Means --on-failure dead-letter. Default:"
        " TOPIC.GROUP.dead.",
    ),
]
MaxDead = Annotated[
    str | None,
    _option(
        "--max-dead",
        "N|N%|none",
        "Halt when more sub-messages than this are given up (dead, parked or skipped for failing),"
        " in all runs of the drain; a share is of what finished, from 1,000 on. Default: 50%.",
    ),
]
MaxConsecutive = Annotated[
    int | None,
    _option(
        "--max-consecutive",
        "N",
        "Halt when so many are given up in a row, with none done between them. Default: no limit.",
        min=1,
    ),
]
UseBreaker = Annotated[
    bool | None,
    _option(
        "--breaker/--no-breaker",
        None,
        "When nothing succeeds any more, or most first attempts fail, start nothing new, try one"
        " sub-message at a time, and go on once it succeeds. Nothing is given up meanwhile."
        " Default: yes.",
    ),
]
MaxOutage = Annotated[
    str | None,
    _option(
        "--max-outage",
        "DURATION",
        "Halt when the downstream is away for longer than that. Default: 1h.",
    ),
]
MaxDoubt = Annotated[
    str | None,
    _option(
        "--max-doubt",
        "DURATION",
        "How long one sub-message is tried when nothing else could tell whether it is bad or the"
        " downstream away. Default: 1m.",
    ),
]
RateOption = Annotated[
    str | None,
    _option(
        "--rate",
        "N/s",
        "Sub-messages started per second at most, retries among them, for a fragile downstream."
        " Default: no limit.",
    ),
]


def failure_settings(
    known: FailureSettings,
    *,
    retries: int | None,
    retry_delay: str | None,
    retry_max_delay: str | None,
    timeout: str | None,
    on_failure: OnFailure | None,
    after_dead: AfterDead | None,
    dead_letter_topic: str | None,
    max_dead: str | None,
    max_consecutive: int | None,
    breaker: bool | None,
    max_outage: str | None,
    max_doubt: str | None,
    rate: str | None,
) -> FailureSettings:
    """What is known, with what was said on the command line over it. Raises UsageError."""
    if dead_letter_topic is not None and on_failure not in (None, OnFailure.DEAD_LETTER):
        raise UsageError(
            f"--dead-letter-topic is of no use with --on-failure {on_failure.value}",
            hint="leave one of them out",
        )
    if dead_letter_topic is not None:
        on_failure = OnFailure.DEAD_LETTER
    said = {
        "retries": retries,
        "retry_delay_s": _parsed(parse_duration, "--retry-delay", retry_delay),
        "retry_max_delay_s": _parsed(parse_duration, "--retry-max-delay", retry_max_delay),
        "timeout_s": _parsed(parse_duration, "--timeout", timeout),
        "on_failure": on_failure,
        "after_dead": after_dead,
        "dead_letter_topic": dead_letter_topic,
        "max_dead": _parsed(_limit, "--max-dead", max_dead),
        "max_consecutive": max_consecutive,
        "breaker": breaker,
        "max_outage_s": _parsed(parse_duration, "--max-outage", max_outage),
        "max_doubt_s": _parsed(parse_duration, "--max-doubt", max_doubt),
        "rate": _parsed(parse_rate, "--rate", rate),
    }
    return replace(known, **{name: value for name, value in said.items() if value is not None})


def _parsed(parse: Callable[[str], Any], option: str, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{option} {error}", hint=error.hint) from None


def _limit(text: str) -> Limit:
    try:
        return Limit.parse(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is neither a count nor a share",
            hint="as in 100, 1% or none",
        ) from None
