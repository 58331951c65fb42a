"""Traffic on Spark: trials measure what brokers tolerate, and traffic ends with its driver."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from drainer.errors import Interrupted, Refused
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.topic import create_test_topic, find_left_behind, new_topic_name
from drainer.limits.kafka.traffic import TrafficTargets
from drainer.limits.search.reading import TrafficReport
from drainer.limits.search.settings import Payload
from drainer.limits.search.trial import Point, Signals
from drainer.limits.spark import traffic as traffic_module
from drainer.limits.spark.hosting import Host, Hosting
from drainer.limits.spark.traffic import spark_traffic
from drainer.limits.spark.traffic_coordinator import (
    SILENCE_S,
    TrafficCoordinator,
    TrafficOrder,
    connect,
)
from drainer.spark.session.failure import error_as_json
from drainer.spark.session.session import Session
from kafka.topic import eventually
from scenarios.brokers import Broker

POINT = Point(1024, 4, 200.0)
REPORT = TrafficReport(1.0, 1, True, 10, 0, (), 0.5)
WAIT_S = 60.0  # The machine may be busy with other things.


@pytest.fixture
def settings(broker: Broker) -> ClientSettings:
    return ClientSettings.load(broker.bootstrap_servers)


def new_topic(settings: ClientSettings) -> str:
    name = new_topic_name()
    with Cluster.connect(settings, WAIT_S) as cluster:
        create_test_topic(cluster, name, 3, 100_000)
    return name


@pytest.fixture
def topic(settings: ClientSettings) -> str:
    return new_topic(settings)


def written(settings: ClientSettings, topic: str) -> int:
    with Cluster.connect(settings, WAIT_S) as cluster:
        bounds = cluster.log_bounds(topic, range(3), "read_uncommitted")
    return sum(bound.end for bound in bounds.values())


@pytest.mark.long
def test_one_job_makes_trial_after_trial(
    spark: SparkSession,
    settings: ClientSettings,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    targets = TrafficTargets((topic, new_topic(settings)), 3, 5, Payload.CONSTANT)
    phases: list[str] = []

    def still() -> bool:
        with Cluster.connect(settings, WAIT_S) as cluster:
            return topic in find_left_behind(cluster, 0.3)

    with spark_traffic(Session(spark), settings, targets, 2) as traffic:
        seen = traffic.measure(
            POINT, warm_up_s=1, window_s=3, observe=lambda phase, _: phases.append(phase)
        )
        ensure_sane_signals(seen)
        assert all(written(settings, each) for each in targets.topics)
        assert first_value(settings, topic) == bytes(1024)
        assert list(dict.fromkeys(phases)) == ["connecting", "warming up", "steady"]

        # Consumers that can't catch up in time skip what they had yet to read.
        with monkeypatch.context() as patched:
            patched.setattr(traffic_module, "LAG_AT_REST", float("-inf"))
            assert not traffic.rest(2)
        assert traffic.rest(WAIT_S)

        less = traffic.measure(replace(POINT, producers=1), warm_up_s=1, window_s=2)
        assert 0 < less.sent_per_s < seen.sent_per_s / 2
        eventually(still, "the traffic has stopped", WAIT_S)


def first_value(settings: ClientSettings, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": settings.bootstrap_servers, "group.id": "any"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(3)])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert message is not None
    return message.value()


def ensure_sane_signals(seen: Signals) -> None:
    assert seen.sent_per_s == pytest.approx(800, rel=0.3)  # The machine may be busy.
    assert 2.5 < seen.window_s <= 3.5
    assert 0 < (seen.round_trip_ms or 0) < 5_000
    assert seen.queue_ms > 0
    assert seen.throttled == 0
    assert seen.falling_behind is not None
    assert seen.falling_behind < 0.5
    assert seen.handlers_idle is None
    assert seen.isr_changing is None  # There is only one replica.
    assert 0 < seen.clients_busy < 2
    assert seen.errors == 0


@pytest.mark.long
def test_more_tasks_than_run_at_once_are_refused(
    spark: SparkSession, settings: ClientSettings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic_module, "TASKS_S", 0.5)

    with (
        pytest.raises(Refused, match=r"only [0-2] of 3 tasks started"),
        spark_traffic(Session(spark), settings, TrafficTargets((topic,), 3, 0), 3),
    ):
        pass


@pytest.mark.long
def test_traffic_on_a_topic_that_is_deleted_ends_with_the_reason(
    spark: SparkSession, settings: ClientSettings, topic: str
) -> None:
    with spark_traffic(Session(spark), settings, TrafficTargets((topic,), 3, 5), 2) as traffic:
        with Cluster.connect(settings, WAIT_S) as cluster:
            cluster.admin.delete_topics([topic])[topic].result(WAIT_S)

        with pytest.raises(Interrupted, match="can't use the test topic"):
            traffic.measure(POINT, warm_up_s=WAIT_S, window_s=WAIT_S)


@pytest.mark.long
def test_brokers_that_are_gone_do_not_count_as_overloaded(
    spark: SparkSession, kafka_installed: None, tmp_path: Path
) -> None:
    with Broker(tmp_path, die_with_parent=True) as broker:
        settings = ClientSettings.load(broker.bootstrap_servers)
        targets = TrafficTargets((new_topic(settings),), 3, 1)
        with spark_traffic(Session(spark), settings, targets, 2) as traffic:

            def stop(phase: str, _: object) -> None:
                if phase == "steady":
                    broker.stop()

            with pytest.raises(Interrupted, match="the brokers are gone: nothing listens"):
                traffic.measure(POINT, warm_up_s=1, window_s=3, observe=stop)


@pytest.mark.parametrize(
    "end", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)]
)
def test_traffic_ends_with_its_driver(
    settings: ClientSettings, topic: str, end: signal.Signals
) -> None:
    """Spark is not needed: another process has the coordinator, and this one has a task."""
    driver = textwrap.dedent(
        """
        import time
        from drainer.limits.search.trial import Point
        from drainer.limits.spark.traffic_coordinator import TrafficCoordinator
        coordinator = TrafficCoordinator("127.0.0.1", 1, lambda task, report: None)
        coordinator.give(Point(100, 1, 500.0))
        print(coordinator.port, coordinator.token, flush=True)
        time.sleep(600)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", driver], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port, token = process.stdout.readline().split()
            targets = TrafficTargets((topic,), 3, 1)
            hosting = Hosting(settings, targets, 1, ("127.0.0.1", int(port)), token)
            host = Host(hosting, 0)
            raised: list[BaseException] = []
            task = threading.Thread(target=_kept, args=(host.run, raised))
            task.start()
            eventually(lambda: written(settings, topic) > 100, "there is traffic", WAIT_S)

            os.kill(process.pid, end)

            def sends() -> bool:
                return "traffic-pacer" in {thread.name for thread in threading.enumerate()}

            eventually(lambda: not sends(), "nothing is sent any more", SILENCE_S + 5)
            if end == signal.SIGSTOP:
                assert not raised  # The driver may continue.
        finally:
            process.kill()
            task.join(WAIT_S)
    assert "the driver is gone" in str(raised[0])


def _kept(run: object, raised: list[BaseException]) -> None:
    try:
        run()  # type: ignore[operator]
    except BaseException as error:
        raised.append(error)


def order_for(task: Connection) -> TrafficOrder:
    """Return the driver's answer to a report."""
    task.send_bytes(msgspec.json.encode(REPORT))
    return msgspec.json.decode(task.recv_bytes(), type=TrafficOrder)


def test_a_peer_without_the_token_is_hung_up_on() -> None:
    taken: list[tuple[int, TrafficReport]] = []
    coordinator = TrafficCoordinator("127.0.0.1", 1, lambda *report: taken.append(report))
    for greeting in (b"\x00\x00\x00\x0a#WELCOME##", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100):
        with socket.create_connection(("127.0.0.1", coordinator.port), timeout=WAIT_S) as stranger:
            stranger.sendall(greeting)
            with suppress(ConnectionResetError):
                while stranger.recv(100):
                    pass
    with pytest.raises(Interrupted, match="the driver is gone"):
        connect(("127.0.0.1", coordinator.port), "a guess")

    assert not coordinator.connected
    assert coordinator.lost is None
    assert coordinator.token not in repr(
        Hosting(ClientSettings("b:9092"), TrafficTargets((), 1, 0), 1, ("h", 1), coordinator.token)
    )
    with connect(("127.0.0.1", coordinator.port), coordinator.token) as task:
        task.send_bytes(b"0")
        assert order_for(task) == TrafficOrder(1)
    assert taken == [(0, REPORT)]
    eventually(lambda: coordinator.lost is not None, "a task that hangs up is missed")
    coordinator.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", coordinator.port), timeout=WAIT_S)


def test_a_silent_peer_is_hung_up_on_and_keeps_no_task_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drainer.limits.spark.traffic_coordinator.GREETING_S", 0.5)
    coordinator = TrafficCoordinator("127.0.0.1", 1, lambda *_: None)
    address = ("127.0.0.1", coordinator.port)
    with (
        socket.create_connection(address, timeout=WAIT_S) as silent,
        connect(address, coordinator.token) as task,
    ):
        task.send_bytes(b"0")
        eventually(lambda: coordinator.connected == {0}, "the task is here")
        while silent.recv(100):
            pass
        assert coordinator.lost is None
    coordinator.close()


def test_an_order_reaches_a_task_at_once_and_its_failure_the_driver() -> None:
    coordinator = TrafficCoordinator("127.0.0.1", 1, lambda *_: None)
    with connect(("127.0.0.1", coordinator.port), coordinator.token) as task:
        task.send_bytes(b"0")
        eventually(lambda: coordinator.connected == {0}, "the task is here")
        assert order_for(task) == TrafficOrder(1)
        coordinator.give(POINT, skip=True)
        assert order_for(task) == TrafficOrder(2, POINT, 1)
        failure = error_as_json(Refused("no room", hint="make some"))
        task.send_bytes(msgspec.json.encode({"failure": failure}))
        eventually(lambda: coordinator.lost is not None, "it is reported")
    assert isinstance(coordinator.lost, Refused)
    assert coordinator.lost.hint == "make some"
    coordinator.close()
