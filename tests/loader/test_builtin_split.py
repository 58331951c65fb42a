"""The split ``--split`` and ``--split-key``: what it makes of a message; without a broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drainer.errors import UsageError
from drainer.loading.loader import load_handler
from drainer.message import Message, Origin
from drainer.model.terms import PayloadSettings
from drainer.split.splitting import Documents


def subs(value: Any, split: str | None, key: str | None) -> list[tuple[Any, Any]]:
    raw = None if value is None else json.dumps(value).encode()
    message = Message(Origin("orders", "id", 0), 3, b"key", raw)
    return [(sub.key, sub.payload) for sub in Documents(split, key)(message)]


ORDER = {"order": {"id": 5, "lines": [{"id": 17}, {"id": "a", "at": {"no": 2}}]}}


@pytest.mark.parametrize(
    ("split", "key"),
    [
        ("order.lines", "id"),
        ("message.value.order.lines[0:]", "id"),
        ("order.lines", "payload.id == 17 ? payload.id + 0 : payload.id"),
    ],
)
def test_elements_of_a_list_are_found_by_a_path_or_an_expression(split: str, key: str) -> None:
    assert subs(ORDER, split, key) == [("17", {"id": 17}), ("a", {"id": "a", "at": {"no": 2}})]


def test_an_expression_gives_lists_as_they_are() -> None:
    values = {"pairs": [[{"id": 1}, {"n": 2}]]}
    found = subs(
        values, "[[message.value.pairs[0][0]], message.value.pairs[0]]", "message.topic + ''"
    )
    assert [payload for _, payload in found] == [[{"id": 1}], [{"id": 1}, {"n": 2}]]


def test_without_a_list_the_message_has_another_key() -> None:
    raw = json.dumps(ORDER).encode()
    assert subs(ORDER, None, "order.id") == [("5", raw)]
    assert subs(ORDER, None, "message.topic + '/0'") == [("orders/0", raw)]


@pytest.mark.parametrize("split", [None, "documents"])
def test_a_tombstone_has_its_own_key_only(split: str | None) -> None:
    assert subs(None, split, "id") == [("key", None)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "there is nothing at the path 'documents'"),
        ({"documents": "none"}, "'documents' is not a list"),
        ({"documents": [{"id": [1]}]}, "a key must be text or an integer"),
        ({"documents": [{"id": True}]}, "a key must be text or an integer"),
        ({"documents": [{}]}, "nothing at the path 'payload.id'; did you mean 'id'?"),
    ],
)
def test_a_message_without_what_is_wanted_is_an_error(value: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        subs(value, "documents", "payload.id" if "payload" in text else "id")


@pytest.mark.parametrize(
    ("split", "key", "text"),
    [
        ("documents", None, "needs the key"),
        ("a..b", "id", "syntax error"),
        ("documents", "identity ==", "syntax error"),
    ],
)
def test_a_wrong_path_or_expression_is_refused(
    split: str | None, key: str | None, text: str
) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        load_handler("count", PayloadSettings(split, key))
    assert caught.value.hint


def test_it_takes_the_place_of_a_handlers_own_split() -> None:
    handler = load_handler("produce", PayloadSettings("documents", "id"))
    message = Message(Origin("orders", "id", 0), 3, b"key", b'{"documents": [{"id": 1}]}')
    for each in (handler, handler.fresh()):
        assert each.split is not None
        assert [sub.key for sub in each.split(message)] == ["1"]
