"""What goes into a chunk comes out in another process, and an error names what can't be sent."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_plan
from core.letters import mutated_letters
from drainer.errors import Refused, SplitFailed, ValueNotShipped
from drainer.loading.loader import load_handler
from drainer.message import (
    Barrier,
    Message,
    Origin,
    ShippedMessage,
    SubMessage,
)
from drainer.model.predicate import Predicate
from drainer.model.progress import checksum_keys
from drainer.model.sub_messages import identify
from drainer.model.terms import PayloadSettings, RedriveSettings
from drainer.policy.redrive import Redriven, split_letter
from drainer.spark.task import chunk
from drainer.spark.task.chunk import ChunkWriter, decode_chunk, why_whole
from drainer.spark.task.rows import Row
from drainer.text.raw_json import raw_json

ORIGIN = Origin("orders", "id", 7)


class Marked(SubMessage):
    """A handler's own kind, with a field of its own."""

    __slots__ = ("mark",)

    def __init__(self, key: Hashable, payload: Any, mark: Any) -> None:
        super().__init__(key, payload, keys=None)
        self.mark = mark


class Loose(SubMessage):
    """A kind without slots, which may have any fields."""


def message(offset: int = 0, value: bytes | None = b"v", **facts: Any) -> Message:
    key, timestamp = facts.get("key", b"k"), facts.get("timestamp")
    return Message(ORIGIN, offset, key, value, timestamp, facts.get("headers", ()))


def rows_of(
    split: Iterable[tuple[Message, Sequence[SubMessage]]],
    shards: int = 1,
    **settings: Any,
) -> list[Row]:
    """Return the chunks of messages whose sub-messages are in the shards of their indexes."""
    writer = ChunkWriter(ORIGIN, **settings)
    rows: list[Row] = []
    for each, subs in split:
        keys = identify(each, subs)
        writer.add(each, subs, keys, [index % shards for index in range(len(subs))])
        rows += writer.full()
    return [*rows, *writer.flush()]


def shipped(
    each: Message, *subs: SubMessage, origin: Origin = ORIGIN, **settings: Any
) -> ShippedMessage:
    """Return a message as the other process gets it."""
    [row] = rows_of([(each, subs)], **settings)
    [found] = decode_chunk(row.body, origin)
    return found


# --- what goes into a chunk comes out ---

ATOMS = st.none() | st.text() | st.binary() | st.integers(-(2**100), 2**100)
KEYS = ATOMS | st.tuples(ATOMS, ATOMS)
PAYLOADS = st.recursive(
    ATOMS | st.floats(allow_nan=False) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
HEADERS = st.lists(st.tuples(st.text(), st.none() | st.binary()), max_size=2)


@st.composite
def any_sub(draw: st.DrawFn) -> SubMessage:
    payload = draw(PAYLOADS)
    match draw(st.integers(0, 5)):
        case 0:
            return Barrier(payload)
        case 1:
            return SubMessage(payload=payload, keys=draw(st.lists(KEYS, min_size=1, max_size=3)))
        case 2:
            return SubMessage(draw(KEYS), payload, keys=[draw(KEYS)])
        case 3:
            return Marked(draw(KEYS), payload, draw(PAYLOADS))
        case 4:
            loose = Loose(draw(KEYS), payload)
            vars(loose)["mark"] = draw(PAYLOADS)
            return loose
        case _:
            return SubMessage(draw(KEYS), payload)


@st.composite
def any_split(draw: st.DrawFn) -> list[tuple[Message, list[SubMessage]]]:
    """Messages with holes between their offsets, and the sub-messages that they split into."""
    offset = 0
    split = []
    for subs in draw(st.lists(st.lists(any_sub(), max_size=6), max_size=6)):
        offset += draw(st.integers(1, 5))
        each = message(
            offset,
            draw(st.none() | st.binary()),
            key=draw(st.none() | st.binary(max_size=3)),
            timestamp=draw(st.none() | st.integers(0, 2**45)),
            headers=draw(HEADERS),
        )
        split.append((each, subs))
    return split


def facts_of(sub: SubMessage) -> tuple[object, ...]:
    mark = getattr(sub, "mark", None)
    return sub.id, type(sub), sub.key, sub.keys, sub.payload, sub.attempt, mark


@settings(max_examples=settings().max_examples // 2)
@given(any_split(), st.integers(1, 4), st.booleans(), st.sampled_from([1, 3, 1_000]))
def test_what_goes_into_a_chunk_comes_out(
    split: list[tuple[Message, list[SubMessage]]], shards: int, whole: bool, subs_most: int
) -> None:
    sent: dict[int, list[Any]] = defaultdict(list)
    of_message = {}
    for each, subs in split:
        keys = identify(each, subs)
        sums = len(subs), checksum_keys(keys)
        headers = list(each.headers)
        of_message[each.offset] = each.key, each.value, each.timestamp, headers, sums
        for sub in subs:
            sent[sub.index % shards].append(facts_of(sub))
            sub.message = None  # type: ignore[assignment]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk, "CHUNK_SUBS", subs_most)
        rows = rows_of(split, shards, whole_messages=whole)

    came: dict[int, list[Any]] = defaultdict(list)
    reached: dict[int, int] = defaultdict(int)
    for shard, partition, first, count, _, body in rows:
        assert partition == ORIGIN.partition
        messages = list(decode_chunk(body, ORIGIN))
        assert first == messages[0].offset > reached[shard] - 1
        reached[shard] = messages[-1].offset + 1
        assert count == sum(len(each.subs) for each in messages)
        for each in messages:
            key, value, timestamp, headers, sums = of_message[each.offset]
            assert (each.key, each.timestamp, list(each.headers)) == (key, timestamp, headers)
            assert (len(each.sub_keys), checksum_keys(each.sub_keys)) == sums
            assert not whole or each.value == value
            assert all(sub.message is each for sub in each.subs)
            came[shard] += map(facts_of, each.subs)
    assert came == sent


@settings(max_examples=settings().max_examples // 2)
@given(mutated_letters())
def test_a_dead_letter_comes_out_as_what_it_was(record: Message) -> None:
    [sub] = split_letter(RedriveSettings(), record)
    row = rows_of([(record, [sub])])[0]
    [found] = split_letter(RedriveSettings(), record)

    [came] = next(decode_chunk(row.body, record.origin)).subs

    assert (type(came), came.key, came.keys) == (type(found), found.key, found.keys)
    assert came.payload == found.payload
    if isinstance(found, Redriven):
        assert isinstance(came, Redriven)
        assert came.letter == found.letter
        reported, meant = (
            (each.id, type(each), each.key, each.keys, each.payload, each.attempt)
            for each in (came.begin(), found.begin())
        )
        assert reported == meant
        assert came.original.message.value == found.original.message.value


def test_the_default_split_needs_no_more_than_the_messages() -> None:
    writer = ChunkWriter(ORIGIN)
    for offset, value in [(3, b"a"), (5, None)]:
        writer.add_whole(0, message(offset, value))

    [(shard, partition, first, count, _, body)] = writer.flush()

    assert (shard, partition, first, count) == (0, 7, 3, 2)
    assert [(m.offset, m.key, m.value) for m in decode_chunk(body, ORIGIN)] == [
        (3, b"k", b"a"),
        (5, b"k", None),
    ]


@pytest.mark.parametrize(("made", "by"), [(200, 300), (10, 30)])
def test_open_chunks_are_bounded_however_much_split_makes_of_a_message(
    made: int, by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each sub-message is in a shard of its own.
    monkeypatch.setattr(chunk, "OPEN_MEMORY_BYTES", 100_000)
    writer = ChunkWriter(ORIGIN)
    sent = 0

    for offset in range(30):
        each = message(offset)
        subs = [SubMessage(number, bytes([number % 256]) * by) for number in range(made)]
        writer.add(each, subs, identify(each, subs), range(made))
        sent += sum(row.subs for row in writer.full())

    assert (offset + 1) * made - sent <= 100_000 // by + made


# --- what does not travel ---


def test_a_value_that_did_not_travel_is_an_error() -> None:
    found = shipped(message(5, b"event"), SubMessage("a", 1), SubMessage("b", 2))

    with pytest.raises(ValueNotShipped, match="orders/7/5") as raised:
        _ = found.value

    assert "whole_messages" in str(raised.value.hint)


def test_a_value_travels_with_whole_messages_or_as_a_payload() -> None:
    assert shipped(message(5, b"event"), SubMessage("a", 1), whole_messages=True).value == b"event"
    event = b"event"
    found = shipped(message(5, event), SubMessage("a", 1), SubMessage("b", event))
    other, same = found.subs

    assert [found.is_payload(other), found.is_payload(same)] == [False, True]
    assert found.value is same.payload
    assert not (apart := shipped(message(5), SubMessage("a", 1))).is_payload(apart.subs[0])


class Odd:
    """A payload that pickles, and can't be made again."""

    def __setstate__(self, state: object) -> None:
        raise ValueError("no")


def test_a_payload_that_can_t_travel_is_named() -> None:
    subs = [SubMessage("a", 1), SubMessage("b", {"of": threading.Lock()})]

    with pytest.raises(SplitFailed, match=r"orders/7/6\[1\].*lock") as raised:
        rows_of([(message(5), [SubMessage("a", 1)]), (message(6), subs)])

    assert "open()" in str(raised.value.hint)


def test_a_payload_that_can_t_be_made_again_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Odd()
    vars(odd)["field"] = 1
    with pytest.raises(Refused, match=r"orders/7 .*ValueError: no") as raised:
        shipped(message(), SubMessage("a", odd))
    assert "split()" in str(raised.value.hint)

    [(*_, body)] = rows_of([(message(), [Marked("a", 1, 2)])])
    monkeypatch.delattr(f"{__name__}.Marked")
    with pytest.raises(Refused, match="Marked") as raised:
        decode_chunk(body, ORIGIN)
    assert "pyFiles" in str(raised.value.hint)


# --- messages that were decoded stay so ---


def decoded(*, whole: bool, part: bool = False, value: bytes = b'{"n": 2}') -> ShippedMessage:
    handler = load_handler("count", PayloadSettings(value_format="json", key_format="json"))
    assert handler.split is not None
    message = Message(ORIGIN, 3, b"7", value)
    writer = ChunkWriter(ORIGIN, whole_messages=whole)
    subs = list(handler.split(message))
    for index, sub in enumerate(subs):
        sub.message, sub.index = message, index
        sub.payload = "a part" if part else message.decoded
    writer.add(message, subs, [7], [0])
    (chunk,) = writer.flush()
    (there,) = decode_chunk(chunk.body, ORIGIN)
    return there


def test_a_rule_on_the_value_sees_what_was_decoded() -> None:
    there = decoded(whole=True)
    assert (there.value, there.decoded, there.decoded_key) == (b'{"n": 2}', {"n": 2}, 7)
    (sub,) = there.subs
    assert Predicate("message.value.n == payload.n and message.key == 7").matches(sub)


def test_a_value_that_did_not_travel_is_not_there_decoded_either() -> None:
    with pytest.raises(ValueNotShipped, match=r"message\.decoded of orders/7/3"):
        assert decoded(whole=False, part=True).decoded


@pytest.mark.parametrize("value", [b'{"n": 2}', b"1234567", b"1.5", b'"text"', b"null"])
def test_a_value_that_is_the_payload_decoded_travels(value: bytes) -> None:
    there = decoded(whole=False, value=value)
    assert there.value == value
    assert there.is_payload(there.subs[0])
    assert not decoded(whole=False, part=True).is_payload(SubMessage(7, "a part"))


def test_decoded_keys_travel_with_the_values() -> None:
    settings = PayloadSettings(value_format="json", key_format="json")
    assert why_whole(load_handler("count", settings), a_plan(1).terms) == "keys are decoded"


def test_what_split_changed_in_the_decoded_value_travels() -> None:
    message = Message(ORIGIN, 3, b"7", b'{"n": 2, "noise": 1}')
    message.decoded = raw_json(b'{"n": 2, "noise": 1}')
    del message.decoded["noise"]
    sub = SubMessage("7", message.decoded)
    sub.message, sub.index = message, 0
    writer = ChunkWriter(ORIGIN)
    writer.add(message, [sub], ["7"], [0])
    (chunk,) = writer.flush()
    ((there,),) = (each.subs for each in decode_chunk(chunk.body, ORIGIN))
    assert there.payload == {"n": 2}
