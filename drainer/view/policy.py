"""The failure policy and the choice of a redrive in words, for plans of action and plans."""

from __future__ import annotations

from drainer.policy.failures import AfterDead, FailureSettings, OnFailure
from drainer.policy.redrive import RedriveSettings
from drainer.view import figures
from drainer.view.page import Field


def policy_fields(failures: FailureSettings, *, makes_topic: bool = False) -> list[Field]:
    """What happens when the handler fails, a line for each part of it that matters."""
    lines = [
        Field("retries", _retries(failures), _timeout(failures)),
        Field("on failure", _then(failures, makes_topic=makes_topic)),
    ]
    if limits := _limits(failures):
        lines.append(Field("halts", " or ".join(limits)))
    if not failures.breaker:
        lines.append(Field("breaker", "none", "an outage fails sub-messages like anything else"))
    if failures.rate is not None:
        lines.append(Field("rate", f"{_rate(failures.rate)}", "sub-messages started at most"))
    return lines


def redrive_field(redrive: RedriveSettings) -> Field:
    """Which dead letters go to the handler again."""
    chosen = redrive.letters
    named = [
        f"{name} {' or '.join(texts)}"
        for name, texts in (
            ("reason", chosen.reasons),
            ("sub-key", chosen.sub_keys),
            ("error", chosen.errors),
            ("topic", chosen.topics),
            ("group", chosen.groups),
            ("handler", chosen.handlers),
        )
        if texts
    ]
    often = figures.counted(redrive.max_redrives, "time")
    text = f"those with {' and '.join(named)}" if named else "all"
    return Field("letters", text, f"but none that was redriven {often}")


def _retries(failures: FailureSettings) -> str:
    if not failures.retries:
        return "none"
    most = failures.retry_max_delay_s
    first = min(most, failures.retry_delay_s)
    last = min(most, failures.retry_delay_s * 2 ** min(failures.retries - 1, 60))
    waits = figures.duration(first)
    if last > first:
        waits += f" to {figures.duration(last)}"
    return f"{figures.count(failures.retries)}, after {waits}"


def _timeout(failures: FailureSettings) -> str:
    if not failures.timeout_s:
        return "no timeout"
    return f"an attempt may take {figures.duration(failures.timeout_s)}"


def _then(failures: FailureSettings, *, makes_topic: bool) -> str:
    match failures.on_failure:
        case OnFailure.HALT:
            return "halt the drain"
        case OnFailure.SKIP:
            return "skip the sub-message"
        case OnFailure.PARK:
            return "park its lane, and drain the others"
        case OnFailure.DEAD_LETTER:
            made = ", which will be made" if makes_topic else ""
            behind = (
                "; its lane is parked behind it" if failures.after_dead is AfterDead.PARK else ""
            )
            return f"dead letter to {failures.dead_letter_topic}{made}{behind}"


def _limits(failures: FailureSettings) -> list[str]:
    limits = []
    if failures.on_failure is not OnFailure.HALT:
        most = failures.max_dead
        if most.count is not None or most.share is not None:
            limits.append(f"above {most} given up")
        if failures.max_consecutive is not None:
            limits.append(f"at {figures.count(failures.max_consecutive)} given up in a row")
    if failures.breaker:
        limits.append(f"after an outage of {figures.duration(failures.max_outage_s)}")
    return limits


def _rate(per_s: float) -> str:
    return f"{figures.rate(per_s)}/s" if per_s >= 1 else f"{figures.rate(per_s * 60)}/min"
