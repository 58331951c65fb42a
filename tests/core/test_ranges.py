from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drainer.core.progress import Range, ranges_of
from drainer.core.ranges import count, intersect, subtract

OFFSETS = st.sets(st.integers(0, 30))


def apart(ranges: tuple[Range, ...]) -> set[int]:
    found = [offset for first, end in ranges for offset in range(first, end)]
    assert found == sorted(set(found)), "sorted and disjoint"
    assert all(first < end for first, end in ranges), "none is empty"
    return set(found)


@given(a=OFFSETS, b=OFFSETS)
def test_ranges_are_sets_of_offsets(a: set[int], b: set[int]) -> None:
    ranges, others = ranges_of(a), ranges_of(b)

    assert apart(intersect(ranges, others)) == a & b
    assert apart(subtract(ranges, others)) == a - b
    assert count(ranges) == len(a)


def test_ranges_that_touch_may_be_given() -> None:
    assert apart(intersect(((1, 3), (3, 5)), ((2, 4), (4, 9)))) == {2, 3, 4}
    assert apart(subtract(((1, 3), (3, 9)), ((2, 4), (4, 6)))) == {1, 6, 7, 8}
