"""The data source ``drainer`` as a stream, whose progress is in the checkpoint of the query.

Spark keeps the end of each micro-batch in the checkpoint before it runs the batch. This is such an
offset, for a topic ``orders`` with two partitions:

    {"orders": {"id": "Z2fVzU0XSqyEAiKpJYkX4g", "offsets": {"0": 12, "1": 8}, "began": {"1": 0}}}

``offsets`` are the next offsets to read. ``began`` has the first offset of each partition that this
batch is the first to read. Spark does not keep the offset where a query began, and asks for it
again if the query ends before its first batch has. By then, the end of the log or its earliest
record may be other ones. So ``initialOffset`` is empty, and the first batch says where it began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from drainer.errors import LogCut, RecordsDeleted, TopicGone, UsageError, raised_as
from drainer.kafka.backlog import END
from drainer.kafka.cluster import Cluster, LogBounds
from drainer.message import Origin
from drainer.model.listed import listed
from drainer.spark.reading.columns import ensure_columns, read_rows
from drainer.spark.reading.options import (
    OffsetRange,
    ReadOptions,
    cut_evenly,
    explained,
    plan_ranges,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ANEW = "start the query with another checkpointLocation."

Offset = dict[str, Any]  # An offset as Spark has it, made of texts and numbers.
Places = Mapping[Origin, int]  # An offset of each partition.


class TopicOffset(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The part of an offset that one topic has, as the docstring of this module describes it."""

    id: str
    offsets: dict[int, int]
    began: dict[int, int] = {}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in a process beside the driver, and reads them in tasks.

    Its methods raise errors, and the constructor does not: Spark would show an error of its own
    instead.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._cluster: Cluster | None = None
        # The logs to whose ends a query with Trigger.AvailableNow reads.
        self._frozen: dict[Origin, LogBounds] | None = None
        self._latest: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.most
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with explained():
            self._frozen = self._logs()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next micro-batch, or ``start`` if there is nothing new.

        Raises LogCut, RecordsDeleted or TopicGone if records are lost; UsageError if an option or
        the schema makes no sense for a stream, or if the query no longer reads a partition that it
        has read.
        """
        with explained():
            self._options.ensure_stream()
            ensure_columns(self._schema)
            logs = self._logs() if self._frozen is None else self._frozen
            self._latest = _encode({origin: log.end for origin, log in logs.items()})
            known, _ = _decode(start)
            began = self._began(known, logs)
            places = {**known, **began}
            _ensure_whole(places, logs)
            left = {origin: max(0, logs[origin].end - at) for origin, at in places.items()}
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(left.values())
            taken = _divide(left, most)
            if not began and not any(taken.values()):
                return start
            return _encode({origin: at + taken[origin] for origin, at in places.items()}, began)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        return self._latest

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the ranges of a micro-batch, which its two offsets alone decide."""
        if start == end:
            return []
        with explained():
            known, _ = _decode(start)
            ends, began = _decode(end)
            begins = {**known, **began}
            if begins.keys() != ends.keys() or any(begins[o] > at for o, at in ends.items()):
                raise UsageError(
                    f"the checkpoint has {end} after {start}, so one of them is not of this query",
                    hint=f"To read anew, {_ANEW}",
                )
            ranges = [OffsetRange(origin, begins[origin], at) for origin, at in ends.items()]
            return [InputPartition(each) for each in cut_evenly(ranges, self._options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_rows(self._options, self._schema, partition.value)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def _logs(self) -> dict[Origin, LogBounds]:
        if self._cluster is None:
            self._cluster = Cluster.connect(self._options.settings())
        cluster, found = self._cluster, dict[Origin, LogBounds]()
        for topic, numbers in sorted(self._options.topics.items()):
            info = cluster.topic(topic)
            chosen = info.chosen(numbers or None)
            logs = cluster.log_bounds(topic, chosen, cluster.settings.isolation)
            found |= {Origin(topic, info.topic_id, number): logs[number] for number in chosen}
        return found

    def _began(self, known: Places, logs: Mapping[Origin, LogBounds]) -> dict[Origin, int]:
        """Return the first offset of each partition that the query has not read before."""
        if not known:
            assert self._cluster is not None
            ranges = plan_ranges(self._cluster, self._options, default_start=END)
            starts = {each.origin: each.start for each in ranges}
            return {origin: min(starts[origin], log.end) for origin, log in logs.items()}
        # A partition that a topic gets while it is read has to be read from its first record on. A
        # topic or a partition that the options name later begins at its earliest record.
        grown = {o.topic for o in known if not self._options.topics.get(o.topic)}
        new = {origin: log for origin, log in logs.items() if origin not in known}
        return {origin: 0 if origin.topic in grown else log.start for origin, log in new.items()}


def _ensure_whole(places: Places, logs: Mapping[Origin, LogBounds]) -> None:
    """Ensure that the logs still have everything from these places on."""
    ids = {origin.topic: origin.topic_id for origin in logs}
    unread = []
    for origin, at in places.items():
        place, log = f"{origin.topic}/{origin.partition}", logs.get(origin)
        if log is None and ids.get(origin.topic, origin.topic_id) != origin.topic_id:
            raise TopicGone(
                f"topic {origin.topic} was deleted and created again: the checkpoint has its id"
                f" {origin.topic_id}, and now it has {ids[origin.topic]}",
                hint=f"Its records are gone. To read the new topic, {_ANEW}",
            )
        if log is None:
            unread.append(place)
        elif at < log.start:
            raise RecordsDeleted(
                f"retention deleted offsets {at} to {log.start - 1} of {place} before the stream"
                f" read them: the log now starts at {log.start}",
                hint=f"Raise the topic's retention. To read what is left, {_ANEW}",
            )
        elif at > log.high_watermark:
            raise LogCut(
                f"{place} lost records: its log ends at {log.high_watermark}, below {at}, as after"
                " an unclean leader election",
                hint=f"Find out which records the brokers lost. To read what is left, {_ANEW}",
            )
    if unread:
        raise UsageError(
            f"the checkpoint has {listed(unread)}, which this query does not read",
            hint=f"Read them, too. To read without them, {_ANEW}",
        )


def _divide(left: Places, most: int) -> Places:
    """Return how many offsets to take of each partition that has these left.

    The partitions share ``most`` by what they have left. Each takes at least one, so that none of
    them waits forever, as in Spark's own source.
    """
    total = sum(left.values())
    if total <= most:
        return left
    return {origin: min(count, max(1, count * most // total)) for origin, count in left.items()}


def _encode(places: Places, began: Places | None = None) -> Offset:
    # Spark compares the texts of offsets, so equal ones have their parts in one order.
    topics = dict[str, TopicOffset]()
    for origin in sorted(places, key=lambda origin: (origin.topic, origin.partition)):
        found = topics.setdefault(origin.topic, TopicOffset(origin.topic_id, {}, {}))
        found.offsets[origin.partition] = places[origin]
        if began and origin in began:
            found.began[origin.partition] = began[origin]
    made: Offset = msgspec.to_builtins(topics, str_keys=True)
    return made


def _decode(offset: Offset) -> tuple[dict[Origin, int], dict[Origin, int]]:
    """Return the places that an offset has, and the places where its batch began.

    Raises UsageError if drainer did not write it.
    """
    hint = f"It may be the checkpoint of another source. To read anew, {_ANEW}"
    about = "the checkpoint has an offset of another kind: "
    with raised_as(UsageError, msgspec.ValidationError, about=about, hint=hint):
        topics = msgspec.convert(offset, dict[str, TopicOffset], str_keys=True, strict=False)
    places, began = dict[Origin, int](), dict[Origin, int]()
    for topic, found in topics.items():
        places |= {Origin(topic, found.id, n): at for n, at in found.offsets.items()}
        began |= {Origin(topic, found.id, n): at for n, at in found.began.items()}
    return places, began
