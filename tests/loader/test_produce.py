"""The handler ``produce``: what it makes of its options and of a message; without a broker."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from drainer.errors import UsageError
from drainer.handler import Context
from drainer.handlers.partitioner import Partitioner, by_crc32, by_murmur2, by_range, murmur2
from drainer.handlers.produce import Produce, as_value
from drainer.http.protocol import encode_item
from drainer.loading.loader import load_handler
from drainer.message import Message, Origin, SubMessage
from drainer.testing import message

ONE, TWO = UUID(int=1), UUID(int=2)


def produce(options: Mapping[str, str]) -> Produce:
    handler = Produce()
    handler.configure({"topic": "wide", **options})
    handler.open(Context("orders", "g", "drain", 1, {"topic": "wide", **options}))
    return handler


def subs(value: Any, **options: str) -> list[tuple[Any, bytes | None]]:
    raw = None if value is None else json.dumps(value).encode()
    message = Message(Origin("orders", "id", 0), 3, b"key", raw)
    return [(sub.key, as_value(sub.payload)) for sub in produce(options).split(message)]


def test_a_message_is_written_as_it_is() -> None:
    documents = {"documents": [{"id": 17}, {"id": "a"}]}
    assert subs(documents) == [(b"key", json.dumps(documents).encode())]
    assert subs(None) == [(b"key", None)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({17: {"a": 2}, True: None}, '{"17":{"a":2},"true":null}'),
        ({"id": ONE, TWO: b"\xff"}, f'{{"id":"{ONE}","{TWO}":{{"base64":"/w=="}}}}'),
        ({"at": datetime(2026, 11, 27, tzinfo=UTC)}, '{"at":"2026-11-27T00:00:00+00:00"}'),
        (
            {"price": Decimal("1.20"), "days": [date(2026, 11, 27)]},
            '{"price":"1.20","days":["2026-11-27"]}',
        ),
    ],
    ids=str,
)
def test_a_payload_is_the_same_json_for_a_topic_and_for_a_service(value: Any, text: str) -> None:
    assert as_value(value) == text.encode()
    sub = SubMessage("key", value)
    sub.message, sub.index = message(b"value"), 0
    assert f'"payload":{text}'.encode() in encode_item(sub)


@pytest.mark.parametrize("value", [{b"key": 1}, {"a": {1, 2}}, {"n": float}], ids=str)
def test_what_json_has_no_word_for_is_refused(value: Any) -> None:
    sub = SubMessage("key", value)
    sub.message, sub.index = message(b"value"), 0
    with pytest.raises(TypeError):
        as_value(value)
    with pytest.raises(TypeError):
        encode_item(sub)


def test_the_split_of_another_handler_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "splits_here.py").write_text(
        "import drainer\n"
        "def split(message):\n"
        "    yield drainer.SubMessage(('one', 1), {'n': 0})\n"
        "def handle(sub): raise AssertionError\n"
    )
    assert subs({}, split=f"{tmp_path / 'splits_here.py'}") == [(b"('one', 1)", b'{"n":0}')]
    monkeypatch.chdir(tmp_path)
    options = {"topic": "wide", "split": "splits_here.py"}
    kept = load_handler("produce").configured(options).kept_options(options)
    found = {"split": str(tmp_path / "splits_here.py"), "partitioner": "murmur2"}
    assert kept == {"topic": "wide", **found}, "as any folder finds it"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": ""}, "needs a topic"),
        ({"tpic": "x"}, "no option tpic"),
        ({"split": "count"}, "has no split"),
        ({"timestamp": "then"}, "timestamp"),
        ({"partitioner": "crc"}, "not one of murmur2, crc32, range"),
        ({"partitions": "-3"}, "not a number"),
    ],
    ids=str,
)
def test_wrong_options_are_usage_errors(options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        produce(options)
    assert caught.value.hint


EARLIER = {"topic": "wide", "partitioner": "murmur2", "partitions": "3"}


def looked(has: int, **options: str) -> tuple[dict[str, str], list[str]]:
    """What the plan keeps when the target has so many partitions, and what the preview says."""
    known = {"topic": "wide", **options}
    loaded = load_handler("produce").configured(known)
    checks, warnings = loaded.look_at_target("orders", {"wide": has}.__getitem__, EARLIER)
    kept = loaded.kept_options(known)
    return {name: kept[name] for name in ("partitioner", "partitions")}, [*checks, *warnings]


def test_the_drained_topic_is_refused_before_the_preview() -> None:
    loaded = load_handler("produce").configured({"topic": "orders"})
    with pytest.raises(UsageError, match="would write to orders, the drained topic"):
        loaded.look_at_target("orders", {"orders": 3}.__getitem__, {})


def test_the_plan_keeps_the_partitions_that_a_drain_began_with() -> None:
    assert looked(3) == (
        {"partitioner": "murmur2", "partitions": "3"},
        ["produce spreads records over 3 partitions of wide, by murmur2"],
    )
    kept, (warning,) = looked(8, partitions="3")
    assert kept == {"partitioner": "murmur2", "partitions": "3"}
    assert warning.startswith("wide has 8 partitions, but this drain writes to the first 3")
    for has, options in ((8, {}), (3, {"partitioner": "crc32"})):
        _, (_, warning) = looked(has, **options)
        assert "may be in another partition" in warning
        assert warning.endswith("add --set partitioner=murmur2 --set partitions=3")
    with pytest.raises(UsageError, match="over 8 partitions, but wide has 3"):
        looked(3, partitions="8")


class Places:
    """A writer that keeps the partition of each record."""

    topic, partitions = "wide", 5

    def __init__(self) -> None:
        self.found: list[int] = []

    async def write(self, value: Any, key: Any = None, *, partition: int = -1, **_: Any) -> None:
        self.found.append(partition)

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("keys", "places"), [(None, [3, 4, 0, 1]), ((None,), [by_murmur2(b"", 5)] * 4)]
)
def test_records_without_a_key_are_spread_unless_their_order_is_kept(
    keys: tuple[None] | None, places: list[int]
) -> None:
    writer, handler = Places(), Produce()
    handler.configure({"topic": "wide"})
    handler.open(Context("orders", "g", "drain", 1, write_to=lambda _: writer))
    for offset in range(3, 7):
        sub = SubMessage(None, b"value", keys=keys)
        sub.message, sub.index = Message(Origin("orders", "id", 0), offset, None, b"value"), 0
        asyncio.run(handler.handle(sub))
    assert writer.found == places


KEYS = [f"doc-{number}".encode() for number in range(20_000)]


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 12, 64])
def test_doubling_the_partitions_splits_each_range_in_two(partitions: int) -> None:
    for key in KEYS:
        assert by_range(key, 2 * partitions) // 2 == by_range(key, partitions)


@pytest.mark.parametrize("partition_of", [by_murmur2, by_crc32, by_range])
@pytest.mark.parametrize("partitions", [1, 3, 12, 64])
def test_keys_are_spread_evenly(partition_of: Partitioner, partitions: int) -> None:
    found = Counter(partition_of(key, partitions) for key in KEYS)
    assert set(found) == set(range(partitions))
    for count in found.values():
        assert count == pytest.approx(len(KEYS) / partitions, rel=0.25)


def test_a_key_is_where_other_programs_find_it() -> None:
    # CRC-32 of "orders" is 0xE52FFDEE. The hashes are those of the tests of Kafka's own murmur2.
    assert by_range(b"orders", 16) == 0xE
    assert by_crc32(b"orders", 10) == 0xE52FFDEE % 10
    for key, found in (("21", -973932308), ("foobar", -790332482), ("abc", 479470107)):
        assert murmur2(key.encode()) == found % (1 << 32)
        assert by_murmur2(key.encode(), 12) == (found & 0x7FFFFFFF) % 12
