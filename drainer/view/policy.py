"""The failure policy, the rules and the choice of a redrive in words, and what came of rules."""

from __future__ import annotations

from collections.abc import Iterator

from drainer.engine.status import RuleStatus
from drainer.policy.failures import AfterDead, FailureSettings, OnFailure
from drainer.policy.redrive import RedriveSettings
from drainer.policy.rules.settings import LIMIT, OverLimit, RuleAccount, RuleSettings, SkipRule
from drainer.view import figures
from drainer.view.page import Field, Item, Tone

RULES_SHOWN = 10
WIDTH = 60  # characters of a name or an expression


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
    if failures.breaker:
        limits.append(f"after an outage of {figures.duration(failures.max_outage_s)}")
    return limits


def _rate(per_s: float) -> str:
    return f"{figures.rate(per_s)}/s" if per_s >= 1 else f"{figures.rate(per_s * 60)}/min"


def rule_fields(
    rules: RuleSettings, account: RuleAccount | None = None, letters: str | None = None
) -> Iterator[Item]:
    """The rules of a plan, each with what it has done so far; ``letters`` is where letters go."""
    done = account or RuleAccount()
    skipped = done.skipped_by
    for rule in rules.skip[:RULES_SHOWN]:
        yield Field("skips", _what(rule), _so_far(skipped.get(rule.name, 0), "skipped"))
    if (more := len(rules.skip) - RULES_SHOWN) > 0:
        yield Field("", f"and what {figures.counted(more, 'other rule')} names")
    if rules.limit_per_key is not None:
        dies = rules.over_limit is OverLimit.DEAD_LETTER
        rest = f"the rest become dead letters in {letters}" if dies else "the rest are skipped"
        most = figures.counted(rules.limit_per_key, "sub-message")
        so_far = _so_far(skipped.get(LIMIT, 0), "skipped") or _so_far(
            done.dead_by.get(LIMIT, 0), "dead"
        )
        yield Field("per sub-key", f"the first {most}; {rest}", so_far)
    known = {LIMIT, *(rule.name for rule in rules.skip)}
    for name, count in skipped.items():
        if name not in known:
            was = _so_far(count, "skipped")
            yield Field("skipped", figures.shorten(name, WIDTH), f"{was}, no rule any more")


def rule_lines(rules: RuleStatus) -> Iterator[Field]:
    """What came of the rules, and what the handler skipped, for the end of a drain."""
    for label, counts, what in (
        ("skipped by", rules.skipped_by, "rule"),
        ("dead by", rules.dead_by, "rule"),
        ("skipped for", rules.skipped_for, "reason"),
    ):
        most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        for name, number in most[:RULES_SHOWN]:
            yield Field(label, figures.shorten(name, WIDTH), figures.count(number))
        if (more := sum(number for _, number in most[RULES_SHOWN:])) > 0:
            others = figures.counted(len(most) - RULES_SHOWN, f"other {what}")
            yield Field(label, others, figures.count(more))
    yield from undecided_lines(rules)


def undecided_lines(rules: RuleStatus) -> Iterator[Field]:
    """What was let through because an expression could not be told of it."""
    for name, number in list(rules.undecided.items())[:RULES_SHOWN]:
        subs = figures.counted(number, "sub-message")
        why = f"{figures.shorten(name, WIDTH)}: {rules.why.get(name, '')}"
        yield Field("not skipped", f"{subs} for which nobody can tell {why}", tone=Tone.WARN)
    if (more := len(rules.undecided) - RULES_SHOWN) > 0:
        yield Field("", f"and by {figures.counted(more, 'other rule')}", tone=Tone.WARN)


def _what(rule: SkipRule) -> str:
    keys = " or ".join(rule.keys)
    parts = [f"sub-key {keys}"] if rule.keys else []
    parts += [rule.when] if rule.when is not None else []
    what = " and ".join(parts)
    return figures.shorten(f"{rule.name}: {what}" if rule.named else what, 2 * WIDTH)


def _so_far(count: int, done: str) -> str:
    return f"{figures.count(count)} {done} so far" if count else ""
