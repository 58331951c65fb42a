"""A sample of a topic's messages, read evenly over its logs; joins no group and commits nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from drainer.errors import BrokerUnreachable, Refused, TopicMissing
from drainer.kafka.answers import FORBIDDEN, PASSING
from drainer.kafka.cluster import Cluster
from drainer.kafka.log import ClientLog
from drainer.kafka.prefetch import fetch_bounds
from drainer.kafka.record import KafkaMessage
from drainer.kafka.topic import LogBounds, TopicInfo
from drainer.message import Message, Origin

WINDOWS = 10  # a partition is looked at in so many places, evenly apart
GROUP = "drainer-certify"  # the client insists on a name; it is never joined
SILENCE_S = 10.0
CONSUME_S = 0.05
FETCH_WAIT_MS = 10
PREFETCH_BYTES = 1024 * 1024  # what is read ahead of a window is thrown away
SAMPLE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Window:
    """Where some messages are read from: at most ``most`` of offsets ``[start, end)``."""

    partition: int
    start: int
    end: int
    most: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Messages of a topic, those of a partition by rising offset, and what they are taken from."""

    topic: TopicInfo
    logs: Mapping[int, LogBounds]
    messages: Sequence[Message]

    @property
    def offsets(self) -> int:
        """How many offsets the logs span: an upper bound for their messages."""
        return sum(log.end - log.start for log in self.logs.values())


def take_sample(
    cluster: Cluster, topic: str, partitions: Iterable[int] | None, most: int, seed: int
) -> Sample:
    """Reads up to ``most`` messages: fewer when there are not as many, or they are huge.

    Raises:
        TopicMissing: when the topic or a partition does not exist.
        BrokerUnreachable: when nothing arrives for a while.
        Refused: when the topic may not be read, or its log changes while it is.
    """
    info = cluster.topic(topic)
    numbers = tuple(info.partitions) if partitions is None else tuple(sorted(set(partitions)))
    if missing := [number for number in numbers if number not in info.partitions]:
        raise TopicMissing(
            f"{topic}/{missing[0]} does not exist",
            hint=f"topic {topic} has partitions {info.partitions[0]} to {info.partitions[-1]}",
        )
    logs = cluster.log_bounds(topic, numbers, cluster.settings.isolation)
    windows = windows_over(logs, most, seed)
    return Sample(info, logs, _Reader(cluster, info).read(windows) if windows else [])


def windows_over(logs: Mapping[int, LogBounds], most: int, seed: int) -> list[Window]:
    """Windows over all logs, with ``most`` messages in all; each log has a share by its length.

    A log that is no longer than its share is one window. The seed moves windows within their part.
    """
    lengths = {number: log.end - log.start for number, log in logs.items() if log.end > log.start}
    chance = random.Random(seed)
    windows: list[Window] = []
    left, offsets_left = most, sum(lengths.values())
    for number, length in sorted(lengths.items(), key=lambda item: item[1]):
        # The short ones first: of what they don't need the long ones have more. At least one each.
        share = min(length, max(1, round(left * length / offsets_left)), max(1, left))
        left, offsets_left = left - share, offsets_left - length
        start, end = logs[number].start, logs[number].end
        if share == length:
            windows.append(Window(number, start, end, share))
            continue
        count = min(WINDOWS, share)
        edges = [start + length * part // count for part in range(count + 1)]
        for part in range(count):
            size = share * (part + 1) // count - share * part // count
            room = edges[part + 1] - edges[part] - size
            at = edges[part] + (chance.randint(0, room) if room > 0 else 0)
            windows.append(Window(number, at, edges[part + 1], size))
    return sorted(windows, key=lambda window: (window.partition, window.start))


class _Reader:
    """One consumer, given the windows one by one."""

    def __init__(self, cluster: Cluster, topic: TopicInfo) -> None:
        settings = self._settings = cluster.settings
        self._topic = topic
        bounds = fetch_bounds(PREFETCH_BYTES, settings.properties)
        # By default a fetch that reached the log's end waits half a second for more, and the next
        # window waits behind it.
        conf = settings.fetch_conf(
            ClientLog(settings.redact), GROUP, fetch_wait_max_ms=FETCH_WAIT_MS, **bounds
        )
        try:
            self._consumer = Consumer(conf)
        except (KafkaException, TypeError, ValueError) as error:
            raise settings.rejected(error) from None
        self._bytes = 0

    def read(self, windows: Sequence[Window]) -> list[Message]:
        try:
            found: list[Message] = []
            for window in windows:
                found += self._read_window(window)
                if self._bytes > SAMPLE_BYTES:
                    break
        except KafkaException as error:
            raise self._refused(error.args[0]) from None
        finally:
            self._consumer.close()
        return found

    def _read_window(self, window: Window) -> list[Message]:
        origin = Origin(self._topic.name, self._topic.topic_id, window.partition)
        self._consumer.assign([TopicPartition(self._topic.name, window.partition, window.start)])
        found: list[Message] = []
        until = time.monotonic() + SILENCE_S
        while len(found) < window.most and self._bytes <= SAMPLE_BYTES:
            # It waits for all that it is asked for; behind a hole there may be fewer.
            for record in self._consumer.consume(window.most - len(found), CONSUME_S):
                error = record.error()
                if error is None:
                    message = KafkaMessage(origin, record, 0)
                    if message.offset >= window.end:
                        return found
                    found.append(message)
                    self._bytes += message.size
                    until = time.monotonic() + SILENCE_S
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                elif error.code() not in PASSING:
                    raise self._refused(error)
            if time.monotonic() > until:
                raise BrokerUnreachable(
                    f"nothing of {origin.topic}/{window.partition} arrived from offset"
                    f" {window.start} on within {SILENCE_S:.0f} s",
                    hint="is the leader of this partition up? others can be chosen with"
                    " --partition",
                )
        return found

    def _refused(self, answer: KafkaError) -> Refused:
        said = self._settings.redact(answer.str())
        hint = "try again; retention may have deleted a part of the log meanwhile"
        if answer.code() in FORBIDDEN:
            hint = "grant READ on the topic to this user"
        return Refused(f"can't read topic {self._topic.name}: {said}", hint=hint)
