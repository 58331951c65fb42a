"""Rules on the terminal: before, during and after a drain, and in its plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from drainer.engine.status import RuleStatus
from drainer.policy.rules.settings import LIMIT, OverLimit, RuleAccount, RuleSettings, SkipRule
from drainer.view.lines import status_line
from drainer.view.page import Item
from drainer.view.panel import lay_out
from drainer.view.plan import show_plan
from drainer.view.policy import RULES_SHOWN, rule_fields, rule_lines
from drainer.view.preview import show_preview
from drainer.view.summary import show_summary

from . import samples

RULES = RuleSettings(
    (
        SkipRule("mails", when="payload.kind == 'set_email'", keys=("a", "b")),
        SkipRule.typed_key("app-admin"),
        SkipRule.typed("payload.n  > 5"),
    ),
    limit_per_key=1000,
    over_limit=OverLimit.DEAD_LETTER,
)
DONE = RuleStatus(
    {"skip-key app-admin": 4_800_000, "mails": 12},
    {LIMIT: 7},
    {"payload.n > 5": 136},
    {"payload.n > 5": "there is no field 'n\x1b[2J'"},
)


def text_of(items: Iterable[Item]) -> str:
    terminal, _, err = samples.terminal()
    terminal.items(*items)
    return err.getvalue()


def test_each_rule_says_what_it_leaves_out() -> None:
    assert text_of(rule_fields(RULES, letters="orders.dead")).splitlines() == [
        "  skips         mails: sub-key a or b and payload.kind == 'set_email'",
        "  skips         sub-key app-admin",
        "  skips         payload.n  > 5",
        "  per sub-key   the first 1,000 sub-messages; the rest become dead letters in orders.dead",
    ]
    skips = replace(RULES, skip=(), over_limit=OverLimit.SKIP, limit_per_key=1)
    assert "the first 1 sub-message; the rest are skipped" in text_of(rule_fields(skips))
    assert not text_of(rule_fields(RuleSettings()))


def test_a_plan_tells_what_they_did_and_those_that_are_no_more() -> None:
    terminal, _, err = samples.terminal()
    ruled = RuleAccount({"mails": 2, "gone": 3}, {LIMIT: 4})
    show_plan(terminal, replace(samples.plan(), rules=RULES, ruled=ruled))
    text = err.getvalue()
    assert "(2 skipped so far)" in text
    assert "gone  (3 skipped so far, no rule any more)" in text
    assert "(4 dead so far)" in text


def test_the_plan_of_action_names_the_topic_that_will_be_made() -> None:
    terminal, _, err = samples.terminal()
    action = samples.action(rules=RULES, makes_topic="orders.dead")
    failures = replace(action.failures, dead_letter_topic="orders.dead")
    show_preview(terminal, replace(action, failures=failures))
    assert "the rest become dead letters in orders.dead, which will be made" in err.getvalue()


def test_the_end_tells_the_most_first_and_what_could_not_be_told() -> None:
    terminal, _, err = samples.terminal()
    show_summary(terminal, replace(samples.summary(), rules=DONE))
    text = err.getvalue()
    assert text.index("app-admin  (4,800,000)") < text.index("mails  (12)")
    assert "dead by       limit-per-key  (7)" in text
    assert "136 sub-messages for which nobody can tell payload.n > 5" in text
    assert "\x1b[2J" not in text


def test_very_many_rules_are_told_in_a_line() -> None:
    many = {f"rule {n}": 1 for n in range(RULES_SHOWN + 5)}
    assert text_of(rule_lines(RuleStatus(many))).splitlines()[-1].endswith("5 other rules  (5)")
    rules = tuple(SkipRule(name, when="barrier") for name in many)
    assert "5 other rules" in text_of(rule_fields(RuleSettings(rules)))


def test_the_live_view_and_the_log_show_what_is_left_out() -> None:
    status = samples.status(rules=DONE)
    frame = "\n".join("".join(text for text, _ in line) for line in lay_out(status, 110, 40))
    assert "4,800,000 by skip-key app-admin, 12 by mails, 136 can't be told" in frame
    skipped = replace(status.sub_messages, skipped=11, read=status.sub_messages.read + 11)
    assert "skipped 11" in status_line(replace(status, sub_messages=skipped))
    nothing = lay_out(samples.status(), 110, 40)
    assert "left out" not in "".join(text for line in nothing for text, _ in line)


def test_data_has_all_of_it() -> None:
    found = replace(samples.summary(), rules=DONE).as_json()
    assert found["skipped_by"] == {"skip-key app-admin": 4_800_000, "mails": 12}
    assert found["dead_by"] == {LIMIT: 7}
    assert found["undecided"] == {"payload.n > 5": 136}
    assert found["why"] == {"payload.n > 5": "there is no field 'n\x1b[2J'"}
