"""The verdict on a hand-over: what it says of what was seen, and never more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.model.hand_over import FASTEST, HandOver, HandOverState, Look, PartitionHandOver

E = 1_000  # the offset that the drain committed
READER = "indexer-7 on 10.0.0.7"
NEW = Look(0.0, E, None, 0, E + 50, E + 50)  # nobody yet, and fifty messages to read


def look(at_s: float, committed: int | None = E, reader: str | None = READER, **log: Any) -> Look:
    return replace(NEW, at_s=at_s, committed=committed, reader=reader, **log)


def judged(*looks: Look) -> PartitionHandOver:
    return reduce(PartitionHandOver.after, looks, PartitionHandOver(E))


IDLE: dict[str, Any] = {"end": E, "high_watermark": E}


@pytest.mark.parametrize(
    ("looks", "state", "detail"),
    [
        ([NEW], "no-reader", "no member"),
        ([NEW, look(1)], "reading", "no commit yet, although 50 offsets"),
        ([NEW, look(1, **IDLE)], "nothing-new", "nothing to read yet"),
        ([NEW, look(1, **IDLE), look(2, reader=None, **IDLE)], "no-reader", "no member"),
        ([NEW, look(1), look(2, E + 1)], "continued", "the first commit is 1001"),
        ([NEW, look(1, E + 50)], "continued", "the first commit is 1050"),
        ([look(1, E + 50)], "continued", "1050"),
        ([NEW, look(1), look(2, E + 50), look(3, 3)], "continued", "1050"),  # It has moved before.
        ([NEW, look(1), look(2, E + 5, reader=None)], "continued", "1005"),  # It has left again.
        (
            [NEW, look(1, end=E - 5, high_watermark=E - 5)],
            "doubtful",
            "1000 is committed, but the log ends at 995",
        ),
        ([NEW, look(1, E - 1)], "overlap", "999 to 999 come again"),
        ([NEW, look(1, 0)], "overlap", "0 to 999 come again"),
        ([NEW, look(1, None)], "overlap", "the group's offset was deleted"),
        (
            [NEW, look(1), look(2, E + 51)],
            "doubtful",
            "1051 is committed, but the log ends at 1050",
        ),
        ([look(1, reader=None, start=E + 9)], "gap", "1000 to 1008 were deleted"),
        ([look(1, start=E + 9)], "gap", "1000 to 1008 were deleted"),
        # Its reader may have read them before they were deleted.
        ([NEW, look(1), look(2, start=E + 9)], "reading", "no commit yet"),
        ([NEW, look(1, E + 7, reader=None)], "doubtful", "the group moved to 1007"),
        (
            [NEW, look(1, E + FASTEST + 1, end=10**9, high_watermark=10**9)],
            "doubtful",
            "further than a consumer reads so soon",
        ),
        (
            [NEW, look(1), look(2, E + 10**5, end=10**9, high_watermark=10**9)],
            "continued",
            "101000",
        ),
    ],
)
def test_a_partition_is_judged_by_the_first_offset_that_the_group_commits(
    looks: Sequence[Look], state: str, detail: str
) -> None:
    found = judged(*looks)
    assert found.state == state
    assert detail in found.detail


@st.composite
def honest_consumers(draw: st.DrawFn) -> list[Look]:
    """Looks at a consumer that starts at the group's offset, and commits what it has read."""
    looks, at_s, committed, end = [], 0.0, E, E + draw(st.integers(0, 1_000))
    reader: str | None = None
    for _ in range(draw(st.integers(1, 12))):
        at_s += draw(st.floats(0.1, 2.0))
        end += draw(st.integers(0, 100))
        if reader is None:
            reader = draw(st.sampled_from([None, READER]))
        else:
            committed = draw(st.integers(committed, min(end, committed + 10_000)))
        looks.append(Look(at_s, committed, reader, 0, end, end))
    return looks


@given(honest_consumers())
def test_a_consumer_that_begins_at_the_offset_is_never_blamed(looks: list[Look]) -> None:
    found = judged(*looks)
    last = looks[-1]
    moved = [each for each in looks if each.committed != E]
    if moved:
        assert (found.state, found.committed) == ("continued", moved[0].committed)
        assert found.reader == READER
    elif last.reader is None:
        assert found.state == "no-reader"
    else:
        assert found.state == ("nothing-new" if last.end == E else "reading")


looks_of_any_kind = st.builds(
    Look,
    st.floats(0, 100),
    st.none() | st.integers(0, 2 * E),
    st.sampled_from([None, READER]),
    st.integers(0, E + 10),
    st.integers(E, 2 * E),
    st.integers(E, 2 * E),
)


@given(st.lists(looks_of_any_kind))
def test_it_never_claims_what_it_has_not_seen(looks: list[Look]) -> None:
    found = judged(*looks)
    whole = HandOver({0: found})
    if found.state == HandOverState.CONTINUED:
        first = next(each for each in looks if each.committed != E)
        assert first.committed is not None
        assert E < first.committed <= first.high_watermark
        assert any(each.reader for each in looks[: looks.index(first) + 1])
    assert ("no gap, no overlap" in str(whole)) == (found.state == HandOverState.CONTINUED)
    assert whole.is_good == (not whole.wrong)
    assert whole.is_over(1e9) or not whole.is_good


def test_the_words_count_what_was_seen_and_what_was_not() -> None:
    seen, idle = judged(NEW, look(1, E + 1)), judged(NEW, look(1, **IDLE))
    both = HandOver({0: seen, 1: idle, 2: seen})
    assert str(both) == (
        "handed over: offsets show no gap, no overlap in 2 partitions;"
        " 1 partition with nothing to read yet"
    )
    assert both.readers == READER
    assert "no commit shows more" in str(HandOver({0: idle}))
    bad = replace(both, partitions={**both.partitions, 3: judged(NEW)}, cut_short="after 5m")
    assert str(bad) == "not handed over: 1 partition (after 5m)"
    assert bad.wrong == ("3: no-reader, no member of the group has it",)


def test_a_reader_with_nothing_to_read_is_watched_until_it_would_have_committed() -> None:
    idle = HandOver({0: judged(look(1, reader=None, **IDLE), look(2, **IDLE), look(9, **IDLE))})
    assert not idle.is_over(10.9)
    assert idle.is_over(11.1)
