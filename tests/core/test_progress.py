"""Progress and the records around it: what is written down reads back, and adds up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import progress_at
from drainer.model.progress import Partial, Progress, checksum_keys
from drainer.model.ranges import (
    RangeSet,
    count_offsets,
    decode_ranges,
    encode_ranges,
    intersect,
    join_ranges,
    ranges_of,
    subtract,
)

from .messages import finished_subs, is_finished, written_and_read

RANDOMLY = settings(deadline=None, print_blob=True)

offsets = st.integers(0, 40)
offset_sets = st.frozensets(offsets, max_size=20)


# --- ranges ---


def test_ranges_read_as_a_person_writes_them() -> None:
    assert encode_ranges([(105, 120), (125, 126)]) == "105-119 125"
    assert decode_ranges("105-119 125") == ((105, 120), (125, 126))
    assert encode_ranges([]) == ""
    assert decode_ranges("") == ()


@pytest.mark.parametrize("text", ["1-x", "5-4", "1-2-3", "3 2", "1-5 5-9"])
def test_ranges_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode_ranges(text)


@RANDOMLY
@given(offset_sets, offset_sets, st.lists(offsets, max_size=30))
def test_ranges_are_sets_of_offsets(
    one: frozenset[int], other: frozenset[int], questions: list[int]
) -> None:
    ranges, others = ranges_of(one), ranges_of(other)

    assert decode_ranges(encode_ranges(ranges)) == ranges
    assert count_offsets(ranges) == len(one)
    assert join_ranges([*others, *ranges]) == ranges_of(one | other)
    assert intersect(ranges, others) == ranges_of(one & other)
    assert subtract(ranges, others) == ranges_of(one - other)
    range_set = RangeSet(ranges)
    assert [q in range_set for q in questions] == [q in one for q in questions]
    for start in questions[:1]:
        assert range_set.from_offset(start) == list(ranges_of(n for n in one if n >= start))


def test_ranges_that_touch_may_be_given() -> None:
    assert intersect(((1, 3), (3, 5)), ((2, 4), (4, 9))) == ((2, 3), (3, 5))
    assert subtract(((1, 3), (3, 9)), ((2, 4), (4, 6))) == ((1, 2), (6, 9))


# --- messages finished in part ---


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("3:0", id="two-fields"),
        pytest.param("x:0:1", id="count-is-no-number"),
        pytest.param("3:0:0", id="finishes-none"),
        pytest.param("3:0:7", id="finishes-all"),
        pytest.param("3:0:8", id="finishes-one-too-many"),
        pytest.param("99999999999999999999:0:1", id="count-beyond-any-message"),
    ],
)
def test_a_part_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Partial.decode(text)


def test_the_checksum_is_another_for_other_sub_keys_or_order() -> None:
    keys = [("a", "b"), ("b", "a"), ("a",), ("a", "b", "b"), (b"a", b"b"), ("ab",), ()]

    assert len({checksum_keys(key) for key in keys}) == len(keys)
    assert checksum_keys(["a", "b"]) == checksum_keys(("a", "b"))
    # Python salts the hash of str per process; a plan is read by another one.
    assert checksum_keys(["doc-1", b"x", 7, None, ("a", 1)]) == 0x4D5F1FBC


# --- merging ---


SUBS = 4  # in each message of the records below


@st.composite
def records(draw: st.DrawFn) -> Progress:
    """A record as a ledger makes it: no part in what is finished, nothing below the watermark."""
    watermark = draw(offsets)
    finished = ranges_of(n for n in draw(offset_sets) if n > watermark)
    bits = draw(st.dictionaries(offsets, st.integers(1, 2**SUBS - 2), max_size=6))
    partial = {
        offset: Partial(SUBS, 0, some)
        for offset, some in bits.items()
        if offset >= watermark and offset not in RangeSet(finished)
    }
    return progress_at(watermark, finished=finished, partial=partial)


@RANDOMLY
@given(records(), records())
def test_merged_is_finished_what_is_so_in_either_record(one: Progress, other: Progress) -> None:
    merged = one.merge(other)

    for offset in range(60):
        either = finished_subs(one, offset, SUBS) | finished_subs(other, offset, SUBS)
        assert finished_subs(merged, offset, SUBS) == either
        if is_finished(one, offset) or is_finished(other, offset):
            assert is_finished(merged, offset)
    assert merged.finished == join_ranges(merged.finished)
    assert all(first > merged.watermark for first, _ in merged.finished)
    assert not any(is_finished(merged, offset) for offset in merged.partial)
    if all(part.bits != 2**SUBS - 1 for part in merged.partial.values()):
        assert written_and_read(merged) == merged


@RANDOMLY
@given(records(), records(), records())
def test_it_does_not_matter_how_records_are_gathered(
    plan: Progress, first: Progress, second: Progress
) -> None:
    assert plan.merge(first).merge(second) == plan.merge(first.merge(second))
    assert plan.merge(first).merge(first) == plan.merge(first)
