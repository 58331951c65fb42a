"""The first records of many partitions of any topics, read by one client in a few fetches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from confluent_kafka import KafkaError, TopicPartition

from drainer.kafka.log import ClientLog
from drainer.kafka.settings import MIB, ClientSettings

READER = "drainer-lag"  # Brokers use this name of a group for quotas and rights only.
AT_ONCE = 10_000  # A fetch names at most this many partitions.
# By these, a partition sends up to 64 KiB in a fetch. One batch of each is wanted, and most batches
# are smaller. Of those that are not, a broker sends only one in a fetch.
PREFETCH_BYTES, FETCH_BYTES = 16 * MIB, 4 * MIB
POLL_S = 0.1

Start = tuple[str, int, int]  # A topic, a partition and an offset.
# The offset of a record, and its time in milliseconds since 1970.
First = tuple[int, int | None]


def first_records(
    settings: ClientSettings, starts: Sequence[Start], until_s: float
) -> tuple[dict[Start, First | None], dict[str, str]]:
    """Read the first record at each of the offsets or after it; None if the log has none there.

    Returns errors by topic, too. An offset is left out if its record can't be read, or has not been
    read at ``until_s`` by the monotonic clock.
    """
    found: dict[Start, First | None] = {}
    errors: dict[str, str] = {}
    conf = settings.fetch_conf(ClientLog(), READER, PREFETCH_BYTES)
    conf |= {"queued.min.messages": 1, "fetch.max.bytes": FETCH_BYTES}
    with closing(settings.consumer(conf)) as consumer:
        waiting = list(starts)
        while waiting and time.monotonic() < until_s:
            # The client reads a partition at one place at a time.
            together: dict[object, Start] = {}
            for start in waiting:
                if len(together) < AT_ONCE:
                    together.setdefault(start[:2], start)
            waiting = [start for start in waiting if together.get(start[:2]) is not start]
            places = [TopicPartition(*start) for start in together.values()]
            consumer.assign(places)
            consumer.resume(places)
            while together and time.monotonic() < until_s:
                message = consumer.poll(POLL_S)
                if message is None:
                    continue
                place = message.topic(), message.partition()
                # What is not asked for is an error of the client itself, or comes too late.
                if place not in together:
                    continue
                start = together.pop(place)
                consumer.pause([TopicPartition(*start)])
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    time_ms = message.timestamp()[1]
                    found[start] = offset, time_ms if time_ms >= 0 else None
                elif error.code() == KafkaError._PARTITION_EOF:
                    found[start] = None
                else:
                    errors[start[0]] = error.str()
    return found, errors
