"""Rules in words: what they will leave out, and what they have."""

from __future__ import annotations

from rich.text import Text

from drainer.engine.status import RuleStatus
from drainer.policy.rules.settings import LIMIT, OverLimit, RuleAccount, RuleSettings, SkipRule
from drainer.view import figures
from drainer.view.layout import QUIET_STYLE, WARN_STYLE, field

RULES_SHOWN = 10
WIDTH = 60  # characters of a name or an expression


def rule_fields(
    rules: RuleSettings, account: RuleAccount | None = None, letters: str | None = None
) -> list[Text]:
    """The rules of a plan, each with what it has done so far; ``letters`` is where letters go."""
    done = account or RuleAccount()
    skipped = done.skipped_by
    lines = [
        field("skips", _what(rule), _so_far(skipped.get(rule.name, 0), "skipped"))
        for rule in rules.skip[:RULES_SHOWN]
    ]
    if (more := len(rules.skip) - RULES_SHOWN) > 0:
        lines.append(Text(f"    and what {figures.counted(more, 'other rule')} names", QUIET_STYLE))
    if rules.limit_per_key is not None:
        dies = rules.over_limit is OverLimit.DEAD_LETTER
        rest = f"the rest become dead letters in {letters}" if dies else "the rest are skipped"
        most = figures.counted(rules.limit_per_key, "sub-message")
        so_far = _so_far(skipped.get(LIMIT, 0), "skipped") or _so_far(
            done.dead_by.get(LIMIT, 0), "dead"
        )
        lines.append(field("per sub-key", f"the first {most}; {rest}", so_far))
    known = {LIMIT, *(rule.name for rule in rules.skip)}
    for name, count in skipped.items():
        if name not in known:
            was = _so_far(count, "skipped")
            lines.append(field("skipped", figures.shorten(name, WIDTH), f"{was}, no rule any more"))
    return lines


def rule_lines(rules: RuleStatus) -> list[Text]:
    """What came of the rules, and what the handler skipped, for the end of a drain."""
    lines = []
    for label, counts, what in (
        ("skipped by", rules.skipped_by, "rule"),
        ("dead by", rules.dead_by, "rule"),
        ("skipped for", rules.skipped_for, "reason"),
    ):
        most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        lines += [
            field(label, figures.shorten(name, WIDTH), figures.count(number))
            for name, number in most[:RULES_SHOWN]
        ]
        if (more := sum(number for _, number in most[RULES_SHOWN:])) > 0:
            others = figures.counted(len(most) - RULES_SHOWN, f"other {what}")
            lines.append(field(label, others, figures.count(more)))
    return [*lines, *undecided_lines(rules)]


def undecided_lines(rules: RuleStatus) -> list[Text]:
    """What was let through because an expression could not be told of it."""
    lines = []
    for name, number in list(rules.undecided.items())[:RULES_SHOWN]:
        text = f"{figures.counted(number, 'sub-message')} for which nobody can tell"
        line = field("not skipped", text)
        line.append(f" {figures.shorten(name, WIDTH)}", QUIET_STYLE)
        line.append(f": {rules.why.get(name, '')}", WARN_STYLE)
        lines.append(line)
    return lines


def skipped_so_far(rules: RuleStatus) -> str:
    """The rules that skipped the most, in a few words, for the live view."""
    most = sorted(rules.skipped_by.items(), key=lambda item: -item[1])[:2]
    words = [f"{figures.count(n)} by {figures.shorten(name, 30)}" for name, n in most if n]
    if (unsure := sum(rules.undecided.values())) > 0:
        words.append(f"{figures.count(unsure)} can't be told")
    return ", ".join(words)


def _what(rule: SkipRule) -> str:
    keys = " or ".join(rule.keys)
    parts = [f"sub-key {keys}"] if rule.keys else []
    parts += [rule.when] if rule.when is not None else []
    what = " and ".join(parts)
    return figures.shorten(f"{rule.name}: {what}" if rule.named else what, 2 * WIDTH)


def _so_far(count: int, done: str) -> str:
    return f"{figures.count(count)} {done} so far" if count else ""
