"""Waves: slices of a backlog that leave nothing out, and stretches of them at messages that can't
be divided."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.core.progress import Range
from drainer.spark.waves import Waves, cut_at

LEFTS = st.dictionaries(
    st.integers(0, 120),
    st.tuples(st.integers(0, 500), st.integers(0, 500)).map(lambda r: (r[0], r[0] + r[1])),
    max_size=20,
)


@settings(deadline=None)
@given(LEFTS, st.integers(1, 10**6), st.integers(1, 5000), st.randoms())
def test_waves_follow_each_other_without_a_hole_though_they_end_early(
    lefts: dict[int, Range], wave_bytes: int, of_each: int, draw: object
) -> None:
    waves = Waves(lefts, wave_bytes, 500.0)
    at = {n: start for n, (start, _) in lefts.items()}
    for _ in range(20):
        if not waves.left:
            break
        ranges = waves.next()
        assert {n: start for n, (start, _) in ranges.items()} == {
            n: at[n] for n, (_, end) in lefts.items() if at[n] < end
        }
        read = {}
        for n, (start, end) in ranges.items():
            assert start < end <= lefts[n][1]
            read[n] = (start, draw.randint(start + 1, end))  # type: ignore[attr-defined]
            at[n] = read[n][1]
        waves.took(read, of_each * sum(end - start for start, end in read.values()))
    assert waves.left == sum(end - at[n] for n, (_, end) in lefts.items())


@given(LEFTS, st.integers(1, 10**6), st.integers(1, 64))
def test_pieces_are_a_wave_and_read_little_more_than_it_may_have(
    lefts: dict[int, Range], wave_bytes: int, parts: int
) -> None:
    waves = Waves(lefts, wave_bytes, 500.0)
    ranges = waves.next()

    pieces = waves.pieces(ranges, parts)

    for n, (start, end) in ranges.items():
        own = [(piece.start, piece.end) for piece in pieces if piece.partition == n]
        assert [begun for begun, _ in own] == [start, *(ended for _, ended in own[:-1])]
        assert own[-1][1] == end
    assert len(pieces) <= parts + 2 * len(ranges)
    assert sum(piece.bytes_most for piece in pieces) <= max(wave_bytes, len(pieces))


@given(
    st.dictionaries(st.integers(0, 5), st.integers(1, 30), min_size=1),
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 29))),
)
def test_a_cut_wave_has_every_offset_once_in_order_and_those_apart_that_can_not_be_divided(
    ends: dict[int, int], apart: set[tuple[int, int]]
) -> None:
    apart = {(n, offset) for n, offset in apart if offset < ends.get(n, 0)}
    undivided = {n: [o for m, o in sorted(apart) if m == n] for n, _ in apart}

    stretches = cut_at({n: (0, end) for n, end in ends.items()}, undivided)

    met = [
        (n, offset, divided)
        for ranges, divided in stretches
        for n, (start, end) in ranges.items()
        for offset in range(start, end)
    ]
    assert sorted(met) == [
        (n, o, (n, o) not in apart) for n in sorted(ends) for o in range(ends[n])
    ]
    for n, end in ends.items():
        assert [o for m, o, _ in met if m == n] == list(range(end))
