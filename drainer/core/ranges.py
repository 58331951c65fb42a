"""What can be done with ranges of offsets; all are sorted and disjoint, given and made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from drainer.core.progress import Range


def count(ranges: Iterable[Range]) -> int:
    """The offsets in them."""
    return sum(end - first for first, end in ranges)


def cut(whole: Range, parts: int) -> tuple[Range, ...]:
    """A range in ``parts`` that follow each other, as even as can be, none of them empty."""
    start, end = whole
    size = end - start
    parts = min(parts, size)
    bounds = [start + size * part // parts for part in range(parts + 1)] if parts else []
    return tuple(pairwise(bounds))


def intersect(ranges: Sequence[Range], others: Sequence[Range]) -> tuple[Range, ...]:
    """What lies in both."""
    found: list[Range] = []
    at = behind = 0
    while at < len(ranges) and behind < len(others):
        first = max(ranges[at][0], others[behind][0])
        end = min(ranges[at][1], others[behind][1])
        if first < end:
            found.append((first, end))
        if ranges[at][1] == end:
            at += 1
        else:
            behind += 1
    return tuple(found)


def subtract(ranges: Iterable[Range], others: Sequence[Range]) -> tuple[Range, ...]:
    """What lies in the first and not in the others."""
    left: list[Range] = []
    at = 0
    for whole_first, end in ranges:
        first = whole_first
        while at < len(others) and others[at][1] <= first:
            at += 1
        cut = at
        while cut < len(others) and others[cut][0] < end:
            if others[cut][0] > first:
                left.append((first, others[cut][0]))
            first = others[cut][1]
            cut += 1
        if first < end:
            left.append((first, end))
    return tuple(left)
