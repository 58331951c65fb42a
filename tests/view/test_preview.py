"""A drain that is about to begin: its failure policy and what it skips."""

from __future__ import annotations

from drainer.model.settings import FailureSettings, OnFailure
from drainer.model.unhandled import Unhandled
from drainer.view.page import SHOWN
from drainer.view.policy import policy_fields, skip_fields, unhandled_lines
from drainer.view.preview import preview_page

from . import samples
from .facts import shown


def test_quiet_leaves_the_warnings() -> None:
    page = preview_page(samples.action(warnings=("careful",)))
    assert shown(page, quiet=True) == "warning: careful\n"


def test_very_many_rules_are_cut_to_some() -> None:
    many = {f"rule {n}": 1 for n in range(SHOWN + 5)}
    (after,) = unhandled_lines(Unhandled(many))
    (before,) = skip_fields(tuple(many))
    assert after.lines[-1] == before.lines[-1] == "and 5 more"


def test_what_becomes_of_a_whole_message_is_not_said_of_a_sub_message() -> None:
    for action, words in (
        (OnFailure.SKIP, "skip the message"),
        (OnFailure.PARK, "park its partition, and drain the others"),
    ):
        failures = FailureSettings(on_failure=OnFailure.HALT, on_split_failure=action)
        fields = {each.label: each.value for each in policy_fields(failures)}
        assert (fields["on failure"], fields["split fails"]) == ("halt the drain", words)
