"""Clusters whose boundary is known, because one thing alone sets it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from drainer.host.java import find_java
from drainer.sandbox.jars import classpath, kafka_jars
from scenarios.brokers import Broker, Brokers

BROKERS = 3
SLOW_WRITES = Path(__file__).with_name("SlowWrites.java")

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that sets the boundary.

    Attributes:
        name: the name of the case.
        decides: the reason that ``drainer limits`` has to report.
        begin: starts so many brokers in a folder, with so many times the usual capacity, and gives
            the words that connect ``drainer limits`` to them.
        message_bytes: the message sizes to try.
        mb_per_s: roughly the boundary of a broker, for the message size that is known best.
        least, most: the boundary of each size lies between these shares of ``mb_per_s``.
        brokers: the number of brokers.
        clusters: other numbers of brokers, which are shown in one chart with this one.
        words: further words for ``drainer limits``.
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
    # Trials are short here, so quotas are over the last three seconds instead of eleven.
    properties = {"quota.window.num": "3", "quota.window.size.seconds": "1"}
    with Broker(folder, properties=properties, die_with_parent=True) as broker:
        limit_producers(broker, round(capacity * QUOTA_MB_PER_S * 1e6))
        yield ("-b", broker.bootstrap_servers)


def limit_producers(broker: Broker, bytes_per_s: int) -> None:
    """Throttle producers that send more than this, by Kafka's own tool."""
    java = [str(find_java()), "-cp", classpath(kafka_jars())]
    tool = ["kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers, "--alter"]
    rate = f"producer_byte_rate={bytes_per_s}"
    quota = ["--entity-type", "clients", "--entity-default", "--add-config", rate]
    subprocess.run([*java, *tool, *quota], check=True)


WRITE_MS = 50
HANDLED_BYTES = 1024  # At so low a pace, each message is a request of its own.


@contextmanager
def _with_few_handlers(folder: Path, capacity: float, brokers: int) -> Iterator[Words]:
    """Start brokers that have one request handler thread each, which sleeps during each write.

    While it sleeps, the thread is not idle, but it takes no processor time from the brokers and
    clients that share this machine.
    """
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


FETCHED_BYTES = 17 * 1024  # Of each partition: four messages of 4 KiB with their headers.
FETCH_MS = 100
COPIED_BYTES = 4096


@contextmanager
def _with_slow_copies(folder: Path, capacity: float, brokers: int) -> Iterator[Words]:
    """Start brokers whose followers fetch a little of each partition, and then wait.

    Kafka's own throttle of replication does not do this, because it spares replicas in sync.
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
    with Brokers(
        folder,
        count,
        properties=properties,
        jmx=True,
        classes=classes,
        die_with_parent=True,
    ) as brokers:
        jmx = [word for broker in brokers.each for word in ("--jmx", broker.jmx_address)]
        yield ("-b", brokers.bootstrap_servers, *jmx)


PARTITIONS = 2  # Per broker.

CASES = (
    Case(
        "quota",
        "brokers throttled clients",
        _with_quota,
        "100,1KiB,10KiB",
        QUOTA_MB_PER_S,
        # The quota counts batches with their headers, which are a fifth of what small messages
        # take. And the safe rate is below it by as much as bursts are above the mean.
        0.6,
        1.1,
        brokers=1,
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
