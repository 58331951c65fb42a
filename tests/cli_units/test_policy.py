"""The options of the failure policy as settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drainer.cli.policy import NEW_DRAIN, failure_settings
from drainer.errors import UsageError
from drainer.policy.failures import AfterDead, FailureSettings, Limit, OnFailure

NOTHING: dict[str, Any] = dict.fromkeys(
    [
        "retries",
        "retry_delay",
        "retry_max_delay",
        "timeout",
        "on_failure",
        "after_dead",
        "dead_letter_topic",
        "max_dead",
        "max_consecutive",
        "breaker",
        "max_outage",
        "max_doubt",
        "rate",
    ]
)


def settings(known: FailureSettings = NEW_DRAIN, **said: Any) -> FailureSettings:
    return failure_settings(known, **(NOTHING | said))


def test_what_is_not_said_stays_as_it_is_known() -> None:
    known = replace(NEW_DRAIN, retries=9, on_failure=OnFailure.PARK, max_dead=Limit(count=7))
    assert settings(known) == known
    assert settings(known, retries=0) == replace(known, retries=0)
    assert settings(known, breaker=False) == replace(known, breaker=False)


def test_a_dead_letter_topic_means_dead_letters() -> None:
    found = settings(dead_letter_topic="dead", after_dead=AfterDead.PARK)
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
    assert settings(max_dead=said).max_dead == most


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retry_delay", "soon"),
        ("retry_max_delay", "-1s"),
        ("timeout", "1 fortnight"),
        ("max_outage", ""),
        ("max_dead", "150%"),
        ("max_dead", "nan%"),
        ("max_dead", "-1"),
        ("max_dead", "1.5"),
        ("rate", "0"),
        ("rate", "5/day"),
        ("rate", "fast"),
    ],
)
def test_what_makes_no_sense_is_told_with_the_name_of_the_option(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')} '") as raised:
        failure_settings(NEW_DRAIN, **(NOTHING | {name: value}))
    assert raised.value.hint
