"""Examples of expressions in docs/reference/rules.md work."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from docs.pages import ROOT
from drainer.message import Message, Origin, SubMessage
from drainer.model.expression import FUNCTIONS
from drainer.model.facts import NAMES, Undecided
from drainer.model.predicate import Predicate

TEXT = (ROOT / "docs/reference/rules.md").read_text()
PAYLOAD = json.loads(re.findall(r"```json\n(.+?)```", TEXT, re.DOTALL)[0])


def rows_after(words: str) -> list[tuple[str, str]]:
    table = TEXT.split(words)[1].split("\n\n")[1]
    return [
        (expression, output)
        for expression, output in re.findall(r"^\| `(.+?)` \| (.*) \|$", table, re.MULTILINE)
    ]


TRUE, UNDECIDED = rows_after("all of these are true:"), rows_after("none of these can be decided:")


def sub() -> SubMessage:
    made = SubMessage("app-admin", PAYLOAD)
    at_ms = round(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)
    headers = [("source", b"importer")]
    made.message = Message(Origin("orders", "id", 0), 1, b"k", b"{}", at_ms, headers)
    made.index = 0
    return made


def test_all_rows_were_found() -> None:
    assert (len(TRUE), len(UNDECIDED)) == (13, 4)


@pytest.mark.parametrize("expression", [expression for expression, _ in TRUE])
def test_what_is_listed_as_true_is(expression: str) -> None:
    assert Predicate(expression).matches(sub())


@pytest.mark.parametrize(("expression", "why"), UNDECIDED)
def test_what_is_listed_as_undecided_is(expression: str, why: str) -> None:
    with pytest.raises(Undecided) as raised:
        Predicate(expression).matches(sub())
    assert why.startswith("the same") or why in str(raised.value)


def test_numbers_and_texts_are_unequal_as_it_claims() -> None:
    (expression,) = re.findall(r"so `(.+?)` is true", TEXT)
    assert Predicate(expression).matches(sub())


def test_names_and_functions_are_all_there() -> None:
    for name in NAMES:
        assert f"`{name}`" in TEXT
    for name in FUNCTIONS:
        assert f"${name}" in TEXT
