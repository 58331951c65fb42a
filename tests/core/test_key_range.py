"""Partitions by key range: even, and split in two by doubling them."""

from __future__ import annotations

from collections import Counter

import pytest

from drainer.produce import partition_of

KEYS = [f"doc-{number}".encode() for number in range(20_000)]


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 12, 64])
def test_doubling_the_partitions_splits_each_range_in_two(partitions: int) -> None:
    for key in KEYS:
        assert partition_of(key, 2 * partitions) // 2 == partition_of(key, partitions)


@pytest.mark.parametrize("partitions", [1, 3, 12, 64])
def test_keys_are_spread_evenly(partitions: int) -> None:
    found = Counter(partition_of(key, partitions) for key in KEYS)
    assert set(found) == set(range(partitions))
    for count in found.values():
        assert count == pytest.approx(len(KEYS) / partitions, rel=0.25)


def test_a_key_is_where_other_programs_find_it() -> None:
    # CRC-32 of "orders" is 0xE52FFDEE.
    assert partition_of(b"orders", 16) == 0xE
