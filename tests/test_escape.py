"""Text from elsewhere is one visible line for a person, and JSON for any parser."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.text.escape import json_text, printable

ANY_TEXT = st.text(st.characters(codec=None))  # half surrogate pairs too


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, café ✓ 東京 😀", "plain, café ✓ 東京 😀"),
        ("a\n✓ Redriven", r"a\n✓ Redriven"),
        ("a\r\tb\x1b[2J\x9b", r"a\r\tb\x1b[2J\x9b"),
        ("user\u202egnp.exe", r"user\u202egnp.exe"),
        ("or\u200bders\ufeff\u2066", r"or\u200bders\ufeff\u2066"),
        ("a\u2028b\u0085c", r"a\u2028b\x85c"),
        ("\u3164\u115f\ufe0f", r"\u3164\u115f\ufe0f"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_can_not_be_seen_is_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(ANY_TEXT)
def test_nothing_steers_forges_or_hides(text: str) -> None:
    shown = printable(text)
    assert printable(shown) == shown
    assert shown.splitlines() == ([shown] if shown else [])
    shown.encode()
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not hidden & {unicodedata.category(char) for char in shown}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | ANY_TEXT,
        lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
        max_leaves=10,
    ),
    st.booleans(),
)
def test_json_is_what_it_was_given_in_characters_that_can_be_seen(
    obj: object, indent: bool
) -> None:
    text = json_text(obj, indent=indent)
    assert json.loads(text) == obj
    assert printable(text.replace("\n", "")) == text.replace("\n", "")
    assert indent or "\n" not in text


def test_json_takes_what_is_no_json() -> None:
    found = json_text({1: [float("nan"), 2**70, "\ud800", {3}]})
    assert json.loads(found) == {"1": [None, 2**70, "\ud800", "{3}"]}
