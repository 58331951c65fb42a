"""Partitions by key range: contiguous, even, and split in two by doubling them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from drainer.core.key_range import partition_of, range_of

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


@pytest.mark.parametrize("partitions", [1, 3, 12])
def test_the_ranges_follow_each_other_and_cover_all_hashes(partitions: int) -> None:
    ranges = [range_of(number, partitions) for number in range(partitions)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 2**32
    for (_, end), (start, _) in pairwise(ranges):
        assert end == start
    for number, (first, end) in enumerate(ranges):
        assert [first * partitions >> 32, (end - 1) * partitions >> 32] == [number, number]


def test_a_key_is_where_other_programs_find_it() -> None:
    # CRC-32 of "orders" is 0xE52FFDEE.
    assert partition_of(b"orders", 16) == 0xE
