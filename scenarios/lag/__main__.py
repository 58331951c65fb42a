"""Measures `drainer lag` for all groups of a large cluster: its seconds and its requests.

A thousand groups read a thousand topics of ten partitions each, on a real broker. First a few of
them are behind, then all. The broker counts the requests. The scenario ends with exit code 1 if a
verdict is wrong, or if a look takes longer than ``--most``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.cimpl import NewTopic

from drainer.errors import DrainerError
from drainer.host.java import find_java
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings
from drainer.lags.survey import OVER_S
from drainer.lags.verdict import Verdict
from drainer.sandbox.ports import free_port
from scenarios.brokers import Broker

PARTITIONS, RECORDS = 10, 3
AT_ONCE = 100
MAKING_S = 120.0
MOST_S = 20.0
# Requests that brokers make among themselves, or that a controller gets.
_OF_BROKERS = {"BrokerHeartbeat", "Fetch", "FetchSnapshot", "Vote", "AlterPartition"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--behind", type=int, default=20, help="groups that are behind at first")
    parser.add_argument("--most", type=float, default=MOST_S, help="seconds that a look may take")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="drainer-lag-") as folder:
        broker = Broker(Path(folder), jmx_port=free_port(), die_with_parent=True)
        with broker:
            settings = ClientSettings.load(broker.bootstrap_servers)
            make(settings, given.groups)
            right = True
            for behind in (given.behind, given.groups):
                commit(settings, given.groups, behind)
                right &= measured(broker, given.groups, behind, given.most)
    sys.exit(0 if right else 1)


def make(settings: ClientSettings, number: int) -> None:
    """Make a topic for each group, and write some records to each partition."""
    admin = settings.admin(ClientLog())
    producer = settings.producer(settings.conf(ClientLog(), linger_ms=50))
    for first in range(0, number, AT_ONCE):
        topics = [NewTopic(name, PARTITIONS, 1) for name in names("topic", first, number)]
        for future in admin.create_topics(topics, operation_timeout=MAKING_S).values():
            future.result(MAKING_S)
        for topic, partition, _ in product(topics, range(PARTITIONS), range(RECORDS)):
            producer.produce(topic.topic, b"v", partition=partition)
        if left := producer.flush(MAKING_S):
            raise DrainerError(f"{left} records are not written after {MAKING_S:g} s")


def commit(settings: ClientSettings, number: int, behind: int) -> None:
    """Let the first groups be behind by a record of each partition, and the others by none."""
    admin = settings.admin(ClientLog())
    for first in range(0, number, AT_ONCE):
        offsets = {
            group: [
                TopicPartition(f"topic-{at}", n, RECORDS - (at < behind)) for n in range(PARTITIONS)
            ]
            for at, group in enumerate(names("group", first, number), first)
        }
        while offsets:  # The coordinators of a fresh broker refuse some commits.
            asked = {
                group: admin.alter_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group, places)]
                )[group]
                for group, places in offsets.items()
            }
            for group, future in asked.items():
                with suppress(KafkaException):
                    if all(p.error is None for p in future.result(MAKING_S).topic_partitions):
                        del offsets[group]


def names(kind: str, first: int, number: int) -> Iterable[str]:
    return [f"{kind}-{at}" for at in range(first, min(number, first + AT_ONCE))]


def measured(broker: Broker, groups: int, behind: int, most_s: float) -> bool:
    """Print the seconds and the requests of a look at all groups, and whether it was right."""
    before, begun_s = requests(broker), time.monotonic()
    command = [sys.executable, "-m", "drainer", "lag", "-b", broker.bootstrap_servers, "-o", "json"]
    ended = subprocess.run(command, capture_output=True, check=False)
    took_s = time.monotonic() - begun_s
    if ended.returncode:
        print(ended.stderr.decode())
        return False
    made = requests(broker) - before
    answer = orjson.loads(ended.stdout)
    verdicts = Counter(each["verdict"] for each in answer["groups"])
    right = verdicts == +Counter({Verdict.NEVER: behind, Verdict.KEEPING_UP: groups - behind})
    print(
        f"{groups:,} groups, {groups * PARTITIONS:,} partitions, {behind:,} groups behind:"
        f" {took_s:.1f} s, of which {OVER_S:g} s lie between the looks;"
        f" {made.total():,} requests, {made.total() / groups:.1f} for each group"
        f" ({', '.join(f'{name} {count:,}' for name, count in made.most_common())})"
    )
    if not right:
        print(f"the verdicts are wrong: {dict(verdicts)}")
    return right and took_s <= most_s


def requests(broker: Broker) -> Counter[str]:
    """Return the requests that clients have made to a broker so far, by their kinds."""
    java = [str(find_java()), str(Path(__file__).with_name("Requests.java")), broker.jmx_address]
    printed = subprocess.run(java, capture_output=True, text=True, check=True).stdout
    pairs = (line.split() for line in printed.splitlines())
    return Counter({name: int(count) for name, count in pairs if name not in _OF_BROKERS})


if __name__ == "__main__":
    main()
