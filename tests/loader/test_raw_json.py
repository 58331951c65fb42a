"""JSON is written as it was read: to a topic, to a service, as a letter, from another process."""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64decode
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.letters import Sample, as_record
from drainer.handlers import Print
from drainer.handlers.produce import as_value
from drainer.http.protocol import encode_item
from drainer.letters.cli.dead import letter_page
from drainer.letters.overview import whole_letter_as_json
from drainer.loading.loader import load_handler
from drainer.message import Message, Origin, SubMessage
from drainer.model.predicate import Predicate
from drainer.model.sub_messages import identify
from drainer.model.terms import PayloadSettings, RedriveSettings
from drainer.policy.dead_letter import read_letter
from drainer.policy.redrive import Redriven, split_letter
from drainer.spark.task.chunk import ChunkWriter, decode_chunk
from drainer.text.escape import json_text
from view import samples

ORIGIN = Origin("orders", "id", 0)
LARGE = b"100000000000000000000000001"
LONG = b"1234567890123456.78"

# --- JSON as text: what no Python value would be written as ---

SPACES = st.sampled_from(["", "", "", " ", "\n", "\t \r"])
DIGITS = st.text("0123456789", min_size=1, max_size=30)
NUMBERS = st.builds(
    lambda sign, whole, part, exponent: sign + (whole.lstrip("0") or "0") + part + exponent,
    st.sampled_from(["", "-"]),
    DIGITS,
    st.one_of(st.just(""), DIGITS.map(lambda digits: "." + digits)),
    st.sampled_from(["", "", "e5", "E+05", "e-7", "e400", "E-999"]),
)
CHARACTERS = st.sampled_from(
    ["a", "é", "\u2028", "\\u0041", "\\ud83d\\ude00", '\\"', "\\/", "[", "}"]
)
STRINGS = st.lists(CHARACTERS, max_size=4).map(lambda parts: f'"{"".join(parts)}"')


def _several(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def listed(part: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        spaced = st.tuples(SPACES, part, SPACES).map("".join)
        return st.lists(spaced, max_size=3).map(",".join)

    fields = st.builds("{}{}:{}".format, SPACES, STRINGS, inner)
    return listed(inner).map("[{}]".format) | listed(fields).map("{{{}}}".format)


VALUES = st.recursive(
    NUMBERS | STRINGS | st.sampled_from(["true", "false", "null"]), _several, max_leaves=8
)
# Elements with a key, behind a first field that may be any; ``id`` may come twice.
ELEMENTS = st.builds(
    '{{{}"x":{},"id":{}{},"id" :{}{}}}'.format,
    *(SPACES, VALUES, VALUES, SPACES),
    st.integers(0, 10**25) | st.text("abc", max_size=3).map('"{}"'.format),
    SPACES,
)


def split(value: bytes | None, **of: Any) -> list[SubMessage]:
    handler = load_handler("count", PayloadSettings(**of))
    message = Message(ORIGIN, 3, b"key", value)
    assert handler.split is not None
    subs = list(handler.split(message))
    identify(message, subs)
    return subs


def in_another_process(sub: SubMessage) -> SubMessage:
    writer = ChunkWriter(ORIGIN)
    sub.message.offset = 3
    writer.add(sub.message, [sub], [sub.key], [0])
    [row] = writer.flush()
    [shipped] = decode_chunk(row.body, ORIGIN)
    return shipped.subs[0]


def redriven(sub: SubMessage) -> SubMessage:
    record = as_record(Sample(sub=sub).letter())
    [found] = split_letter(RedriveSettings(), record)
    assert isinstance(found, Redriven)
    return found.begin()


def posted(sub: SubMessage) -> bytes:
    class Item(msgspec.Struct):
        payload: msgspec.Raw

    return bytes(msgspec.json.decode(encode_item(sub), type=Item).payload)


def writings(sub: SubMessage) -> list[bytes | None]:
    """Return what ``produce`` and ``http`` write of a sub-message, and its dead letter."""
    message = sub.message
    topic = message.value if message.is_payload(sub) else as_value(sub.content)
    return [topic, posted(sub), Sample(sub=sub).letter().value]


WAYS: list[Callable[[SubMessage], SubMessage]] = [
    lambda sub: sub,
    in_another_process,
    redriven,
    lambda sub: redriven(redriven(sub)),
    lambda sub: in_another_process(redriven(sub)),
]


@settings(max_examples=settings().max_examples // 5)
@given(st.lists(ELEMENTS, min_size=1, max_size=3), SPACES, st.sampled_from([None, "json"]))
@example(['{"id":1,"n":100000000000000000000000001,"n":1.10}'], "", None)
def test_each_element_is_written_as_it_was_read(
    elements: list[str], space: str, value_format: str | None
) -> None:
    value = f'{{"a":[1],"a":[{space}{f"{space},".join(elements)}{space}]}}'.encode()
    for number, element in enumerate(elements):
        for way in WAYS:
            sub = split(value, split="a", keys=("payload.id",), value_format=value_format)[number]
            key = json.loads(element)["id"]
            assert sub.key == str(key)
            assert writings(way(sub)) == [element.encode()] * 3
            expected = json.loads(element, parse_float=float)
            if "e400" not in element.lower():
                assert way(sub).payload == expected


@settings(max_examples=settings().max_examples // 4)
@given(VALUES, SPACES)
def test_a_decoded_message_is_written_as_it_was_read(text: str, space: str) -> None:
    value = f"{space}{text}{space}".encode()
    for way in WAYS[:2]:
        [sub] = split(value, value_format="json")
        topic, _, letter = writings(way(sub))
        assert (topic, letter) == (value, value)
        [sub] = split(value, value_format="json")
        assert posted(way(sub)) == text.encode()


def sent(value: bytes | None, value_format: str | None = None) -> tuple[bytes, str | None]:
    class Item(msgspec.Struct):
        payload: msgspec.Raw
        payload_encoding: str | None

    [sub] = split(value, keys=("message.topic + ''",), value_format=value_format)
    found = msgspec.json.decode(encode_item(sub), type=Item)
    return bytes(found.payload), found.payload_encoding


@settings(max_examples=settings().max_examples // 4)
@given(VALUES, SPACES)
@example("null", "")
def test_a_service_gets_a_whole_value_that_is_json_as_it_is(text: str, space: str) -> None:
    value = f"{space}{text}{space}".encode()
    assert sent(value) == sent(value, "json") == (text.encode(), "json")


@pytest.mark.parametrize(
    "value", [b"", b"\xff", b"text", b"NaN", b'{"a": 1} x', b"[" * 100_000, b"\xef\xbb\xbf{}"]
)
def test_a_service_gets_other_bytes_in_base64(value: bytes) -> None:
    payload, encoding = sent(value)
    assert (b64decode(json.loads(payload)["base64"]), encoding) == (value, "base64")
    assert sent(b'{"base64": "aGk="}') == (b'{"base64": "aGk="}', "json")
    assert sent(None) == (b"null", None)


@pytest.mark.parametrize(
    "text", ["message.value&['lines']", "[each for each in message.value.lines if true]"]
)
def test_objects_that_an_expression_selects_are_as_they_were(text: str) -> None:
    element = b'{"n" : %b, "m":1.10, "m":"\\u0041"}' % LARGE
    subs = split(b'{"lines": [ %b ]}' % element, split=text, keys=("payload.n",))
    assert [(sub.key, as_value(sub.content)) for sub in subs] == [(LARGE.decode(), element)]


def test_what_an_expression_computes_keeps_its_digits() -> None:
    value = b'{"ids": [%b, %b, "x", [1.10, null]]}' % (LARGE, LONG)
    subs = split(value, split="message.value.ids[0:]", keys=("message.topic + ''",))
    assert [as_value(sub.content) for sub in subs] == [LARGE, LONG, b'"x"', b"[1.10,null]"]
    [sub] = split(b'{"ids": [%b]}' % LARGE, keys=("message.value.ids[0]",))
    assert sub.key == LARGE.decode()


def test_a_handler_sees_values_of_python() -> None:
    value = b'{"a": [{"id": "x", "n": %b, "d": %b, "z": -0.0}]}' % (LARGE, LONG)
    [sub] = split(value, split="a", keys=("payload.id",))
    assert sub.payload == {"id": "x", "n": int(LARGE), "d": float(LONG), "z": 0.0}
    sub.payload["n"] = 1
    assert sub.payload["n"] == 1, "it is the same object at every attempt"
    [whole] = split(value, value_format="json")
    assert whole.payload == whole.message.decoded == {"a": [{**sub.payload, "n": int(LARGE)}]}
    [wide] = split(b'[{"id": 1, "n": 1e400}]', split="message.value[0:]", keys=("payload.id",))
    assert wide.payload == {"id": 1, "n": Decimal("1e400")}
    digits = sys.get_int_max_str_digits() + 1
    [long] = split(
        b'[{"id": 1, "n": %b}]' % (b"9" * digits), split="message.value[0:]", keys=("payload.id",)
    )
    with pytest.raises(ValueError, match="out of range"):
        _ = long.payload
    assert (as_value(long.content) or b"").count(b"9") == digits


@pytest.mark.parametrize(
    ("text", "true"),
    [
        (f"payload.n == {LARGE.decode()}", True),
        (f"payload.n > {LARGE.decode()}", False),
        (f"payload.d == {LONG.decode()}", True),
        ("payload.d == 1234567890123456.8", False),
        ("payload.e > 5 and payload.z == 1.1", True),
        ("payload.l[1].deep == 0.10", True),
        ("payload.l == [1]", False),
        ("message.value.a[0].n == payload.n and message.value.a[0] == payload", True),
        ("'id' in payload and payload.id == 'b'", True),
    ],
)
@pytest.mark.parametrize("value_format", [None, "json"])
def test_rules_compare_numbers_as_they_were_read(
    text: str, true: bool, value_format: str | None
) -> None:
    element = (
        b'{"n": %b, "d": %b, "e": 1e400, "z": 1.10, "l": [1, {"deep": 0.1}], "id": "a", "id": "b"}'
    )
    value = b'{"a": [%b]}' % (element % (LARGE, LONG))
    [sub] = split(value, split="a", keys=("payload.id",), value_format=value_format)
    assert Predicate(text).matches(sub) is true


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a": [{"id": 1, "x": "\xff"}]}', "utf-8"),
        (b'{"a": [{"id": 1, "x": NaN}]}', "malformed"),
        (b'{"a": [{"id": 1, "x": 01}]}', "malformed"),
        (b'{"a": [{"id": 1, "x": "\\ud83d"}]}', "malformed|truncated"),
        (b'\xef\xbb\xbf{"a": [{"id": 1}]}', "malformed"),
        (b'{"a": [{"id": 1}]} x', "malformed"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"value_format": "json"}], ids=str)
def test_what_is_no_json_is_rejected_as_a_whole(data: bytes, why: str, more: Any) -> None:
    with pytest.raises(ValueError, match=why):
        split(data, split="a", keys=("payload.id",), **more)


@pytest.mark.parametrize(
    ("element", "key"),
    [
        (b'{"id": %b}' % LARGE, LARGE.decode()),
        (b'{"id": "017"}', "017"),
        (b'{"id": 1.0}', "1"),
        (b'{"id": 1e2}', "100"),
        (b'{"id": -0}', "0"),
        (b'{"\\u0069d": 7}', "7"),
        (b'{"id": null, "id": 7}', "7"),
        (b'{"id": 1e16}', "10000000000000000"),
    ],
)
def test_a_key_is_text_or_a_whole_number_of_any_size(element: bytes, key: str) -> None:
    subs = split(b'{"a": [{"id": "first"}, %b]}' % element, split="a", keys=("payload.id",))
    assert [sub.key for sub in subs] == ["first", key]


@pytest.mark.parametrize("value", [b"true", b"1.5", b"1e400", b"1e99999999", b"1e28", b"[1]"])
def test_no_other_number_is_a_key(value: bytes) -> None:
    with pytest.raises((TypeError, ValueError), match=r"must be text or a whole number|exponent"):
        split(b'{"a": [{"id": %b}]}' % value, split="a", keys=("payload.id",))


def test_a_number_of_a_handlers_own_is_written_with_all_its_digits() -> None:
    assert as_value({"n": int(LARGE), 2**70: [2**64]}) == (
        b'{"n":%b,"1180591620717411303424":[18446744073709551616]}' % LARGE
    )
    sub = SubMessage("key", {"n": int(LARGE), "d": Decimal("1.10")})
    letter = read_letter(as_record(Sample(sub=sub).letter()))
    assert letter.sub_message().payload == sub.payload


def test_print_shows_it_as_it_was_read(capsys: pytest.CaptureFixture[str]) -> None:
    element = b'{"id" : "x", "n":%b, "d":%b}' % (LARGE, LONG)
    [sub] = split(b'{"a": [%b]}' % element, split="a", keys=("payload.id",))
    asyncio.run(Print().handle(sub))
    assert capsys.readouterr().out == f"orders/0/3[0]\tx\t{element.decode()}\n"


def test_a_letter_is_shown_with_the_digits_that_it_has() -> None:
    [sub] = split(
        b'{"a": [{"id": "x", "n":%b, "d":%b}]}' % (LARGE, LONG), split="a", keys=("payload.id",)
    )
    letter = read_letter(as_record(Sample(sub=sub).letter()))
    assert f'"n":{LARGE.decode()},"d":{LONG.decode()}' in json_text(whole_letter_as_json(letter))
    terminal, out, _ = samples.terminal()
    terminal.present(letter_page(letter))
    assert f'"n": {LARGE.decode()},\n  "d": {LONG.decode()}\n' in out.getvalue()
