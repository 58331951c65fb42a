"""``--split``, ``--key``, ``--barrier`` and ``--unkeyed``: what they make of a message."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from drainer.errors import UsageError
from drainer.loading.loader import load_handler
from drainer.message import Barrier, Message, Origin, SubMessage
from drainer.model.sub_messages import identify
from drainer.model.terms import PayloadSettings, Unkeyed
from drainer.split.keys import KeyFinder
from drainer.text.raw_json import raw_json


def subs(value: Any, split: str | None, *keys: str, **more: Any) -> list[SubMessage]:
    raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    handler = load_handler("count", PayloadSettings(split, keys, **more))
    message = Message(Origin("orders", "id", 0), 3, b"key", raw)
    assert handler.split is not None
    found = list(handler.split(message))
    identify(message, found)
    return found


def pairs(value: Any, split: str | None, *keys: str) -> list[tuple[Any, Any]]:
    return [(sub.key, sub.payload) for sub in subs(value, split, *keys)]


ORDER = {"order": {"id": 5, "lines": [{"id": 17}, {"id": "a", "at": {"no": 2}}]}}


@pytest.mark.parametrize(
    ("split", "key"),
    [
        ("order.lines", "payload.id"),
        ("message.value.order.lines[0:]", "payload.id"),
        ("order.lines", "payload.id == 17 ? payload.id + 0 : payload.id"),
        ("order.lines", "payload['id']"),
    ],
)
def test_elements_of_a_list_are_found_by_a_path_or_an_expression(split: str, key: str) -> None:
    assert pairs(ORDER, split, key) == [("17", {"id": 17}), ("a", {"id": "a", "at": {"no": 2}})]


def test_an_expression_gives_lists_as_they_are() -> None:
    values = {"pairs": [[{"id": 1}, {"n": 2}]]}
    found = pairs(
        values, "[[message.value.pairs[0][0]], message.value.pairs[0]]", "message.topic + ''"
    )
    assert [payload for _, payload in found] == [[{"id": 1}], [{"id": 1}, {"n": 2}]]


def test_a_whole_message_has_another_key() -> None:
    raw = json.dumps(ORDER).encode()
    assert pairs(ORDER, None, "payload.order.id") == [("5", raw)]
    assert pairs(ORDER, None, "message.topic + '/0'") == [("orders/0", raw)]
    assert pairs(ORDER, None, "key") == [("key", raw)]


def test_a_sub_message_with_several_keys_has_them_all() -> None:
    move = {"from": "a", "to": 7, "also": "7", "by": None}
    fields = ("payload.from", "payload.to", "payload.also", "payload.by", "payload.none")
    [found] = subs(move, None, *fields)
    assert (found.key, found.keys) == (None, ("a", "7"))
    [found] = subs(move, None, *fields[1:])
    assert (found.key, found.keys) == ("7", None)


@pytest.mark.parametrize("key", ["payload.id", "payload.at.id", "payload['id']", "payload&.id"])
@pytest.mark.parametrize(
    "value", [{}, {"id": None}, {"at": None}, {"at": {}}, {"at": {"id": None}}]
)
def test_a_missing_key_is_none(value: Any, key: str) -> None:
    [found] = subs(value, None, key)
    assert (found.key, found.keys) == (None, None)
    [found] = subs(value, None, key, unkeyed=Unkeyed.ONE_LANE)
    assert (found.key, found.keys) == (None, (None,))
    [found] = subs([value], "message.value[0:]", key)
    assert (found.key, found.keys) == (None, None)


@pytest.mark.parametrize("keys", [("payload.id",), ("payload.id", "payload.at.no"), ()])
@pytest.mark.parametrize("unkeyed", Unkeyed)
@pytest.mark.parametrize(
    "others",
    [
        [{"id": "a"}, {"id": "1", "at": {"no": 1}}],
        [{"id": None, "at": None}, {}, {"at": {"no": "b"}}],
        [{"id": 1.0}, {"id": 2**70}, {"id": "z"}],
    ],
)
def test_an_element_has_the_same_keys_whatever_is_beside_it(
    keys: tuple[str, ...], unkeyed: Unkeyed, others: list[Any]
) -> None:
    def split(values: list[Any]) -> list[tuple[Any, Any]]:
        message = Message(Origin("orders", "id", 0), 3, b"key", b"")
        subs = [SubMessage(None, raw_json(json.dumps(each).encode())) for each in values]
        found = KeyFinder(PayloadSettings(keys=keys, unkeyed=unkeyed)).split(
            lambda _: subs, message
        )
        return [(sub.key, sub.keys) for sub in found]

    values = [{"id": 17}, *others]
    assert split(values) == [split([each])[0] for each in values]


@pytest.mark.parametrize("split", [None, "documents"])
@pytest.mark.parametrize("key", ["payload.id", "payload['id']"])
def test_a_tombstone_has_its_own_key_only(split: str | None, key: str) -> None:
    assert pairs(None, split, key) == [("key", None)]
    assert pairs(None, split, "message.topic + ''") == [("orders", None)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "--split documents: there is no field 'documents'"),
        ({"documents": "none"}, "--split documents: it is str 'none', and not a list"),
        ({"documents": [{"id": [1]}]}, "--key payload.id: it is a list, but a key must be text or"),
        (
            {"documents": [{"id": {}}]},
            "--key payload.id: it is an object, but a key must be text or",
        ),
        (
            {"documents": [{"id": True}]},
            "--key payload.id: it is bool True, but a key must be text or",
        ),
        ({"documents": [{"id": 0.5}]}, "is Decimal .*0.5.*, but a key must be text or"),
        ({"documents": ["text"]}, "--key payload.id: str 'text' has no field 'id'"),
        ({"documents": [[{"id": 1}]]}, "--key payload.id: a list has no field 'id'"),
    ],
)
def test_a_message_without_what_is_wanted_is_an_error(value: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        subs(value, "documents", "payload.id")


@pytest.mark.parametrize("value", [b"no JSON", b"[1]", b"17", b"\xff", b'"text"'])
@pytest.mark.parametrize("key", ["payload.id", "payload.id + ''"])
def test_a_value_without_fields_is_no_missing_key(value: bytes, key: str) -> None:
    with pytest.raises(ValueError, match=f"^--key {re.escape(key)}: "):
        subs(value, None, key)
    barrier = "payload.kind == 'all'"
    with pytest.raises(ValueError, match=f"^--barrier {barrier}: "):
        subs(value, None, "message.topic + ''", barrier=barrier)
    with pytest.raises(ValueError, match=r"^--split documents: "):
        subs(value, "documents", "payload.id")


@pytest.mark.parametrize("format_", [None, "json"])
@pytest.mark.parametrize("raw", ['{"id": {"a": 1}}', "[1]"])
def test_the_key_of_a_message_may_be_a_json_object(raw: str, format_: str | None) -> None:
    message = Message(Origin("orders", "id", 0), 3, raw.encode(), b"value")
    payloads = PayloadSettings(keys=("message.key",), key_format=format_)
    handler = load_handler("count", payloads)
    assert handler.split is not None
    assert [sub.key for sub in handler.split(message)] == [raw]


def test_a_key_that_is_no_text_stays_bytes() -> None:
    message = Message(Origin("orders", "id", 0), 3, b"\xff", b"value")
    handler = load_handler("count", PayloadSettings(keys=("message.key",)))
    assert handler.split is not None
    assert [sub.key for sub in handler.split(message)] == [b"\xff"]


@pytest.mark.parametrize(
    ("value", "barrier"),
    [({"kind": "all", "id": 1}, True), ({"kind": "one", "id": 1}, False), ({"id": 1}, False)],
)
@pytest.mark.parametrize("split", [None, "message.value[0:]"])
def test_matching_sub_messages_are_barriers(split: str | None, value: Any, barrier: bool) -> None:
    wanted = value if split is None else [value]
    [found] = subs(wanted, split, "payload.id", barrier="payload.kind == 'all'")
    assert isinstance(found, Barrier) is barrier
    assert found.key == (None if barrier else "1")
    [found] = subs(value, None, barrier="payload.kind == 'all' and key == 'key'")
    assert isinstance(found, Barrier) is barrier
    [found] = subs(None, split, "payload.id", barrier="payload['kind'] == 'all'")
    assert type(found) is SubMessage


@pytest.mark.parametrize(
    ("barrier", "stops"),
    [
        ("payload.thread == null", True),
        ("not payload.thread", True),
        ("payload.meta.thread == null", True),
        ("payload.thread == 'all'", False),
        ("payload.thread > 3", False),
    ],
)
def test_an_absent_field_is_null_in_a_barrier(barrier: str, stops: bool) -> None:
    for value in ({"thread": None}, {"kind": "all"}) if "> 3" not in barrier else ({},):
        [found] = subs(value, None, "payload.id", barrier=barrier)
        assert isinstance(found, Barrier) is stops
    [found] = subs({"thread": 1, "meta": {"thread": 1}}, None, "payload.thread", barrier=barrier)
    assert type(found) is SubMessage


def test_a_key_may_stand_in_for_one_that_is_absent() -> None:
    [found] = subs({"user": "u"}, None, "payload.thread ? payload.thread : payload.user")
    assert found.key == "u"


@pytest.mark.parametrize("barrier", ["payload.n > 'x'", "payload.n"])
def test_a_barrier_that_can_not_be_decided_rejects_the_message(barrier: str) -> None:
    with pytest.raises(ValueError, match=f"^--barrier {re.escape(barrier)}: "):
        subs({"n": 1}, None, barrier=barrier)


@pytest.mark.parametrize(
    ("split", "keys", "text"),
    [
        ("documents", (), "needs the key"),
        ("a..b", ("payload.id",), "syntax error"),
        ("documents", ("payload.id ==",), "syntax error"),
        (None, ("id",), "there is no id"),
        (None, ("'constant'",), "no field of the sub-message"),
    ],
)
def test_a_wrong_path_or_expression_is_refused(
    split: str | None, keys: tuple[str, ...], text: str
) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        load_handler("count", PayloadSettings(split, keys))
    assert caught.value.hint


@pytest.mark.parametrize("more", [{"barrier": "index == 1"}, {"keys": ("payload.a", "payload.b")}])
def test_a_record_has_one_key_and_is_no_barrier(more: Any) -> None:
    with pytest.raises(UsageError, match="one key each"):
        load_handler("produce", PayloadSettings(**more))


OWN = """
import json
from drainer import Barrier, SubMessage
class Event(SubMessage):
    pass
def split(message):
    for each in json.loads(message.value):
        yield Barrier(each) if each.get("drop") else Event(each.get("doc"), each)
def handle(sub): pass
"""


def test_keys_and_barriers_are_those_of_a_handlers_own_split(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    keys = ("payload.thread ?? key", "index == 0 ? 'first' : key")
    settings = PayloadSettings(keys=keys[:1], barrier="payload&['kind'] == 'all'")
    events = [{"thread": "t", "doc": "d"}, {"thread": None, "doc": "e"}]
    events += [{"thread": "t", "kind": "all"}, {"drop": True}]
    message = Message(Origin("orders", "id", 0), 3, b"key", json.dumps(events).encode())
    handler = load_handler(f"{tmp_path / 'own.py'}", settings)
    assert handler.split is not None
    found = list(handler.split(message))
    assert [type(sub).__name__ for sub in found] == ["Event", "Event", "Barrier", "Barrier"]
    assert [sub.key for sub in found] == ["t", "e", None, None]
    assert identify(message, found) == ("t", "e", None, None)
    handler = load_handler(f"{tmp_path / 'own.py'}", PayloadSettings(keys=keys[1:]))
    assert handler.split is not None
    assert [sub.key for sub in handler.split(message)] == ["first", "e", None, None]


def test_it_takes_the_place_of_a_handlers_own_split() -> None:
    handler = load_handler("produce", PayloadSettings("documents", ("payload.id",)))
    message = Message(Origin("orders", "id", 0), 3, b"key", b'{"documents": [{"id": 1}]}')
    for each in (handler, handler.fresh()):
        assert each.split is not None
        assert [sub.key for sub in each.split(message)] == ["1"]
