"""Clusters of the sandbox whose boundary is known, for it is set by one thing that each names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from drainer.demo.fill import create_topic
from drainer.java import find_java
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.traffic import OLD_CLIENT
from drainer.sandbox.jars import classpath, kafka_jars
from scenarios.brokers import Broker, Brokers

BROKERS = 3
SLOW_WRITES = Path(__file__).with_name("SlowWrites.java")

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that sets the boundary.

    Attributes:
        name: of the case.
        decides: what ``drainer limits`` has to report of it.
        begin: so many brokers in a folder, of so many times the usual capacity; gives the words
            that connect ``drainer limits`` to them.
        message_bytes: the sizes to try.
        mb_per_s: the boundary of a broker to expect, roughly, in payloads of the size that is known
            best.
        least, most: shares of it within which the boundary of each size lies.
        brokers: how many there are.
        clusters: of other sizes that stand in one chart with this one.
        words: further ones for ``drainer limits``.
    """

    name: str
    decides: str
    begin: Callable[[Path, float, int], AbstractContextManager[Words]]
    message_bytes: str
    mb_per_s: float
    least: float
    most: float
    brokers: int = BROKERS
    clusters: tuple[int, ...] = ()
    words: Words = ()


QUOTA_MB_PER_S = 2.0


@contextmanager
def _with_quota(folder: Path, capacity: float, _: int) -> Iterator[Words]:
    # Quotas look at the last three seconds instead of eleven: trials are short here.
    properties = {"quota.window.num": "3", "quota.window.size.seconds": "1"}
    with Broker(folder, properties=properties, die_with_parent=True) as broker:
        limit_clients(broker, "producer", round(capacity * QUOTA_MB_PER_S * 1e6))
        yield ("-b", broker.bootstrap_servers)


def limit_clients(broker: Broker, kind: str, bytes_per_s: int, client: str = "") -> None:
    """Throttles producers or consumers that do more than that, each of a name, by Kafka's own tool;
    those of one name alone if it is given."""
    tool = ["kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers]
    whom = ["--entity-name", client] if client else ["--entity-default"]
    rate = f"{kind}_byte_rate={bytes_per_s}"
    java = [str(find_java()), "-cp", classpath(kafka_jars())]
    quota = ["--entity-type", "clients", *whom, "--add-config", rate]
    subprocess.run([*java, *tool, "--alter", *quota], check=True)


OLD_TOPIC, OLD_MESSAGES, OLD_BYTES = "backlog", 20_000, 1024


@contextmanager
def _with_slow_disk(folder: Path, capacity: float, _: int) -> Iterator[Words]:
    """Readers of old messages get so much and no more, as from a disk: by a quota of their own."""
    properties = {"quota.window.num": "3", "quota.window.size.seconds": "1"}
    with Broker(folder, properties=properties, die_with_parent=True) as broker:
        limit_clients(broker, "consumer", round(capacity * QUOTA_MB_PER_S * 1e6), OLD_CLIENT)
        settings = ClientSettings.load(broker.bootstrap_servers)
        create_topic(settings, OLD_TOPIC, 2)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(OLD_MESSAGES):
            producer.produce(OLD_TOPIC, os.urandom(OLD_BYTES), partition=number % 2)
            producer.poll(0)
        producer.flush()
        yield ("-b", broker.bootstrap_servers)


WRITE_MS = 50
HANDLED_BYTES = 1024  # of a message, which is a request of its own at so low a pace


@contextmanager
def _with_few_handlers(folder: Path, capacity: float, brokers: int) -> Iterator[Words]:
    """One request handler thread a broker, which sleeps over each write: it is not idle then, and
    takes no processor time of a machine that all brokers and clients share."""
    classes = folder / "classes"
    javac = find_java().with_name("javac")
    jars = classpath(kafka_jars())
    subprocess.run([javac, "-cp", jars, "-d", classes, SLOW_WRITES], check=True)
    properties = {
        "num.io.threads": "1",
        "authorizer.class.name": "SlowWrites",
        "slow.writes.ms": str(round(WRITE_MS / capacity)),
    }
    with _several(folder, brokers, properties, classes) as words:
        yield words


FETCHED_BYTES = 17 * 1024  # of a partition: four messages of 4 KiB with their heads
FETCH_MS = 100
COPIED_BYTES = 4096


@contextmanager
def _with_slow_copies(folder: Path, capacity: float, brokers: int) -> Iterator[Words]:
    """Followers fetch so much of each partition, and then wait: nothing is ever enough for them.

    Kafka's own throttle of replication is no way to this: it spares replicas that are in sync.
    """
    properties = {
        "replica.fetch.max.bytes": str(FETCHED_BYTES),
        "replica.fetch.min.bytes": str(2**30),
        "replica.fetch.wait.max.ms": str(round(FETCH_MS / capacity)),
        "replica.lag.time.max.ms": "2000",
    }
    with _several(folder, brokers, properties) as words:
        yield words


@contextmanager
def _several(
    folder: Path, count: int, properties: dict[str, str], classes: Path | None = None
) -> Iterator[Words]:
    login = folder / "jmx.login"
    login.touch(0o600)
    login.write_text("limits its-password\n", encoding="ascii")
    with Brokers(
        folder,
        count,
        properties=properties,
        jmx=True,
        jmx_login=login,
        classes=classes,
        die_with_parent=True,
    ) as brokers:
        jmx = [word for broker in brokers.each for word in ("--jmx", broker.jmx_address)]
        yield ("-b", brokers.bootstrap_servers, *jmx, "--jmx-login", str(login))


PARTITIONS = 2  # of each broker

CASES = (
    Case(
        "quota",
        "brokers throttled clients",
        _with_quota,
        "100,1KiB,10KiB",
        QUOTA_MB_PER_S,
        # It counts batches with their heads: a fifth of what small messages take. And what was
        # safe is below it, by as much as bursts are above the mean.
        0.6,
        1.1,
        brokers=1,
    ),
    Case(
        "old",
        "of old messages were read",
        _with_slow_disk,
        "1KiB",
        QUOTA_MB_PER_S,
        0.7,
        1.1,  # what may be missing of it counts as read
        brokers=1,
        words=("--old-topic", OLD_TOPIC, "--partitions", "2"),
    ),
    Case(
        "handlers",
        "request handlers idle",
        _with_few_handlers,
        f"{HANDLED_BYTES}",
        0.8 / (WRITE_MS / 1e3) * HANDLED_BYTES / 1e6,
        0.7,
        1.1,
        clusters=(1,),
        words=("--partitions", str(PARTITIONS)),
    ),
    Case(
        "in-sync",
        "in-sync replicas changing",
        _with_slow_copies,
        f"{COPIED_BYTES}",
        PARTITIONS * 4 * COPIED_BYTES / (FETCH_MS / 1e3) / 1e6,
        0.7,
        1.1,
        words=("--partitions", str(PARTITIONS)),
    ),
)
