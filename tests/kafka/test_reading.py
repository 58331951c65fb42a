"""Ranges are read exactly, or there is an error; a part never looks like all. A sample is spread
over the logs, bounded, and joins nothing."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from core.limit_samples import limits
from drainer.errors import BrokerUnreachable, RecordsDeleted, Refused
from drainer.kafka.backlog import EARLIEST, freeze
from drainer.kafka.cluster import Cluster
from drainer.kafka.reader import beside_value
from drainer.kafka.sample import sample_backlog, sample_ranges, windows_over
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import Span, first_messages, read_range, read_spans
from drainer.message import Message, Origin
from drainer.policy.rate_cap import RateLimiter
from kafka.reader import numbered
from kafka.topic import Topic, eventually


def origin_of(cluster: Cluster, topic: Topic) -> Origin:
    return Origin(topic.name, cluster.topic(topic.name).topic_id, 0)


def messages(
    cluster: Cluster, topic: Topic, start: int, end: int, pace: RateLimiter | None = None
) -> list[Message]:
    stream = read_range(
        cluster.settings, origin_of(cluster, topic), start, end, reader="a-test", pace=pace
    )
    return [message for batch in stream for message in batch.messages]


def by_span(cluster: Cluster, topic: Topic, spans: list[Span]) -> dict[Span, list[int]]:
    """The offsets of each, all of which come to their ends."""
    found: dict[Span, list[int]] = {span: [] for span in spans}
    reached = {span: span.start for span in spans}
    topic_id = cluster.topic(topic.name).topic_id
    for batch in read_spans(cluster.settings, topic.name, topic_id, "a-test", spans):
        found[batch.span] += [message.offset for message in batch.messages]
        assert batch.reached >= reached[batch.span]
        reached[batch.span] = batch.reached
    assert all(reached[span] == span.end or span.most_bytes for span in spans)
    return found


def test_a_message_is_what_was_produced_and_counts_with_its_key_and_headers(
    cluster: Cluster, topic: Topic
) -> None:
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    producer.produce(topic.name, b"v", b"k", headers=[("h", b"1"), ("n", None)], timestamp=1234567)
    producer.produce(topic.name, None, None)
    producer.produce(topic.name, b"v", b"key")
    producer.produce(topic.name, b"v", headers=[("h", b"1234")])
    producer.flush()
    first, second, *_ = found = messages(cluster, topic, 0, 4)
    assert (first.key, first.value, first.offset, first.partition) == (b"k", b"v", 0, 0)
    assert first.timestamp == 1234567
    assert list(first.headers) == [("h", b"1"), ("n", None)]
    assert str(first) == f"{topic.name}/0/0"
    assert (second.key, second.value, list(second.headers)) == (None, None, [])
    # To look at each would take too long; the memory is rather taken for more than for less.
    assert beside_value(topic.read_all(4)[1:]) == 5
    assert {message.size - len(message.value or b"") for message in found} == {5}
    assert beside_value([]) == 0


def test_whatever_holes_a_log_has_every_range_of_it_gives_the_records_that_are_shown(
    cluster: Cluster, topic: Topic, bootstrap: str
) -> None:
    topic.transact("xxx", commit=False)  # and a marker at 3
    topic.produce("ab")
    topic.transact("xx", commit=False)
    topic.transact("cd", commit=True)
    topic.produce("e")
    topic.transact("xx", commit=False)
    open_one = topic.open_transaction("gh")
    shown = [4, 5, 9, 10, 12]
    end = 16
    spans = [Span(0, start, stop) for start in range(end) for stop in range(start, end + 1, 5)]

    assert by_span(cluster, topic, spans) == {
        span: [offset for offset in shown if span.start <= offset < span.end] for span in spans
    }
    for start, stop in ((0, end), (0, 4), (11, 12), (6, 9), (13, end), (7, 7)):
        read = [message.offset for message in messages(cluster, topic, start, stop)]
        assert read == [offset for offset in shown if start <= offset < stop]
    level = ["isolation.level=read_uncommitted"]
    with Cluster.connect(ClientSettings.load(bootstrap, None, level)) as uncommitted:
        read = [message.offset for message in messages(uncommitted, topic, 0, 18)]
    assert read == [0, 1, 2, *shown[:2], 6, 7, 9, 10, 12, 13, 14, 16, 17]
    open_one.abort_transaction()


def test_a_compacted_topic_is_read_to_its_end(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    compact = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
    }
    topic = Topic(bootstrap, topic_name, config=compact)
    for round_ in range(3):
        topic.produce(["old"], key=b"first")
        topic.produce(numbered(50), key=b"hot")
        topic.produce([f"kept-{round_}"], key=b"%d" % round_)
    end = cluster.log_bounds(topic_name, [0], "read_committed")[0].end

    def compacted() -> bool:
        topic.produce(["roll"], key=b"roll")  # a segment is closed by the next one
        return len(messages(cluster, topic, 0, end)) <= 60

    eventually(compacted, "the cleaner has been here", 30)
    found = messages(cluster, topic, 0, end)
    offsets = [message.offset for message in found]
    assert offsets[0] > 0
    assert any(behind - before > 1 for before, behind in pairwise(offsets))
    assert {b"kept-%d" % n for n in range(3)} <= {message.value for message in found}


def test_spans_of_one_partition_and_of_others_are_each_read_to_their_bounds(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=2)
    for partition in (0, 1):
        topic.produce([str(n) for n in range(3000)], partition=partition)
    spans = [
        Span(0, 10, 20),
        Span(0, 2000, 2900, most_bytes=28),
        Span(0, 15, 1500),
        Span(1, 2999, 3000),
        Span(1, 5, 5),
        Span(1, 100, 3000, most_bytes=9),
    ]

    assert by_span(cluster, topic, spans) == {
        spans[0]: list(range(10, 20)),
        spans[1]: list(range(2000, 2007)),
        spans[2]: list(range(15, 1500)),
        spans[3]: [2999],
        spans[4]: [],
        spans[5]: [100, 101, 102],  # three digits each
    }
    topic_id = cluster.topic(topic_name).topic_id
    ranges = {0: (7, 3000), 1: (3, 3)}
    firsts = first_messages(cluster.settings, topic_name, topic_id, "a-test", ranges)
    assert {number: message.offset for number, message in firsts.items()} == {0: 7}


def test_what_is_deleted_before_it_is_read_is_an_error_and_no_gap(
    cluster: Cluster, topic: Topic
) -> None:
    topic.produce("abc")
    topic.delete_before(2)

    with pytest.raises(RecordsDeleted, match="deleted offsets 0 to 1 of"):
        messages(cluster, topic, 0, 3)
    with pytest.raises(Refused, match=f"of {topic.name}/0 before the drain read them") as raised:
        by_span(cluster, topic, [Span(0, 0, 3)])
    assert "resume" not in (raised.value.hint or "")


def test_a_log_that_ends_before_the_range_is_an_error_and_no_end(
    cluster: Cluster, topic: Topic
) -> None:
    topic.produce("abc")
    origin = origin_of(cluster, topic)

    with pytest.raises(
        BrokerUnreachable, match=f"can't read {topic.name}/0: no record from offset 3 on"
    ):
        list(read_range(cluster.settings, origin, 0, 10, reader="a-test", silence_s=0.2))


def test_a_message_that_is_let_go_holds_nothing_of_its_record(
    cluster: Cluster, topic: Topic
) -> None:
    count, size = 20, 500_000
    topic.produce(numbered(count, size=size))
    tracemalloc.start()
    try:
        found = messages(cluster, topic, 0, count)
        before = tracemalloc.get_traced_memory()[0]
        for message in found:
            message.let_go()
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert before > count * size, "they were there"
    assert left < size
    assert [message.offset for message in found] == list(range(count))
    assert (found[0].value, found[0].headers, found[0].timestamp) == (None, (), None)


class Counted(RateLimiter):
    """Allows for seven at a time, in each second call."""

    def __init__(self) -> None:
        super().__init__(limits({100: 1_000_000.0}))
        self.calls = 0
        self.came_in: list[tuple[int, int]] = []

    def allowed(self, now_s: float) -> int:
        self.calls += 1
        return 7 * (self.calls % 2)

    def next_s(self, now_s: float, messages: int = 1) -> float:
        return 0.0

    def came(self, now_s: float, messages: int, size: int) -> None:
        self.came_in.append((messages, size))


def test_a_pace_is_kept_and_gets_the_bytes_of_keys_and_values(
    cluster: Cluster, topic: Topic
) -> None:
    topic.produce(["x" * 90] * 500, key=b"0123456789")
    pace = Counted()
    assert [m.offset for m in messages(cluster, topic, 0, 500, pace)] == list(range(500))
    assert max(count for count, _ in pace.came_in) <= 7
    assert sum(count for count, _ in pace.came_in) == 500
    assert {size / count for count, size in pace.came_in} == {100}


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


def test_of_huge_messages_each_window_has_fewer(cluster: Cluster, topic: Topic) -> None:
    topic.produce(b"x" * 50_000 for _ in range(200))
    what = cluster.settings, topic.name, cluster.topic(topic.name).topic_id

    sample = sample_ranges(*what, {0: (0, 200)}, 100, most_bytes=1_000_000)

    assert [len(window.messages) for window in sample.windows] == [2] * 10
