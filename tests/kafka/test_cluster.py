"""The cluster as a drain sees it, and the ways in which it can't be reached."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from drainer.errors import BrokerUnreachable, TopicMissing
from drainer.kafka.answers import unreachable
from drainer.kafka.cluster import Cluster
from drainer.kafka.log import Complaint
from drainer.kafka.settings import ClientSettings
from kafka import lonely
from kafka.topic import USER, Topic
from scenarios.brokers import Broker

AT_MOST_S = 20.0  # on a busy machine; the limit is 10 s
SASL = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.username={USER}")


def refused(bootstrap: str, *properties: str) -> BrokerUnreachable:
    begun = time.monotonic()
    with pytest.raises(BrokerUnreachable) as raised:
        Cluster.connect(ClientSettings.load(bootstrap, None, properties))
    assert time.monotonic() - begun < AT_MOST_S
    assert "hush" not in str(raised.value)
    assert raised.value.hint
    return raised.value


def test_why_no_broker_answers_is_reported_within_seconds(broker: Broker) -> None:
    with_login, plain = broker.sasl_bootstrap_servers, broker.bootstrap_servers
    cases: dict[tuple[str, ...], tuple[str, str]] = {
        ("127.0.0.1:1",): ("nothing listens on 127.0.0.1:1", "port"),
        ("no-such-host.invalid:9092",): ("unknown host", "DNS"),
        (with_login, *SASL, "sasl.password=wrong-hush"): ("rejected the login", "sasl.password"),
        (with_login,): ("closes", "security.protocol"),
        (plain, "security.protocol=SSL"): ("no TLS", "ssl.ca.location"),
    }
    with ThreadPoolExecutor(len(cases)) as pool:  # each waits for librdkafka
        errors = list(pool.map(lambda case: refused(*case), cases))
    for error, (what, hint) in zip(errors, cases.values(), strict=True):
        assert what in str(error)
        assert hint in (error.hint or "")


def test_a_frozen_broker_is_reported_within_the_time_given(own_broker: Broker) -> None:
    own_broker.pause()
    try:
        begun = time.monotonic()
        with pytest.raises(BrokerUnreachable, match="no answer"):
            Cluster.connect(ClientSettings.load(own_broker.bootstrap_servers), timeout_s=1)
        assert time.monotonic() - begun < 6
    finally:
        own_broker.resume()


def test_a_cluster_that_was_reached_and_is_slow_is_waited_for(own_broker: Broker) -> None:
    settings = ClientSettings.load(own_broker.bootstrap_servers)
    with Cluster.connect(settings) as cluster:
        cluster.timeout_s = 0.5
        own_broker.pause()
        Timer(1.5, own_broker.resume).start()
        try:
            assert not cluster.group("empty").members
        finally:
            own_broker.resume()


def test_a_broker_that_comes_back_and_knows_of_none_ends_no_process() -> None:
    process = subprocess.run([sys.executable, lonely.__file__], capture_output=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, b"a-cluster\n", b"")


def test_a_topic_is_known_by_its_id(cluster: Cluster, bootstrap: str, topic_name: str) -> None:
    topic = Topic(bootstrap, topic_name, partitions=3)
    before = cluster.topic(topic_name)
    assert before.partitions == (0, 1, 2)
    assert set(before.leaders.values()) == {bootstrap}
    assert "/" not in before.topic_id
    assert "+" not in before.topic_id
    topic.delete()
    topic.create()
    assert cluster.topic(topic_name).topic_id != before.topic_id
    with pytest.raises(TopicMissing, match=f"does not exist at {bootstrap}$") as raised:
        cluster.topic(f"{topic_name}s")
    assert topic_name in (raised.value.hint or "")


@pytest.mark.long
def test_a_coordinator_that_has_only_begun_is_waited_for(
    kafka_installed: None, tmp_path: Path
) -> None:
    """A request of the admin client took the process down: librdkafka issue 5040."""
    with Broker(tmp_path, die_with_parent=True) as fresh:
        settings = ClientSettings.load(fresh.bootstrap_servers)
        with Cluster.connect(settings, 60) as cluster:
            for number in range(20):
                assert cluster.committed(f"g-{number}", "nothing", [0]) == {0: None}


@pytest.mark.long
def test_a_leader_that_stands_still_gives_no_offsets(
    own_broker: Broker, own_cluster: Cluster, topic_name: str
) -> None:
    Topic(own_broker.bootstrap_servers, topic_name).produce("abc")
    own_cluster.log_ends(topic_name, [0])
    own_broker.pause()
    try:
        with pytest.raises(BrokerUnreachable):
            own_cluster.log_ends(topic_name, [0], timeout_s=4)
    finally:
        own_broker.resume()
    assert own_cluster.log_ends(topic_name, [0])[0][0] == 3


def test_a_client_with_an_outdated_leader_epoch_is_replaced(
    cluster: Cluster, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka keeps the epoch until it reads its metadata again, up to five minutes later."""
    topic.produce("abc")

    def fenced(*_: Any, **__: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))

    monkeypatch.setattr(cluster.admin, "list_offsets", fenced)
    assert cluster.log_ends(topic.name, [0])[0][0] == 3


def test_an_offset_that_no_leader_gave_is_no_answer(
    cluster: Cluster, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka gives -1001 now and then where a leader is away, and no error."""
    topic.produce("abc")
    list_offsets, lies = cluster.admin.list_offsets, [2]

    def lie(wanted: Any, **named: Any) -> Any:
        found = list_offsets(wanted, **named)
        if lies[0]:
            lies[0] -= 1
            for future in found.values():
                future.result()
                future._result = SimpleNamespace(offset=-1001, leader_epoch=-1)  # noqa: SLF001
        return found

    monkeypatch.setattr(cluster.admin, "list_offsets", lie)
    (log,) = cluster.log_bounds(topic.name, [0], "read_committed").values()
    assert (log.start, log.end, log.high_watermark) == (0, 3, 3)
    assert lies == [0]

    lies[0] = 10_000
    with pytest.raises(BrokerUnreachable, match=rf"no leader answers for {topic.name}/0"):
        cluster.log_ends(topic.name, [0], timeout_s=1)
    lies[0] = 1
    assert cluster.offset_at(topic.name, [0], 2**60) == {0: None}


def test_a_broker_that_died_is_not_taken_for_one_that_is_set_up_wrongly() -> None:
    """Until the cluster notices, it names a dead broker as it would name a wrong address."""
    text = "10.0.0.2:9092/2: Connect to ipv4#10.0.0.2:9092 failed: Connection refused"
    error = unreachable("10.0.0.1:9092", 10.0, [Complaint(None, text, 0.0)])
    assert "a broker that it names does not" in str(error)
    assert (error.hint or "").startswith("If that broker has died, start it")
    assert "advertised.listeners" in (error.hint or "")
