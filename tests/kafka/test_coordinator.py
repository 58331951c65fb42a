"""Requests to coordinators come from a process of their own, which may die."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

import drainer
from drainer.errors import BrokerUnreachable
from drainer.kafka import coordinator as requests
from drainer.kafka.cluster import Cluster
from drainer.kafka.coordinator import CoordinatorProcess
from drainer.kafka.group import java_hash
from drainer.kafka.settings import ClientSettings
from kafka.topic import Topic, eventually
from scenarios.brokers import Broker

# What may abort in librdkafka when a connection drops.
RISKY = (
    "describe_consumer_groups",
    "alter_consumer_group_offsets",
    "list_consumer_group_offsets",
    "delete_consumer_groups",
    "delete_consumer_group_offsets",
)


@pytest.fixture(autouse=True)
def fresh_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests fork these processes, which hides how they start."""
    monkeypatch.setattr(requests, "subprocess", subprocess)


@pytest.fixture
def cluster(settings: ClientSettings) -> Iterator[Cluster]:
    with Cluster.connect(settings, 60) as connected:
        yield connected


@pytest.fixture
def coordinator(settings: ClientSettings) -> Iterator[CoordinatorProcess]:
    made = CoordinatorProcess(settings)
    yield made
    made.close()


def pid() -> int:
    """The process id of the newest child that makes requests to coordinators."""
    children = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    made = [each for each in children.split() if b"kafka.coordinator" in proc(each, "cmdline")]
    return max(map(int, made), key=lambda each: int(proc(each, "stat").split()[21]))  # their start


def proc(pid: int | str, name: str) -> bytes:
    """Content of a file of a process in /proc; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_no_other_module_sends_requests_that_may_end_the_process() -> None:
    folder = Path(drainer.__file__).parent
    found = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if any(f".{name}(" in path.read_text() for name in RISKY)
    }
    assert found == {"kafka/coordinator.py"}


def test_a_process_that_dies_is_replaced_and_its_request_repeated(
    cluster: Cluster, topic: Topic, group: str
) -> None:
    member = topic.live_member(group, "checkout-7")
    assert [each.client_id for each in cluster.group(group).members] == ["checkout-7"]
    first = pid()
    os.kill(first, signal.SIGABRT)
    assert [each.client_id for each in cluster.group(group).members] == ["checkout-7"]
    assert pid() != first
    member.close()


def test_a_process_that_hangs_is_given_up(
    coordinator: CoordinatorProcess, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drainer.kafka.coordinator.ANSWER_S", 0.1)
    assert coordinator.request("describe", group, 5)["members"] == []
    os.kill(pid(), signal.SIGSTOP)
    with pytest.raises(KafkaException) as raised:
        coordinator.request("describe", group, 0.1)
    assert raised.value.args[0].code() == KafkaError._TRANSPORT
    assert coordinator.request("describe", group, 5)["members"] == []


def test_a_client_that_got_no_answer_is_replaced(
    own_broker: Broker, own_cluster: Cluster, group: str
) -> None:
    """When a broker comes back, librdkafka may wait for ever for what it has given up."""
    assert own_cluster.group(group).members == ()
    first = pid()
    own_broker.pause()
    try:
        with pytest.raises(BrokerUnreachable):
            own_cluster.group(group, 0.5)
    finally:
        own_broker.resume()
    assert own_cluster.group(group, 30).members == ()
    assert pid() != first


def test_an_answer_that_came_too_late_is_not_taken_for_the_next(
    cluster: Cluster, topic: Topic, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = topic.live_member(group, "checkout-7")

    def interrupted() -> None:  # when the request is written
        raise KeyboardInterrupt

    assert cluster.group("empty").members == ()
    with monkeypatch.context() as patched:
        patched.setattr(select, "poll", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cluster.group("empty")
    assert [each.client_id for each in cluster.group(group).members] == ["checkout-7"]
    member.close()


OWNER = """
import os, signal, sys
from drainer.kafka.coordinator import CoordinatorProcess
from drainer.kafka.settings import ClientSettings
from kafka.test_coordinator import pid

coordinator = CoordinatorProcess(ClientSettings.load(sys.argv[1]))
coordinator.request("describe", "unknown", 30)
print(pid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_process_ends_with_its_owner(bootstrap: str) -> None:
    paths = os.pathsep.join(sys.path)
    owner = subprocess.run(
        [sys.executable, "-c", OWNER, bootstrap],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    child = owner.stdout.decode().strip()
    assert child
    eventually(lambda: not proc(child, "cmdline"), "it ends")


def test_the_hash_of_a_groups_name_is_the_one_of_java() -> None:
    hashes = {
        "": 0,
        "hello": 99_162_322,
        "tg1": 114_718,
        "polygenelubricants": 0,
        "\U0001f600": 1_772_899,
    }
    assert {text: java_hash(text) for text in hashes} == hashes


def test_settings_reach_the_process_through_a_pipe_only(
    bootstrap: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sasl.password=not-for-everybody"
    made = CoordinatorProcess(ClientSettings.load(bootstrap, None, [secret]))
    made.request("describe", group, 5)
    for name in ("cmdline", "environ"):
        assert b"not-for-everybody" not in proc(pid(), name)
    made.close()
