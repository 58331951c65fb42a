"""Open transactions at the end of a backlog, as far as a client can see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from drainer.core.transaction import HeldBack
from drainer.errors import Refused
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ISOLATION
from drainer.kafka.spans import Span, SpanReader
from drainer.kafka.topic import LogBounds

READER = "drainer-transactions"
READ_BYTES = 1024 * 1024  # ahead of the first records of all partitions, and thrown away


def held_back(
    cluster: Cluster,
    topic: str,
    topic_id: str,
    logs: Mapping[int, LogBounds],
    ends: Mapping[int, int],
) -> tuple[HeldBack, ...]:
    """Where ``ends``, by partition, are at an open transaction: what stands behind it.

    ``logs`` are the bounds as the isolation level shows them.
    """
    held = {n: log for n, log in logs.items() if ends[n] == log.end < log.high_watermark}
    if not held:
        return ()
    # Its records are shown to who reads uncommitted ones too.
    properties = {**cluster.settings.properties, ISOLATION: "read_uncommitted"}
    settings = replace(cluster.settings, properties=properties)
    spans = [Span(n, log.end, log.high_watermark, most=1) for n, log in held.items()]
    since_ms: dict[int, int | None] = {}
    try:
        with SpanReader(settings, topic, topic_id, READER, READ_BYTES) as reader:
            for stretch in reader.read(spans):
                for message in stretch.messages:
                    since_ms[stretch.span.partition] = message.timestamp
    except Refused:
        pass  # since when is not worth an error
    return tuple(
        HeldBack(topic, n, log.end, log.high_watermark - log.end, since_ms.get(n))
        for n, log in sorted(held.items())
    )
