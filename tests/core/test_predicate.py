"""The language of rules: what it sees, what it can't decide, and that it runs no code."""

from __future__ import annotations

import sys
from collections import namedtuple
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from drainer.errors import BadExpression
from drainer.message import Barrier, KeySums, Message, Origin, ShippedMessage, SubMessage, Unsplit
from drainer.model.expression import FUNCTIONS
from drainer.model.facts import Undecided
from drainer.model.predicate import Predicate
from drainer.text.mask import VARIABLE

PAYLOAD = {
    "kind": "set_email",
    "n": 5,
    "price": 0.1,
    "flag": True,
    "nothing": None,
    "length": 500,
    "tags": ["new", "vip"],
    "user": {"_id": 7, "items": [{"x": 1}, {"x": 2}], "keys": "k"},
    "at": "2026-03-01 12:00",
}


def sub_of(payload: Any = None) -> SubMessage:
    origin = Origin("orders", "topic-id", 3)
    value = b'{"kind": "rename", "big": 1e3}'
    sub = SubMessage(b"app-admin", PAYLOAD if payload is None else payload)
    sub.message = Message(
        origin, 17, b"tenant", value, 1_767_225_600_000, [("trace", b"t1"), ("raw", b"\xff")]
    )
    sub.index = 2
    return sub


def answer(expression: str, sub: SubMessage | None = None) -> bool:
    return Predicate(expression).matches(sub or sub_of())


@pytest.mark.parametrize(  # docs/reference/rules.md has more, which tests/docs tries
    ("expression", "expected"),
    [
        ("payload.kind.starts_with('set')", True),
        ("payload.n == 5 and payload.n == 5.0 and payload.n > 4 and not payload.n > 5", True),
        ("payload.flag and payload.nothing == null", True),
        ("payload.user._id == 7", True),
        ("key == 'app-admin'", True),
        ("not barrier and index == 2", True),
        ("message.offset == 17 and message.partition == 3 and message.topic == 'orders'", True),
        ("message.key == 'tenant' and message.timestamp == d'2026-01-01'", True),
        ("message.value.kind == 'rename' and message.value.big == 1000", True),
        ("payload.n == '5' or 'missing' in payload or message.headers.raw == 'ÿ'", False),
        ("barrier or index == 1", False),
    ],
)
def test_it_is_true_or_false(expression: str, expected: bool) -> None:
    assert answer(expression) is expected


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("not payload.missing == 1", "no field 'missing'"),
        ("payload.missing == 1 or payload.n == 5", "no field 'missing'"),
        ("payload['missing'] == 1", "lookup"),
        ("payload.n / 0 == 1", "division by zero"),
        ("payload.kind", "'set_email'"),
        ("$parse_datetime(payload.kind) < d'2026-04-01'", "datetime"),
        ("payload.kind.encode('no-such') == key", "encoding"),
    ],
)
def test_what_it_can_not_decide_is_neither(expression: str, why: str) -> None:
    with pytest.raises(Undecided, match=why):
        answer(expression)


@pytest.mark.parametrize(
    "text",
    [
        *("payload.custmer == 17", "sub_key.lower == 'a'", "payload.n.lower == 'a'"),
        *("payload['custmer'] == 17", "payload.nothing.x == 17", "payload.kind > 17"),
    ],
)
def test_what_it_can_not_decide_takes_no_longer_than_what_it_can(text: str) -> None:
    def calls(text: str) -> int:
        predicate, sub, seen = Predicate(text), sub_of(), list[str]()
        for profile in (None, lambda _frame, event, _of: seen.append(event)):
            sys.setprofile(profile)  # The first evaluation may learn what there is not.
            with suppress(Undecided):
                predicate.matches(sub)
            sys.setprofile(None)
        return len(seen)

    assert calls(text) < 2 * calls("payload.user._id == 17")


class Colour(Enum):
    RED = "red"


class Thing:
    """Any object of a handler's."""

    common = "of the class"

    def __init__(self) -> None:
        self.kind = "red"
        self.colour = Colour.RED
        self._secret = 1

    def run(self) -> None:
        raise AssertionError("a rule ran a method")

    @property
    def computed(self) -> int:
        raise AssertionError("a rule ran a property")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a rule ran __getattr__ for {name}")


@dataclass(slots=True)
class Slotted:
    kind: str = "red"


class Lazy(Slotted):
    """One whose slots are behind properties, or loaded when they are read."""

    __slots__ = ("rest",)

    def __init__(self) -> None:
        Slotted.kind.__set__(self, "red")  # type: ignore[attr-defined, misc]

    @property
    def kind(self) -> str:  # type: ignore[override]
        raise AssertionError("a rule ran a property")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a rule ran __getattr__ for {name}")


Pair = namedtuple("Pair", "kind number")


@pytest.mark.parametrize(
    "payload",
    [
        {"kind": "red"},
        b'{"kind": "red"}',
        {"kind": b"red"},
        {"kind": Colour.RED},
        Thing(),
        Slotted(),
        Lazy(),
        MappingProxyType({"kind": "red"}),
        Pair("red", 1),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_a_field_is_found_in_whatever_holds_it(payload: Any) -> None:
    sub = sub_of(payload)
    assert answer("payload.kind == 'red'", sub)
    assert not answer("payload.kind != 'red'", sub)


@pytest.mark.parametrize(
    ("payload", "expression"),
    [
        (b"{torn", "payload == '{torn'"),
        (b"[1, 2]", "payload == [1, 2]"),
        (b"\xff\xfe", "payload != 'x'"),
        ({"a": Decimal("1.50")}, "payload.a == 1.5"),
        ({"a": UUID(int=1)}, "payload.a =~ '0000.*1'"),
        ({"a": date(2026, 1, 2)}, "payload.a == d'2026-01-02'"),
        ({"a": {"x"}}, "'x' in payload.a"),
    ],
    ids=repr,
)
def test_payloads_are_shown_as_what_they_hold(payload: Any, expression: str) -> None:
    assert answer(expression, sub_of(payload))


@pytest.mark.parametrize("payload", [object(), print, Thing, pytest, iter([])], ids=type)
def test_what_is_no_data_is_not_shown(payload: Any) -> None:
    for expression in ("payload.it == 1", "payload.it != 1", "payload.it.name != 1"):
        with pytest.raises(Undecided):
            answer(expression, sub_of({"it": payload}))


BREAK_OUTS = [
    "payload.__class__ == 1",
    "payload['__class__'] == 1",
    "payload.get('kind') == 1",
    "payload() == 1",
    "message.ledger == 1",
    "$split.__globals__ == index",
    "payload.kind.encode.func == 1",
    "$filter(payload.kind.encode, ['no-such']) == []",
    "[x.__class__ for x in payload.tags] == []",
    "[payload.__class__ for payload in [payload]] == []",
    "(payload&.__class__) == 1",
    "payload.kind.decode('unicode_escape') == 1",
]


@pytest.mark.parametrize("expression", BREAK_OUTS)
def test_there_is_no_way_out_of_the_data(expression: str) -> None:
    for payload in (PAYLOAD, Thing(), Slotted(), b'{"kind": "x"}'):
        try:
            found = answer(expression, sub_of(payload))
        except (Undecided, BadExpression):
            continue
        assert found is False, expression


@pytest.mark.parametrize("name", ["run", "computed", "common", "_secret", "__class__", "gone"])
def test_of_an_object_only_what_it_holds_in_public_is_shown(name: str) -> None:
    for expression in (f"payload.{name} != 1", f"payload['{name}'] != 1"):
        with pytest.raises(Undecided):
            answer(expression, sub_of(Thing()))
    with pytest.raises(BadExpression, match=f"there is no function {name}: "):
        answer(f"payload.{name}() != 1", sub_of(Thing()))


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("", "empty"),
        ("payload.kind = 'a'", "from character 14 on, \"= 'a'\""),
        ("index == 1 and paylod.x", "there is no paylod"),
        ("true", "has no field"),
        ("index + 1", "neither true nor false"),
        ("payload.x =~ 'a(?=b)'", "'a(?=b)' is not an RE2 regular expression"),
        ("{'a': 1} == payload", "a whole mapping"),
        ("b'a' in payload.x", "bytes are text here"),
        ("index < 'a'", "mismatch"),
        ("1 << payload.n == 2", "no << and >>"),
        ("__import__('os').system('true') == 0", "no __import__"),
        ("lambda: payload", "from character 7"),
    ],
)
def test_a_malformed_expression_is_refused(expression: str, error: str) -> None:
    with pytest.raises(BadExpression) as raised:
        Predicate(expression)
    assert error in str(raised.value)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("expression", "instead"),
    [
        ("key.startswith('app-')", "payload.kind.starts_with('a')"),
        ("not key.startsWith(payload.kind)", "payload.kind.starts_with('a')"),
        ("payload['kind'].ends_With('_email')", "payload.kind.ends_with('a')"),
        ("payload.kind.contains('mail')", "'a' in payload.kind"),
        ("contains(payload.tags, 'vip')", "'a' in payload.kind"),
        ("payload.kind.lower() == 'a'", "payload.kind.as_lower"),
        ("$upper(key) == 'A'", "payload.kind.as_upper"),
        ("len (payload.tags) == 2", "payload.tags.length"),
        ("payload.tags.length() == 2", "payload.tags.length"),
    ],
)
def test_for_functions_of_other_languages_it_says_what_to_write(
    expression: str, instead: str
) -> None:
    with pytest.raises(BadExpression, match="there is no") as raised:
        Predicate(expression)
    assert raised.value.hint == f"Write it like: {instead}"
    Predicate(f"{instead} == true").matches(sub_of({"kind": "a", "tags": []}))


def test_a_field_named_like_a_function_is_one_of_the_payload() -> None:
    with pytest.raises(BadExpression, match="there is no length") as raised:
        Predicate("length == 2")
    assert "as payload.length" in str(raised.value.hint)


def test_any_other_function_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(BadExpression, match="there is no function strip: ") as raised:
        Predicate("key.strip() == 'a'")
    assert "starts_with, $abs, " in str(raised.value.hint)


@pytest.mark.parametrize("name", ["now", "random", "range"])
def test_what_differs_from_run_to_run_or_takes_any_memory_is_not_there(name: str) -> None:
    assert name not in FUNCTIONS
    with pytest.raises(BadExpression, match=f"there is no \\${name}"):
        Predicate("$" + name + " == index")


@pytest.mark.parametrize("pattern", ["(a+)+b", "(.*a){25}b"])
def test_a_regular_expression_takes_no_longer_than_its_text(pattern: str) -> None:
    """One step a character and not 2 to the power of them: with Python's `re` this never ends."""
    text = "a" * 5_000
    for expression in (f"payload.x =~ '{pattern}'", f"payload.x !~~ '{pattern}'"):
        answer(expression, sub_of({"x": text}))
    answer("payload.x =~ payload.pattern", sub_of({"x": text, "pattern": pattern}))
    inside = f"$any([x =~ '{pattern}' for x in payload.all])"
    answer(inside, sub_of({"all": [text]}))


def test_of_several_sub_keys_there_is_no_single_one() -> None:
    sub = SubMessage(keys=["a", b"b"])
    sub.message, sub.index = sub_of().message, 0
    assert answer("keys == ['a', 'b']", sub)
    with pytest.raises(Undecided, match="several sub-keys"):
        answer("key != 'a'", sub)


def test_a_barrier_is_only_matched_by_what_names_it() -> None:
    barrier = Barrier({"kind": "drop"})
    barrier.message, barrier.index = sub_of().message, 0
    assert not answer("payload.kind == 'drop'", barrier)
    assert not answer("key == null", barrier)
    assert not answer("index >= 0", barrier)
    assert answer("barrier", barrier)
    assert answer("barrier and payload.kind == 'drop' and keys == []", barrier)


def test_a_message_that_did_not_split_is_matched_by_what_names_the_message_alone() -> None:
    unit = Unsplit(b'{"kind": "drop"', "ValueError", "no", "ValueError: no")
    unit.take_place(message := sub_of().message)
    assert answer(f"message.offset == {message.offset}", unit)
    for text in ("barrier", "index == 0", "key == null", "message.offset >= 0 and index == 0"):
        assert not answer(text, unit), text


def test_a_value_that_did_not_travel_is_missed_by_what_reads_it() -> None:
    sub = sub_of()
    whole = sub.message
    sub.message = ShippedMessage(whole.origin, 17, b"tenant", None, (), KeySums(3, 0))
    assert answer("message.key == 'tenant'", sub)
    with pytest.raises(Undecided, match="value"):
        answer("message.value.kind == 'rename'", sub)


def test_with_masking_nothing_of_the_payload_is_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a secret of this test")
    with pytest.raises(Undecided) as raised:
        answer("'text' =~ payload.pattern", sub_of({"pattern": "(ann@example.com"}))
    assert "ann" not in str(raised.value)
