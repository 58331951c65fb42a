"""Messages that were decoded where they were read stay so where they are handled."""

from __future__ import annotations

import pytest

from builders import a_plan
from drainer.errors import ValueNotShipped
from drainer.loader import load_handler
from drainer.message import Message, Origin, ShippedMessage, SubMessage
from drainer.model.facts import Predicate
from drainer.model.terms import PayloadSettings
from drainer.raw_json import raw_json
from drainer.spark.task.chunk import ChunkWriter, decode_chunk, why_whole

ORIGIN = Origin("orders", "id", 0)


def shipped(*, whole: bool, part: bool = False, value: bytes = b'{"n": 2}') -> ShippedMessage:
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
    there = shipped(whole=True)
    assert (there.value, there.decoded, there.decoded_key) == (b'{"n": 2}', {"n": 2}, 7)
    (sub,) = there.subs
    assert Predicate("message.value.n == payload.n and message.key == 7").matches(sub)


def test_a_value_that_did_not_travel_is_not_there_decoded_either() -> None:
    with pytest.raises(ValueNotShipped, match=r"message\.decoded of orders/0/3"):
        assert shipped(whole=False, part=True).decoded


@pytest.mark.parametrize("value", [b'{"n": 2}', b"1234567", b"1.5", b'"text"', b"null"])
def test_a_value_that_is_the_payload_decoded_travels(value: bytes) -> None:
    there = shipped(whole=False, value=value)
    assert there.value == value
    assert there.is_payload(there.subs[0])
    assert not shipped(whole=False, part=True).is_payload(SubMessage(7, "a part"))


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
