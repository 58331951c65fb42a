"""The options of the failure policy as settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.cli.policy import NEW_DRAIN, Failing, parse_limit
from drainer.policy.failures import AfterDead, Limit, OnFailure


def test_what_is_not_said_stays_as_it_is_known() -> None:
    known = replace(NEW_DRAIN, retries=9, on_failure=OnFailure.PARK, max_dead=Limit(count=7))
    assert Failing().over(known) == known
    assert Failing(retries=0).over(known) == replace(known, retries=0)
    assert Failing(breaker=False).over(known) == replace(known, breaker=False)


def test_a_dead_letter_topic_means_dead_letters() -> None:
    found = Failing(dead_letter_topic="dead", after_dead=AfterDead.PARK).over()
    assert (found.on_failure, found.dead_letter_topic) == (OnFailure.DEAD_LETTER, "dead")
    assert found.after_dead is AfterDead.PARK


@pytest.mark.parametrize(
    ("said", "most"),
    [
        ("100", Limit(count=100)),
        ("0", Limit(count=0)),
        ("1%", Limit(share=0.01)),
        ("none", Limit()),
    ],
)
def test_the_limit_is_a_count_a_share_or_none(said: str, most: Limit) -> None:
    assert parse_limit(said) == most
