"""Decoded values and keys, as handlers, rules and splits see them."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from drainer.errors import SplitFailed, UsageError
from drainer.loading.loader import LoadedHandler, load_handler
from drainer.message import Message, Origin, SubMessage, Unsplit
from drainer.model.predicate import Predicate
from drainer.model.terms import PayloadSettings, TimeRange
from drainer.policy.redrive import LeftAlone
from drainer.split.decoding import Decoding
from drainer.split.splitting import split_or_reject
from drainer.text.raw_json import MOST_NESTED

JSON = PayloadSettings(value_format="json")


def message(value: bytes | None, key: bytes | None = b"7") -> Message:
    return Message(Origin("orders", "id", 0), 3, key, value)


def split(handler: LoadedHandler, given: Message) -> list[SubMessage]:
    assert handler.split is not None
    return split_or_reject(handler.split, given)


def test_the_default_split_gives_the_decoded_message() -> None:
    handler = load_handler("count", PayloadSettings(value_format="json", key_format="json"))
    given = message(b'{"customer": 42}')
    (sub,) = split(handler, given)
    assert (sub.key, sub.payload) == (7, {"customer": 42})
    assert (given.decoded_key, given.value) == (7, b'{"customer": 42}')
    (tombstone,) = split(handler, message(None, None))
    assert (tombstone.key, tombstone.payload) == (None, None)
    (by_bytes,) = split(handler, message(b"[]", b'{"id": 1}'))
    assert by_bytes.key == b'{"id": 1}'  # a mapping can't be a sub-key


def test_a_value_that_can_not_be_decoded_is_a_failure_of_split() -> None:
    (sub,) = split(load_handler("count", JSON), message(b"{"))
    assert isinstance(sub, Unsplit)
    assert sub.error_type == "DecodeError"


def test_json_is_read_if_it_is_nested_as_deeply_as_any_part_of_a_drain_can_take() -> None:
    for data, reads in [
        (b"[" * MOST_NESTED + b"]" * MOST_NESTED, True),
        (b'{"a":' * 251 + b"1" + b"}" * 251, False),
        (b"[" + b"[[]]," * 300 + b"1]", True),
        (b'"' + b"[" * 300 + b'"', True),
    ]:
        (sub,) = split(load_handler("count", JSON), message(data))
        assert not isinstance(sub, Unsplit), "what only writes it takes it"
        with nullcontext() if reads else pytest.raises(ValueError, match="nested deeper"):
            _ = sub.payload


def test_without_memory_a_split_halts_the_drain_and_a_decoder_rejects_the_message() -> None:
    def no_memory(*_: object) -> list[SubMessage]:
        raise MemoryError

    with pytest.raises(SplitFailed):
        split_or_reject(no_memory, message(b"x"))
    (sub,) = split_or_reject(Decoding(no_memory, None).before(None), message(b"x"))
    assert isinstance(sub, Unsplit)
    assert sub.error_type == "Undecodable"


def test_a_rejected_message_names_the_line_of_the_handler_and_not_one_of_drainer() -> None:
    (sub,) = split_or_reject(lambda message: [SubMessage(keys=())], message(b"x"))
    assert isinstance(sub, Unsplit)
    assert sub.why.startswith("ValueError: keys=() is empty")
    assert " (test_decoding.py:" in sub.why


def test_without_a_format_the_bytes_are_what_they_were() -> None:
    given = message(b"{}")
    assert (given.decoded, given.decoded_key) == (b"{}", b"7")
    assert load_handler("count", PayloadSettings(value_format="raw")).split is not None


def test_an_own_decoder_gets_bytes_headers_and_topic_and_rules_see_what_it_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "decode_here.py").write_text(
        "def decode(data, headers, topic):\n    return {'n': int(data), 'topic': topic}\n"
    )
    settings = PayloadSettings(value_format=f"{tmp_path / 'decode_here.py'}:decode")
    given = message(b"17")
    (sub,) = split(load_handler("count", settings), given)
    sub.message, sub.index = given, 0
    assert sub.payload == {"n": 17, "topic": "orders"}
    assert Predicate("message.value.n == 17 and payload.topic == 'orders'").matches(sub)


@pytest.mark.parametrize("name", ["jsn", "drainer.text.escape:nothing", "absent_module:decode"])
def test_a_decoder_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_handler("count", PayloadSettings(value_format=name))
    assert caught.value.hint


def test_of_other_times_or_without_one_nothing_is_decoded_or_split() -> None:
    handler = load_handler("count", JSON).within(TimeRange(10, 20))
    found = []
    for time_ms in (None, 0, 9, 10, 19, 20):
        given = Message(
            Origin("orders", "id", 0), 7, b"7", b"{}" if time_ms == 10 else b"{", time_ms
        )
        (sub,) = split(handler, given)
        found.append(sub.payload if isinstance(sub, LeftAlone) else type(sub).__name__)
    outside = "a time outside --from and --until"
    expected = ["a record without a time", outside, outside, "SubMessage", "Unsplit", outside]
    assert found == expected
    assert isinstance(split(handler.within(None), given)[0], Unsplit)
