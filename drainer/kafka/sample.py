"""A sample of a backlog's messages, spread evenly over its offsets."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import inf
from time import monotonic

from drainer.kafka.backlog import Backlog
from drainer.kafka.cluster import Cluster
from drainer.kafka.reader import KafkaMessage
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import Span, read_spans
from drainer.message import Message

WINDOWS = 10  # The least number of windows in a partition.
WINDOW_OFFSETS = 1000  # The usual length of a window: larger samples have more windows.
# The most windows of all partitions. For each one, the client fetches far more than the window.
WINDOWS_OF_ALL = 400
READER = "drainer-sample"
PREFETCH_BYTES = 1024 * 1024  # What is read ahead of a window is thrown away.
SAMPLE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SampleWindow:
    """The offsets ``[start, end)`` of a partition that were read, and all messages in them."""

    partition: int
    start: int
    end: int
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Sample:
    """Messages of a topic, and the ranges that they are a sample of."""

    topic: str
    # The offsets ``[start, end)`` by partition, from which the sample was taken.
    ranges: Mapping[int, tuple[int, int]]
    windows: Sequence[SampleWindow]  # In the order of partitions and offsets.
    read_bytes: int  # The size of the keys and values of the messages.

    @property
    def messages(self) -> list[Message]:
        """All messages of the sample, in the order of partitions and offsets."""
        return [message for window in self.windows for message in window.messages]

    @property
    def offsets(self) -> int:
        """The number of offsets in the ranges, which is an upper bound for their messages."""
        return sum(end - start for start, end in self.ranges.values())

    def bytes_per_offset(self) -> dict[int, float]:
        """Return the mean bytes of keys and values per offset, by partition that was read."""
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
    """Read about ``most`` messages of a backlog, as ``sample_ranges`` does."""
    ranges = {number: (part.start, part.end) for number, part in backlog.partitions.items()}
    return sample_ranges(cluster.settings, backlog.topic, backlog.topic_id, ranges, most, seed)


def sample_ranges(
    settings: ClientSettings,
    topic: str,
    topic_id: str,
    ranges: Mapping[int, tuple[int, int]],
    most: int,
    seed: int = 0,
    most_bytes: int = SAMPLE_BYTES,
    most_s: float = inf,
) -> Sample:
    """Read about ``most`` messages of ranges of offsets. All have about the same chance.

    The reader joins no group. It reads windows, which have about ``most`` offsets together. So the
    sample has fewer messages if the backlog is smaller or the log has holes. If messages are huge,
    the windows are read only in part. After ``most_s`` seconds, no further window is read.

    Raises BrokerUnreachable when nothing arrives for a while; Refused when the topic may not be
    read, or changes meanwhile.
    """
    until_s = monotonic() + most_s
    windows = windows_over(ranges, most, seed)
    # The bytes of each window are bounded, too. If messages are huge, a window has fewer of them.
    most_bytes //= max(1, len(windows))
    spans = [Span(*window, most_bytes=most_bytes) for window in windows]
    found: dict[Span, list[KafkaMessage]] = {span: [] for span in spans}
    reached = {span: span.start for span in spans}
    with closing(read_spans(settings, topic, topic_id, READER, spans, PREFETCH_BYTES)) as batches:
        for batch in batches:
            found[batch.span] += batch.messages
            reached[batch.span] = batch.reached
            if monotonic() > until_s:
                break
    read = [SampleWindow(span.partition, span.start, reached[span], found[span]) for span in spans]
    read_bytes = sum(message.size for messages in found.values() for message in messages)
    return Sample(topic, ranges, read, read_bytes)


def windows_over(
    ranges: Mapping[int, tuple[int, int]], most: int, seed: int
) -> list[tuple[int, int, int]]:
    """Return windows ``(partition, start, end)`` with about ``most`` offsets together.

    Each range gets a share of the offsets by its length. If a range is not longer than its share,
    it is a single window. Otherwise it is cut into equal parts, with a window in each. The seed
    decides where in its part a window begins.
    """
    lengths = {number: end - start for number, (start, end) in ranges.items() if end > start}
    chance = random.Random(seed)
    windows: list[tuple[int, int, int]] = []
    left, offsets_left = most, sum(lengths.values())
    for number, length in sorted(lengths.items(), key=lambda item: item[1]):
        # Short ranges come first. What they leave of their share goes to the longer ones. Each
        # range gets at least one offset.
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
