"""Progress and the records around it: what is written down reads back, and adds up."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drainer.core.progress import (
    Counts,
    Partial,
    Progress,
    Range,
    RangeSet,
    checksum_keys,
    count,
    decode_ranges,
    encode_ranges,
    intersect,
    join_ranges,
    ranges_of,
    subtract,
)

from .messages import finished_subs, says_finished, written_and_read

RANDOMLY = settings(deadline=None, print_blob=True)

offsets = st.integers(0, 40)
offset_sets = st.frozensets(offsets, max_size=20)


def offsets_in(ranges: Iterable[Range]) -> set[int]:
    return {offset for first, end in ranges for offset in range(first, end)}


# --- counts ---


def test_counts_are_conserved_only_when_everything_read_is_accounted_for() -> None:
    assert Counts(10, 5, 1, 1, 3).conserved
    assert not Counts(10, 5, 1, 1, 2).conserved
    assert not Counts(10, 5, 1, 1, 4).conserved


def test_settled_counts_leave_out_what_is_pending() -> None:
    settled = Counts(10, 5, 1, 1, 3).settled()

    assert settled == Counts(7, 5, 1, 1, 0)
    assert settled.conserved


# --- ranges ---


def test_ranges_read_as_a_person_writes_them() -> None:
    assert encode_ranges([(105, 120), (125, 126)]) == "105-119 125"
    assert decode_ranges("105-119 125") == ((105, 120), (125, 126))
    assert encode_ranges([]) == ""
    assert decode_ranges("") == ()


@RANDOMLY
@given(offset_sets)
def test_ranges_survive_being_written_and_read(numbers: frozenset[int]) -> None:
    ranges = ranges_of(numbers)

    assert decode_ranges(encode_ranges(ranges)) == ranges


@pytest.mark.parametrize(
    "text",
    [
        "1-x",
        "-5",
        "5-",
        "5-4",
        "1-2-3",
        "3 2",
        "1-5 5-9",
        "1-5 2-3",
        "4 4",
    ],
)
def test_ranges_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode_ranges(text)


@RANDOMLY
@given(st.lists(st.tuples(offsets, st.integers(1, 9)), max_size=12))
def test_joined_ranges_are_sorted_apart_and_hold_the_same_offsets(
    pairs: list[tuple[int, int]],
) -> None:
    ranges = [(first, first + length) for first, length in pairs]

    joined = join_ranges(ranges)

    assert offsets_in(joined) == offsets_in(ranges)
    assert all(first < end for first, end in joined)
    assert all(a[1] < b[0] for a, b in pairwise(joined))


@RANDOMLY
@given(offset_sets, st.lists(offsets, max_size=30))
def test_a_range_set_answers_as_a_set_does_whatever_the_order_of_questions(
    numbers: frozenset[int], questions: list[int]
) -> None:
    ranges = RangeSet(ranges_of(numbers))

    assert [q in ranges for q in questions] == [q in numbers for q in questions]


@RANDOMLY
@given(offset_sets, offsets)
def test_ranges_from_an_offset_are_cut_there(numbers: frozenset[int], start: int) -> None:
    rest = RangeSet(ranges_of(numbers)).from_offset(start)

    assert rest == list(ranges_of(n for n in numbers if n >= start))


# --- messages finished in part ---


@st.composite
def partials(draw: st.DrawFn) -> Partial:
    count = draw(st.integers(2, 200))
    bits = draw(st.integers(1, (1 << count) - 2))
    return Partial(count, draw(st.integers(0, 2**32 - 1)), bits)


@RANDOMLY
@given(partials())
def test_a_part_survives_being_written_and_read(partial: Partial) -> None:
    assert Partial.decode(partial.encode()) == partial


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("3:0", id="two-fields"),
        pytest.param("3:0:1:1", id="four-fields"),
        pytest.param("x:0:1", id="count-is-no-number"),
        pytest.param("3:0:0", id="finishes-none"),
        pytest.param("3:0:7", id="finishes-all"),
        pytest.param("3:0:8", id="finishes-one-too-many"),
        pytest.param("3:0:-1", id="negative-bits"),
        pytest.param("0:0:0", id="splits-into-nothing"),
        pytest.param("1:0:1", id="one-sub-message-has-no-part"),
        pytest.param("99999999999999999999:0:1", id="count-beyond-any-message"),
    ],
)
def test_a_part_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Partial.decode(text)


def test_the_checksum_tells_sub_keys_and_their_order_apart() -> None:
    keys = [("a", "b"), ("b", "a"), ("a",), ("a", "b", "b"), (b"a", b"b"), ("ab",), ()]

    assert len({checksum_keys(key) for key in keys}) == len(keys)
    assert checksum_keys(["a", "b"]) == checksum_keys(("a", "b"))


def test_the_checksum_is_the_same_in_every_process() -> None:
    # Python salts the hash of str per process; a plan is read by another one.
    assert checksum_keys(["doc-1", b"x", 7, None, ("a", 1)]) == 0x4D5F1FBC


# --- merging ---


def test_a_part_is_dropped_once_its_message_is_finished() -> None:
    part = Partial(2, 0, 1)

    assert Progress(0, (), {3: part}).merge(Progress(0, ((3, 4),))).partial == {}
    assert Progress(0, (), {3: part}).merge(Progress(4)).partial == {}
    assert Progress(0, (), {3: part}).merge(Progress(3)).partial == {3: part}


def test_the_counts_of_the_later_record_hold() -> None:
    earlier = Progress(0, messages=Counts(1, 0, 0, 0, 1), sub_messages=Counts(2, 0, 0, 0, 2))
    later = Progress(1, messages=Counts(1, 1), sub_messages=Counts(2, 2))

    merged = earlier.merge(later)

    assert (merged.messages, merged.sub_messages) == (Counts(1, 1), Counts(2, 2))


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
        if offset >= watermark and offset not in offsets_in(finished)
    }
    return Progress(watermark, finished, partial)


@RANDOMLY
@given(records(), records())
def test_merged_is_finished_what_either_record_says(one: Progress, other: Progress) -> None:
    merged = one.merge(other)

    for offset in range(60):
        either = finished_subs(one, offset, SUBS) | finished_subs(other, offset, SUBS)
        assert finished_subs(merged, offset, SUBS) == either
        if says_finished(one, offset) or says_finished(other, offset):
            assert says_finished(merged, offset)


@RANDOMLY
@given(records(), records())
def test_merged_is_in_its_shortest_form(one: Progress, other: Progress) -> None:
    merged = one.merge(other)

    assert merged.finished == join_ranges(merged.finished)
    assert all(first > merged.watermark for first, _ in merged.finished)
    assert not any(says_finished(merged, offset) for offset in merged.partial)


@RANDOMLY
@given(records(), records(), records())
def test_it_does_not_matter_how_records_are_gathered(
    plan: Progress, first: Progress, second: Progress
) -> None:
    assert plan.merge(first).merge(second) == plan.merge(first.merge(second))
    assert plan.merge(first).merge(first) == plan.merge(first)


@RANDOMLY
@given(records(), records())
def test_merged_survives_being_written_and_read(one: Progress, other: Progress) -> None:
    merged = one.merge(other)
    # Of one message, a later record of one ledger never lacks what an earlier one had, and says
    # that the message is finished when nothing of it is left; these records were drawn apart.
    assume(all(part.bits != 2**SUBS - 1 for part in merged.partial.values()))

    assert written_and_read(merged) == merged


SOME = st.sets(st.integers(0, 30))


def apart(ranges: tuple[Range, ...]) -> set[int]:
    found = [offset for first, end in ranges for offset in range(first, end)]
    assert found == sorted(set(found)), "sorted and disjoint"
    assert all(first < end for first, end in ranges), "none is empty"
    return set(found)


@given(a=SOME, b=SOME)
def test_ranges_are_sets_of_offsets(a: set[int], b: set[int]) -> None:
    ranges, others = ranges_of(a), ranges_of(b)

    assert apart(intersect(ranges, others)) == a & b
    assert apart(subtract(ranges, others)) == a - b
    assert count(ranges) == len(a)


def test_ranges_that_touch_may_be_given() -> None:
    assert apart(intersect(((1, 3), (3, 5)), ((2, 4), (4, 9)))) == {2, 3, 4}
    assert apart(subtract(((1, 3), (3, 9)), ((2, 4), (4, 6)))) == {1, 6, 7, 8}
