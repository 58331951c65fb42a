"""``drainer limits`` as a person runs it, on a broker that nobody else uses."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from command.process import Command
from core.limit_samples import measured
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.limits.file import LimitsFile
from drainer.limits.kafka.topic import create_test_topic, find_test_topics, new_topic_name
from drainer.limits.search.boundary import from_json
from drainer.sandbox.ports import free_port
from kafka.topic import eventually
from scenarios.brokers import Broker
from scenarios.connect_server import ConnectServer

pytestmark = pytest.mark.long
PATIENCE_S = 180.0


@pytest.fixture(scope="module")
def lonely(kafka_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of its own, since limits refuse one that others use."""
    folder = tmp_path_factory.mktemp("lonely")
    with Broker(folder, jmx_port=free_port(), die_with_parent=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(lonely: Broker) -> Iterator[Cluster]:
    with Cluster.connect(ClientSettings.load(lonely.bootstrap_servers), 60) as cluster:
        yield cluster


def test_a_known_result_is_shown_and_what_a_killed_run_left_is_removed_after_asking(
    command: Command,
) -> None:
    known = measured({100: 1_000.0}, cluster_id=command.cluster.cluster_id, groups=5)
    LimitsFile(command.folder / "limits.json").write(known)
    name = new_topic_name()
    create_test_topic(command.cluster, name, 1, 1024)
    words = ("limits", "-b", command.bootstrap, "--bytes", "100", "--max-rate", "100MB/s")

    asked = command(*words, code=3)
    assert f"left behind   {name}" in asked.err
    assert "--yes" in asked.hint
    assert name in find_test_topics(command.cluster)
    shown = command(*words, "--yes", "--report", "limits.html")
    assert f"removed {name}" in shown.err
    eventually(lambda: name not in find_test_topics(command.cluster), "it is gone")
    answer = command(*words, "-o", "json").answer

    assert from_json(answer["limits"]) == known
    rows = [" ".join(line.split()) for line in shown.out.splitlines()]
    # At 80%: what a drain may write, and read.
    assert [row for row in rows if row.startswith("100 B 1,000 ") and " 800 4,000 " in row]
    report = (command.folder / "limits.html").read_text()
    assert all(figure in report for figure in ("100 B", "1,000", "800", "4,000"))
    other = command(*words, "--consumer-groups", "1", code=3)
    assert "consumer_groups was 5, and is 1" in other.error


def test_a_run_that_is_stopped_leaves_nothing_behind_and_is_resumed(command: Command) -> None:
    words = (
        *("limits", "-b", command.bootstrap, "--yes", "--master", "local[2]"),
        *("--bytes", "1KiB", "--consumer-groups", "1", "--partitions", "2"),
        *("--max-rate", "0.2MB/s", "--max-producers", "4", "--trials", "2"),
        *("--warm-up", "1s", "--window", "6s"),
        *("--report", "limits.html"),
    )
    running = command.start(*words)
    eventually(
        lambda: "producer" in running.err.partition("result")[2] or not running.running,
        "a trial was made",
        PATIENCE_S,
    )
    (topic,) = set(re.findall(r"drainer\.limits\.\d{8}-\d{6}-[0-9a-f]{6}(?= )", running.err))
    assert topic in find_test_topics(command.cluster)
    running.signal(signal.SIGINT)
    stopped = running.ends(4, PATIENCE_S)

    assert (
        "interrupted by SIGINT: all traffic has ended, and limits.json keeps 1 trial"
        in stopped.error
    )
    assert "Repeat the command" in stopped.hint
    eventually(lambda: topic not in find_test_topics(command.cluster), "it is gone")
    assert command.left_behind == ["limits.json"]
    kept = LimitsFile(command.folder / "limits.json").load()
    assert len(kept.trials) == 1

    outcome = command.start(*words, "-o", "json").ends(0, PATIENCE_S)

    found = from_json(outcome.answer["limits"])
    assert not found.missing
    assert found.trials[0] == kept.trials[0]
    assert len(found.trials) == 2
    assert all(trial.point.bytes_per_s <= 0.2e6 * 1.001 for trial in found.trials)
    assert LimitsFile(command.folder / "limits.json").load() == found
    eventually(lambda: not find_test_topics(command.cluster), "nothing is left")
    assert command.left_behind == ["limits.html", "limits.json"]

    again = command(*words)  # Everything is known, so nothing is measured.
    assert "all boundaries, from 2 trials" in again.err
    assert again.took_s < PATIENCE_S / 2


def test_clients_run_on_a_server_of_spark_connect(
    command: Command, lonely: Broker, tmp_path: Path
) -> None:
    with ConnectServer(tmp_path) as server:
        words = (
            *("limits", "-b", command.bootstrap, "--yes", "--master", server.url),
            *("--jmx", lonely.jmx_address, "--bytes", "1KiB", "--consumer-groups", "1"),
            *("--max-rate", "0.2MB/s", "--max-producers", "4", "--trials", "2"),
            *("--warm-up", "1s", "--window", "6s", "-o", "json"),
        )
        outcome = command.start(*words).ends(0, PATIENCE_S)

    trial, _ = from_json(outcome.answer["limits"]).trials
    assert trial.signals.sent_per_s > 0
    assert 0 < (trial.signals.handlers_idle or 0) <= 1
    assert command.left_behind == ["limits.json"]
