"""The broker's ``server.properties``: small, durable enough for one node, quick to start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from drainer.sandbox.ports import HOST, BrokerPorts

NODE_ID = 1

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def server_properties(
    *,
    data: Path,
    ports: BrokerPorts,
    sasl_users: Mapping[str, str],
    extra: Mapping[str, str],
) -> str:
    """Write the properties of a broker; ``extra`` has the last word.

    Args:
        data: the folder of its partitions.
        ports: where it listens, on 127.0.0.1.
        sasl_users: passwords by user name, for the SASL listener.
        extra: further server properties.
    """
    listeners = {"PLAIN": ports.client, "CONTROLLER": ports.controller}
    security = {"PLAIN": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    if ports.sasl is not None:
        listeners["SASL"] = ports.sasl
        security["SASL"] = "SASL_PLAINTEXT"
    addresses = {name: f"{name}://{HOST}:{port}" for name, port in listeners.items()}
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAIN",
        "listeners": ",".join(addresses.values()),
        "advertised.listeners": ",".join(
            address for name, address in addresses.items() if name != "CONTROLLER"
        ),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in security.items()
        ),
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # 50 partitions each would make the first group and the first transaction wait.
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        # A broker that comes back from a crash is let in when its former self's session is over;
        # the default makes that 9 s.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # A story's messages may carry old timestamps; retention would delete them at once.
        "log.retention.ms": "-1",
        # The default takes 128 MiB of a small heap.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    }
    if ports.sasl is not None:
        properties["sasl.enabled.mechanisms"] = "PLAIN"
        properties["listener.name.sasl.plain.sasl.jaas.config"] = _plain_login(sasl_users)
    properties |= extra
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _plain_login(users: Mapping[str, str]) -> str:
    accounts = (f"user_{name}={_quoted(password)}" for name, password in users.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return " ".join([module, "required", *accounts]) + ";"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(value: str) -> str:
    # Java reads these files as Latin-1 and drops leading blanks.
    text = "".join(_ESCAPES.get(character, character) for character in value)
    if text.startswith(" "):
        text = "\\" + text
    return "".join(
        character if character.isascii() else _java_unicode(character) for character in text
    )


def _java_unicode(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
