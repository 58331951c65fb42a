"""Spans are read to their bounds, several of one partition too, and trouble is told in one way."""

from __future__ import annotations

import pytest

from drainer.errors import Refused
from drainer.kafka.cluster import Cluster
from drainer.kafka.spans import Span, SpanReader
from kafka.topic import Topic


def offsets(cluster: Cluster, topic: str, spans: list[Span]) -> dict[Span, list[int]]:
    found: dict[Span, list[int]] = {span: [] for span in spans}
    done: set[Span] = set()
    with SpanReader(cluster.settings, topic, "id", "a-test") as reader:
        for stretch in reader.read(spans):
            assert stretch.span not in done
            found[stretch.span] += [message.offset for message in stretch.messages]
            if stretch.done:
                done.add(stretch.span)
    assert done == {span for span in spans if span.start < span.end}
    return found


def test_spans_of_one_partition_and_of_others_are_each_read_to_their_bounds(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=2)
    for partition in (0, 1):
        topic.produce([str(n) for n in range(3000)], partition=partition)
    spans = [
        Span(0, 10, 20),
        Span(0, 2000, 2900, most=7),
        Span(0, 15, 1500),
        Span(1, 2999, 3000),
        Span(1, 5, 5),
        Span(1, 100, 3000, most_bytes=9),
    ]

    assert offsets(cluster, topic_name, spans) == {
        spans[0]: list(range(10, 20)),
        spans[1]: list(range(2000, 2007)),
        spans[2]: list(range(15, 1500)),
        spans[3]: [2999],
        spans[4]: [],
        spans[5]: [100, 101, 102],  # three digits each
    }


def test_a_span_that_ends_on_a_hole_or_is_one_comes_to_its_end(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.produce(["a"])
    topic.transact(["gone"] * 5, commit=False)  # 1 to 5, and the marker at 6
    topic.produce(["b"])
    reached = {}
    spans = [Span(0, 0, 4), Span(0, 2, 6), Span(0, 3, 8)]

    with SpanReader(cluster.settings, topic_name, "id", "a-test") as reader:
        for stretch in reader.read(spans):
            if stretch.done:
                reached[stretch.span] = stretch.reached

    assert reached == {spans[0]: 4, spans[1]: 6, spans[2]: 8}


def test_records_that_are_deleted_before_they_are_read_are_told(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.produce(["a", "b"])
    topic.delete_before(1)

    with pytest.raises(Refused, match=f"{topic_name}/0 were deleted while"):
        offsets(cluster, topic_name, [Span(0, 0, 2)])
