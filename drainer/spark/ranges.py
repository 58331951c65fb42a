"""The ranges of offsets that tasks read: frozen where the read is planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from drainer.core.listed import listed
from drainer.core.progress import cut
from drainer.errors import RecordsDeleted, Refused, TopicMissing
from drainer.kafka.backlog import OF_GROUPS, freeze
from drainer.kafka.cluster import Cluster
from drainer.message import Origin
from drainer.spark.options import ReadOptions


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[start, end)`` of one partition, with holes or not."""

    origin: Origin
    start: int
    end: int

    def cut(self, parts: int) -> Iterator[OffsetRange]:
        """The same in ranges that follow each other, as even as can be, none of them empty."""
        for start, end in cut((self.start, self.end), parts):
            yield OffsetRange(self.origin, start, end)


def plan_ranges(cluster: Cluster, options: ReadOptions) -> list[OffsetRange]:
    """What is to be read, cut into tasks, from now on the same whatever happens to the topic.

    Raises:
        TopicMissing: when the topic or a partition does not exist.
        OffsetMissing: when it shall start at a committed offset that there is not.
        RecordsDeleted: when ``ranges`` names offsets that retention took.
        Refused: when the range lies outside of the log otherwise, or can't be read.
        UsageError: when one offset shall be that of several partitions.
    """
    whole = _frozen(cluster, options) if options.ranges is None else _named(cluster, options)
    return [part for range_ in whole for part in range_.cut(options.tasks)]


def _frozen(cluster: Cluster, options: ReadOptions) -> list[OffsetRange]:
    # A group with another start would be kept from going back; to read is to go anywhere.
    group = options.group if options.from_ in OF_GROUPS else None
    backlog = freeze(
        cluster, options.topic, group, options.partitions or None, options.from_, options.until
    )
    return [
        OffsetRange(Origin(backlog.topic, backlog.topic_id, number), part.start, part.end)
        for number, part in sorted(backlog.partitions.items())
    ]


def _named(cluster: Cluster, options: ReadOptions) -> list[OffsetRange]:
    topic, ranges = cluster.topic(options.topic), options.ranges or {}
    if missing := [number for number in ranges if number not in topic.partitions]:
        raise TopicMissing(
            f"{listed([f'{topic.name}/{number}' for number in missing])} does not exist",
            hint=f"topic {topic.name} has partitions {topic.partitions[0]} to"
            f" {topic.partitions[-1]}",
        )
    logs = cluster.log_bounds(topic.name, ranges, cluster.settings.isolation)
    for number, (start, end) in ranges.items():
        log, place = logs[number], f"{topic.name}/{number}"
        if start < min(end, log.start):
            left = min(end, log.end)
            raise RecordsDeleted(
                f"ranges asks for offsets {start} to {end - 1} of {place}, and retention has"
                f" deleted those before {log.start}",
                hint=f"what is left of it is [{log.start}, {left}]"
                if log.start < left
                else "nothing of it is left",
            )
        if end > max(start, log.end):
            raise Refused(
                f"ranges asks for offsets {start} to {end - 1} of {place}, which ends at {log.end}",
                hint="only what is there when the read is planned can be read",
            )
    return [
        OffsetRange(Origin(topic.name, topic.topic_id, number), start, end)
        for number, (start, end) in sorted(ranges.items())
    ]
