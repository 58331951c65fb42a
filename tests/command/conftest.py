"""Fixtures for tests of the command: a folder to run it in, topics, and a broker to maltreat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from command.process import Command, Outcome
from command.terminal import TerminalSession
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from kafka.topic import Topic
from scenarios.brokers import Broker

OnTerminal = Callable[..., TerminalSession]


def operations(count: int, *, lanes: int = 7) -> list[str]:
    """Values of messages: two operations each, over a few documents."""
    return [json.dumps([f"a-{n % lanes}", f"b-{n * 3 % lanes}"]) for n in range(count)]


def distinct(count: int, size: int = 0) -> list[str]:
    """Values of messages with one operation each, all on documents of their own."""
    return [json.dumps([f"{n:0{size or 1}}"]) for n in range(count)]


def same(count: int) -> list[str]:
    """Values of messages with one operation each, all on one document."""
    return ['["hot"]'] * count


def committed(cluster: Cluster, topic: Topic) -> dict[int, int | None]:
    """Committed offsets of the group of ``Command.group``."""
    return cluster.committed(f"g-{topic.name}", topic.name, range(topic.partitions))


def is_refused(command: Command, outcome: Outcome) -> None:
    """Nothing was handled, and the way out is told."""
    assert outcome.error
    assert outcome.hint
    assert outcome.out == ""
    assert not command.record.path.exists()


@pytest.fixture
def command(tmp_path: Path, bootstrap: str) -> Iterator[Command]:
    made = Command(tmp_path, bootstrap)
    yield made
    made.close()


@pytest.fixture
def on_terminal(command: Command) -> Iterator[OnTerminal]:
    with ExitStack() as sessions:

        def start(*words: str, by: tuple[str, ...] = ()) -> TerminalSession:
            session = TerminalSession(list(words), command.folder, command.env, by)
            return sessions.enter_context(session)

        yield start


@pytest.fixture
def own_command(tmp_path: Path, own_broker: Broker) -> Iterator[Command]:
    """The command against the own broker."""
    made = Command(tmp_path, own_broker.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture
def own_cluster(own_broker: Broker) -> Iterator[Cluster]:
    settings = ClientSettings.load(own_broker.bootstrap_servers)
    with Cluster.connect(settings, 60) as connected:
        yield connected
