"""The clients that make the traffic of a trial: producers with a fixed pace, and consumers.

Each producer is a Kafka client with connections of its own, as an application has. Many clients put
a load on brokers that a single client could not, because it would batch everything. Consumers read
everything as soon as it arrives.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from time import monotonic, sleep
from typing import Any

import orjson
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from drainer.errors import Interrupted
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, REJECTED, RETRIABLE, rejected_login
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.watch import Loop
from drainer.limits.search.settings import Payload
from drainer.limits.search.trial import Point

# The time between two bursts of a producer.
TICK_S = 0.01
# A producer that falls further behind than this skips messages. If it sent them later, its rate
# would not be that of the trial.
CATCH_UP_S = 0.5
# The queue of a producer holds the messages of this many seconds.
QUEUE_S = 2.0
QUEUE_BYTES_LEAST = 1024 * 1024
# The interval at which librdkafka reports the statistics of a producer.
STATISTICS_MS = 250
# Statistics take processor time, so only this many producers of a task report them.
PRODUCERS_MEASURED = 8
MESSAGE_TIMEOUT_MS = 15_000
# Random payloads are taken from a pool in turn. The pool is far larger than a batch. Otherwise a
# batch could have the same payload twice, and would compress well.
POOL_BYTES = 16 * 1024 * 1024
POOL_MOST = 20_000
# The amount that a consumer fetches ahead.
READ_KBYTES = 16 * 1024
READ_MESSAGES = 5_000
# Consumers that found nothing to read pause for this long.
IDLE_S = 0.005
# A request to the brokers may take this long, and is repeated after a pause if they are not ready.
REQUEST_S, RETRY_S = 10.0, 0.1

_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_FATAL = frozenset({KafkaError._FATAL, *FORBIDDEN, *NO_TOPIC, *REJECTED})


@dataclass(frozen=True, slots=True)
class TrafficTargets:
    """Topics and partitions that the traffic goes to, and the groups that read them."""

    topics: tuple[str, ...]  # The test topics.
    partitions: int  # The number of partitions of each topic.
    groups: int  # The number of consumer groups, each of which reads everything.
    payload: Payload = Payload.RANDOM

    @property
    def all(self) -> list[tuple[str, int]]:
        """Each partition of each test topic."""
        return [(topic, number) for number in range(self.partitions) for topic in self.topics]


def make_payloads(message_bytes: int, payload: Payload = Payload.RANDOM) -> list[bytes]:
    """Return the payloads of exactly this size that producers send in turn."""
    if payload is Payload.CONSTANT:
        return [bytes(message_bytes)]
    count = max(2, min(POOL_MOST, POOL_BYTES // message_bytes))
    return [os.urandom(message_bytes) for _ in range(count)]


class ClientStatistics:
    """Statistics that several clients have reported since the last ``take``."""

    def __init__(self) -> None:
        self._samples: deque[tuple[list[float], list[float], bool]] = deque()

    def add(self, round_trips_ms: list[float], queued_ms: list[float], *, throttled: bool) -> None:
        """Add a sample of one client. The lists have a value per broker; the slowest one counts."""
        self._samples.append((round_trips_ms, queued_ms, throttled))

    def take(self) -> dict[str, Any]:
        """Return the samples as fields of a ``TrafficReport``, and forget them."""
        taken = [self._samples.popleft() for _ in range(len(self._samples))]
        return {
            "round_trips_ms": tuple(round(max(trips), 3) for trips, _, _ in taken if trips),
            "queued_ms": tuple(round(max(queued), 3) for _, queued, _ in taken if queued),
            "samples": len(taken),
            "throttled": sum(throttled for _, _, throttled in taken),
        }


@dataclass(eq=False)
class PacedProducer:
    """A producer with a fixed pace, which counts the messages that were sent and acknowledged.

    It sends a burst to each of the ``places`` in turn, beginning with number ``first``.

    Raises UsageError when librdkafka rejects the settings.
    """

    settings: ClientSettings
    places: Sequence[tuple[str, int]]
    point: Point
    pool: Sequence[bytes]
    first: int
    statistics: ClientStatistics | None

    def __post_init__(self) -> None:
        settings, point = self.settings, self.point
        self._place = self.first % len(self.places)
        self._next = cycle(self.pool).__next__
        self._answered_s = monotonic()
        self._throttled_until_s = 0.0
        self._gone = 0  # Messages that failed, or that were dropped when the producer was halted.
        self.pace = point.pace
        self.offered = self.errors = self._passed_over = 0
        self._failure: Interrupted | None = None
        self._log = ClientLog()
        kept = max(QUEUE_BYTES_LEAST, int(point.pace * QUEUE_S * point.message_bytes))
        conf = settings.produce_conf(
            self._log,
            message_max_bytes=max(1_000_000, point.message_bytes + 10_000),
            message_timeout_ms=MESSAGE_TIMEOUT_MS,
            max_in_flight_requests_per_connection=5,  # Applications usually have 5.
            queue_buffering_max_kbytes=max(kept, 2 * point.message_bytes) // 1024 + 1,
            queue_buffering_max_messages=max(100, int(point.pace * QUEUE_S)),
        )
        conf |= {"delivery.report.only.error": True, "on_delivery": self._on_failure}
        if self.statistics is not None:
            conf |= {"statistics.interval.ms": STATISTICS_MS, "stats_cb": self._on_statistics}
        self._producer = settings.producer(conf)

    @property
    def acknowledged(self) -> int:
        return self.offered - len(self._producer) - self._gone

    def connect(self) -> None:
        """Connect to the brokers. Raises Interrupted when they don't answer."""
        try:
            self._producer.list_topics(self.places[self._place][0], timeout=REQUEST_S)
        except KafkaException as error:
            raise _not_connected("a producer", error.args[0]) from None

    def send_up_to(self, due: int) -> None:
        """Send messages until ``due`` were sent since the start.

        Messages for which the queue has no room are skipped.
        """
        count = due - self.offered - self._passed_over
        late = count - max(1, int(CATCH_UP_S * self.pace))
        if late > 0:
            self._passed_over += late
            count -= late
        produce, payload = self._producer.produce, self._next
        topic, partition = self.places[self._place]
        try:
            for _ in range(count):
                produce(topic, payload(), partition=partition)
                self.offered += 1
        except BufferError:
            self._passed_over = due - self.offered
        except KafkaException as error:  # The topic no longer has this partition.
            self._passed_over = due - self.offered
            self._count_error(error.args[0])
        if count > 0:
            self._place = (self._place + 1) % len(self.places)
        self._producer.poll(0)

    def ensure_working(self) -> None:
        """Raise Interrupted if the producer has failed and can't recover."""
        if self._failure is not None:
            raise self._failure
        if login := rejected_login(self._log.complaints):
            raise Interrupted(f"a broker rejected a producer's login: {login.text}")

    def halt(self) -> None:
        """Drop all messages that are not acknowledged yet."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._producer.poll(0)

    def _on_failure(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._gone += 1
            self._count_error(error)

    def _count_error(self, error: KafkaError) -> None:
        if error.code() in _PURGED:
            return
        self.errors += 1
        if self._failure is None and (error.fatal() or error.code() in _FATAL):
            self._failure = no_test_topic(error.str())

    def _on_statistics(self, text: str) -> None:
        assert self.statistics is not None
        brokers = [one for one in orjson.loads(text)["brokers"].values() if one["nodeid"] >= 0]
        now_s = monotonic()
        trips = [_ms(one["rtt"]) for one in brokers if one["rtt"]["cnt"]]
        if trips:
            self._answered_s = now_s
        elif any(one["waitresp_cnt"] for one in brokers):
            # No request was answered lately, so a round trip takes at least as long as this.
            trips = [(now_s - self._answered_s) * 1000]
        else:
            self._answered_s = now_s
        queued = [
            _ms(one["int_latency"]) + _ms(one["outbuf_latency"])
            for one in brokers
            if one["int_latency"]["cnt"]
        ]
        # A throttle time comes once, with an answer, and the broker accepts nothing for that long.
        # So the samples until then count as throttled, too.
        throttle_ms = max((one["throttle"]["max"] for one in brokers), default=0)
        if throttle_ms > 0:
            self._throttled_until_s = now_s + throttle_ms / 1000
        throttled = now_s - STATISTICS_MS / 1000 < self._throttled_until_s
        self.statistics.add(trips, queued, throttled=throttled)


def no_test_topic(why: str) -> Interrupted:
    """Return the error for clients that lost the test topic, or the right to use it."""
    return Interrupted(
        f"can't use the test topic: {why}",
        hint="Check that it still exists, and this user's rights on it.",
    )


def _not_connected(who: str, answer: KafkaError) -> Interrupted:
    if answer.code() in NO_TOPIC | FORBIDDEN:
        return no_test_topic(answer.str())
    return Interrupted(
        f"{who} can't reach the cluster: {answer.str()}",
        hint="Check that the machines of Spark's executors reach the brokers.",
    )


def _ms(window: dict[str, Any]) -> float:
    # Percentiles leave out values beyond the range of the histogram, which ends at half a second
    # for a round trip. The average includes them.
    micros: float = window["avg"] if window["outofrange"] else window["p50"]
    return micros / 1000


class Pacer(Loop):
    """A thread that keeps all producers of a process at their pace."""

    def __init__(self, producers: Sequence[PacedProducer]) -> None:
        super().__init__("traffic-pacer", ends=[producer.halt for producer in producers])
        self._producers = producers

    @property
    def acknowledged(self) -> int:
        return sum(producer.acknowledged for producer in self._producers)

    @property
    def errors(self) -> int:
        return sum(producer.errors for producer in self._producers)

    def connect(self) -> None:
        """Connect all producers. Raises Interrupted when the brokers don't answer."""
        for producer in self._producers:
            producer.connect()

    def ensure_working(self) -> None:
        """Raise what the thread raised, or Interrupted if a producer can't recover."""
        super().ensure_working()
        for producer in self._producers:
            producer.ensure_working()

    def _go_on(self) -> None:
        begun_s, tick = monotonic(), 0
        # Producers send at different moments, because large messages of all of them at once would
        # be a burst.
        count = len(self._producers)
        early = [max(TICK_S, 1 / each.pace) * i / count for i, each in enumerate(self._producers)]
        while not self._halted.is_set():
            since_s = monotonic() - begun_s
            for producer, early_s in zip(self._producers, early, strict=True):
                producer.send_up_to(int((since_s + early_s) * producer.pace))
            tick = max(tick + 1, int((monotonic() - begun_s) / TICK_S))
            self._halted.wait(max(0.0, begun_s + tick * TICK_S - monotonic()))


class GroupReader:
    """A consumer that reads some partitions of a group, ``places``, beginning at their ends.

    It does not join the group, because a rebalance would disturb the measurement. So the group
    ``name`` never has members or commits.

    Raises UsageError when librdkafka rejects the settings.
    """

    def __init__(
        self, settings: ClientSettings, name: str, places: Sequence[tuple[str, int]]
    ) -> None:
        self._places = places
        conf = settings.conf(
            ClientLog(),
            group_id=name,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            enable_partition_eof=False,
            queued_max_messages_kbytes=READ_KBYTES,
            queued_min_messages=READ_MESSAGES,
        )
        self._consumer = settings.consumer(conf)

    def skip(self) -> None:
        """Continue at the current ends of the partitions. Raises Interrupted if no answer comes."""
        places = [TopicPartition(*place) for place in self._places]
        until_s = monotonic() + REQUEST_S
        try:
            for place in places:
                place.offset = self._end_of(place, until_s)
            self._consumer.assign(places)
        except KafkaException as error:
            raise _not_connected("a consumer", error.args[0]) from None

    def _end_of(self, place: TopicPartition, until_s: float) -> int:
        while True:
            left_s = until_s - monotonic()
            try:
                ends: tuple[int, int] = self._consumer.get_watermark_offsets(
                    place, timeout=max(RETRY_S, left_s)
                )
            except KafkaException as error:
                # Right after a topic was created, not all brokers know its leaders.
                if error.args[0].code() not in RETRIABLE or left_s < 0:
                    raise
                sleep(RETRY_S)
            else:
                if ends[1] >= 0:
                    return ends[1]

    def read(self) -> int:
        """Read the messages that have arrived, without waiting, and return their number."""
        messages = self._consumer.consume(READ_MESSAGES, 0)
        return sum(1 for message in messages if message.error() is None)

    def close(self) -> None:
        self._consumer.close()


class Readers(Loop):
    """A thread that reads with several consumers, each given with the number of its group.

    It adds the numbers of messages that were read to ``counts``, by group.
    """

    def __init__(self, readers: Sequence[tuple[int, GroupReader]], counts: list[int]) -> None:
        super().__init__("traffic-readers", ends=[reader.close for _, reader in readers])
        self._readers = readers
        self._counts = counts

    def start(self) -> None:
        """Begin at the ends of the logs. Raises Interrupted when brokers don't answer."""
        for _, reader in self._readers:
            reader.skip()
        super().start()

    def _go_on(self) -> None:
        while not self._halted.is_set():
            before = sum(self._counts)
            for group, reader in self._readers:
                self._counts[group] += reader.read()
            if sum(self._counts) == before:
                self._halted.wait(IDLE_S)
