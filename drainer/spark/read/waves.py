"""Waves: parts of a backlog that follow each other, each of about so many bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drainer.model.ranges import Range, cut

FIRST_BYTES = 8 * 1024 * 1024
GROWTH = 4  # times the size of the wave before
# The processor time that makes a slice worth a task of its own. Where two slices of a partition
# meet, both read the producer's batch there, and the first reads some of the next one. So slices
# are large, unless split takes long.
SLICE_S = 4.0
FIRST_SLICE_BYTES = 4 * 1024 * 1024
SLICE_BYTES_LEAST, SLICE_BYTES_MOST = 1024 * 1024, 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Slice:
    """The offsets ``[start, end)`` of one partition that one task reads."""

    partition: int
    start: int
    end: int


class Waves:
    """Cuts what is left of a backlog into waves, so that all partitions end with the last wave.

    The first waves are small, so that the tasks don't wait long for the first one. While the tasks
    are busy, larger and larger waves are read.

    Args:
        lefts: by partition, the offsets ``[start, end)`` that are left.
        wave_bytes: the maximum size of a wave.
        bytes_per_offset: a first guess, which ``took`` improves.
    """

    def __init__(
        self, lefts: Mapping[int, Range], wave_bytes: int, bytes_per_offset: float
    ) -> None:
        self._lefts = {n: left for n, left in sorted(lefts.items()) if left[0] < left[1]}
        self._most_bytes = wave_bytes
        self._wave_bytes = min(FIRST_BYTES, wave_bytes)
        self._bytes_per_offset = max(bytes_per_offset, 1.0)
        self._slice_bytes = float(FIRST_SLICE_BYTES)
        self._guessed = True

    @property
    def left(self) -> int:
        """The number of offsets that are in no wave yet."""
        return sum(end - start for start, end in self._lefts.values())

    @property
    def about(self) -> int:
        """About how many waves are to come."""
        left, size, waves = self.left * self._bytes_per_offset, self._wave_bytes, 0
        while left > 0 and size < self._most_bytes:
            left, size, waves = left - size, min(self._most_bytes, size * GROWTH), waves + 1
        return waves + max(0, math.ceil(left / size))

    def next(self) -> dict[int, Range]:
        """Return the offsets of the next wave, by partition; nothing if nothing is left."""
        offsets = max(1, int(self._wave_bytes / self._bytes_per_offset))
        share = min(1.0, offsets / max(1, self.left))
        return {
            n: (start, min(end, start + max(1, round((end - start) * share))))
            for n, (start, end) in self._lefts.items()
        }

    def took(self, ranges: Mapping[int, Range], read_bytes: int, processor_s: float) -> None:
        """Note that a wave was read, with the bytes and the processor time of all its slices.

        The guess of the size per offset moves half of the way to what was found.
        """
        offsets = sum(end - start for start, end in ranges.values())
        if read_bytes and offsets:
            found = max(1.0, read_bytes / offsets)
            known = found if self._guessed else self._bytes_per_offset
            self._bytes_per_offset, self._guessed = (known + found) / 2, False
        if read_bytes and processor_s:
            worth = SLICE_S * read_bytes / processor_s
            self._slice_bytes = min(max(worth, SLICE_BYTES_LEAST), SLICE_BYTES_MOST)
        self._wave_bytes = min(self._most_bytes, self._wave_bytes * GROWTH)
        for number, (_, end) in ranges.items():
            self._lefts[number] = (end, self._lefts[number][1])
        self._lefts = {n: left for n, left in self._lefts.items() if left[0] < left[1]}

    def stop(self, partitions: Iterable[int]) -> None:
        """Leave out what these partitions have left."""
        for number in partitions:
            self._lefts.pop(number, None)

    def slices(self, ranges: Mapping[int, Range], readers: int) -> list[Slice]:
        """Cut a wave into slices for about so many tasks at most. A large part of one partition
        makes several slices."""
        offsets = max(1, sum(end - start for start, end in ranges.values()))
        worth = math.ceil(offsets * self._bytes_per_offset / self._slice_bytes)
        tasks = min(readers, worth)
        return [
            Slice(number, *bounds)
            for number, (start, end) in ranges.items()
            for bounds in cut((start, end), max(1, round(tasks * (end - start) / offsets)))
        ]
