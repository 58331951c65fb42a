"""A sample of a backlog's messages, read evenly over it; joins no group and commits nothing."""

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

WINDOWS = 10  # a partition is looked at in so many places, evenly apart
WINDOW_OFFSETS = 1000  # a larger sample has more windows rather than longer ones
WINDOWS_OF_ALL = 400  # each is a fetch, most of which is thrown away
READER = "drainer-sample"
PREFETCH_BYTES = 1024 * 1024  # what is read ahead of a window is thrown away
SAMPLE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SampleWindow:
    """A place that was read: all ``messages`` of offsets ``[start, end)`` of a partition."""

    partition: int
    start: int
    end: int
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Sample:
    """Messages of a topic, and what they are taken from."""

    topic: str
    topic_id: str
    # By partition, the offsets ``[start, end)`` that it is a sample of.
    ranges: Mapping[int, tuple[int, int]]
    windows: Sequence[SampleWindow]  # what was read, by rising partition and offset
    # How long the reading took, with all that it takes to begin at each window: so bytes by seconds
    # is less than a fetch gives that reads on and on.
    read_s: float
    read_bytes: int  # keys and values of the messages

    @property
    def messages(self) -> list[Message]:
        """All messages of the sample, those of a partition by rising offset."""
        return [message for window in self.windows for message in window.messages]

    @property
    def offsets(self) -> int:
        """Offsets that the ranges span: an upper bound for their messages."""
        return sum(end - start for start, end in self.ranges.values())

    def bytes_of_offset(self) -> dict[int, float]:
        """By partition that was looked at, what one offset has in keys and values, on average."""
        offsets, sizes = Counter[int](), Counter[int]()
        for window in self.windows:
            offsets[window.partition] += window.end - window.start
            sizes[window.partition] += sum(message.size for message in window.messages)
        return {number: sizes[number] / max(1, count) for number, count in offsets.items()}

    @property
    def whole(self) -> bool:
        """Whether nothing was left out."""
        return sum(window.end - window.start for window in self.windows) >= self.offsets


def sample_backlog(cluster: Cluster, backlog: Backlog, most: int, seed: int = 0) -> Sample:
    """Read about ``most`` messages of a backlog; every message has the same chance to be read.

    For that a window is a number of offsets and not of messages: where a log has holes, it gives
    fewer. Fewer come, too, when there are not as many, or they are huge.

    Raises BrokerUnreachable when nothing arrives for a while; Refused when the topic may not be
    read, or its log changes while it is.
    """
    ranges = {number: (part.start, part.end) for number, part in backlog.partitions.items()}
    windows = windows_over(ranges, most, seed)
    # Of huge messages each window has fewer.
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
    """Windows ``(partition, start, end)`` over all ranges, of ``most`` offsets in all; each range
    has a share by its length.

    A range that is no longer than its share is one window. The seed moves windows within their
    part.
    """
    lengths = {number: end - start for number, (start, end) in ranges.items() if end > start}
    chance = random.Random(seed)
    windows: list[tuple[int, int, int]] = []
    left, offsets_left = most, sum(lengths.values())
    for number, length in sorted(lengths.items(), key=lambda item: item[1]):
        # The short ones first: of what they don't need the long ones have more. At least one each.
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
