"""Counts that are added up by somebody else, and totals that are merged, lose nothing."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Hashable
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import NamedTuple

import pytest

from drainer.insight.statistics.contents import ContentsMeter, MessageTotals
from drainer.insight.statistics.sketch import TALLIED
from drainer.insight.statistics.tally import Tally, plain
from drainer.message import Message, Origin

ORIGIN = Origin("orders", "id", 0)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    ONE = 1


class Pair(NamedTuple):
    first: object
    second: object


@pytest.mark.parametrize(
    "equal",
    [
        (1, 1.0, True, Level.ONE, Decimal("1.00"), Fraction(1), 1 + 0j),
        (0.5, Decimal("0.5"), Fraction(1, 2), 0.5 + 0j),
        ("red", Colour.RED),
        (("a", 1), Pair("a", True), ("a", 1.0)),
        (frozenset({"a", "b"}), frozenset({"b", "a"})),
        (float("inf"), Decimal("Infinity")),
        (10**30, Fraction(10**30), Decimal(10**30)),
    ],
    ids=("1", "a half", "enum", "tuple", "frozenset", "infinity", "large"),
)
def test_what_is_equal_is_the_same_wherever_it_is_counted(equal: tuple[Hashable, ...]) -> None:
    assert len(set(equal)) == 1
    assert len({repr(plain(thing)) for thing in equal}) == 1


def test_what_differs_stays_apart() -> None:
    apart = [0.1, Decimal("0.1"), "1", 1, b"1", None, ("1",), 1j, 1.5, frozenset(), (), "None"]
    assert len({repr(plain(thing)) for thing in apart}) == len(apart)


def test_a_tally_gives_all_counts_and_begins_anew() -> None:
    tally = Tally(repr)
    tally.add(["a", "b", "a", 1.0])
    assert not tally.full
    found = [(named.name, named.same, named.count) for named in tally.give()]
    assert found == [("'a'", None, 2), ("'b'", None, 1), ("1.0", "1", 1)]
    assert list(tally.give()) == []
    tally.add(range(TALLIED + 1))
    assert tally.full


def test_totals_of_parts_that_travelled_are_those_of_the_whole() -> None:
    messages = [
        Message(ORIGIN, n, b"k", None if n % 7 == 0 else b"v" * n, None if n % 5 == 0 else 1000 + n)
        for n in range(500)
    ]
    whole = MessageTotals()
    whole.take(messages)
    merged = MessageTotals()
    for begin in range(0, 500, 90):
        part = MessageTotals()
        part.take(messages[begin : begin + 90])
        merged.merge(pickle.loads(pickle.dumps(part)))

    assert (merged.messages, merged.bytes) == (whole.messages, whole.bytes)
    assert (merged.tombstones, merged.undated) == (whole.tombstones, whole.undated) == (72, 100)
    assert merged.sizes == whole.sizes
    assert merged.ages(5000) == whole.ages(5000)


def test_an_empty_message_key_is_one_key() -> None:
    meter = ContentsMeter()
    keys = [b"", None, b"a", b""]
    meter.take([Message(ORIGIN, n, key, b"v", 0) for n, key in enumerate(keys)])
    meter.end_cluster()

    found = meter.contents(1.0, 0)

    assert found.message_keys.estimate == 3
    assert {s.name: s.count for s in found.hottest_keys} == Counter({"": 2, "no key": 1, "a": 1})


def test_what_came_equally_often_goes_by_name() -> None:
    meter = ContentsMeter()
    keys = [f"k{n}".encode() for n in reversed(range(30))]
    meter.take([Message(ORIGIN, n, key, b"v", 0) for n, key in enumerate(keys)])
    meter.end_cluster()

    names = [share.name for share in meter.contents(1.0, 0).hottest_keys]

    assert names == sorted(key.decode() for key in keys)[:10]
