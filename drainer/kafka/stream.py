"""One range of one partition as a stream of batches: exactly its records, or an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from drainer.errors import BrokerUnreachable
from drainer.kafka.cluster import Cluster
from drainer.kafka.fetch import FetchThread
from drainer.kafka.loss import made_again
from drainer.kafka.record import Batch
from drainer.kafka.settings import ClientSettings
from drainer.message import Origin
from drainer.policy.rate_cap import RateLimiter

QUEUE_BYTES = 16 * 1024 * 1024
PREFETCH_BYTES = 16 * 1024 * 1024
SILENCE_S = 30.0
NEWS_WAIT_S = 0.1


def read_range(
    settings: ClientSettings,
    origin: Origin,
    start: int,
    end: int,
    *,
    reader: str,
    silence_s: float = SILENCE_S,
    pace: RateLimiter | None = None,
) -> Iterator[Batch]:
    """All that the isolation level shows of offsets ``[start, end)``, with holes or not.

    It is over when it is known that nothing of the range is left to read; a log that ends before
    ``end`` is an error, not an end. Holds about ``QUEUE_BYTES`` and ``PREFETCH_BYTES``. ``reader``
    is the name of a group that the broker sees; nobody is in it. ``pace`` holds it to a cap.

    Raises:
        BrokerUnreachable: when no broker answers, or nothing arrives for ``silence_s``.
        TopicMissing: when there is no topic of this name.
        RecordsDeleted: when retention takes records of the range before they were read.
        TopicGone: when the topic was recreated, also before this began; or deleted meanwhile.
        Interrupted: when it can't be read for another reason.
        UsageError: when librdkafka rejects the settings.
    """
    if start >= end:
        return
    number = origin.partition
    with Cluster.connect(settings) as cluster:
        if cluster.topic(origin.topic).topic_id != origin.topic_id:
            raise made_again(origin)
    news = threading.Event()
    fetch = FetchThread(
        settings,
        reader,
        {number: origin},
        {number: start},
        {number: end},
        queue_bytes=QUEUE_BYTES,
        prefetch_bytes=PREFETCH_BYTES,
        partition_load=lambda _: 0,
        load_bytes=QUEUE_BYTES,
        notify=news.set,
        pace=pace,
    )
    fetch.start()
    position = start
    try:
        while True:
            news.clear()
            over = fetch.done or fetch.failure is not None  # before the queue is looked at
            batch = fetch.next_batch()
            if batch is not None:
                if batch.records:
                    position = (batch.records[-1].offset() or 0) + 1
                    yield batch
                position = batch.reached.get(number, position)
                continue
            if fetch.failure is not None:
                raise fetch.failure
            if over:
                return
            since_s = fetch.starved_since_s
            if since_s is not None and time.monotonic() - since_s > silence_s:
                raise BrokerUnreachable(
                    f"{origin.topic}/{number} can't be read any further: nothing came from offset"
                    f" {position} on in {silence_s:.3g} s, though it held records up to {end}:"
                    f" {fetch.trouble or 'the log may have been cut'}",
                    hint="is the leader of this partition up? Then try again",
                )
            news.wait(NEWS_WAIT_S)
    finally:
        fetch.stop()
