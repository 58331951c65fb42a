"""Partitions by key range: each has a contiguous range of hashes, so doubling them splits each in
two.

A key that was in partition ``p`` of ``n`` is in ``2p`` or ``2p + 1`` of ``2n``: a partition can be
split by itself, and nothing moves between the others. With the usual hash modulo the number of
partitions, keys go from anywhere to anywhere. The idea is that of the draft KIP on splitting
partitions by key ranges.
"""

from __future__ import annotations

from zlib import crc32


def partition_of(key: bytes, partitions: int) -> int:
    """The partition whose range the CRC-32 of a key lies in."""
    return crc32(key) * partitions >> 32


def range_of(partition: int, partitions: int) -> tuple[int, int]:
    """The hashes ``[first, end)`` of a partition."""
    return -(-(partition << 32) // partitions), -(-(partition + 1 << 32) // partitions)
