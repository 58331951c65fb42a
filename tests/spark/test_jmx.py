"""The share of time for which request handlers of a broker are idle, read by JMX."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from drainer.errors import Refused, UsageError
from drainer.kafka.settings import ClientSettings
from drainer.limits.spark.jmx import BrokerMetrics, Jmx, Reading
from drainer.sandbox.ports import free_port
from kafka.topic import eventually
from scenarios.brokers import Broker
from scenarios.fill import create_topic
from spark.connect import classic


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


@classic
@pytest.mark.long
def test_handlers_of_an_idle_broker_are_idle_and_of_a_loaded_one_are_not(
    spark: SparkSession, measured: Broker
) -> None:
    metrics = BrokerMetrics(spark.sparkContext, measured.jmx_address)
    metrics.calibrate()
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
    metrics.close()


@classic
def test_brokers_are_measured_all_the_time(spark: SparkSession, broker: Broker) -> None:
    jmx = Jmx(spark.sparkContext, [broker.jmx_address])
    jmx.start()
    metrics = BrokerMetrics(spark.sparkContext, broker.jmx_address)
    metrics.pools = 2  # Before Kafka 4.2, both pools counted in one meter.

    shares = [
        metrics.idle_share((0, 0), (2, idle_ns))
        for idle_ns in (2_200_000_000, 1_900_000_000, 4_100_000_000)
    ]
    metrics.close()
    eventually(lambda: jmx.handlers_idle(0, float("inf")) is not None, "there are two samples")

    assert shares == [pytest.approx(0.1), 0, 1]
    assert 0 <= (jmx.handlers_idle(0, float("inf")) or 0) <= 1
    assert jmx.handlers_idle(0, 1e-9) is None
    jmx.close()


@classic
def test_an_address_without_metrics_is_refused(spark: SparkSession, bootstrap: str) -> None:
    with pytest.raises(UsageError, match="not HOST:PORT"):
        BrokerMetrics(spark.sparkContext, "broker-1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(Refused, match=f"127.0.0.1:{port}: Connection refused"):
        BrokerMetrics(spark.sparkContext, f"127.0.0.1:{port}")
    with pytest.raises(Refused, match="no broker metrics at"):
        BrokerMetrics(spark.sparkContext, bootstrap)  # It is the port of Kafka, not of JMX.
