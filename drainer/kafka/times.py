"""The first record of a time or later: what the broker answers, held against the records.

A broker answers from the first segment whose index reaches that time, and from no other. Compaction
leaves the time of a record that it removed in the index, so a broker may answer that no record is
so late though a later segment holds some. Where timestamps fall and rise, "first" is by offset.
"""

from __future__ import annotations

from collections.abc import Mapping

from drainer.core.listed import listed
from drainer.errors import Refused
from drainer.kafka.cluster import Cluster
from drainer.kafka.spans import Span, SpanReader
from drainer.kafka.topic import LogBounds

READER = "drainer-times"
AROUND = 10  # offsets before the broker's answer that are looked at
ROUNDS = (32, 1_024, 100_000)  # records of a partition, then as many more
ROUND_BYTES = 64 * 1024 * 1024  # of a partition
PREFETCH_BYTES = 1024 * 1024


def first_since(
    cluster: Cluster, topic: str, topic_id: str, logs: Mapping[int, LogBounds], timestamp_ms: int
) -> dict[int, int | None]:
    """By partition, the offset of the first record stamped with this time or later.

    None where no record is, as far as the isolation level shows the log.

    Raises:
        Refused: when the records contradict the broker, or too many would have to be read.
    """
    held = {number: log for number, log in logs.items() if log.start < log.end}
    answers = cluster.offset_at(topic, dict.fromkeys(held, timestamp_ms))
    unnamed = [number for number, answer in answers.items() if answer is None]
    begins = {n: max(held[n].start, a - AROUND) for n, a in answers.items() if a is not None}
    begins |= _last_named(cluster, topic, {n: held[n] for n in unnamed}, timestamp_ms)
    ends = {number: log.end for number, log in held.items()}
    with SpanReader(cluster.settings, topic, topic_id, READER, PREFETCH_BYTES) as reader:
        found, unsettled = _read_on(reader, begins, ends, timestamp_ms)
    for number, answer in answers.items():
        first = found.get(number)
        if first is not None and answer is not None and first < answer:
            unsettled[number] = f"the broker names offset {answer}, and {first} is as late"
    if unsettled:
        places = listed([f"{topic}/{number}" for number in sorted(unsettled)])
        raise Refused(
            f"which record is the first of that time can't be settled on {places}:"
            f" {unsettled[min(unsettled)]}",
            hint="name an offset instead of a time, with --partition for each of these",
        )
    return {number: found.get(number) for number in logs}


def _last_named(
    cluster: Cluster, topic: str, logs: Mapping[int, LogBounds], timestamp_ms: int
) -> dict[int, int]:
    """Where to begin to read where the broker names no record of this time.

    That is the record which it names for the latest time that it names one for, nearly: all that
    lies before it is earlier than that.
    """
    low = dict.fromkeys(logs, -1)  # of these times it names the first record
    high = dict.fromkeys(logs, timestamp_ms)  # and of these none
    begins = {number: log.start for number, log in logs.items()}
    while between := {n: (low[n] + high[n]) // 2 for n in logs if high[n] - low[n] > 1}:
        for number, answer in cluster.offset_at(topic, between).items():
            if answer is None:
                high[number] = between[number]
            else:
                low[number] = between[number]
                begins[number] = max(begins[number], answer)
    return begins


def _read_on(
    reader: SpanReader, begins: Mapping[int, int], ends: Mapping[int, int], timestamp_ms: int
) -> tuple[dict[int, int | None], dict[int, str]]:
    """The first record of that time, None where there is none; and where that stays open, why."""
    at = {number: min(begin, ends[number]) for number, begin in begins.items()}
    found: dict[int, int | None] = {n: None for n, begin in at.items() if begin >= ends[n]}
    unsettled: dict[int, str] = {}
    for most in ROUNDS:
        left = [number for number in at if number not in found and number not in unsettled]
        spans = [Span(n, at[n], ends[n], most, ROUND_BYTES) for n in left]
        for stretch in reader.read(spans):
            number = stretch.span.partition
            if number in found or number in unsettled:
                continue
            for message in stretch.messages:
                if message.timestamp is None:
                    unsettled[number] = f"the record at offset {message.offset} has no timestamp"
                    break
                if message.timestamp >= timestamp_ms:
                    found[number] = message.offset
                    break
            else:
                at[number] = stretch.reached
                if stretch.reached >= ends[number]:
                    found[number] = None
    for number, reached in at.items():
        if number not in found and number not in unsettled:
            unsettled[number] = (
                f"the broker names no record, and those from {begins[number]} to {reached - 1} are"
                " all earlier"
            )
    return found, unsettled
