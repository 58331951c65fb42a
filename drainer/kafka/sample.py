"""A sample of a backlog's messages, evenly spread. Its reader joins no group."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drainer.kafka.backlog import Backlog
from drainer.kafka.cluster import Cluster
from drainer.kafka.reader import KafkaMessage
from drainer.kafka.spans import Span, read_spans
from drainer.message import Message

WINDOWS = 10  # A partition is read in at least so many places, evenly spread.
WINDOW_OFFSETS = 1000  # A larger sample has more windows instead of longer ones.
WINDOWS_OF_ALL = 400  # Each window is a fetch, most of which is thrown away.
READER = "drainer-sample"
PREFETCH_BYTES = 1024 * 1024  # What is read ahead of a window is thrown away.
SAMPLE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SampleWindow:
    """All ``messages`` of the offsets ``[start, end)`` of a partition, which were read."""

    partition: int
    start: int
    end: int
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Sample:
    """Messages of a topic, and the ranges that they are a sample of."""

    topic: str
    topic_id: str
    # The offsets ``[start, end)`` that it is a sample of, by partition.
    ranges: Mapping[int, tuple[int, int]]
    windows: Sequence[SampleWindow]  # By rising partition and offset.
    # How long the reading took. To begin at each window takes time, so the bytes per second are
    # fewer than those of a fetch that reads on and on.
    read_s: float
    read_bytes: int  # Of the keys and values of the messages.

    @property
    def messages(self) -> list[Message]:
        """All messages of the sample, by partition and rising offset."""
        return [message for window in self.windows for message in window.messages]

    @property
    def offsets(self) -> int:
        """The number of offsets in the ranges, which is an upper bound for their messages."""
        return sum(end - start for start, end in self.ranges.values())

    def bytes_of_offset(self) -> dict[int, float]:
        """Return the mean bytes of keys and values per offset, of each partition that was read."""
        offsets, sizes = Counter[int](), Counter[int]()
        for window in self.windows:
            offsets[window.partition] += window.end - window.start
            sizes[window.partition] += sum(message.size for message in window.messages)
        return {number: sizes[number] / max(1, count) for number, count in offsets.items()}

    @property
    def whole(self) -> bool:
        """Whether the sample has all messages of the ranges."""
        return sum(window.end - window.start for window in self.windows) >= self.offsets


def sample_backlog(cluster: Cluster, backlog: Backlog, most: int, seed: int = 0) -> Sample:
    """Read about ``most`` messages of a backlog. Every message has the same chance to be read.

    That is why a window is a number of offsets, and has fewer messages if the log has holes there.
    There are also fewer messages if the backlog is smaller, or if they are huge.

    Raises BrokerUnreachable when nothing arrives for a while; Refused when the topic may not be
    read, or changes meanwhile.
    """
    ranges = {number: (part.start, part.end) for number, part in backlog.partitions.items()}
    windows = windows_over(ranges, most, seed)
    # If messages are huge, each window has fewer of them.
    most_bytes = SAMPLE_BYTES // max(1, len(windows))
    spans = [Span(*window, most_bytes=most_bytes) for window in windows]
    found: dict[Span, list[KafkaMessage]] = {span: [] for span in spans}
    reached = {span: span.start for span in spans}
    topic, topic_id = backlog.topic, backlog.topic_id
    started_s = time.monotonic()
    for batch in read_spans(cluster.settings, topic, topic_id, READER, spans, PREFETCH_BYTES):
        found[batch.span] += batch.messages
        reached[batch.span] = batch.reached
    read_s = time.monotonic() - started_s
    read = [SampleWindow(span.partition, span.start, reached[span], found[span]) for span in spans]
    read_bytes = sum(message.size for messages in found.values() for message in messages)
    return Sample(topic, topic_id, ranges, read, read_s, read_bytes)


def windows_over(
    ranges: Mapping[int, tuple[int, int]], most: int, seed: int
) -> list[tuple[int, int, int]]:
    """Return windows ``(partition, start, end)`` over all ranges, of ``most`` offsets together.

    Each range has a share of them by its length. A range that is not longer than its share is one
    window. The seed decides where in its part of the range a window lies.
    """
    lengths = {number: end - start for number, (start, end) in ranges.items() if end > start}
    chance = random.Random(seed)
    windows: list[tuple[int, int, int]] = []
    left, offsets_left = most, sum(lengths.values())
    for number, length in sorted(lengths.items(), key=lambda item: item[1]):
        # Short ranges come first, because long ones get what they don't need. Each range gets at
        # least one offset.
        share = min(length, max(1, round(left * length / offsets_left)), max(1, left))
        left, offsets_left = left - share, offsets_left - length
        start, end = ranges[number]
        if share == length:
            windows.append((number, start, end))
            continue
        count = max(WINDOWS, share // WINDOW_OFFSETS)
        count = min(share, count, max(1, WINDOWS_OF_ALL // len(lengths)))
        edges = [start + length * part // count for part in range(count + 1)]
        for part in range(count):
            size = share * (part + 1) // count - share * part // count
            room = edges[part + 1] - edges[part] - size
            at = edges[part] + (chance.randint(0, room) if room > 0 else 0)
            windows.append((number, at, at + size))
    return sorted(windows)
