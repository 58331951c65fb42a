"""The options of the failure policy as settings, and the expressions of ``--skip`` among them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from drainer.cli.command import command
from drainer.engine.control import Settings
from drainer.errors import UsageError
from drainer.model.codec import builtins
from drainer.model.option import options_of
from drainer.model.predicate import parse_expressions
from drainer.model.settings import (
    AfterDead,
    FailureSettings,
    Limit,
    LocalSettings,
    OnFailure,
)

OPTIONS = {
    "retries": ("7", 7),
    "retry_delay": ("300ms", 0.3),
    "retry_max_delay": ("1m", 60.0),
    "timeout": ("0", 0.0),
    "on_failure": ("dead-letter", OnFailure.DEAD_LETTER),
    "on_split_failure": ("skip", OnFailure.SKIP),
    "after_dead": ("park", AfterDead.PARK),
    "dead_letter_topic": ("the-dead", "the-dead"),
    "max_failures": ("2.5%", Limit(share=0.025)),
    "max_outage": ("2m", 120.0),
    "max_doubt": ("15s", 15.0),
    "rate": ("300/m", 5.0),
}


def test_each_option_has_its_place_in_the_policy() -> None:
    found: list[FailureSettings] = []

    @command
    def given(failures: FailureSettings) -> None:
        found.append(failures)

    app = typer.Typer()
    app.command()(given)
    known = {each.label: each for each in options_of(FailureSettings).values()}
    words = [
        word
        for name, (text, _) in OPTIONS.items()
        for word in known[name.replace("_", "-")].typed(text)
    ]
    assert CliRunner().invoke(app, [*words, "--tune", "breaker=off"]).exit_code == 0
    [settings] = found
    seen = {each.name.removesuffix("_s"): getattr(settings, each.name) for each in fields(settings)}
    assert seen == {name: value for name, (_, value) in OPTIONS.items()} | {
        "breaker": False,
        "divert": (),
        "skip": (),
    }, "a failure setting is not tested: add its option to OPTIONS, with a text and its value"


def test_what_is_not_given_stays_as_it_is_known() -> None:
    known = FailureSettings(retries=9, on_failure=OnFailure.PARK, max_failures=Limit(count=7))
    assert known.changed({}) == known
    assert known.changed({"retries": 0, "breaker": False}) == replace(
        known, retries=0, breaker=False
    )


def test_a_dead_letter_topic_means_dead_letters() -> None:
    found = FailureSettings().changed({"dead_letter_topic": "dead", "after_dead": AfterDead.PARK})
    assert (found.on_failure, found.dead_letter_topic) == (OnFailure.DEAD_LETTER, "dead")
    with pytest.raises(UsageError, match="has no effect with --on-failure skip"):
        FailureSettings().changed({"dead_letter_topic": "dead", "on_failure": OnFailure.SKIP})


@pytest.mark.parametrize(
    ("known", "given", "action"),
    [
        (FailureSettings(), {}, OnFailure.DEAD_LETTER),
        (FailureSettings(on_failure=OnFailure.PARK), {}, OnFailure.DEAD_LETTER),
        (FailureSettings(), {"on_failure": OnFailure.PARK}, None),
        # Only what split rejects, or what a rule selects, becomes a dead letter.
        (FailureSettings(on_split_failure=OnFailure.DEAD_LETTER), {}, OnFailure.HALT),
        (FailureSettings(), {"on_split_failure": OnFailure.DEAD_LETTER}, OnFailure.HALT),
        (FailureSettings(divert=("key == 'a'",)), {}, OnFailure.HALT),
        (
            FailureSettings(divert=("key == 'a'",)),
            {"on_failure": OnFailure.PARK},
            OnFailure.PARK,
        ),
        (
            FailureSettings(on_split_failure=OnFailure.DEAD_LETTER),
            {"on_split_failure": OnFailure.SKIP},
            OnFailure.DEAD_LETTER,
        ),
    ],
)
def test_a_dead_letter_topic_changes_what_fails_only_if_nothing_else_is_written_there(
    known: FailureSettings, given: dict[str, Any], action: OnFailure | None
) -> None:
    given = {"dead_letter_topic": "dead", **given}
    running = Settings(LocalSettings(), known)
    if action is None:
        with pytest.raises(UsageError, match="has no effect"):
            known.changed(given)
        with pytest.raises(UsageError, match="has no effect"):
            running.changed(builtins(given))
    else:
        assert known.changed(given).on_failure is action, "a resume"
        assert running.changed(builtins(given)).failures.on_failure is action, "a running drain"


def test_what_a_resume_is_given_takes_the_place_of_all_that_was_known() -> None:
    known = FailureSettings(skip=("key == 'a'", "key == 'b'"))
    assert known.changed({}).skip == known.skip
    given = parse_expressions(["key == 'c' ", "key == 'c'"])
    assert known.changed({"skip": given}).skip == ("key == 'c'",)
    assert known.changed({"skip": parse_expressions(["none"])}).skip == ()
