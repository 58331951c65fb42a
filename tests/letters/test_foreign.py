"""Letters of other tools are read as messages that a handler's ``split`` gets again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.letters import Sample, as_record
from drainer.errors import NotADeadLetter, UsageError
from drainer.letters.foreign import SCHEMES, Scheme, reader
from drainer.model.terms import LetterFilter, RedriveSettings
from drainer.policy.dead_letter import DeadLetter, Letter, read_letter
from drainer.policy.redrive import NOT_MATCHED, LeftAlone, Redriven, split_letter
from letters.foreign_letters import Record, recorded

READ = reader({})
NAMES = {"topic": "x-topic", "partition": "x-partition", "offset": "x-offset"}


def read(tool: str, number: int = 0) -> Letter:
    return READ(recorded(tool)[number].message())


@pytest.mark.parametrize(
    ("tool", "number", "expected"),
    [
        (
            "spring",
            0,
            ("orders:0:300:0", "indexer", "IllegalStateException: Listener failed; boom"),
        ),
        # Of headers that spring appended, the first is the source.
        ("spring", 1, ("orders:0:300:0", "indexer", None)),
        # Of headers that smallrye put before others, the last is the source.
        ("smallrye", 0, ("orders:0:300:0", None, None)),
        ("smallrye", 1, ("orders:0:300:0", None, None)),
        ("streams", 1, ("sin:0:1:0", None, "IllegalStateException: boom")),
        ("connect", 1, ("csrc:0:1:0", "filesink", None)),
    ],
)
def test_what_a_tool_recorded_names_place_group_and_cause(
    tool: str, number: int, expected: tuple[str, str | None, str | None]
) -> None:
    letter = read(tool, number)
    assert letter.reason == tool
    for found, known in zip((letter.id, letter.group, letter.error), expected, strict=True):
        assert known in (None, found)


def test_the_message_its_headers_and_its_time_are_kept() -> None:
    spring, smallrye, connect = read("spring"), read("smallrye"), read("connect", 1)
    assert (spring.timestamp, spring.headers) == (None, ())
    assert spring.message().value == b'{"documents":[{"id":1}]}'
    assert (smallrye.error_type, smallrye.headers) == ("RuntimeException", (("trace", b"t"),))
    assert (connect.error_type, connect.headers) == ("DataException", (("trace", b"t2"),))
    assert (connect.message_key, connect.payload) == (b"k2", b"not json")
    assert connect.timestamp == recorded("connect")[1].timestamp


def test_names_of_a_user_come_before_those_of_tools() -> None:
    headers = [*recorded("spring")[0].headers, ("x-topic", b"mine"), ("x-partition", b"2")]
    record = Record(b"k", None, 1, [*headers, ("x-offset", b"9"), ("why", b"Bad")])
    letter = reader({**NAMES, "error": "why"})(record.message())
    assert (letter.id, letter.error, letter.reason) == ("mine:2:9:0", "Bad", "other")
    assert letter.message().value is None


@pytest.mark.parametrize(
    ("headers", "error"),
    [({"topic": "x"}, "lacks partition, offset"), ({**NAMES, "key": "k"}, "unknown field 'key'")],
)
def test_names_that_make_no_sense_are_refused(headers: dict[str, str], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        reader(headers)


def test_the_handlers_split_gets_the_message_and_a_new_letter_names_the_source() -> None:
    message = recorded("spring")[0].message(7)
    [sub] = split_letter(RedriveSettings(), message, read=READ)
    assert isinstance(sub, Redriven)
    original = sub.begin()
    assert (original.id, original.payload) == ("orders:0:300:0", message.value)
    again = read_letter(as_record(_died(sub)))
    assert (again.from_, again.redrives, again.id) == (("orders", "indexer", ""), 1, sub.letter.id)


def test_a_letter_that_the_filter_leaves_out_stays_though_split_now_makes_nothing_of_it() -> None:
    record, none = recorded("spring")[0].message(7), lambda message: ()
    wanted = RedriveSettings(letters=LetterFilter(sub_keys=("no such key",)))
    [alone] = split_letter(wanted, record, none, READ)
    assert isinstance(alone, LeftAlone)
    assert alone.payload == NOT_MATCHED
    assert not [*split_letter(RedriveSettings(), record, none, READ)], "this run finishes it"


def test_a_letter_without_payload_whose_tool_named_no_place_is_not_read_from_elsewhere() -> None:
    headers = [("topic_poisoned", b"orders"), ("reason_poisoned", b"boom")]
    [sub] = split_letter(RedriveSettings(), Record(b"k", b"v", 7, headers).message(), read=READ)
    assert isinstance(sub, Redriven)
    record = as_record(_died(sub).without_payload())
    assert not READ(record).lacks_message
    [alone] = split_letter(RedriveSettings(), record, read=READ)
    assert alone.payload == "its payload did not fit: only the letter that was redriven has it"


def _died(sub: Redriven) -> DeadLetter:
    return Sample(sub=sub.original).letter(sub.letter)


def test_a_letter_of_drainers_stays_one_whatever_headers_its_message_had() -> None:
    letter = Sample(headers=recorded("spring")[0].headers).letter()
    assert READ(as_record(letter)).reason == "failed"
    damaged = replace(letter, headers=((letter.headers[0][0], b"{"), *letter.headers[1:]))
    with pytest.raises(NotADeadLetter, match="damaged"):
        READ(as_record(damaged))


@given(
    st.sampled_from(SCHEMES),
    st.lists(st.tuples(st.integers(0, 6), st.binary(max_size=20) | st.none()), max_size=8),
    st.none() | st.binary(max_size=5),
)
def test_no_header_breaks_the_reading(
    scheme: Scheme, made: list[tuple[int, bytes | None]], value: bytes | None
) -> None:
    names = [scheme.topic, scheme.partition, scheme.offset, scheme.group, scheme.text]
    names += [scheme.timestamp, *scheme.error, "drainer.redrives", "a", "b"]
    record = Record(b"k", value, 1, [(names[n], text) for n, text in made])
    for sub in split_letter(RedriveSettings(), record.message(), read=READ):
        if isinstance(sub, Redriven):
            assert read_letter(as_record(_died(sub))).id == sub.letter.id


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            {
                "x-dlq-exception-class": b"java.lang.IllegalStateException",
                "x-dlq-exception-message": b"boom",
                "x-dlq-source-topic": b"orders",
                "x-dlq-source-partition": b"2",
                "x-dlq-source-offset": b"42",
                "x-dlq-source-timestamp": b"1700000000000",
            },
            ("kpipe", "orders:2:42:0", "IllegalStateException: boom", "", 1_700_000_000_000),
        ),
        (
            {
                "source_topic": b"orders",
                "source_partition": b"2",
                "source_offset": b"42",
                "source_consumer_group": b"app",
                "source_attempts": b"3",
                "source_trace_id": b"id",
            },
            ("karafka", "orders:2:42:0", "", "app", 7),
        ),
        (
            {"original_topic": b"orders", "original_partition": b"2", "original_offset": b"42"},
            ("karafka", "orders:2:42:0", "", "", 7),
        ),
        (
            {
                "reason_poisoned": b"boom",
                "topic_poisoned": b"orders",
                "handler_poisoned": b"h",
                "subscriber_poisoned": b"kafka.Subscriber",
            },
            ("watermill", "letter:dlt:0:0:0", "boom", "", 7),
        ),
        (
            {
                "__dlq.errors.topic": b"orders",
                "__dlq.errors.partition": b"2",
                "__dlq.errors.offset": b"42",
                "__dlq.errors.group": b"g",
            },
            ("share", "orders:2:42:0", "", "g", 7),
        ),
    ],
)
def test_tools_are_known_by_the_headers_of_their_sources(
    headers: dict[str, bytes], expected: tuple[str, str, str, str, int]
) -> None:
    record = Record(b"k", b"v", 7, [("trace", b"t"), *headers.items()])
    letter = READ(record.message())
    found = (letter.reason, letter.id, letter.error, letter.group, letter.timestamp)
    assert found == expected
    assert (letter.topic, letter.headers) == ("orders", (("trace", b"t"),))
    assert letter.place == ("orders" if letter.reason == "watermill" else "orders/2/42")


def test_a_header_without_a_name_is_the_messages() -> None:
    place = [(f"__streams.errors.{name}", b"1") for name in ("topic", "partition", "offset")]
    letter = READ(Record(b"k", b"v", 7, [("", b"5"), *place]).message())
    assert (letter.timestamp, letter.group, letter.headers) == (7, "", (("", b"5"),))


def test_letters_that_name_no_topic_are_read_when_it_is_given() -> None:
    headers = [("original_partition", b"2"), ("original_offset", b"42")]
    message = Record(b"k", b"v", 7, headers).message()
    with pytest.raises(NotADeadLetter) as caught:
        READ(message)
    assert caught.value.hint == "Name it with --letter-header topic==TOPIC."
    [alone] = split_letter(RedriveSettings(), message, read=READ)
    assert alone.payload == "it names no topic: add --letter-header topic==TOPIC"

    letter = reader({"topic": "=orders"})(message)
    assert (letter.reason, letter.id, letter.headers) == ("arroyo", "orders:2:42:0", ())
    own = {"topic": "=orders", "partition": "original_partition", "offset": "original_offset"}
    assert (reader(own)(message).reason, reader(own)(message).id) == ("other", "orders:2:42:0")
    spring = recorded("spring")[0]
    assert reader({"topic": "=other"})(spring.message()).topic != "other"
    with pytest.raises(UsageError, match="names the topic 'a b', which Kafka refuses"):
        reader({"topic": "=a b", "partition": "p", "offset": "o"})
