"""The share of time for which request handlers of a broker are idle, read by JMX."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from drainer.errors import Interrupted, Refused, UsageError
from drainer.kafka.settings import ClientSettings
from drainer.limits.spark.jmx import BrokerMetrics, Jmx, Reading, java_machine
from drainer.sandbox.ports import free_port
from kafka.topic import eventually
from scenarios.brokers import Broker
from scenarios.fill import create_topic


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with java_machine() as java:
        yield java


@pytest.fixture(scope="module")
def measured(kafka_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    # One handler that compresses each batch is busy even with little traffic.
    properties = {"num.io.threads": "1", "compression.type": "gzip", "compression.gzip.level": "9"}
    with Broker(
        tmp_path_factory.mktemp("jmx"),
        properties=properties,
        jmx_port=free_port(),
        die_with_parent=True,
    ) as running:
        create_topic(ClientSettings.load(running.bootstrap_servers), "loaded", 1)
        yield running


@pytest.mark.long
def test_handlers_of_an_idle_broker_are_idle_and_of_a_loaded_one_are_not(
    java: Any, measured: Broker
) -> None:
    metrics = BrokerMetrics(java, measured.jmx_address)
    samples: list[Reading] = [metrics.read()]

    def share() -> float:
        samples.append(metrics.read())
        return metrics.idle_share(samples[-2], samples[-1])

    eventually(lambda: share() > 0.6, "its handler is idle", 60)
    producer = Producer({"bootstrap.servers": measured.bootstrap_servers, "linger.ms": 0})
    batch = [bytes(range(256)) * 100] * 10

    def loaded() -> bool:
        while len(producer) < 500:
            for value in batch:
                producer.produce("loaded", value)
        producer.poll(0.2)
        return share() < 0.4

    eventually(loaded, "its handler has work", 60)
    producer.purge()


def test_brokers_are_measured_all_the_time(java: Any, broker: Broker) -> None:
    jmx = Jmx(java, [broker.jmx_address])
    metrics = BrokerMetrics(java, broker.jmx_address)
    metrics.pools = 2  # Before Kafka 4.2, both pools counted in one meter.

    shares = [
        metrics.idle_share((0, 0), (2, idle_ns))
        for idle_ns in (2_200_000_000, 1_900_000_000, 4_100_000_000)
    ]
    eventually(lambda: jmx.handlers_idle(0, float("inf")) is not None, "there are two samples")

    assert shares == [pytest.approx(0.1), 0, 1]
    assert 0 <= (jmx.handlers_idle(0, float("inf")) or 0) <= 1
    assert jmx.handlers_idle(0, 1e-9) is None
    jmx.close()


def test_an_address_without_metrics_is_refused(java: Any, bootstrap: str) -> None:
    with pytest.raises(UsageError, match="not HOST:PORT"):
        BrokerMetrics(java, "broker-1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(Refused, match=f"127.0.0.1:{port}: Connection refused"):
        BrokerMetrics(java, f"127.0.0.1:{port}")
    with pytest.raises(Refused, match="no broker metrics at"):
        BrokerMetrics(java, bootstrap)  # It is the port of Kafka, not of JMX.


def test_a_jvm_that_is_gone_ends_the_measurement(
    broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    with java_machine() as java:
        jmx = Jmx(java, [broker.jmx_address])
        os.kill(java.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)

        def reported() -> bool:
            try:
                jmx.handlers_idle(0, float("inf"))
            except Interrupted as error:
                return "the Java that reads --jmx is gone" in str(error)
            return False

        eventually(reported, "it is missed")
        jmx.close()
    assert "Traceback" not in capfd.readouterr().err


def test_without_java_there_are_no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(Refused, match="--jmx needs Java"), java_machine():
        pass
