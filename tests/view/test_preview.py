"""What is about to happen: the drain, its failure policy and its rules."""

from __future__ import annotations

from drainer.engine.preview import PartitionAction
from drainer.model.rules import RuleSettings, SkipRule
from drainer.model.status import RuleStatus
from drainer.view.page import SHOWN
from drainer.view.policy import rule_fields, rule_lines
from drainer.view.preview import preview_page

from . import samples
from .facts import row, shown, tables


def test_quiet_leaves_the_warnings() -> None:
    page = preview_page(samples.action(warnings=("careful",)))
    assert shown(page, quiet=True) == "warning: careful\n"


def test_a_resumed_drain_says_what_is_finished_already_and_where_there_is_nothing_to_do() -> None:
    part = PartitionAction(0, 1_000, 9_000, None, finished=3_210)
    done = PartitionAction(1, 9_000, 9_000, 9_000)
    page = preview_page(samples.action(resumes=True, partitions=(part, done)))
    assert page.subject == "Resume the drain of orders for group reindexer"
    assert "3,210 messages already done" in page.details[0].text
    (table,) = tables(page)
    assert row(table, 0)[3:] == ["no offset", "9000"]
    assert row(table, 1)[3:] == ["9000", "nothing to do"]


def test_very_many_rules_are_told_in_a_line() -> None:
    many = {f"rule {n}": 1 for n in range(SHOWN + 5)}
    (after,) = rule_lines(RuleStatus(many))
    (before,) = rule_fields(RuleSettings(tuple(SkipRule(n, when="barrier") for n in many)))
    assert after.lines[-1] == before.lines[-1] == "and 5 more"
