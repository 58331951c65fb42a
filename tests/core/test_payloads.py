"""Estimates of the memory of payloads: near enough, whatever they are."""

from __future__ import annotations

import gc
import tracemalloc
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import encode

from drainer.message import Message, Origin, SubMessage
from drainer.model.sub_messages import Payloads

ORIGIN = Origin("orders", "topic-id", 0)


@dataclass
class Plain:
    text: str
    number: int


@dataclass(slots=True)
class Slotted:
    text: str
    rows: list[bytes]


class Odd:
    """One that can't be measured."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


def message_of(
    *payloads: Any, offset: int = 0, value: bytes = b"value"
) -> tuple[Message, list[SubMessage]]:
    subs = [SubMessage(f"d{index}", payload) for index, payload in enumerate(payloads)]
    return Message(ORIGIN, offset, b"key", value), subs


def estimated(*payloads: Any) -> int:
    return Payloads().bytes_of(*message_of(*payloads))


MAKES: list[Callable[[int], Any]] = [
    lambda n: "ä" * (5_000 + n),
    lambda n: memoryview(bytes(10_000 + n)),
    lambda n: {f"field {n} {i}": f"text {n} {i}" * 20 for i in range(100)},
    lambda n: [{"id": f"{n} {i}", "rows": [n + i + j + 0.5 for j in range(20)]} for i in range(30)],
    lambda n: deque(bytes(100 + n) for _ in range(100)),
    lambda n: (Plain(f"{n}" * 1000, n), Slotted(f"{n}" * 1000, [bytes(1000 + n)])),
]  # fmt: skip


@pytest.mark.parametrize("make", MAKES)
def test_an_estimate_is_near_what_python_has_allocated(make: Callable[[int], Any]) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        payloads = [make(n) for n in range(1, 41)]
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert 0.6 * taken < estimated(*payloads) < 1.5 * taken


def test_what_sub_messages_share_is_counted_once() -> None:
    event = {"rows": [bytes(1000 + n) for n in range(100)]}

    assert 100_000 < estimated(*[(event, n) for n in range(50)]) < 150_000


def test_what_a_message_was_decoded_to_is_counted_once_where_it_is_kept() -> None:
    event = {"rows": [bytes(1000 + n) for n in range(100)]}
    for payloads in ([None, None], [event], event["rows"]):
        message, subs = message_of(*payloads)
        message.decoded = event
        assert 100_000 < Payloads().bytes_of(message, subs) < 150_000
    message, subs = message_of(None, None)
    message.decoded = event
    assert Payloads(decoded=False).bytes_of(message, subs) < 1_000


def test_raw_json_counts_as_what_it_will_be_and_is_not_kept_decoded() -> None:
    event = {"rows": ["x" * 1_000 + str(n) for n in range(100)]}
    message, subs = message_of(*map(Raw, map(encode, event["rows"])))
    message.decoded = Raw(encode(event))
    assert 100_000 < Payloads().bytes_of(message, subs) < 150_000
    assert not any(hasattr(each, "read") for each in (message, *subs))


def test_raw_json_in_a_payload_counts_as_its_bytes() -> None:
    assert estimated([Raw(bytes(1_000))]) < 2_000


def test_a_payload_that_is_the_value_of_the_message_is_counted_with_that() -> None:
    value = bytes(100_000)
    message, subs = message_of(value, value=value)

    assert Payloads().bytes_of(message, subs) < 1_000


def test_what_cannot_be_measured_counts_as_nothing() -> None:
    nested: list[Any] = []
    nested.append(nested)

    assert estimated(Odd()) == 0
    assert estimated(nested) < 1_000
    assert estimated() == 0


@pytest.mark.parametrize("each", [1, 50])
def test_over_many_messages_large_ones_here_and_there_are_counted(each: int) -> None:
    random, payloads = Random(7), Payloads()
    estimates = taken = 0
    for offset in range(20_000 // each):
        sizes = [100_000 if random.random() < 0.05 else 100 for _ in range(each)]
        message, subs = message_of(*map(bytes, sizes), offset=offset)
        estimates += payloads.bytes_of(message, subs)
        taken += sum(sizes)

    assert 0.5 * taken < estimates < 2 * taken
