"""A sample is spread over the logs, bounded, and joins nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.kafka import sample as sampling
from drainer.kafka.backlog import EARLIEST, freeze
from drainer.kafka.cluster import Cluster
from drainer.kafka.sample import sample_backlog, windows_over
from kafka.topic import Topic


def size_of(windows: list[tuple[int, int, int]]) -> int:
    return sum(end - start for _, start, end in windows)


@given(
    st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 10**6), st.integers(0, 10**7))),
    st.integers(1, 10_000),
    st.integers(0, 99),
)
@settings(deadline=None)
def test_windows_lie_apart_in_their_ranges_and_have_no_more_than_requested(
    lengths: dict[int, tuple[int, int]], most: int, seed: int
) -> None:
    ranges = {number: (start, start + length) for number, (start, length) in lengths.items()}
    windows = windows_over(ranges, most, seed)
    full = [number for number, (_, length) in lengths.items() if length]

    wanted = min(most, sum(length for _, length in lengths.values()))
    assert wanted <= size_of(windows) <= max(wanted, len(full)) or not full
    assert {number for number, _, _ in windows} == set(full), "each counts"
    assert windows == windows_over(ranges, most, seed)
    for number, start, end in windows:
        assert ranges[number][0] <= start < end <= ranges[number][1]
    for (number, _, end), (other, start, _) in pairwise(windows):
        assert number < other or end <= start


def test_windows_lie_evenly_over_a_log_and_another_seed_moves_them() -> None:
    windows = windows_over({0: (1_000, 101_000)}, 100, seed=1)

    assert [(start - 1_000) // 10_000 for _, start, _ in windows] == list(range(10))
    assert windows != windows_over({0: (1_000, 101_000)}, 100, seed=2)


def test_a_sample_of_a_backlog_keeps_to_it_and_counts_what_it_read(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=2)
    for partition in (0, 1):
        topic.produce([str(n) for n in range(1000)], partition=partition)
    cluster.alter_committed("g", topic_name, {0: 400, 1: 1000})
    backlog = freeze(cluster, topic_name, "g")

    sample = sample_backlog(cluster, backlog, 100, seed=1)

    assert sample.offsets == 600
    assert len(sample.messages) == 100
    assert not sample.whole
    assert len(sample.windows) == 10
    assert sample.read_bytes == sum(len(m.value or b"") for m in sample.messages)
    for part, window in enumerate(sample.windows):
        offsets = [message.offset for message in window.messages]
        assert window.partition == 0
        assert offsets == list(range(window.start, window.end))
        assert 400 + 60 * part <= window.start < window.end <= 400 + 60 * (part + 1)


def test_a_sample_as_large_as_the_backlog_is_all_of_it(cluster: Cluster, topic: Topic) -> None:
    none = sample_backlog(cluster, freeze(cluster, topic.name, "unknown", from_=EARLIEST), 100)
    assert (none.messages, none.whole, none.offsets) == ([], True, 0)
    topic.transact(["a", "b"], commit=True)
    topic.transact(["gone"], commit=False)
    backlog = freeze(cluster, topic.name, "unknown", from_=EARLIEST)

    sample = sample_backlog(cluster, backlog, 100)

    assert sample.whole
    assert [m.value for m in sample.messages] == [b"a", b"b"]
    (window,) = sample.windows
    assert (window.start, window.end) == (0, 5)


def test_of_huge_messages_each_window_has_fewer(
    cluster: Cluster, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "SAMPLE_BYTES", 1_000_000)
    topic.produce(b"x" * 50_000 for _ in range(200))
    backlog = freeze(cluster, topic.name, "unknown", from_=EARLIEST)

    sample = sample_backlog(cluster, backlog, 100)

    assert [len(window.messages) for window in sample.windows] == [2] * 10
