"""Waves: slices of a backlog that leave nothing out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.model.ranges import Range
from drainer.spark.read.waves import Waves

KIB, MIB = 1024, 1024**2
LEFTS = st.dictionaries(
    st.integers(0, 120),
    st.tuples(st.integers(0, 500), st.integers(0, 500)).map(lambda r: (r[0], r[0] + r[1])),
    max_size=20,
)


@settings(deadline=None)
@given(LEFTS, st.integers(1, 10**6), st.integers(1, 5000))
def test_waves_follow_each_other_without_a_hole(
    lefts: dict[int, Range], wave_bytes: int, of_each: int
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
        for n, (start, end) in ranges.items():
            assert start < end <= lefts[n][1]
            at[n] = end
        waves.took(ranges, of_each * sum(end - start for start, end in ranges.values()), 1.0)
    assert waves.left == sum(end - at[n] for n, (_, end) in lefts.items())


def test_waves_follow_sizes_that_drift() -> None:
    waves = Waves({0: (0, 10**9)}, MIB, 1.0)
    size, sizes = 1_000.0, list[float]()
    for _ in range(60):
        (bounds,) = waves.next().values()
        read = size * (bounds[1] - bounds[0])
        sizes.append(read / MIB)
        waves.took({0: bounds}, int(read), 1.0)
        size *= 1.1

    assert all(0.9 < each < 1.25 for each in sizes[10:])


@given(LEFTS, st.integers(1, 10**6), st.integers(1, 64))
def test_slices_are_a_wave_in_about_as_many_parts_as_read_at_once(
    lefts: dict[int, Range], wave_bytes: int, readers: int
) -> None:
    waves = Waves(lefts, wave_bytes, 500.0)
    ranges = waves.next()

    slices = waves.slices(ranges, readers)

    for n, (start, end) in ranges.items():
        own = [(each.start, each.end) for each in slices if each.partition == n]
        assert [begun for begun, _ in own] == [start, *(ended for _, ended in own[:-1])]
        assert own[-1][1] == end
    assert len(slices) <= readers + 2 * len(ranges)


@given(st.floats(0.001, 10_000), st.integers(1, 64))
def test_a_slice_is_large_unless_split_takes_long(processor_s: float, readers: int) -> None:
    wave_bytes = 512 * MIB
    waves = Waves({0: (0, 10**12)}, wave_bytes, KIB)
    for _ in range(4):
        ranges = waves.next()
        waves.took(ranges, KIB * (ranges[0][1] - ranges[0][0]), processor_s)

    slices = waves.slices(waves.next(), readers)

    slice_bytes = wave_bytes / len(slices)
    slice_s = processor_s / len(slices)
    assert len(slices) == readers or slice_bytes > 15 * MIB or 3.9 < slice_s < 4.1
    assert len(slices) == 1 or slice_bytes < 17 * MIB or len(slices) == readers
    assert slice_bytes >= MIB
