"""`drainer probe` finds what is in the way of a drain, layer by layer, and changes nothing."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from command.conftest import distinct
from command.process import Command, Outcome
from kafka.topic import USER
from payloads.registry import running
from scenarios.brokers import Broker

ELSEWHERE = b"x.invalid"  # as long as the broker's own name


@contextmanager
def misadvertised(bootstrap: str) -> Iterator[str]:
    """Address of a broker that advertises a name which is nowhere: a proxy of a real one."""
    host, port = bootstrap.split(":")

    def forward(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), source, target:
            while found := source.recv(1 << 16):
                target.sendall(found.replace(host.encode(), ELSEWHERE))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, broker = server.accept()[0], socket.create_connection((host, int(port)))
                for pair in ((client, broker), (broker, client)):
                    Thread(target=forward, args=pair, daemon=True).start()

    with socket.create_server((host, 0)) as server:
        Thread(target=serve, daemon=True).start()
        yield f"{host}:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def lines(outcome: Outcome) -> list[str]:
    """Lines of findings, with one space between words."""
    return [" ".join(line.split()) for line in outcome.out.splitlines() if line.startswith("  ")]


def test_a_drain_that_has_all_it_needs_passes(command: Command) -> None:
    topic = command.topic(distinct(10))
    command.cluster.alter_committed(command.group(topic), topic.name, {0: 4})
    produces = ("--handler", "produce", "--set", f"topic={topic.name}")
    where = ("-b", command.bootstrap, "--topic", topic.name, "--group", command.group(topic))

    outcome = command("probe", *where, *produces)
    answer = command("probe", *where, "-o", "json").answer

    found = lines(outcome)
    for line in (
        f"✓ name {command.bootstrap} is 127.0.0.1",
        f"✓ kafka {command.bootstrap} speaks as Kafka 4.0 or newer",
        "✓ login PLAINTEXT is accepted",
        f"✓ right READ and WRITE on topic {topic.name}",
        f"✓ right READ on group drainer.lock.{command.group(topic)}",
        f"- right WRITE and READ and CREATE on topic {topic.name}.{command.group(topic)}.dead,"
        " which does not exist yet",
        f"✓ group {command.group(topic)} is empty, 6 offsets behind; no consumer would handle new"
        " records",
        "✓ handler produce loads",
    ):
        assert line in found, outcome.out
    assert (answer["status"], answer["exit_code"]) == ("passed", 0)
    assert {"check": "kafka", "level": "ok"}.items() <= answer["findings"][3].items()
    # Others of the session's tests make topics of other names.
    assert [name for name in command.cluster.topic_names() if topic.name in name] == [topic.name]


def test_members_missing_topics_and_handlers_are_named(command: Command) -> None:
    topic = command.topic(distinct(10))
    consumer = topic.live_member(command.group(topic), "checkout-7")
    try:
        where = ("-b", command.bootstrap, "--group", command.group(topic))
        live = command("probe", *where, "--topic", topic.name)
    finally:
        consumer.close()
    missing = command(
        *("probe", *where, "--topic", f"{topic.name}x", "--handler", "nowhere.py:X"), code=7
    )

    assert "checkout-7" in live.out
    assert "✗ right" not in live.out
    assert f"✗ topic     topic {topic.name}x does not exist" in missing.out
    assert "✗ handler" in missing.out
    # A topic of another test may have a name that is as similar, so it may be named as well.
    assert re.search(f"Did you mean .*{topic.name}", missing.err)


@pytest.mark.long
def test_each_server_is_probed_and_a_wrong_password_named(command: Command, broker: Broker) -> None:
    login = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.username={USER}")
    config = command.home / "client.properties"
    config.write_text("\n".join([*login, "sasl.password=wrong-hush"]))
    servers = f"{broker.sasl_bootstrap_servers},broker.invalid:9092,127.0.0.1:1"

    outcome = command("probe", "-b", servers, "--client-config", str(config), code=7)

    found = [line[:9] for line in lines(outcome)]
    assert [line for line in found if line[0] == "✗"] == ["✗ tcp 127", "✗ name br", "✗ login 1"]
    assert "rejected the login" in outcome.out
    assert "wrong-hush" not in outcome.out + outcome.err
    assert outcome.took_s < 20


@pytest.mark.long
def test_a_name_that_brokers_advertise_and_nothing_resolves_is_found(command: Command) -> None:
    with misadvertised(command.bootstrap) as server:
        outcome = command("probe", "-b", server, "--topic", "orders", "--group", "g", code=7)

    assert "✗ name      x.invalid:" in outcome.out
    assert "advertised.listeners" in outcome.err
    assert outcome.took_s < 40


@pytest.mark.long
def test_the_registry_is_probed_when_there_is_one(command: Command) -> None:
    with running() as registry:
        found = command("probe", "-b", command.bootstrap, "--registry", registry.url)
    config = command.home / "client.properties"
    config.write_text(f"schema.registry.url={registry.url}\n")
    away = command("probe", "-b", command.bootstrap, "--client-config", str(config), code=7)

    assert f"✓ registry {registry.url} has 0 subjects" in lines(found)
    assert f"✗ registry  the registry {registry.url} does not answer" in away.out
