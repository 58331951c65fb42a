"""Kinds of operations are seen in what handlers usually give."""

from __future__ import annotations

from enum import Enum, StrEnum

import pytest

from drainer.insight.kind import BARRIER, UNKNOWN, kinds_of
from drainer.message import Barrier, Message, Origin, SubMessage


class Op(Enum):
    SET_EMAIL = 1


class Mode(StrEnum):
    ADD = "add"


class SetEmail(SubMessage):
    pass


def kind(sub: SubMessage, headers: list[tuple[str, bytes | None]] | None = None) -> str:
    (found,) = kinds_of(Message(Origin("t", "i", 0), 0, b"k", b"v", 0, headers or []), [sub])
    return found


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"kind": "set_email", "type": "x"}, "set_email"),
        ({"kind": None, "kind2": "x", "type": "set_name"}, "set_name"),
        ({"action": Op.SET_EMAIL}, "SET_EMAIL"),
        ({"op": Mode.ADD}, "ADD"),
        ({"kind": "x" * 200}, UNKNOWN),
        (b'{"type": "created", "id": 1}', "created"),
        ('{"event": "created"}', "created"),
        (b"{broken", UNKNOWN),
        (b'[{"type": "created"}]', UNKNOWN),
        (3, UNKNOWN),
    ],
)
def test_a_payload_tells_its_kind(payload: object, expected: str) -> None:
    assert kind(SubMessage("a", payload)) == expected


def test_a_class_of_the_handlers_own_and_a_barrier_come_first() -> None:
    assert kind(SetEmail("a", {"kind": "other"})) == "SetEmail"
    assert kind(Barrier({"kind": "other"})) == BARRIER


def test_headers_tell_when_the_payload_does_not() -> None:
    headers = [("trace", b"x"), ("event-type", b"created"), ("type", None)]
    assert kind(SubMessage("a", 3), headers) == "created"
    assert kind(SubMessage("a", {"kind": "own"}), headers) == "own"
