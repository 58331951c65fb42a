"""The failure policy, the rules and the choice of a redrive in words, and what came of rules."""

from __future__ import annotations

from collections.abc import Iterator

from drainer.engine.status import RuleStatus
from drainer.policy.failures import AfterDead, FailureSettings, OnFailure
from drainer.policy.redrive import RedriveSettings
from drainer.policy.rules.settings import OverLimit, RuleAccount, RuleSettings, SkipRule
from drainer.view import figures
from drainer.view.page import Field, Tone, few

WIDTH = 60  # characters of a name or an expression


def policy_fields(failures: FailureSettings, *, makes_topic: bool = False) -> Iterator[Field]:
    """What happens when the handler fails, a line for each part of it that matters."""
    retries, limit = "none", "no timeout"
    if failures.retries:
        first, most = map(figures.duration, (failures.retry_delay_s, failures.retry_max_delay_s))
        retries = f"{figures.count(failures.retries)}, after {first} at first, {most} at most"
    if failures.timeout_s:
        limit = f"an attempt may take {figures.duration(failures.timeout_s)}"
    yield Field("retries", retries, limit)
    yield Field("on failure", _then(failures, makes_topic=makes_topic))
    halts, most_dead = [], failures.max_dead
    some = most_dead.count is not None or most_dead.share is not None
    if failures.on_failure is not OnFailure.HALT and some:
        halts.append(f"above {most_dead} given up")
    if failures.breaker:
        halts.append(f"after an outage of {figures.duration(failures.max_outage_s)}")
    else:
        yield Field("breaker", "none", "an outage fails sub-messages like anything else")
    if halts:
        yield Field("halts", " or ".join(halts))
    if (per_s := failures.rate) is not None:
        slow = per_s < 1
        rate = f"{figures.rate(per_s * 60)}/min" if slow else f"{figures.rate(per_s)}/s"
        yield Field("rate", rate, "sub-messages started at most")


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


def rule_fields(rules: RuleSettings, letters: str | None = None) -> Iterator[Field]:
    """The rules of a drain; ``letters`` is where dead letters go."""
    if rules.skip:
        known = figures.counted(len(rules.skip), "rule")
        yield Field("skips", f"by {known}", lines=few([_what(rule) for rule in rules.skip]))
    if rules.limit_per_key is not None:
        dies = rules.over_limit is OverLimit.DEAD_LETTER
        rest = f"the rest become dead letters in {letters}" if dies else "the rest are skipped"
        most = figures.counted(rules.limit_per_key, "sub-message")
        yield Field("per sub-key", f"the first {most}; {rest}")


def rule_lines(rules: RuleStatus | RuleAccount) -> Iterator[Field]:
    """What came of the rules so far, and what the handler skipped."""
    for label, counts in (
        ("skipped by", rules.skipped_by),
        ("dead by", rules.dead_by),
        ("skipped for", rules.skipped_for),
    ):
        most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if most:
            each = [f"{figures.count(number)} by {_name(name)}" for name, number in most]
            total = figures.counted(sum(counts.values()), "sub-message")
            yield Field(label, total, lines=few(each))


def undecided_lines(rules: RuleStatus) -> Iterator[Field]:
    """What was let through because an expression could not be decided."""
    if rules.undecided:
        each = [
            f"{figures.count(number)} by {_name(name)}: {rules.why.get(name, '')}"
            for name, number in rules.undecided.items()
        ]
        total = figures.counted(sum(rules.undecided.values()), "sub-message")
        text = f"{total} that a rule can't decide on"
        yield Field("not skipped", text, "", Tone.WARN, few(each))


def _what(rule: SkipRule) -> str:
    keys = " or ".join(rule.keys)
    parts = [f"sub-key {keys}"] if rule.keys else []
    parts += [rule.when] if rule.when is not None else []
    what = " and ".join(parts)
    return figures.shorten(f"{rule.name}: {what}" if rule.named else what, 2 * WIDTH)


def _name(name: str) -> str:
    return figures.shorten(name, WIDTH)
