"""Ranges of offsets: how they are joined, cut, subtracted, and written as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

Range = tuple[int, int]  # The offsets [first, last + 1).

if TYPE_CHECKING:
    Ranges = tuple[Range, ...]
else:

    class Ranges(tuple):  # JSON has ranges as text.
        __slots__ = ()
        written = str

        @classmethod
        def parse(cls, text: str) -> Ranges:
            return cls(decode_ranges(text))


_RANGES = re.compile("[0-9 -]*")


class RangeSet:
    """Sorted, disjoint ranges that can be asked whether an offset lies in one of them."""

    __slots__ = ("_at", "_ranges")

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._ranges = list(ranges)
        self._at = 0

    def __contains__(self, offset: int) -> bool:
        # The offsets that are asked for nearly always rise, so the search goes on from the last
        # one. For a lower offset it starts again from the front.
        ranges = self._ranges
        if self._at and ranges[self._at - 1][1] > offset:
            self._at = 0
        while self._at < len(ranges) and ranges[self._at][1] <= offset:
            self._at += 1
        return self._at < len(ranges) and ranges[self._at][0] <= offset

    def from_offset(self, offset: int) -> list[Range]:
        """Return the ranges from an offset on. A range that spans the offset is cut there."""
        return [(max(first, offset), end) for first, end in self._ranges if end > offset]


def join_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Sort ranges, and join those that touch or overlap."""
    joined: list[Range] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            if end > joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return tuple(joined)


def ranges_of(offsets: Iterable[int]) -> tuple[Range, ...]:
    """Return the ranges that have exactly these offsets."""
    return join_ranges((offset, offset + 1) for offset in offsets)


def count_offsets(ranges: Iterable[Range]) -> int:
    """Count the offsets in ranges."""
    return sum(end - first for first, end in ranges)


def cut(whole: Range, parts: int) -> tuple[Range, ...]:
    """Cut a range into ``parts`` of nearly equal size. There are fewer if some would be empty."""
    start, end = whole
    size = end - start
    parts = min(parts, size)
    bounds = [start + size * part // parts for part in range(parts + 1)] if parts else []
    return tuple(pairwise(bounds))


def intersect(ranges: Sequence[Range], others: Sequence[Range]) -> tuple[Range, ...]:
    """Return the ranges of the offsets that both have."""
    return subtract(ranges, subtract(ranges, others))


def subtract(ranges: Iterable[Range], others: Sequence[Range]) -> tuple[Range, ...]:
    """Return the ranges of the offsets that the first has and the others don't have."""
    left: list[Range] = []
    at = 0
    for whole_first, end in ranges:
        first = whole_first
        while at < len(others) and others[at][0] < end:
            if others[at][0] > first:
                left.append((first, others[at][0]))
            first = max(first, others[at][1])
            if first > end:  # It may go on into the next range.
                break
            at += 1
        if first < end:
            left.append((first, end))
    return tuple(left)


def encode_ranges(ranges: Iterable[Range]) -> str:
    """Return ranges as text such as ``105-119 125``, where the last offsets are included."""
    return " ".join(
        [f"{first}" if end == first + 1 else f"{first}-{end - 1}" for first, end in ranges]
    )


def decode_ranges(text: str) -> tuple[Range, ...]:
    """Read ranges from text. Raises ValueError unless they are sorted and disjoint."""
    if not _RANGES.fullmatch(text):
        raise ValueError(f"{text!r} is not made of offsets and ranges")
    ranges: list[Range] = []
    reached = 0
    for word in text.split():
        begin, dash, last = word.partition("-")
        first = int(begin)
        end = int(last if dash else begin) + 1
        if first < reached or end <= first:
            raise ValueError(f"{word!r} is out of order")
        ranges.append((first, end))
        reached = end
    return tuple(ranges)
