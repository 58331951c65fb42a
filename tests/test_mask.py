"""Masking: with a secret in the environment, keys and error texts reach no text for people."""

from __future__ import annotations

import pytest

from core.messages import deliver, one_partition, subs_of
from drainer.core.batches import coalesced
from drainer.errors import HandleFailed
from drainer.message import SubMessage
from drainer.model.facts import named
from drainer.text.mask import (
    VARIABLE,
    class_name,
    describe,
    error_text,
    key_repr,
    mask_reported,
    mask_text,
    short_key,
)


def test_without_the_variable_nothing_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)

    assert key_repr("ann@example.com") == "'ann@example.com'"
    assert describe(ValueError("ann@example.com")) == "ValueError: ann@example.com"


def test_one_key_has_one_mask_with_one_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a secret of this test")
    ann = key_repr("ann@example.com")
    assert ann == mask_text("'ann@example.com'") != key_repr("bob@example.com")
    assert ann.startswith("key#")

    monkeypatch.setenv(VARIABLE, "another secret of it")
    assert key_repr("ann@example.com") != ann


def test_a_mask_that_another_process_reports_is_not_masked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "a secret of this test")
    ann = short_key("ann@example.com")

    assert mask_reported(ann) == ann
    assert mask_reported("'ann@example.com'") == ann, "that process masks nothing"
    assert key_repr("key#3fa9c1d2") != "key#3fa9c1d2", "it is a key"


def test_every_way_to_print_a_key_masks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a secret of this test")
    sub = SubMessage("ann@example.com")

    printed = [short_key(sub.key), repr(sub), repr(SubMessage(keys=["ann@example.com", 1]))]

    assert all(key_repr(sub.key) in text and "ann" not in text for text in printed)
    assert describe(ValueError("ann@example.com is no number")) == "ValueError"


def test_a_coalesce_or_rule_that_fails_shows_no_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a secret of this test")

    def fails(earlier: SubMessage, later: SubMessage) -> SubMessage | None:
        raise KeyError("ann@example.com")

    first, later = subs_of("ann@example.com", "ann@example.com")
    deliver(one_partition(1), 0, first, later)
    with pytest.raises(HandleFailed) as caught:
        coalesced(fails, first, later, first)
    assert "ann" not in str(caught.value)
    assert named("ann@example.com") == "a str", "of a rule that gives a payload's field"
    assert key_repr(later.key) in str(caught.value)


def _from_group() -> Exception:
    try:
        raise RuntimeError("the batch failed") from GROUP
    except RuntimeError as error:
        return error


GROUP = ExceptionGroup("2 calls", [ValueError("no title"), ExceptionGroup("", [KeyError("id")])])
MANY = ExceptionGroup("all", [ValueError(f"row {n % 5}") for n in range(1_000)])


@pytest.mark.parametrize(
    ("error", "text", "kind"),
    [
        (GROUP, "ExceptionGroup: 2 calls (ValueError: no title; KeyError: 'id')", "ExceptionGroup"),
        (
            MANY,
            "ExceptionGroup: all (ValueError: row 0; ValueError: row 1; ValueError: row 2;"
            " and 2 more)",
            "ValueError",
        ),
        (
            _from_group(),
            "RuntimeError: the batch failed (ValueError: no title; KeyError: 'id')",
            "RuntimeError",
        ),
        (BaseExceptionGroup("x", [KeyboardInterrupt()]), None, "KeyboardInterrupt"),
    ],
)
def test_a_group_shows_the_errors_in_it(error: BaseException, text: str | None, kind: str) -> None:
    assert describe(error) == (text or "BaseExceptionGroup: x (KeyboardInterrupt)")
    assert class_name(error) == kind
    assert "no title" in error_text(GROUP, whole=True)


def test_a_group_is_masked_and_a_circle_of_causes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("a")
    error.__cause__ = error
    assert describe(error) == "ValueError: a"
    deep: ExceptionGroup[Exception] = ExceptionGroup("deep", [ValueError("leaf")])
    for _ in range(5_000):
        deep = ExceptionGroup("deep", [deep])
    assert describe(deep) == "ExceptionGroup: deep (ValueError: leaf)"

    monkeypatch.setenv(VARIABLE, "a secret of this test")
    assert describe(GROUP) == "ExceptionGroup: (ValueError; KeyError)"
