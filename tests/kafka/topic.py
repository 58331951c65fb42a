"""A topic to test on: made, filled with holes of every kind, and cut, by the means of a client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it is exported without __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from drainer.errors import BrokerUnreachable
from drainer.kafka.cluster import Cluster

LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
USER, PASSWORD = "ann", "right-hush"  # of the own broker
WAIT_S = 60.0  # a busy machine is no failure
REQUEST_S = 15.0
FRESH_GROUPS = 30  # so that each of the five coordinators has some
ADMIN_WAIT_S = 90.0  # a broker that came back a moment ago may keep a new topic waiting


def eventually(
    condition: Callable[[], object], what: str = "it happens", wait_s: float = WAIT_S
) -> None:
    """Check again until the condition is true; fail the test when it is late."""
    until = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < until, f"not within {wait_s} s: {what}"
        time.sleep(0.02)


def await_coordinators(cluster: Cluster) -> None:
    """Wait until the coordinators of a fresh broker work, on a topic ``fresh``."""
    until = time.monotonic() + ADMIN_WAIT_S
    left = {f"fresh-{number}" for number in range(FRESH_GROUPS)}
    while left:
        try:
            for group in sorted(left):
                cluster.alter_committed(group, "fresh", {0: 0})
                left.remove(group)
        except BrokerUnreachable:
            assert time.monotonic() < until, "the broker's coordinators do not answer"


@cache
def _admin_of(bootstrap: str) -> AdminClient:
    """A client that all topics share; it finds a broker that restarts soon."""
    return AdminClient(
        {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
    )


class Topic:
    """A topic of its own for one test, on the broker at ``bootstrap``."""

    def __init__(
        self, bootstrap: str, name: str, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.partitions = partitions
        self.config = config or {}
        self._admin = _admin_of(bootstrap)
        self._made = 0
        self.create()

    def create(self) -> None:
        """Make it, or make it again."""
        new = NewTopic(self.name, self.partitions, 1, config=self.config)

        sent = False

        def made() -> bool:
            nonlocal sent
            try:
                future = self._admin.create_topics([new], request_timeout=REQUEST_S)[self.name]
                future.result()
            except KafkaException as error:
                match error.args[0].name():
                    case "_TIMED_OUT":  # it may be made all the same
                        sent = True
                        return False
                    case "TOPIC_ALREADY_EXISTS" if sent:
                        return True
                    case "TOPIC_ALREADY_EXISTS" if self._made:  # it takes a moment to be forgotten
                        return False
                    case "INVALID_REPLICATION_FACTOR" if "fenced" in str(error):  # as yet
                        return False
                raise
            return True

        eventually(made, f"topic {self.name} is made", ADMIN_WAIT_S)
        # The controller answers before the broker knows it.
        eventually(lambda: self._known() is not None, f"topic {self.name} is known")
        self._made += 1

    def delete(self) -> None:
        self._admin.delete_topics([self.name])[self.name].result(WAIT_S)
        eventually(lambda: self._known() is None, f"topic {self.name} is forgotten")

    def discard(self) -> None:
        """Have it deleted some time soon."""
        self._admin.delete_topics([self.name])

    def _known(self) -> object:
        answer = self._admin.describe_topics(TopicCollection([self.name]))[self.name]
        try:
            return answer.result(WAIT_S)
        except KafkaException:
            return None

    def configure(self, config: dict[str, str]) -> None:
        """Change settings of it."""
        resource = ConfigResource(
            ResourceType.TOPIC,
            self.name,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in config.items()
            ],
        )
        self._admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def grow(self, partitions: int) -> None:
        """Let it have so many partitions."""
        grown = NewPartitions(self.name, partitions)
        self._admin.create_partitions([grown])[self.name].result(WAIT_S)

        def known() -> bool:  # The client finds the leaders of the new ones by this.
            found = self._admin.list_topics(self.name, WAIT_S).topics[self.name]
            return len(found.partitions) == partitions

        eventually(known, "the new partitions are known")

    def delete_before(self, offset: int, partition: int = 0) -> None:
        """Delete the records before an offset, as retention does."""
        place = TopicPartition(self.name, partition, offset)

        def deleted() -> bool:
            try:
                self._admin.delete_records([place])[place].result(WAIT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._NOENT:  # the broker has just come back
                    raise
                return False
            return True

        eventually(deleted, "the partition has a leader")

    def produce(
        self,
        values: Iterable[str | bytes | None],
        partition: int = 0,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0})
        for count, value in enumerate(values):
            producer.produce(self.name, value, key, partition=partition, headers=[*headers])
            if count % 1000 == 999:
                producer.flush(WAIT_S)
        assert producer.flush(WAIT_S) == 0

    def stamp(
        self, stamps: Iterable[tuple[str, int]], value: bytes = b"v", partition: int = 0
    ) -> None:
        """Produce a record for each (key, milliseconds since 1970), by an idempotent producer."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        for key, at_ms in stamps:
            producer.produce(self.name, value, key, partition=partition, timestamp=at_ms)
        assert producer.flush(WAIT_S) == 0

    def transact(self, values: Iterable[str], *, commit: bool, partition: int = 0) -> None:
        """Produce in a transaction and end it: a marker takes an offset, and aborted ones too."""
        producer = self.open_transaction(values, partition=partition)
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
        # The answer comes before the marker is written.
        eventually(lambda: not self._undecided(partition), "the transaction's marker is written")

    def _undecided(self, partition: int) -> bool:
        ends = [
            self._admin.list_offsets(
                {TopicPartition(self.name, partition): LATEST}, isolation_level=isolation
            )
            for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        stable, last = (next(iter(end.values())).result(WAIT_S).offset for end in ends)
        return bool(stable != last)

    def open_transaction(self, values: Iterable[str], partition: int = 0) -> Producer:
        """Produce in a transaction and leave it open."""
        name = f"{self.name}-{time.monotonic_ns()}"
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name})
        _retried(lambda: producer.init_transactions(WAIT_S))
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, value, partition=partition)
        assert producer.flush(WAIT_S) == 0
        return producer

    def live_member(
        self, group: str, client_id: str = "a-live-consumer", **more: str | int
    ) -> Consumer:
        """A consumer that is in the group; close it. Of names, ``_`` stands for a dot."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "client.id": client_id,
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in more.items()},
            }
        )
        consumer.subscribe([self.name])

        def joined() -> bool:
            consumer.poll(0.05)
            return bool(consumer.assignment())

        eventually(joined, "the consumer is in the group")
        return consumer

    def read_all(self, count: int, partition: int = 0, wait_s: float = WAIT_S) -> list[Message]:
        """Read so many records of a partition by an ordinary consumer."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": f"all-{self.name}"})
        consumer.assign([TopicPartition(self.name, partition, 0)])
        found: list[Message] = []

        def complete() -> bool:
            found.extend(m for m in consumer.consume(100, 0.1) if m.error() is None)
            return len(found) >= count

        eventually(complete, f"{count} records are there", wait_s)
        consumer.close()
        return found


def _retried(call: Callable[[], object]) -> None:
    def done() -> bool:
        try:
            call()
        except KafkaException as error:
            if error.args[0].retriable() or error.args[0].name() == "NOT_COORDINATOR":
                return False
            raise
        return True

    eventually(done, "the broker takes transactions")
