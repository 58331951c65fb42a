"""A sample is spread over the logs, bounded, and joins nothing."""

from __future__ import annotations

import pytest

from drainer.errors import TopicMissing
from drainer.kafka.cluster import Cluster
from drainer.kafka.sample import take_sample, windows_over
from drainer.kafka.topic import LogBounds
from kafka.topic import Topic


def log(start: int, end: int) -> LogBounds:
    return LogBounds(start, end, end, None)


def test_windows_lie_evenly_over_a_log_and_ask_for_no_more_than_wanted() -> None:
    windows = windows_over({0: log(1_000, 101_000)}, 100, seed=1)

    assert sum(window.most for window in windows) == 100
    assert len(windows) == 10
    for part, window in enumerate(windows):
        assert 1_000 + part * 10_000 <= window.start < 1_000 + (part + 1) * 10_000
        assert window.start + window.most <= window.end


def test_another_seed_moves_the_windows() -> None:
    logs = {0: log(0, 100_000)}

    assert windows_over(logs, 100, 1) == windows_over(logs, 100, 1)
    assert windows_over(logs, 100, 1) != windows_over(logs, 100, 2)


def test_a_log_shorter_than_its_share_is_read_whole_and_long_ones_have_the_rest() -> None:
    windows = windows_over({0: log(5, 8), 1: log(0, 10_000), 2: log(9, 9)}, 100, 0)

    assert {w.partition for w in windows} == {0, 1}
    assert sum(w.most for w in windows if w.partition == 0) in (1, 2, 3)
    assert sum(w.most for w in windows) == 100
    (whole,) = windows_over({0: log(5, 8)}, 100, 0)
    assert (whole.start, whole.end, whole.most) == (5, 8, 3)


def test_every_partition_has_a_say_even_when_few_are_asked_for() -> None:
    windows = windows_over({0: log(0, 10), 1: log(0, 1_000_000)}, 50, 0)

    assert {window.partition for window in windows} == {0, 1}


def test_nothing_there_is_no_window() -> None:
    assert windows_over({0: log(4, 4)}, 10, 0) == []


def test_a_sample_has_messages_from_all_parts_by_rising_offset(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=2)
    for partition in (0, 1):
        topic.produce([str(n) for n in range(500)], partition=partition)

    sample = take_sample(cluster, topic_name, None, 60, seed=3)

    assert len(sample.messages) == 60
    assert sample.offsets == 1000
    for partition in (0, 1):
        offsets = [m.offset for m in sample.messages if m.partition == partition]
        assert offsets == sorted(set(offsets))
        assert min(offsets) < 100
        assert max(offsets) >= 400
    assert {m.value for m in sample.messages} <= {str(n).encode() for n in range(500)}


def test_holes_make_a_sample_smaller_and_do_not_hold_it_up(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.produce(["first"])
    topic.transact([str(n) for n in range(50)], commit=False)

    sample = take_sample(cluster, topic_name, None, 1000, seed=0)

    assert [m.value for m in sample.messages] == [b"first"]


def test_a_partition_that_is_not_there_is_named(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    Topic(bootstrap, topic_name)

    with pytest.raises(TopicMissing, match=f"{topic_name}/4 does not exist"):
        take_sample(cluster, topic_name, [4], 10, seed=0)
