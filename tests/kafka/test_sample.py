"""A sample is spread over the logs, bounded, and joins nothing."""

from __future__ import annotations

import pytest

from drainer.errors import TopicMissing
from drainer.kafka import sample as sampling
from drainer.kafka.backlog import Earliest, freeze
from drainer.kafka.cluster import Cluster
from drainer.kafka.sample import sample_backlog, take_sample, windows_over
from drainer.kafka.spans import Span
from kafka.topic import Topic


def asked(windows: list[Span]) -> int:
    return sum(window.most or 0 for window in windows)


def test_windows_lie_evenly_over_a_log_and_ask_for_no_more_than_wanted() -> None:
    windows = windows_over({0: (1_000, 101_000)}, 100, seed=1)

    assert asked(windows) == 100
    assert len(windows) == 10
    for part, window in enumerate(windows):
        assert 1_000 + part * 10_000 <= window.start < 1_000 + (part + 1) * 10_000
        assert window.start + asked([window]) <= window.end


def test_another_seed_moves_the_windows() -> None:
    logs = {0: (0, 100_000)}

    assert windows_over(logs, 100, 1) == windows_over(logs, 100, 1)
    assert windows_over(logs, 100, 1) != windows_over(logs, 100, 2)


def test_a_log_shorter_than_its_share_is_read_whole_and_long_ones_have_the_rest() -> None:
    windows = windows_over({0: (5, 8), 1: (0, 10_000), 2: (9, 9)}, 100, 0)

    assert {w.partition for w in windows} == {0, 1}
    assert asked([w for w in windows if w.partition == 0]) in (1, 2, 3)
    assert asked(windows) == 100
    (whole,) = windows_over({0: (5, 8)}, 100, 0)
    assert (whole.start, whole.end, whole.most) == (5, 8, 3)


def test_every_partition_has_a_say_even_when_few_are_asked_for() -> None:
    windows = windows_over({0: (0, 10), 1: (0, 1_000_000)}, 50, 0)

    assert {window.partition for window in windows} == {0, 1}


def test_nothing_there_is_no_window() -> None:
    assert windows_over({0: (4, 4)}, 10, 0) == []


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


def test_a_sample_of_a_backlog_keeps_to_it_and_tells_what_it_read(
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
    assert sample.read_s > 0
    for part, window in enumerate(sample.windows):
        offsets = [message.offset for message in window.messages]
        assert window.partition == 0
        assert offsets == list(range(window.start, window.end))
        assert 400 + 60 * part <= window.start < window.end <= 400 + 60 * (part + 1)


def test_a_sample_as_large_as_the_backlog_is_all_of_it(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.transact(["a", "b"], commit=True)
    topic.transact(["gone"], commit=False)
    backlog = freeze(cluster, topic_name, "nobody", from_=Earliest())

    sample = sample_backlog(cluster, backlog, 100)

    assert sample.whole
    assert [m.value for m in sample.messages] == [b"a", b"b"]
    (window,) = sample.windows
    assert (window.start, window.end) == (0, 5)


def test_holes_in_a_backlog_are_made_up_for(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name)
    for part in range(20):
        topic.produce([f"{part}-{n}" for n in range(10)])
        topic.transact(["gone"] * 9, commit=False)  # and a marker
    backlog = freeze(cluster, topic_name, "nobody", from_=Earliest())

    sample = sample_backlog(cluster, backlog, 80, seed=1)

    assert backlog.offsets == 400
    assert not sample.whole
    assert 56 <= len(sample.messages) <= 140  # half of 80 without more offsets
    # Those beside a hole are no longer than the others, and give fewer messages.
    assert len({window.end - window.start for window in sample.windows}) <= 2
    assert len({len(window.messages) for window in sample.windows}) > 2


def test_of_huge_messages_each_window_has_fewer(
    cluster: Cluster, bootstrap: str, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "SAMPLE_BYTES", 1_000_000)
    topic = Topic(bootstrap, topic_name)
    topic.produce(b"x" * 50_000 for _ in range(200))
    backlog = freeze(cluster, topic_name, "nobody", from_=Earliest())

    sample = sample_backlog(cluster, backlog, 100)

    assert [len(window.messages) for window in sample.windows] == [2] * 10


def test_an_empty_backlog_is_an_empty_sample(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    Topic(bootstrap, topic_name)
    backlog = freeze(cluster, topic_name, "nobody", from_=Earliest())

    sample = sample_backlog(cluster, backlog, 100)

    assert (sample.messages, sample.whole, sample.offsets) == ([], True, 0)
