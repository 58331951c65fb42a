"""Dead letters: what is written of a sub-message that was given up on comes back exactly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.letters import DEAD, TIME, Sample, as_record, mutated_letters, there_and_back
from drainer.errors import NotADeadLetter
from drainer.letters.overview import whole_letter_as_json
from drainer.message import Barrier, HeadersUnreadable, Message, SubMessage
from drainer.model.terms import LetterFilter, RedriveSettings
from drainer.policy.dead_letter import (
    HEADER,
    TOPIC_CHARACTERS,
    DeadLetter,
    default_dead_letter_topic,
    read_letter,
)
from drainer.policy.exact_json import Encoding
from drainer.policy.redrive import Redriven, split_letter
from drainer.text.escape import json_text
from drainer.text.mask import ERROR_CHARACTERS

# Text has halves of surrogate pairs here: Python's has them too.
KEY_ATOMS = st.none() | st.integers() | st.text(st.characters(), max_size=8) | st.binary(max_size=8)
ATOMS = KEY_ATOMS | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.recursive(KEY_ATOMS, lambda some: st.lists(some, max_size=3).map(tuple), max_leaves=8)
PAYLOADS = st.recursive(
    ATOMS,
    lambda some: (
        st.lists(some, max_size=4)
        | st.lists(some, max_size=4).map(tuple)
        | st.dictionaries(ATOMS, some, max_size=4)
    ),
    max_leaves=20,
)
NAMES = st.text(max_size=4).filter(lambda name: not name.startswith("$"))
OF_AVRO = st.recursive(
    st.datetimes(timezones=st.just(UTC) | st.none()).map(lambda at: at.replace(fold=0))
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.times().map(lambda at: at.replace(fold=0))
    | st.uuids()
    | st.binary(max_size=8)
    | st.text(max_size=8),
    lambda some: st.lists(some, max_size=4) | st.dictionaries(NAMES, some, max_size=4),
)


class DocId(str):
    __slots__ = ()


class Digest(bytes):
    __slots__ = ()


class Pair(NamedTuple):
    one: int
    two: int


class Tagged(SubMessage):
    __slots__ = ()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")

    __hash__ = None  # type: ignore[assignment]


def same(one: object, other: object) -> bool:
    """By another way than the code's own: repr distinguishes 1 from True and from 1.0."""
    return repr(one) == repr(other)


@given(KEYS, st.lists(KEYS, min_size=1, max_size=4))
def test_sub_keys_come_back_exactly(key: Any, keys: list[Any]) -> None:
    letter = there_and_back(Sample(key))
    assert letter.why_not_redriven is None
    assert same(letter.sub_message().key, key)
    assert letter.sub_message().keys is None
    several = SubMessage(keys=keys)
    assert same(there_and_back(Sample(sub=several)).sub_message().keys, several.keys)


@settings(max_examples=settings().max_examples // 2)
@given(PAYLOADS | OF_AVRO)
def test_a_payload_comes_back_exactly(payload: Any) -> None:
    letter = there_and_back(Sample(payload=payload))
    assert letter.why_not_redriven is None
    assert same(letter.sub_message().payload, payload)


@pytest.mark.parametrize(
    ("payload", "encoding", "value"),
    [
        (None, "null", None),
        (b"\xff\x00", "bytes", b"\xff\x00"),
        ("naïve", "text", "naïve".encode()),
        ({"a": [1, 2.5, None, True]}, "json", b'{"a":[1,2.5,null,true]}'),
        ({"at": date(2026, 11, 27)}, "typed", b'{"at":{"$date":"2026-11-27"}}'),
        ([Decimal("1.10"), {"$a": 1}], "repr", b"[Decimal('1.10'), {'$a': 1}]"),
        (
            datetime(2026, 1, 2, tzinfo=ZoneInfo("UTC")),
            "repr",
            b"datetime.datetime(2026, 1, 2, 0, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC'))",
        ),
        ((1, 2), "literal", b"(1, 2)"),
        ([{3, 1}], "literal", b"[{1, 3}]"),
        ("half \ud800", "literal", b"'half \\ud800'"),
        (Pair(1, 2), "repr", b"Pair(one=1, two=2)"),
        (DocId("a"), "repr", b"'a'"),
        ([{"of": Digest(b"a")}], "repr", b"[{'of': b'a'}]"),
        (Unspeakable(), "repr", b"<Unspeakable>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_payload_is_written_in_the_plainest_way_that_gives_it_back(
    payload: Any, encoding: str, value: bytes | None
) -> None:
    written = Sample(payload=payload).letter()
    assert written.value == value
    letter = read_letter(as_record(written))
    assert letter.payload_encoding == encoding
    if encoding != "repr":
        assert same(letter.sub_message().payload, payload)
        return
    assert letter.payload == (value or b"").decode()
    assert letter.why_not_redriven == "drainer can't write its payload exactly"
    with pytest.raises(ValueError, match="can't write its payload"):
        letter.sub_message()


HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=5)
VALUES = st.none() | st.binary(max_size=9)


@settings(max_examples=settings().max_examples // 2)
@given(HEADERS, VALUES, st.none() | st.integers(0, 2**50), VALUES, st.booleans())
def test_a_letter_has_the_message_and_all_that_is_known_of_its_failure(
    headers: list[tuple[str, bytes | None]],
    key: bytes | None,
    timestamp: int | None,
    value: bytes | None,
    whole: bool,
) -> None:
    payload = value if whole else {"a": "part"}
    sample = Sample("k", payload, value, message_key=key, headers=headers, timestamp=timestamp)
    written = sample.letter()
    around = (("mirrored-by", b"m"), *written.headers, (HEADER, b"{}"))
    letter = read_letter(as_record(DeadLetter(written.key, written.value, around)))
    message = letter.message()
    assert list(message.headers) == headers, "those of others around ours are left out"
    assert (message.key, message.timestamp) == (key, timestamp)
    assert (message.topic, message.partition, message.offset) == ("orders", 2, 104)
    assert (letter.whole, message.value) == (whole, value if whole else None)
    assert (letter.partition, letter.offset) == (DEAD.partition, 17)
    assert letter.id == "0pBNPmLQTQ6kMBJIlPOBWg:2:104:1"
    assert (letter.attempts, letter.reason, letter.redrives) == (3, "failed", 0)
    assert letter.error == "ValueError: no such document"
    assert letter.from_ == ("orders", "indexer", "shop:Reindex")
    assert (letter.drain_id, letter.time) == ("20260314-180212-9f3a1c", TIME)
    full = read_letter(as_record(written.without_payload()))
    assert (full.payload_encoding, full.payload) == (Encoding.LEFT_OUT, None)
    assert full.lacks_message
    assert full.why_not_redriven is None, "its message may still be there"
    assert list(full.headers) == headers


@pytest.mark.parametrize(
    ("sub", "key", "why"),
    [
        (SubMessage("naïve"), "naïve".encode(), None),
        (SubMessage(None), b"None", None),
        (SubMessage(keys=["b", "a"]), b"b", None),
        (SubMessage("half \ud800"), b"'half \\ud800'", None),
        (Barrier(), b"barrier", None),
        (SubMessage((DocId("a"),)), b"('a',)", "drainer can't write its sub-key exactly"),
        (Tagged("a"), b"a", "it was a Tagged, a class of the handler"),
    ],
)
def test_a_record_has_the_sub_key_as_key_and_shows_what_can_not_be_made_again(
    sub: SubMessage, key: bytes, why: str | None
) -> None:
    written = Sample(sub=sub).letter()
    assert written.key == key
    assert read_letter(as_record(written)).why_not_redriven == why


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError(), "TimeoutError"),
        (Unprintable(), "Unprintable: its text is not available (RuntimeError)"),
        (ValueError("half \ud800"), "ValueError: half \\ud800"),
        (
            ValueError("one\n\ttwo " + "x" * 5000),
            "ValueError: one two " + "x" * (ERROR_CHARACTERS - 9) + "…",
        ),
    ],
)
def test_an_error_is_one_line_of_some_length(error: Exception, text: str) -> None:
    assert there_and_back(Sample(error=error)).error == text


def test_a_redriven_letter_names_the_first_place_and_counts() -> None:
    first = there_and_back(Sample(payload=b"v", value=b"v", headers=[("trace", b"1")]))
    sub = first.sub_message()
    sub.message = Message(DEAD, 17, b"doc-17", b"v")  # where a redrive reads it
    sub.index = 0
    again = read_letter(as_record(Sample(sub=sub, reason="limit").letter(former=first), 99))
    assert again.redrives == 1
    assert again.id == first.id
    assert again.from_ == ("orders", "indexer", "shop:Reindex")
    assert again.whole
    assert again.headers == (("trace", b"1"),)
    assert (again.message_key, again.timestamp) == (first.message_key, first.timestamp)
    assert again.reason == "limit"


# What is none, or damaged.


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("trace", "3/17 is not a dead letter"),
        ("drainer-dead-letter/9", "3/17: dead letter format 9 is newer"),
    ],
)
def test_a_record_of_others_or_of_another_format_is_no_dead_letter(
    header: str, reason: str
) -> None:
    with pytest.raises(NotADeadLetter, match=reason) as reported:
        read_letter(Message(DEAD, 17, b"key", b"value", 1, [(header, b"{}")]))
    assert reported.value.hint


@pytest.mark.parametrize(
    "fields",
    [
        {"message_offset": "x"},
        {"sub_key": "open('f')"},
        {"sub_key": "('a', 'a')", "several": True},
        {"payload_encoding": "pickle"},
        {"payload_encoding": "raw"},  # of a part
        {"payload_encoding": "left-out", "drain_id": ""},  # its original would be looked for
        {"topic": "", "payload_encoding": "left-out"},  # the client raises for it
        {"topic": "a\0b"},
        {"message_headers": 2},
        {"attempts": 2**63},
        {"timestamp": -(2**63)},
    ],
    ids=str,
)
def test_a_damaged_letter_is_reported_with_its_place(fields: dict[str, object]) -> None:
    written = Sample(payload={"a": 1}, headers=[("trace", b"1")]).letter()
    (name, reported), *rest = written.headers
    header = orjson.dumps(orjson.loads(reported or b"") | fields)
    with pytest.raises(NotADeadLetter, match="3/17 is damaged"):
        read_letter(Message(DEAD, 17, written.key, written.value, 1, [(name, header), *rest]))


def test_a_letter_of_another_python_is_whole() -> None:
    """Python's version decides which characters ``repr`` shows as they are."""
    written = Sample("\N{FOX FACE} ü \x85").letter()
    (name, reported), *rest = written.headers
    header = orjson.loads(reported or b"") | {"sub_key": ascii("\N{FOX FACE} ü \x85")}
    assert header != orjson.loads(reported or b"")
    letter = read_letter(
        Message(DEAD, 17, written.key, written.value, 1, [(name, orjson.dumps(header)), *rest])
    )
    assert letter.key == "\N{FOX FACE} ü \x85"


@given(mutated_letters())
def test_whatever_stands_in_a_record_it_is_a_letter_or_left_alone(message: Message) -> None:
    try:
        letter = read_letter(message)
    except NotADeadLetter:
        return
    json_text(whole_letter_as_json(letter))
    (sub,) = split_letter(RedriveSettings(), message)
    if isinstance(sub, Redriven):
        sample = Sample(sub=sub.begin(), attempts=letter.attempts + 1)
        again = read_letter(as_record(sample.letter(former=letter).without_payload()))
        assert again.redrives == letter.redrives + 1
        assert (again.id, again.from_) == (letter.id, letter.from_)
        # A record may name a key for what it calls a barrier, which has none.
        assert isinstance(sub.original, Barrier) or same(again.key, sub.original.key)


def test_headers_that_the_client_can_not_read_are_no_letter() -> None:
    class Unreadable(Message):
        @property
        def headers(self) -> Sequence[tuple[str, bytes | None]]:
            raise HeadersUnreadable("a name is not UTF-8")

    record = Unreadable(DEAD, 17, b"key", b"value")
    with pytest.raises(NotADeadLetter, match="not UTF-8"):
        read_letter(record)
    sub = SubMessage("doc-17", "a payload")
    sub.message, sub.index = record, 0
    assert there_and_back(Sample(sub=sub)).headers == ()


# Filters and names.


@pytest.mark.parametrize(
    ("key", "wanted", "matches"),
    [
        (("acme", 7), LetterFilter(), True),
        (("acme", 7), LetterFilter(reasons=("limit",)), False),
        (("acme", 7), LetterFilter(errors=("timeout", "db-2")), True),
        (("acme", 7), LetterFilter(("failed",), ("('acme', 7)",), ("timeout",)), False),
        (("acme", 7), LetterFilter(("failed",), ("('acme', 7)",), ("refused",)), True),
        ("doc-17", LetterFilter(sources=("orders", "shop:Reindex")), True),
        ("doc-17", LetterFilter(sources=("orders", "billing")), False),
        ("doc-17", LetterFilter(sub_keys=("doc-17",)), True),
        ("doc-17", LetterFilter(sub_keys=("doc-1",)), False),
        (b"doc-17", LetterFilter(sub_keys=("doc-17",)), True),
        (None, LetterFilter(sub_keys=("None",)), True),
        (SubMessage(keys=["a", "b"]), LetterFilter(sub_keys=("b",)), True),
        (Barrier(), LetterFilter(sub_keys=("None",)), False),
    ],
)
def test_a_filter_lets_through_what_fits_each_kind(
    key: Any, wanted: LetterFilter, matches: bool
) -> None:
    sub = key if isinstance(key, SubMessage) else SubMessage(key)
    sample = Sample(sub=sub, error=ConnectionError("Connection REFUSED by db-2"))
    assert there_and_back(sample).matches(wanted) is matches


@given(
    st.text("abc._-", min_size=1, max_size=TOPIC_CHARACTERS),
    st.text(max_size=300) | st.text("abc._-/ ", min_size=1, max_size=300),
)
def test_kafka_takes_the_name_of_any_default_topic(topic: str, group: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", default_dead_letter_topic(topic, group))


NAMED = st.tuples(st.text("ab._", min_size=1, max_size=4), st.text("ab._-/", max_size=5))


@given(NAMED, NAMED)
@example(("orders", "a/b"), ("orders", "a-b"))
@example(("orders.a", "b"), ("orders", "a.b"))
@example(("orders", "a"), ("orders", "a."))
def test_no_two_drains_have_one_default_topic(one: tuple[str, str], other: tuple[str, str]) -> None:
    names = {default_dead_letter_topic(*one), default_dead_letter_topic(*other)}
    assert len(names) == len({one, other})
