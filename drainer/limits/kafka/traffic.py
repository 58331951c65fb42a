"""The traffic of a trial: producers with a pace each, consumers, and readers of old messages.

A producer is one client of Kafka with its own connections, as an application has; so many of them
make a rate that batching inside one would not give. Consumers read at once all that they get.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from drainer.errors import Interrupted, UsageError
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, PASSING, REJECTED, rejected_login
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.watch import Loop
from drainer.limits.search.trial import Point

TICK_S = 0.01  # between bursts of a producer
CATCH_UP_S = 0.5  # what is later than that is not sent any more: it would be another rate
QUEUE_S = 2.0  # of its own pace a producer keeps before it has no room
QUEUE_BYTES_LEAST = 1024 * 1024
STATISTICS_MS = 250  # between two of a producer, by librdkafka
PRODUCERS_MEASURED = 8  # producers of a task whose statistics are taken: they cost time
MESSAGE_TIMEOUT_MS = 15_000
SAMPLES = {"random": b"", "constant": bytes(1)}
POOL_BYTES = 16 * 1024 * 1024  # of payloads; far more than what a broker may compress together
POOL_MOST = 20_000
READ_KBYTES = 16 * 1024  # that a consumer fetches ahead
READ_MESSAGES = 5_000
OLD_AHEAD_KBYTES = 1024  # of each partition: more would last for a part of a trial
OLD_BACKOFF_MS = 10  # once that is fetched; the default of a second is slower than a drain
OLD_CLIENT = "drainer-limits-old"  # as which brokers know readers of old messages
IDLE_S = 0.005
REQUEST_S, RETRY_S = 10.0, 0.1

_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_FATAL = frozenset({KafkaError._FATAL, *FORBIDDEN, *NO_TOPIC, *REJECTED})


@dataclass(frozen=True, slots=True)
class TrafficTargets:
    """Topics and partitions that the traffic goes to, and the groups that read them."""

    topics: tuple[str, ...]  # the test topics, whose payloads mean nothing
    partitions: int
    groups: int  # consumer groups, which read all of them from their ends on
    old_topic: str = ""  # whose messages are read from their beginning on; empty for none
    old_partitions: tuple[int, ...] = ()  # those of it that have messages
    old_groups: int = 0
    sample: bytes = b""  # what payloads are cut from; without any they are random

    @property
    def all(self) -> list[tuple[str, int]]:
        """Each partition of each test topic."""
        return [(topic, number) for number in range(self.partitions) for topic in self.topics]


def payload_sample(payload: str) -> bytes:
    """Bytes that payloads are cut from, by ``LimitSettings.payload``; none for random payloads.

    Raises UsageError when it is a file that can't be read, or an empty one.
    """
    if payload in SAMPLES:
        return SAMPLES[payload]
    try:
        with Path(payload).open("rb") as file:
            if sample := file.read(POOL_BYTES):
                return sample
        why = "it is empty"
    except OSError as error:
        why = str(error.strerror)
    raise UsageError(f"can't use {payload}: {why}", hint="Give random, constant, or a file.")


def make_payloads(message_bytes: int, sample: bytes = b"") -> list[bytes]:
    """Payloads of exactly this size, cut from the sample, which is repeated if it is shorter.

    Without one they are random: the conservative case, for nothing compresses them.
    """
    count = max(2, min(POOL_MOST, POOL_BYTES // message_bytes))
    if not sample:
        return [os.urandom(message_bytes) for _ in range(count)]
    whole = sample * -(-message_bytes // len(sample))
    last = min(len(whole), count * message_bytes) - message_bytes
    return [whole[at : at + message_bytes] for at in range(0, last + 1, message_bytes)]


class ClientStatistics:
    """Samples of clients by librdkafka's statistics, since the last ``take``."""

    def __init__(self) -> None:
        self._samples: deque[tuple[list[float], list[float], bool]] = deque()

    def add(self, round_trips_ms: list[float], queued_ms: list[float], *, throttled: bool) -> None:
        """Adds a sample of one client and its brokers; the slowest of them counts."""
        self._samples.append((round_trips_ms, queued_ms, throttled))

    def take(self) -> dict[str, Any]:
        """Return the fields of a report, and start over."""
        taken = [self._samples.popleft() for _ in range(len(self._samples))]
        return {
            "round_trips_ms": tuple(round(max(trips), 3) for trips, _, _ in taken if trips),
            "queued_ms": tuple(round(max(queued), 3) for _, queued, _ in taken if queued),
            "samples": len(taken),
            "throttled": sum(throttled for _, _, throttled in taken),
        }


class PacedProducer:
    """One producer with a pace; it counts messages that it offered and that were acknowledged.

    Its messages go to one of the ``places`` after the other, from the ``first`` on, a burst to
    each.

    Raises UsageError when librdkafka rejects the settings.
    """

    def __init__(
        self,
        settings: ClientSettings,
        places: Sequence[tuple[str, int]],
        point: Point,
        pool: Sequence[bytes],
        first: int,
        statistics: ClientStatistics | None,
    ) -> None:
        self._places = places
        self._place = first % len(places)
        self._next = cycle(pool).__next__
        self._statistics = statistics
        self._answered_s = monotonic()
        self._throttled_until_s = 0.0
        self._gone = 0  # failed, or given up when it was halted
        self.pace = point.pace
        self.offered = self.errors = self._passed_over = 0
        self._failure: Interrupted | None = None
        self._log = ClientLog()
        kept = max(QUEUE_BYTES_LEAST, int(point.pace * QUEUE_S * point.message_bytes))
        conf = settings.produce_conf(
            self._log,
            message_max_bytes=max(1_000_000, point.message_bytes + 10_000),
            message_timeout_ms=MESSAGE_TIMEOUT_MS,
            max_in_flight_requests_per_connection=5,  # as producers have it
            queue_buffering_max_kbytes=max(kept, 2 * point.message_bytes) // 1024 + 1,
            queue_buffering_max_messages=max(100, int(point.pace * QUEUE_S)),
        )
        conf |= {"delivery.report.only.error": True, "on_delivery": self._on_failure}
        if statistics is not None:
            conf |= {"statistics.interval.ms": STATISTICS_MS, "stats_cb": self._on_statistics}
        self._producer = settings.producer(conf)

    @property
    def acknowledged(self) -> int:
        return self.offered - len(self._producer) - self._gone

    def connect(self) -> None:
        """Waits until brokers know it. Raises Interrupted when they don't answer."""
        try:
            self._producer.list_topics(self._places[self._place][0], timeout=REQUEST_S)
        except KafkaException as error:
            raise _not_connected("a producer", error.args[0]) from None

    def send_up_to(self, due: int) -> None:
        """Sends what is due since the beginning; what finds no room is passed over."""
        count = due - self.offered - self._passed_over
        late = count - max(1, int(CATCH_UP_S * self.pace))
        if late > 0:
            self._passed_over += late
            count -= late
        produce, payload = self._producer.produce, self._next
        topic, partition = self._places[self._place]
        try:
            for _ in range(count):
                produce(topic, payload(), partition=partition)
                self.offered += 1
        except BufferError:
            self._passed_over = due - self.offered
        except KafkaException as error:  # the topic has no such partition any more
            self._passed_over = due - self.offered
            self._count_error(error.args[0])
        if count > 0:
            self._place = (self._place + 1) % len(self._places)
        self._producer.poll(0)

    def ensure_working(self) -> None:
        """Raises Interrupted when it can't go on, whatever it is given time for."""
        if self._failure is not None:
            raise self._failure
        if login := rejected_login(self._log.complaints):
            raise Interrupted(f"a broker rejected a producer's login: {login.text}")

    def halt(self) -> None:
        """Lets go of everything that was not sent, and of the answers to what was.

        What was acknowledged until then stays counted.
        """
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
        assert self._statistics is not None
        brokers = [one for one in orjson.loads(text)["brokers"].values() if one["nodeid"] >= 0]
        now_s = monotonic()
        trips = [_ms(one["rtt"]) for one in brokers if one["rtt"]["cnt"]]
        if trips:
            self._answered_s = now_s
        elif any(one["waitresp_cnt"] for one in brokers):  # it waits, for so long at least
            trips = [(now_s - self._answered_s) * 1000]
        else:
            self._answered_s = now_s
        queued = [
            _ms(one["int_latency"]) + _ms(one["outbuf_latency"])
            for one in brokers
            if one["int_latency"]["cnt"]
        ]
        # It comes once with an answer, and the broker takes nothing more for that long.
        throttle_ms = max((one["throttle"]["max"] for one in brokers), default=0)
        if throttle_ms > 0:
            self._throttled_until_s = now_s + throttle_ms / 1000
        throttled = now_s - STATISTICS_MS / 1000 < self._throttled_until_s
        self._statistics.add(trips, queued, throttled=throttled)


def no_test_topic(why: str) -> Interrupted:
    """The error when clients lost the topic, or the right to use it."""
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
    # Percentiles leave out what lies above the histogram (half a second for a round trip).
    micros: float = window["avg"] if window["outofrange"] else window["p50"]
    return micros / 1000


class Pacer(Loop):
    """The pace of all producers of a process."""

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
        """Waits until brokers know all producers. Raises Interrupted when they don't answer."""
        for producer in self._producers:
            producer.connect()

    def ensure_working(self) -> None:
        """Raises what the thread raised, or Interrupted when a producer can't go on."""
        super().ensure_working()
        for producer in self._producers:
            producer.ensure_working()

    def _go_on(self) -> None:
        begun_s, tick = monotonic(), 0
        # Not all at the same moment: large messages of all producers at once would be a burst.
        count = len(self._producers)
        early = [max(TICK_S, 1 / each.pace) * i / count for i, each in enumerate(self._producers)]
        while not self._halted.is_set():
            since_s = monotonic() - begun_s
            for producer, early_s in zip(self._producers, early, strict=True):
                producer.send_up_to(int((since_s + early_s) * producer.pace))
            tick = max(tick + 1, int((monotonic() - begun_s) / TICK_S))
            self._halted.wait(max(0.0, begun_s + tick * TICK_S - monotonic()))


class GroupReader:
    """One consumer of a group; reads some partitions of topics from their ends on.

    It is given its ``places`` and joins no group: a rebalance would disturb what is measured.
    ``name`` is that of a group which stays without members and commits.

    Raises UsageError when librdkafka rejects the settings.
    """

    def __init__(
        self, settings: ClientSettings, name: str, places: Sequence[tuple[str, int]]
    ) -> None:
        self._places = places
        self._consumer = settings.consumer(_reading(settings, name))

    def skip(self) -> None:
        """Goes on at the ends of the partitions as they are now.

        Raises Interrupted when brokers don't report them.
        """
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
                # The leaders of a topic that was just made are not known everywhere at once.
                if error.args[0].code() not in PASSING or left_s < 0:
                    raise
                sleep(RETRY_S)
            else:
                if ends[1] >= 0:
                    return ends[1]

    def read(self) -> int:
        """Takes what is there, without waiting; gives how many messages that was."""
        messages = self._consumer.consume(READ_MESSAGES, 0)
        return sum(1 for message in messages if message.error() is None)

    def close(self) -> None:
        self._consumer.close()


def _reading(settings: ClientSettings, name: str, **owned: Any) -> dict[str, Any]:
    conf = settings.conf(
        ClientLog(),
        group_id=name,
        enable_auto_commit=False,
        auto_offset_reset="latest",
        enable_partition_eof=False,
        queued_max_messages_kbytes=READ_KBYTES,
        queued_min_messages=READ_MESSAGES,
    )
    return conf | owned


class Readers(Loop):
    """Reads with several consumers, and adds what they read to ``counts``, by number of a group."""

    def __init__(self, readers: Sequence[tuple[int, GroupReader]], counts: list[int]) -> None:
        super().__init__("traffic-readers", ends=[reader.close for _, reader in readers])
        self._readers = readers
        self._counts = counts

    def start(self) -> None:
        """Raises Interrupted when brokers don't answer."""
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


class OldReader:
    """One consumer that reads partitions from their beginning on, and again once it has read all.

    Like ``GroupReader`` it joins no group and commits nothing.
    """

    def __init__(
        self, settings: ClientSettings, name: str, places: Sequence[tuple[str, int]]
    ) -> None:
        owned = {
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "client.id": settings.properties.get("client.id", OLD_CLIENT),
            "queued.max.messages.kbytes": OLD_AHEAD_KBYTES,
            "fetch.queue.backoff.ms": OLD_BACKOFF_MS,
        }
        self._consumer = settings.consumer(_reading(settings, name, **owned))
        self._begin = [TopicPartition(*place, OFFSET_BEGINNING) for place in places]
        self._ended: set[tuple[str, int]] = set()
        self._mean_bytes = 1024.0

    def restart(self) -> None:
        """Lets go of what was fetched ahead, which would hide how slowly more comes."""
        places = self._consumer.position(self._begin)
        for place in places:
            place.offset = max(place.offset, OFFSET_BEGINNING)
        self._consumer.assign(places)
        self._ended.clear()

    def read(self, wanted_bytes: float) -> int:
        """Takes about as much of what is there, without waiting; gives how many bytes that was.

        Raises Interrupted when the topic can't be read.
        """
        if len(self._ended) == len(self._begin):
            self._ended.clear()
            self._consumer.assign(self._begin)
        count = min(READ_MESSAGES, max(1, int(wanted_bytes / self._mean_bytes)))
        messages = self._consumer.consume(count, 0)
        sizes = []
        for message in messages:
            error = message.error()
            if error is None:
                sizes.append(len(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add((message.topic() or "", message.partition() or 0))
            elif error.code() in FORBIDDEN | NO_TOPIC:
                raise Interrupted(f"can't read old messages: {error.str()}")
        if sizes:
            self._mean_bytes = max(1.0, sum(sizes) / len(sizes))
        return sum(sizes)

    def close(self) -> None:
        self._consumer.close()


class OldReaders(Loop):
    """Reads old messages at a pace, which is 0 until it is set; ``read_bytes`` only grows."""

    def __init__(self, readers: Sequence[OldReader]) -> None:
        super().__init__("traffic-old-readers", ends=[reader.close for reader in readers])
        self._readers = readers
        # Bytes/s, since when, and the bytes that were read until then.
        self._pace = (0.0, monotonic(), 0.0)
        self.read_bytes = 0

    def set_pace(self, bytes_per_s: float) -> None:
        """Sets the pace from now on."""
        self._pace = (bytes_per_s, monotonic(), self.read_bytes)

    def _go_on(self) -> None:
        restarted_s = 0.0
        while not self._halted.is_set():
            schedule = pace, since_s, before = self._pace
            due = before + pace * (monotonic() - since_s) - self.read_bytes
            late = due - CATCH_UP_S * pace
            if late > 0 and schedule is self._pace:
                self._pace = (pace, since_s, before - late)
            read = 0
            if pace and since_s != restarted_s:
                restarted_s = since_s
                for reader in self._readers:
                    reader.restart()
            if due > 0:
                for reader in self._readers:
                    read += reader.read(due / len(self._readers))
            self.read_bytes += read
            if not read:
                self._halted.wait(IDLE_S)
