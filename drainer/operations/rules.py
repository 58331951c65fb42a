"""The rules of a drain: what is looked at before it begins, and what a person should know."""

from __future__ import annotations

from drainer.errors import UsageError
from drainer.policy.rules.rule_filter import RuleFilter
from drainer.policy.rules.settings import RuleSettings


def insist_on_rules(rules: RuleSettings, *, redrives: bool) -> None:
    """Raises UsageError when an expression can't be understood, or a rule makes no sense here."""
    RuleFilter(rules)
    if redrives and rules.writes_letters:
        raise UsageError(
            "--over-limit dead-letter would write letters of a redrive to where they came from",
            hint="--over-limit skip drops them for good",
        )


def rule_warnings(rules: RuleSettings) -> list[str]:
    """What rules do that can't be undone by a resume."""
    if not rules or (not rules.skip and rules.writes_letters):
        return []
    return [
        "what a rule skips counts as finished and is never handled: neither by this drain, nor by"
        " the group's consumers behind it"
    ]
