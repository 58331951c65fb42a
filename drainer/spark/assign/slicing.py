"""Cuts a backlog into slices, and a slice into the spans that tasks read, by sizes of messages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import HEADS_BYTES, Span, read_spans
from drainer.model.plan import OffsetPlan
from drainer.model.ranges import Range, cut

FIRST_BYTES = 8 * 1024 * 1024
GROWTH = 4  # A slice is this many times as large as the slice before it.
# A span is worth a task of its own if it takes this much processor time. Smaller spans cost too
# much: where two spans of a partition meet, both tasks read the same batch of a producer, and the
# first task also reads a part of the next batch.
SPAN_S = 4.0
FIRST_SPAN_BYTES = 4 * 1024 * 1024
SPAN_BYTES_LEAST, SPAN_BYTES_MOST = 1024 * 1024, 16 * 1024 * 1024
# The mean size of a message is estimated from the first bytes of this many partitions.
LOOKED_AT, LOOKED_AT_BYTES = 8, 64 * 1024


class Slicer:
    """Cuts what is left of a backlog into slices, so that all partitions end with the last slice.

    The first slices are small, so that the first calls begin soon. Then larger and larger slices
    are read, since each of them has some cost.

    Args:
        lefts: by partition, the offsets ``[start, end)`` that are left.
        slice_bytes: the maximum size of a slice.
        bytes_per_offset: a first guess of the size of a message, which ``took`` improves.
    """

    def __init__(
        self, lefts: Mapping[int, Range], slice_bytes: int, bytes_per_offset: float
    ) -> None:
        self._lefts = {n: left for n, left in sorted(lefts.items()) if left[0] < left[1]}
        self._most_bytes = slice_bytes
        self._slice_bytes = min(FIRST_BYTES, slice_bytes)
        self._bytes_per_offset = max(bytes_per_offset, 1.0)
        self._span_bytes = float(FIRST_SPAN_BYTES)
        self._guessed = True

    @property
    def left(self) -> int:
        """The number of offsets that are in no slice yet."""
        return sum(end - start for start, end in self._lefts.values())

    @property
    def about(self) -> int:
        """The estimated number of slices that are still to be read."""
        left, size, slices = self.left * self._bytes_per_offset, self._slice_bytes, 0
        while left > 0 and size < self._most_bytes:
            left, size, slices = left - size, min(self._most_bytes, size * GROWTH), slices + 1
        return slices + max(0, math.ceil(left / size))

    def next(self) -> dict[int, Range]:
        """Return the offsets of the next slice, by partition. It is empty if nothing is left."""
        offsets = max(1, int(self._slice_bytes / self._bytes_per_offset))
        share = min(1.0, offsets / max(1, self.left))
        return {
            n: (start, min(end, start + max(1, round((end - start) * share))))
            for n, (start, end) in self._lefts.items()
        }

    def took(self, ranges: Mapping[int, Range], read_bytes: int, processor_s: float) -> None:
        """Note that a slice was read, with the size and the processor time of all its spans.

        The guess of the bytes per offset moves half of the way to the size that was found.
        """
        offsets = sum(end - start for start, end in ranges.values())
        if read_bytes and offsets:
            found = max(1.0, read_bytes / offsets)
            known = found if self._guessed else self._bytes_per_offset
            self._bytes_per_offset, self._guessed = (known + found) / 2, False
        if read_bytes and processor_s:
            worth = SPAN_S * read_bytes / processor_s
            self._span_bytes = min(max(worth, SPAN_BYTES_LEAST), SPAN_BYTES_MOST)
        self._slice_bytes = min(self._most_bytes, self._slice_bytes * GROWTH)
        for number, (_, end) in ranges.items():
            self._lefts[number] = (end, self._lefts[number][1])
        self._lefts = {n: left for n, left in self._lefts.items() if left[0] < left[1]}

    def stop(self, partitions: Iterable[int]) -> None:
        """Cut no more slices of these partitions."""
        for number in partitions:
            self._lefts.pop(number, None)

    def spans(self, ranges: Mapping[int, Range], readers: int) -> tuple[Span, ...]:
        """Cut a slice into spans, for roughly ``readers`` readers at most.

        A large part of one partition makes several spans.
        """
        offsets = max(1, sum(end - start for start, end in ranges.values()))
        worth = math.ceil(offsets * self._bytes_per_offset / self._span_bytes)
        tasks = min(readers, worth)
        return tuple(
            Span(number, *bounds)
            for number, (start, end) in ranges.items()
            for bounds in cut((start, end), max(1, round(tasks * (end - start) / offsets)))
        )


def typical_bytes(client: ClientSettings, plan: OffsetPlan) -> float:
    """Estimate the mean size of a message from the first messages of a few partitions.

    Raises the same errors as ``read_spans``.
    """
    parts = [
        (n, plan.account.watermark(n), part.end) for n, part in plan.account.partitions.items()
    ]
    spans = [Span(*part, LOOKED_AT_BYTES) for part in parts if part[1] < part[2]][:LOOKED_AT]
    batches = read_spans(
        client, plan.terms.topic, plan.terms.topic_id, plan.terms.group, spans, HEADS_BYTES
    )
    sizes = [message.size for batch in batches for message in batch.messages]
    return sum(sizes) / len(sizes) if sizes else 1.0
