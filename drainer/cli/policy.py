"""The options of the failure policy, which ``run``, ``resume`` and ``redrive`` share.

None of them has a default here: a new drain begins from ``NEW_DRAIN``, and one that goes on from
what its plan says.
"""

from __future__ import annotations

from dataclasses import fields, replace

from drainer.cli.groups import option, options
from drainer.cli.values import parse_duration, parse_rate
from drainer.errors import UsageError
from drainer.policy.failures import AfterDead, FailureSettings, Limit, OnFailure

NEW_DRAIN = FailureSettings(retries=3)


def parse_limit(text: str) -> Limit:
    """``100``, ``1%`` or ``none``. Raises UsageError."""
    try:
        return Limit.parse(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is neither a count nor a share",
            hint="as in 100, 1% or none",
        ) from None


@options("When the handler fails (kept in the plan)")
class Failing:
    """What was said of failures; the fields are those of FailureSettings."""

    retries: int | None = option(
        "--retries",
        default=None,
        metavar="N",
        min=0,
        help="Attempts after the first. One that waits for its next attempt holds up its lane, and"
        " no worker. Default: 3.",
    )
    retry_delay_s: float | None = option(
        "--retry-delay",
        default=None,
        parse=parse_duration,
        metavar="DURATION",
        help="Wait before the second attempt; doubles with each, with jitter. Default: 200ms.",
    )
    retry_max_delay_s: float | None = option(
        "--retry-max-delay",
        default=None,
        parse=parse_duration,
        metavar="DURATION",
        help="The longest such wait. Default: 30s.",
    )
    timeout_s: float | None = option(
        "--timeout",
        default=None,
        parse=parse_duration,
        metavar="DURATION",
        help="How long one attempt may take; 0 for no limit. An async handler is cancelled; a"
        " thread can't be, so it keeps its lane until it returns. Default: 30s.",
    )
    on_failure: OnFailure | None = option(
        "--on-failure",
        default=None,
        help="When retries are spent: halt the drain; write a dead letter and go on; park the lane"
        " and drain all others; or skip the sub-message. Default: halt.",
    )
    after_dead: AfterDead | None = option(
        "--after-dead",
        default=None,
        help="What follows a dead letter on its lane: go on with it, or park it until a resume says"
        " continue. Default: continue.",
    )
    dead_letter_topic: str | None = option(
        "--dead-letter-topic",
        default=None,
        metavar="TOPIC",
        help="Where dead letters go; made if it is missing. Means --on-failure dead-letter."
        " Default: TOPIC.GROUP.dead.",
    )
    max_dead: Limit | None = option(
        "--max-dead",
        default=None,
        parse=parse_limit,
        metavar="N|N%|none",
        help="Halt when more sub-messages than this are given up (dead, parked or skipped for"
        " failing), in all runs of the drain; a share is of what finished, from 1,000 on. Default:"
        " 50%.",
    )
    max_consecutive: int | None = option(
        "--max-consecutive",
        default=None,
        metavar="N",
        min=1,
        help="Halt when so many are given up in a row, with none done between them. Default: no"
        " limit.",
    )
    breaker: bool | None = option(
        "--breaker/--no-breaker",
        default=None,
        show_default=False,
        help="When nothing succeeds any more, or most first attempts fail, start nothing new, try"
        " one sub-message at a time, and go on once it succeeds. Nothing is given up meanwhile."
        " Default: yes.",
    )
    max_outage_s: float | None = option(
        "--max-outage",
        default=None,
        parse=parse_duration,
        metavar="DURATION",
        help="Halt when the downstream is away for longer than that. Default: 1h.",
    )
    max_doubt_s: float | None = option(
        "--max-doubt",
        default=None,
        parse=parse_duration,
        metavar="DURATION",
        help="How long one sub-message is tried when nothing else could tell whether it is bad or"
        " the downstream away. Default: 1m.",
    )
    rate: float | None = option(
        "--rate",
        default=None,
        parse=parse_rate,
        metavar="N/s",
        help="Sub-messages started per second at most, retries among them, for a fragile"
        " downstream. Default: no limit.",
    )

    def over(self, known: FailureSettings = NEW_DRAIN) -> FailureSettings:
        """What is known, with what was said over it. Raises UsageError."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.dead_letter_topic is not None:
            if self.on_failure not in (None, OnFailure.DEAD_LETTER):
                raise UsageError(
                    f"--dead-letter-topic is of no use with --on-failure {self.on_failure.value}",
                    hint="leave one of them out",
                )
            said["on_failure"] = OnFailure.DEAD_LETTER
        return replace(known, **{name: value for name, value in said.items() if value is not None})
