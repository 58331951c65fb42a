"""Expressions of ``--skip`` as settings, and what is wrong with them."""

from __future__ import annotations

import pytest

from drainer.errors import UsageError
from drainer.model.predicate import parse_expressions
from drainer.model.settings import FailureSettings


def test_what_a_resume_is_given_takes_the_place_of_all_that_was_known() -> None:
    known = FailureSettings(skip=("key == 'a'", "key == 'b'"))
    assert known.changed({}).skip == known.skip
    given = parse_expressions(["key == 'c' ", "key == 'c'"])
    assert known.changed({"skip": given}).skip == ("key == 'c'",)
    assert known.changed({"skip": parse_expressions(["none"])}).skip == ()


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("key = 'a'", "from character 5 on"),
        ("kye == 'a'", "there is no kye"),
        ("true", "has no field"),
        ("", "empty"),
    ],
)
def test_what_can_not_be_understood_is_a_usage_error(expression: str, error: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_expressions([expression])
    assert error in str(caught.value)
    assert caught.value.hint
