"""The verdict on a group follows from two looks at its offsets."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.lags.verdict import (
    GroupLag,
    Head,
    Look,
    PartitionLag,
    Verdict,
    group_lag,
    partition_lag,
    race,
)

OFFSETS = st.integers(0, 10**9)
SECONDS = st.floats(0.5, 60)
UNREAD = Head()
AGES = st.floats(0.1, 10**7)


def judged(
    committed: tuple[int | None, int | None],
    ends: tuple[int, int],
    head: Head = UNREAD,
    log_start: int = 0,
    over_s: float = 10.0,
) -> PartitionLag:
    first = Look(committed[0], ends[0], 0.0, 1.0)
    last = Look(committed[1], ends[1], over_s, over_s + 1.0)
    return partition_lag(("orders", 0), (first, last), head, log_start, "a consumer")


def test_a_group_that_commits_faster_than_records_arrive_is_done_at_a_time() -> None:
    found = judged((1_000, 2_000), (10_000, 10_500))
    assert (found.commits_per_s, found.arrivals_per_s) == (100.0, 50.0)
    assert (found.behind, found.verdict) == (8_500, Verdict.CATCHING_UP)
    assert found.done_in_s == 170.0


@pytest.mark.parametrize("committed", [(1_000, 1_000), (1_000, 1_500), (None, None)], ids=str)
def test_a_group_that_gains_nothing_never_catches_up(
    committed: tuple[int | None, int | None],
) -> None:
    found = judged(committed, (10_000, 10_500))
    assert (found.verdict, found.done_in_s) == (Verdict.NEVER, None)


def test_a_partition_without_an_offset_is_behind_by_all_that_its_log_has() -> None:
    found = judged((None, None), (10_000, 10_000), log_start=4_000)
    assert (found.behind, found.lost, found.verdict) == (6_000, 0, Verdict.NEVER)


def test_what_was_deleted_unread_is_lost_and_no_longer_behind() -> None:
    found = judged((1_000, 1_000), (10_000, 10_000), log_start=4_000)
    assert (found.behind, found.lost) == (6_000, 3_000)


def test_records_that_came_between_the_looks_are_no_delay() -> None:
    found = judged((9_000, 10_000), (10_000, 12_000))
    assert (found.behind, found.verdict, found.done_in_s) == (2_000, Verdict.KEEPING_UP, 0.0)


def test_markers_of_transactions_are_not_behind() -> None:
    found = judged((9_999, 9_999), (10_000, 10_000), Head(is_there=False))
    assert (found.behind, found.verdict) == (0, Verdict.KEEPING_UP)


def test_a_few_offsets_of_which_no_record_was_read_may_be_markers() -> None:
    found = judged((9_999, 9_999), (10_000, 10_000))
    assert (found.behind, found.verdict) == (1, Verdict.UNKNOWN)
    assert "markers" in found.problem
    there = judged((9_999, 9_999), (10_000, 10_000), Head(is_there=True))
    assert there.verdict is judged((0, 0), (10_000, 10_000)).verdict is Verdict.NEVER


def test_an_offset_beyond_the_end_is_not_taken_for_a_group_that_is_done() -> None:
    found = judged((10_001, 10_001), (10_000, 10_000))
    assert (found.verdict, found.behind) == (Verdict.UNKNOWN, None)
    assert "beyond the end of the log" in found.problem


def test_retention_wins_against_a_group_that_stands_still() -> None:
    found = judged((0, 0), (1_000, 1_000), Head(age_s=3_600, kept_s=600))
    assert (found.verdict, found.lost_in_s) == (Verdict.LOSING, 600.0)


def test_a_group_that_is_done_before_records_expire_loses_none() -> None:
    found = judged((0, 500), (1_000, 1_000), Head(age_s=3_600, kept_s=600))
    assert (found.verdict, found.lost_in_s, found.done_in_s) == (Verdict.CATCHING_UP, None, 10.0)


def test_a_group_that_reads_slower_than_records_were_written_loses_the_race_later() -> None:
    """1,000 records of an hour, half as fast: what is left becomes a second older in two."""
    assert race(1_000, Head(age_s=3_600, kept_s=600), 1_000 / 7_200) == pytest.approx(1_200)
    assert race(1_000, Head(age_s=3_600, kept_s=600), 1_000 / 3_600) is None


@given(st.integers(1, 10**6), AGES, AGES, st.floats(0, 10**4))
def test_the_race_is_lost_exactly_when_the_next_record_is_too_old(
    behind: int, age_s: float, kept_s: float, pace: float
) -> None:
    def age_of_next(after_s: float) -> float:
        return age_s * (1 - min(1.0, pace * after_s / behind)) + after_s

    found, may_be_s = race(behind, Head(age_s, kept_s), pace), age_s + kept_s
    read_all_s = behind / pace if pace else math.inf
    if found is None or found > read_all_s:  # It is done with them, or as old as they ever get.
        end_s = min(read_all_s, 1e9)
        assert all(age_of_next(end_s * n / 20) <= may_be_s * 1.000001 for n in range(20))
    else:
        assert age_of_next(found) == pytest.approx(may_be_s, rel=1e-6)
        assert age_of_next(found * 0.9) <= may_be_s


@given(OFFSETS, OFFSETS, OFFSETS, OFFSETS, OFFSETS, SECONDS)
def test_a_verdict_fits_its_figures(
    offset: int, gap: int, moved: int, arrived: int, log_start: int, over_s: float
) -> None:
    ends = offset + gap, offset + gap + arrived
    committed, log_start = (offset, min(offset + moved, ends[1])), min(log_start, ends[0])
    found = judged(committed, ends, UNREAD, log_start, over_s)
    assert found.behind == ends[1] - max(log_start, committed[1])
    assert (found.verdict is Verdict.KEEPING_UP) == (max(log_start, committed[1]) >= ends[0])
    assert found.commits_per_s is not None
    assert found.arrivals_per_s is not None
    if found.verdict is Verdict.CATCHING_UP:
        assert found.done_in_s is not None
        gain = found.commits_per_s - found.arrivals_per_s
        assert found.done_in_s * gain == pytest.approx(found.behind)
    if found.verdict is Verdict.NEVER:
        assert found.commits_per_s <= found.arrivals_per_s


PARTS = st.builds(
    PartitionLag,
    st.sampled_from(["orders", "users"]),
    st.integers(0, 200),
    st.sampled_from([each for each in Verdict if each is not Verdict.UNKNOWN]),
    committed=st.none() | OFFSETS,
    behind=OFFSETS,
    done_in_s=st.none() | SECONDS,
)
UNKNOWN = PartitionLag("orders", 7, Verdict.UNKNOWN, problem="no leader")


def of_group(*parts: PartitionLag, problem: str = "") -> GroupLag:
    return group_lag("indexer", "stable", 1, parts, problem)


@given(st.lists(PARTS, min_size=1), st.booleans())
def test_a_group_is_as_good_as_its_worst_partition(
    parts: list[PartitionLag], with_unknown: bool
) -> None:
    whole = [*parts, *([UNKNOWN] if with_unknown else [])]
    found = of_group(*whole)
    ranks = [list(Verdict).index(part.verdict) for part in found.partitions]
    assert ranks == sorted(ranks)
    assert found.verdict is found.partitions[0].verdict
    assert found.behind == sum(part.behind or 0 for part in parts)
    assert found.untouched == sum(p.committed is None and bool(p.behind) for p in parts)
    assert found.unknown == with_unknown
    if with_unknown:
        assert found.done_in_s is None
        assert found.verdict is not Verdict.KEEPING_UP
    assert sorted(map(str, found.partitions)) == sorted(map(str, whole))


def test_a_group_with_118_untouched_partitions_is_not_done() -> None:
    """A dashboard that shows only partitions with a committed offset says that it is."""
    done = [judged((9, 9), (9, 9)) for _ in range(10)]
    untouched = [judged((None, None), (25_000_000, 25_000_000)) for _ in range(118)]
    found = of_group(*done, *untouched)
    assert (found.verdict, found.untouched) == (Verdict.NEVER, 118)
    assert found.behind == 118 * 25_000_000


def test_a_group_of_which_nothing_can_be_read_is_unknown() -> None:
    assert of_group().verdict is Verdict.UNKNOWN
    assert "as far as this user may see" in of_group().problem
    known = judged((9, 9), (9, 9))
    assert of_group(known, problem="its coordinator does not answer").verdict is Verdict.UNKNOWN


def test_the_partition_with_most_of_the_backlog_is_named() -> None:
    cold = replace(judged((0, 0), (100, 100)), topic="users", partition=3)
    hot = judged((0, 0), (900, 900))
    found = of_group(cold, hot).hot
    assert found is not None
    assert (found.name, found.count, found.share) == ("orders/0", 900, 0.9)
    assert of_group(hot).hot is None
    assert of_group(*[cold] * 3).hot is None
