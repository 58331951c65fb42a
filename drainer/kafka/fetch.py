"""The fetch thread: reads the backlog ahead of the drain, within bounds of memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil, inf

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import DrainerError, Interrupted, RecordsDeleted
from drainer.kafka.answers import NO_TOPIC, PASSING, rejected_login
from drainer.kafka.cluster import Cluster
from drainer.kafka.log import ClientLog
from drainer.kafka.loss import Connect, check_topic, made_again, out_of_range, unreadable
from drainer.kafka.prefetch import fetch_bounds
from drainer.kafka.queue import BatchQueue
from drainer.kafka.record import Batch, beside_value
from drainer.kafka.settings import ClientSettings
from drainer.message import Origin
from drainer.policy.rate_cap import RateLimiter

BATCH_MESSAGES = 2000  # at most; the gain above is nil and the pause for the drain grows
FIRST_BATCH_MESSAGES = 16  # until it is known how large messages are
BATCHES_IN_QUEUE = 4  # at least that many fit into the queue, unless messages are huge
CONSUME_S = 0.02  # consume() waits that long for a batch that stays short
ROOM_WAIT_S = 0.1
BALANCE_EVERY_S = 0.01
DRY_S = 1.0
SILENCE_CHECK_S = 1.0
SILENCE_S = 3.0  # below its end, a partition always has something to say
STOP_TIMEOUT_S = 2.0
PACE_WAIT_S = 0.02  # what comes in that time at a pace is fetched at once
AHEAD_S = 0.5  # of a pace that the client may read ahead: it does that at full speed
RECORD_BYTES = 250  # the objects of one record beside its key and value

POLL_INTERVAL_MS = 24 * 60 * 60 * 1000

_ERROR = confluent_kafka.Message.error
_PARTITION = confluent_kafka.Message.partition

_Record = confluent_kafka.Message


class FetchThread:
    """Reads the backlog's partitions in a thread of its own, and queues batches for the drain.

    It never joins the group, and never commits. ``next_batch`` and the properties are for one other
    thread, the drain's.

    Args:
        settings: how to connect.
        group: the drained group, for the broker's quotas and rights only.
        origins: the partitions, all of one topic.
        starts: by partition, the first offset to read.
        ends: by partition, the offset to stop before.
        queue_bytes: what may wait in the queue; one batch is always let in. Of several partitions,
            half of that waits, and up to as much again of those that are passed over.
        prefetch_bytes: what the client may hold beside the queue.
        partition_load: the bytes that the drain holds of a partition.
        load_bytes: how many bytes the drain may hold of all of them.
        notify: called from the thread when nothing of a partition was queued and now is, and when
            it ends. The drain then takes until there is nothing, or remembers to come back.
        pace: what holds the reading to a cap.
        connect: makes a connection, to look what became of what can't be read.

    No partition starves another: each has a share of the queue and of ``load_bytes``, and one that
    holds more is paused until it has half. What was read ahead of it is read again then, which is
    why half. One that stays between the two, with nothing of it left in the queue, goes on after
    DRY_S: what the drain holds of it may be parked. The last partition is never paused.
    """

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        origins: Mapping[int, Origin],
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        *,
        queue_bytes: int,
        prefetch_bytes: int,
        partition_load: Callable[[int], int],
        load_bytes: int,
        notify: Callable[[], None],
        pace: RateLimiter | None = None,
        connect: Connect = Cluster.connect,
        runtime: Runtime = THIS_PROCESS,
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._clock = runtime.monotonic
        self._group = group
        self._origins = dict(origins)
        self._topic = next((o.topic for o in origins.values()), "")
        self._ends = dict(ends)
        self._queue_bytes = max(2, queue_bytes)  # one batch is always let in
        self._prefetch_bytes = prefetch_bytes
        self._load = partition_load
        self._load_bytes = load_bytes
        self._notify = notify
        self._pace = pace
        self._open = {p: start for p, start in starts.items() if start < ends[p]}  # positions
        self._paused: dict[int, float] = {}  # since when nothing of it waits
        self._queue = BatchQueue(origins)
        self._room = runtime.event()
        self._stopping = False
        self._ended = False
        self._batch_messages = FIRST_BATCH_MESSAGES
        self._balanced_s = self._checked_s = 0.0
        self.starved_since_s: float | None = None  # monotonic; None while records flow
        self._gone: RecordsDeleted | None = None  # told when what was read before is taken
        self._said: str | None = None  # by an error that came instead of data
        self._log = ClientLog(settings.redact)
        self._thread = runtime.thread(target=self._run, name="drainer-fetch", daemon=True)
        self.failure: DrainerError | None = None

    @property
    def done(self) -> bool:
        """Whether all partitions are read to their ends, and all of that is in the queue."""
        return self._ended and not self._open and self.failure is None

    @property
    def queued_bytes(self) -> int:
        """What waits in the queue."""
        return self._queue.bytes

    @property
    def paused(self) -> frozenset[int]:
        """The partitions that hold more than their share."""
        return frozenset(self._paused)

    @property
    def trouble(self) -> str | None:
        """Why nothing arrives though the drain waits for it, or ever will; None while records
        flow."""
        if self._gone is not None:
            return f"nothing more is read: {self._gone}"
        since_s = self.starved_since_s
        if since_s is None:
            return None
        errors = [c for c in self._log.since(since_s) if c.code is not None]
        if errors:
            told = [c for c in errors if c.code != KafkaError._ALL_BROKERS_DOWN] or errors
            return told[-1].text
        if self._said is None and self._clock() - since_s > SILENCE_S:
            return "the broker does not answer"
        return self._said

    def start(self) -> None:
        """Begin to read.

        Raises:
            UsageError: when librdkafka rejects the settings.
        """
        settings = self._settings
        conf = settings.fetch_conf(
            self._log,
            self._group,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            # librdkafka goes on reading when a topic is recreated, but for this line of its log.
            debug=",".join(filter(None, [settings.properties.get("debug"), "metadata"])),
            **fetch_bounds(self._ahead_bytes(), settings.properties),
        )
        self._consumer = settings.consumer(conf)
        self._thread.start()

    def next_batch(self) -> Batch | None:
        """The next batch; None when none waits, or too much of its partition is held already.

        Doesn't block. The partitions take turns.
        """
        limit = self._share_of(self._load_bytes)
        batch = self._queue.take(lambda partition: self._load(partition) > limit)
        if batch is not None and not self._room.is_set():
            self._room.set()
        return batch

    def stop(self) -> None:
        """End the thread, wherever it is; what is queued stays."""
        self._stopping = True
        self._room.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._read()
        except KafkaException as error:
            self.failure = unreadable(self._settings, self._topic, error.args[0])
        except RecordsDeleted as error:
            self._gone = error
            self._wait_until_taken()  # what waits may be gone by the next time
            self.failure = error
        except DrainerError as error:
            self.failure = error
        except Exception as error:  # nobody would hear it here
            self.failure = Interrupted(
                f"the fetch thread failed: {type(error).__name__}: {error}",
                hint="this is a bug of drainer: report it; nothing is lost, resume with the plan",
                cause=error,
            )
        try:
            self._consumer.close()
        finally:
            self._ended = True
            self._notify()

    def _read(self) -> None:
        consume = self._consumer.consume
        topic_id = next((origin.topic_id for origin in self._origins.values()), "")
        self._consumer.assign([self._place(p, offset) for p, offset in self._open.items()])
        while self._open and not self._stopping:
            self._balance()
            if not self._has_room():
                self.starved_since_s = None
                self._wait_for_room()
                continue
            left = sum(self._ends[p] - offset for p, offset in self._open.items())
            asked_s = self._clock()
            most = min(self._batch_messages, left)
            if self._pace is not None:
                most = min(most, self._pace.allowed(asked_s))
                if not most:
                    self._wait_for_pace(self._pace, asked_s)
                    continue
            # It waits for all that it is asked for: ask for no more than there can be.
            records = consume(most, CONSUME_S)
            if self._log.topic_ids.get(self._topic, topic_id) != topic_id:
                raise made_again(next(iter(self._origins.values())))
            if records:
                self.starved_since_s = self._said = None
                self._take_in(records)
            elif len(self._paused) == len(self._open):
                self.starved_since_s = None
            else:
                self.starved_since_s = self.starved_since_s or asked_s
                self._look_into_silence()
                if rejected := rejected_login(self._log.since(self.starved_since_s)):
                    answer = KafkaError(KafkaError._AUTHENTICATION, rejected.text)
                    raise unreadable(self._settings, self._topic, answer)

    def _look_into_silence(self) -> None:
        # When its topic is deleted, librdkafka goes quiet (issue 4836).
        now = self._clock()
        since_s = self.starved_since_s or now
        if now - max(since_s, self._checked_s) < SILENCE_CHECK_S:
            return
        # Otherwise it is known why, and to ask while brokers are away may end the process.
        if not self._log.since(since_s):
            ends = {p: self._ends[p] for p in self._open}
            origin = next(iter(self._origins.values()))
            check_topic(self._settings, origin, self._connect, SILENCE_CHECK_S, ends)
        self._checked_s = self._clock()

    def _wait_for_room(self) -> None:
        self._room.clear()
        if not self._has_room() and not self._stopping:
            self._room.wait(ROOM_WAIT_S)

    def _wait_until_taken(self) -> None:
        while not self._stopping and any(map(self._queue.holds, self._origins)):
            self._room.clear()
            self._room.wait(ROOM_WAIT_S)

    def _wait_for_pace(self, pace: RateLimiter, now_s: float) -> None:
        self.starved_since_s = None
        some = ceil(PACE_WAIT_S * pace.messages_per_s)
        time.sleep(min(pace.next_s(now_s, some), ROOM_WAIT_S))

    def _ahead_bytes(self) -> int:
        if self._pace is None:
            return self._prefetch_bytes
        return min(self._prefetch_bytes, ceil(AHEAD_S * self._pace.bytes_per_s))

    def _has_room(self) -> bool:
        # What waits of paused partitions does not keep the others out.
        if len(self._origins) == 1:
            return self.queued_bytes < self._queue_bytes
        held = sum(self._queue.bytes_of(partition) for partition in self._paused)
        return self.queued_bytes - held < self._queue_bytes // 2

    def _take_in(self, records: Sequence[_Record]) -> None:
        taken, size = 0, 0
        for run in self._runs(records):
            if isinstance(run, _Record):
                self._heed(run)
            else:
                taken += len(run)
                size += self._accept(run)
        if taken:
            if self._pace is not None:
                self._pace.came(self._clock(), taken, size - RECORD_BYTES * taken)
            batch_bytes = self._queue_bytes // BATCHES_IN_QUEUE
            fitting = batch_bytes * taken // size if size else BATCH_MESSAGES
            self._batch_messages = max(1, min(BATCH_MESSAGES, 2 * self._batch_messages, fitting))

    def _runs(self, records: Sequence[_Record]) -> Iterator[Sequence[_Record] | _Record]:
        # Records of one partition that follow each other; what is an error comes by itself.
        if any(map(_ERROR, records)):
            good: list[_Record] = []
            for record in records:
                if record.error() is None:
                    good.append(record)
                    continue
                if good:
                    yield from self._runs(good)
                    good = []
                yield record
            if good:
                yield from self._runs(good)
        elif len(self._origins) == 1:
            yield records
        else:
            for _, run in groupby(records, _PARTITION):
                yield list(run)

    def _accept(self, run: Sequence[_Record]) -> int:
        partition, last = _place_of(run[-1])
        if partition not in self._open:
            return 0  # it reached its end earlier in this batch
        end = self._ends[partition]
        if last >= end:
            run = [record for record in run if _place_of(record)[1] < end]
        beside = beside_value(run)
        size = sum(map(len, run)) + (RECORD_BYTES + beside) * len(run)
        self._advance(partition, last + 1, run, size, beside, told=last + 1 >= end)
        return size

    def _advance(
        self,
        partition: int,
        position: int,
        run: Sequence[_Record] = (),
        size: int = 0,
        beside: int = 0,
        *,
        told: bool,
    ) -> None:
        end = self._ends[partition]
        if position < end:
            self._open[partition] = position
        else:
            del self._open[partition]
            self._paused.pop(partition, None)
            if self._open:
                self._consumer.incremental_unassign([self._place(partition)])
        reached = {partition: min(position, end)} if told else {}
        if self._queue.put(Batch(self._origins[partition], run, reached, size, beside)):
            self._notify()

    def _balance(self) -> None:
        now = self._clock()
        if (len(self._open) < 2 and not self._paused) or now - self._balanced_s < BALANCE_EVERY_S:
            return
        self._balanced_s = now
        if len(self._open) < 2:
            over, under = [], list(self._paused)
        else:
            load = self._share_of(self._load_bytes)
            queued = self._share_of(self._queue_bytes // 2)
            used = {
                p: max(self._load(p) / load, self._queue.bytes_of(p) / queued) for p in self._open
            }
            over = [p for p in used if used[p] > 1 and p not in self._paused]
            self._paused.update({p: now for p in self._paused if self._queue.holds(p)})
            under = [
                p
                for p, dry_s in self._paused.items()
                if used[p] <= 0.5 or (used[p] <= 1 and now - dry_s > DRY_S)
            ]
        if over:
            self._consumer.pause([self._place(p) for p in over])
            self._paused.update(dict.fromkeys(over, now))
        if under:
            self._consumer.resume([self._place(p) for p in under])
            for p in under:
                del self._paused[p]

    def _share_of(self, size: int) -> float:
        # More than an equal part, for the partitions are not equally busy, but never all of it.
        count = sum(1 for p in self._origins if p in self._open or self._queue.holds(p))
        return inf if count < 2 else max(1.0, 2 * size / (count + 1))

    def _heed(self, message: _Record) -> None:
        # What came in place of a record: the end of the log for now, or an error.
        answer = message.error()
        assert answer is not None
        code = answer.code()
        partition, offset = _place_of(message)
        if partition not in self._open and code != KafkaError._ALL_BROKERS_DOWN:
            return
        if code == KafkaError._PARTITION_EOF:
            if offset > self._open[partition]:
                self._advance(partition, offset, told=True)
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            said = self._settings.redact(answer.str())
            origin, position = self._origins[partition], self._open[partition]
            raise out_of_range(self._settings, origin, position, said, self._connect)
        elif code in NO_TOPIC:
            check_topic(self._settings, self._origins[partition], self._connect)
            self._said = answer.str()  # it is there: the brokers have not all heard of it
        elif code in PASSING:
            self._said = self._settings.redact(answer.str())
        else:
            raise unreadable(self._settings, f"{self._topic}/{partition}", answer)

    def _place(
        self, partition: int, offset: int = confluent_kafka.OFFSET_INVALID
    ) -> TopicPartition:
        return TopicPartition(self._topic, partition, offset)


def _place_of(record: _Record) -> tuple[int, int]:
    partition, offset = record.partition(), record.offset()
    return -1 if partition is None else partition, -1 if offset is None else offset
