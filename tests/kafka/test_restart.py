"""A broker that is killed and comes back: all that a drain has open with it waits, and goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from core.letters import Sample
from drainer.engine.runtime import boottime_s
from drainer.kafka import producer
from drainer.kafka.cluster import Cluster
from drainer.kafka.lock import GroupLock, lock_group
from drainer.raw_json import meaning
from kafka.reader import Bounds, Reader, numbered
from kafka.sender import letters_in, sending
from kafka.topic import Topic, eventually
from scenarios.brokers import Broker

SMALL = Bounds(30_000, 30_000)  # so that most is yet to be read

# librdkafka issue 4605: a request that is open when the broker comes back may end in an abort.
REQUESTS = """
import sys
from drainer.errors import BrokerUnreachable
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings

def report_and_wait(word):
    print(word, flush=True)
    sys.stdin.readline()

with Cluster.connect(ClientSettings.load(sys.argv[1]), 60) as cluster:
    cluster.group("a-group")
    report_and_wait("connected")
    try:
        cluster.group("a-group", 4)
    except BrokerUnreachable:
        report_and_wait("unreachable")
    for _ in range(20):
        cluster.group("a-group", 60)
    report_and_wait("reached")
"""


@contextmanager
def locked(lock: GroupLock) -> Iterator[GroupLock]:
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


@contextmanager
def requesting(bootstrap: str) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """Another process with requests to a coordinator: functions that wait until it has come so far,
    and that let it go on."""
    with subprocess.Popen(
        [sys.executable, "-c", REQUESTS, bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def until(word: str) -> None:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{word}\n", f"ended with {process.wait(60)}"

        def go_on() -> None:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

        yield until, go_on
        assert process.wait(60) == 0


@pytest.mark.long
def test_a_killed_broker_is_waited_for(
    own_broker: Broker,
    own_cluster: Cluster,
    topic_name: str,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer, "SILENCE_S", 0.3)
    bootstrap, settings = own_broker.bootstrap_servers, own_cluster.settings
    topic = Topic(bootstrap, topic_name, partitions=2)
    for partition in range(2):
        topic.produce(numbered(3000, size=1000), partition=partition)
    dead = Topic(bootstrap, f"{topic_name}.dead")
    ranges = {0: (0, 3000), 1: (0, 3000)}
    with (
        requesting(bootstrap) as (until, go_on),
        locked(GroupLock(own_cluster, group, topic_name, "a")) as lock,
        sending(settings, dead.name) as sender,
        Reader(settings, topic_name, ranges, bounds=SMALL) as reader,
    ):
        reader.read(lambda: len(reader.messages) > 10)
        for number in range(1000):
            sender.send(Sample("lane", payload=number).letter())
        eventually(lambda: len(sender.reported) > 100, "some letters are written")

        until("connected")
        own_broker.kill()
        try:
            go_on()
            for number in range(1000, 1100):
                sender.send(Sample("lane", payload=number).letter())
            eventually(lambda: "refused" in (sender.writer.trouble or ""), "the reason is known")
            assert dead.name in (sender.writer.trouble or "")
            reader.read(lambda: "refused" in (reader.fetch.trouble or ""))
            eventually(lambda: boottime_s() >= lock.sure_until_s, "the lock is not sure of itself")
            until("unreachable")
        finally:
            own_broker.start()

        go_on()
        reader.read(wait_s=40)
        assert reader.fetch.trouble is None
        assert set(sender.all_reported(wait_s=60)) == {None}
        assert sender.writer.trouble is None
        eventually(lambda: boottime_s() < lock.sure_until_s, "the lock is sure again", 30)
        assert lock.lost is None
        (member,) = own_cluster.group(lock_group(group), 30).members
        assert member.client_id == lock.client_id
        until("reached")
        go_on()
    assert reader.offsets(0) == reader.offsets(1) == list(range(3000))
    found = letters_in(bootstrap, dead.name)
    assert [meaning(each.payload) for each in found] == [*range(1100)], "each once, in order"
