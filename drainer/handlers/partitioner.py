"""The partitioners of ``produce``: they choose the partition of a record by its key."""

from __future__ import annotations

from collections.abc import Callable
from struct import iter_unpack
from zlib import crc32

# Returns the partition of a key, of so many partitions.
Partitioner = Callable[[bytes, int], int]

_FACTOR, _SEED, _LOW = 0x5BD1E995, 0x9747B28C, 0xFFFFFFFF


def by_murmur2(key: bytes, partitions: int) -> int:
    """Choose the partition that Kafka's Java clients choose."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def by_crc32(key: bytes, partitions: int) -> int:
    """Choose the partition that librdkafka's clients choose (``consistent``)."""
    return crc32(key) % partitions


def by_range(key: bytes, partitions: int) -> int:
    """Choose the partition whose range of hashes has the CRC-32 of a key.

    Each partition has a contiguous range of hashes. So doubling the number of partitions splits
    each in two, and moves nothing between the others: a key of partition ``p`` of ``n`` goes to
    ``2p`` or ``2p + 1`` of ``2n``. With a hash modulo the number of partitions, most keys would
    move. The idea comes from the draft KIP on splitting partitions by key ranges.
    """
    return crc32(key) * partitions >> 32


MURMUR2 = "murmur2"
PARTITIONERS: dict[str, Partitioner] = {MURMUR2: by_murmur2, "crc32": by_crc32, "range": by_range}


def murmur2(key: bytes) -> int:
    """Return the hash of a key as Kafka's Java clients compute it, as a number of 32 bits."""
    whole = len(key) & ~3
    found = _SEED ^ len(key)
    for (word,) in iter_unpack("<I", key[:whole]):
        mixed = word * _FACTOR & _LOW
        found = (found * _FACTOR ^ (mixed ^ mixed >> 24) * _FACTOR) & _LOW
    if rest := key[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * _FACTOR & _LOW
    found = (found ^ found >> 13) * _FACTOR & _LOW
    return found ^ found >> 15
