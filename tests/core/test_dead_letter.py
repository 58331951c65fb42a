"""Dead letters: what is written of a sub-message that was given up on comes back exactly."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.letters import DEAD, TIME, Sample, as_record, mutated_letters, there_and_back
from drainer.errors import NotADeadLetter
from drainer.letters.overview import whole_letter_as_json
from drainer.message import Barrier, HeadersUnreadable, Message, SubMessage
from drainer.policy.dead_letter import (
    ERROR_CHARACTERS,
    TOPIC_CHARACTERS,
    DeadLetter,
    Letter,
    LetterFilter,
    default_dead_letter_topic,
    read_letter,
)
from drainer.policy.exact_json import Encoding
from drainer.policy.redrive import Redriven, RedriveSettings

# Text has halves of surrogate pairs here: Python's has them too.
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=8)
    | st.binary(max_size=8)
)
KEYS = st.recursive(ATOMS, lambda some: st.lists(some, max_size=3).map(tuple), max_leaves=8)
PAYLOADS = st.recursive(
    ATOMS,
    lambda some: (
        st.lists(some, max_size=4)
        | st.lists(some, max_size=4).map(tuple)
        | st.dictionaries(ATOMS, some, max_size=4)
    ),
    max_leaves=20,
)
HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=5)


class Color(enum.Enum):
    RED = 1


class Size(enum.IntEnum):
    BIG = 7


class DocId(str):
    __slots__ = ()


class Pair(NamedTuple):
    one: int
    two: int


class Tagged(SubMessage):
    __slots__ = ()


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")

    __hash__ = None  # type: ignore[assignment]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def same(one: object, other: object) -> bool:
    """By another way than the code's own: repr tells 1 from True and from 1.0."""
    return repr(one) == repr(other)


@given(KEYS, st.lists(KEYS, min_size=1, max_size=4))
def test_sub_keys_come_back_exactly(key: Any, keys: list[Any]) -> None:
    letter = there_and_back(Sample(key))
    assert letter.why_not_redriven is None
    assert same(letter.sub_message().key, key)
    assert letter.sub_message().keys is None
    several = SubMessage(keys=keys)
    assert same(there_and_back(Sample(sub=several)).sub_message().keys, several.keys)


@given(PAYLOADS)
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
        ((1, 2), "literal", b"(1, 2)"),
        ([{3, 1}], "literal", b"[{1, 3}]"),
        ("half \ud800", "literal", b"'half \\ud800'"),
        (Pair(1, 2), "repr", b"Pair(one=1, two=2)"),
        (DocId("a"), "repr", b"'a'"),
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
    assert letter.why_not_redriven == "its payload can't be written down exactly"
    with pytest.raises(ValueError, match="payload can't be written"):
        letter.sub_message()


@pytest.mark.parametrize("key", [Color.RED, Size.BIG, (DocId("a"),)])
def test_a_sub_key_that_can_not_be_written_exactly_says_so(key: Any) -> None:
    letter = there_and_back(Sample(key))
    assert letter.why_not_redriven == "its sub-key can't be written down exactly"
    assert letter.key_texts == (repr(key),)
    several = there_and_back(Sample(sub=SubMessage(keys=["other", key])))
    assert several.why_not_redriven
    assert several.key_texts == (repr(("other", key)),)


def test_a_class_of_the_handler_s_own_says_that_it_can_not_be_made_again() -> None:
    letter = there_and_back(Sample(sub=Tagged("a")))
    assert letter.why_not_redriven == "it was a Tagged, a class of the handler's own"


def test_a_letter_tells_all_that_was_known() -> None:
    letter = there_and_back(Sample(payload={"a": 1}))
    assert (letter.partition, letter.offset) == (DEAD.partition, 17)
    assert letter.origin.topic == "orders"
    assert letter.id == "0pBNPmLQTQ6kMBJIlPOBWg:2:104:1"
    assert letter.attempts == 3
    assert letter.reason == "failed"
    assert letter.error == "ValueError: no such document"
    assert letter.handler == "shop:Reindex"
    assert letter.drain_id == "20260314-180212-9f3a1c"
    assert letter.time == TIME
    assert letter.redrives == 0


@given(HEADERS, st.none() | st.binary(), st.none() | st.integers(0, 2**50))
def test_the_message_s_own_key_time_and_headers_survive(
    headers: list[tuple[str, bytes | None]], key: bytes | None, timestamp: int | None
) -> None:
    sample = Sample(headers=headers, message_key=key, timestamp=timestamp)
    message = there_and_back(sample).message()
    assert list(message.headers) == headers
    assert (message.key, message.timestamp) == (key, timestamp)
    assert (message.topic, message.partition, message.offset) == ("orders", 2, 104)


def test_headers_of_others_around_ours_are_left_out() -> None:
    written = Sample(headers=[("drainer.format", b"mine"), ("trace", b"1")]).letter()
    around = (("mirrored-by", b"m"), *written.headers, ("drainer.headers", b"9"))
    letter = read_letter(as_record(DeadLetter(written.key, written.value, around)))
    assert letter.headers == (("drainer.format", b"mine"), ("trace", b"1"))


@pytest.mark.parametrize("value", [None, b"", b"\xff{"])
def test_the_whole_message_can_be_made_again_when_it_was_the_sub_message(
    value: bytes | None,
) -> None:
    letter = there_and_back(Sample(payload=value, value=value))
    assert letter.whole
    assert letter.message().value == value
    part = there_and_back(Sample(payload=b"a part", value=b"the value"))
    assert not part.whole
    assert part.message().value is None


@pytest.mark.parametrize(
    ("sub", "key"),
    [
        (SubMessage("naïve"), "naïve".encode()),
        (SubMessage(None), b"None"),
        (SubMessage(keys=["b", "a"]), b"b"),
        (SubMessage("half \ud800"), b"'half \\ud800'"),
        (Barrier(), b"barrier"),
    ],
)
def test_the_key_of_the_record_is_the_sub_key_and_never_null(sub: SubMessage, key: bytes) -> None:
    assert Sample(sub=sub).letter().key == key


def test_a_long_error_is_cut_and_put_on_one_line() -> None:
    letter = there_and_back(Sample(error=ValueError("one\n\ttwo " + "x" * 5000)))
    assert letter.error_text is not None
    assert letter.error_text.startswith("one two xxx")
    assert len(letter.error_text) == ERROR_CHARACTERS


def test_an_error_without_words_or_with_broken_ones_is_told_by_its_type() -> None:
    assert there_and_back(Sample(error=TimeoutError())).error == "TimeoutError"
    assert there_and_back(Sample(error=Unprintable())).error == "Unprintable"
    assert "\\ud800" in there_and_back(Sample(error=ValueError("half \ud800"))).error


def test_a_letter_without_its_payload_says_that_it_was_left_out() -> None:
    full = Sample(payload={"a": "b"}, headers=[("trace", b"1")]).letter()
    letter = read_letter(as_record(full.without_payload()))
    assert letter.payload_encoding == Encoding.LEFT_OUT
    assert letter.payload is None
    assert letter.why_not_redriven == "its payload was too large for the dead-letter topic"
    assert letter.headers == (("trace", b"1"),)
    assert full.without_payload().key == full.key


def test_a_redriven_letter_tells_of_the_first_place_and_counts() -> None:
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


def changed(name: str, value: bytes | None) -> Message:
    written = Sample(payload={"a": 1}, headers=[("trace", b"1")]).letter()
    headers = [(n, value if n == name else v) for n, v in written.headers]
    return Message(DEAD, 17, written.key, written.value, 1, headers)


def test_a_record_of_somebody_else_is_no_dead_letter() -> None:
    with pytest.raises(NotADeadLetter, match=r"indexer\.dead/3/17 is not a dead letter") as told:
        read_letter(Message(DEAD, 17, b"key", b"value", 1, [("trace", b"1")]))
    assert told.value.hint


def test_a_later_format_is_not_guessed_at() -> None:
    with pytest.raises(NotADeadLetter, match="drainer-dead-letter/2"):
        read_letter(changed("drainer.format", b"drainer-dead-letter/2"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("drainer.offset", b"x"),
        ("drainer.sub-key", b"open('f')"),
        ("drainer.payload-encoding", b"pickle"),
        ("drainer.headers", b"2"),
        ("drainer.offset", "\u0661\u0662".encode()),
        ("drainer.sub-key", b"(" * 3000),
        ("drainer.sub-keys", b"('a', 'a')"),
        ("drainer.kind", b"barrier"),
        ("drainer.group", None),
    ],
)
def test_a_damaged_letter_is_told_with_its_place(name: str, value: bytes | None) -> None:
    with pytest.raises(NotADeadLetter, match="3/17 is damaged"):
        read_letter(changed(name, value))


def test_a_letter_that_was_cut_short_is_damaged() -> None:
    written = Sample().letter()
    for kept in range(1, len(written.headers)):
        with pytest.raises(NotADeadLetter, match="damaged"):
            read_letter(Message(DEAD, 17, b"", written.value, 1, written.headers[:kept]))


@given(mutated_letters())
def test_whatever_stands_in_a_record_it_is_a_letter_or_left_alone(message: Message) -> None:
    try:
        letter = read_letter(message)
    except NotADeadLetter:
        return
    orjson.dumps(whole_letter_as_json(letter))
    (sub,) = RedriveSettings().split(message)
    if isinstance(sub, Redriven):
        again = read_letter(as_record(Sample(sub=sub.begin()).letter(former=letter)))
        assert again.redrives == letter.redrives + 1
        assert (again.id, again.from_) == (letter.id, letter.from_)
        assert same(again.sub_message().key, sub.original.key)


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


LETTER = there_and_back(Sample(("acme", 7), error=ConnectionError("Connection REFUSED by db-2")))


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (LetterFilter(), True),
        (LetterFilter(reasons=("limit",)), False),
        (LetterFilter(sub_keys=("('acme', 7)",)), True),
        (LetterFilter(errors=("timeout", "db-2")), True),
        (LetterFilter(("failed",), ("('acme', 7)",), ("timeout",)), False),
        (LetterFilter(("failed",), ("('acme', 7)",), ("refused",)), True),
    ],
)
def test_a_filter_lets_through_what_fits_each_kind(wanted: LetterFilter, matches: bool) -> None:
    assert wanted.matches(LETTER) is matches


def test_a_sub_key_is_found_as_it_is_typed_and_as_python_has_it() -> None:
    def found(key: Any, *texts: str) -> list[bool]:
        letter: Letter = there_and_back(Sample(key))
        return [LetterFilter(sub_keys=(text,)).matches(letter) for text in texts]

    assert found("doc-17", "doc-17", "'doc-17'", "doc-1") == [True, True, False]
    assert found(b"doc-17", "doc-17", "b'doc-17'") == [True, True]
    assert found(17, "17") == [True]
    assert found(None, "None") == [True]
    several = there_and_back(Sample(sub=SubMessage(keys=["a", "b"])))
    assert LetterFilter(sub_keys=("b",)).matches(several)
    assert not LetterFilter(sub_keys=("None",)).matches(several)
    assert not LetterFilter(sub_keys=("None",)).matches(there_and_back(Sample(sub=Barrier())))


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
