"""A broker with listeners that take logins, beside the one that takes anyone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from drainer.sandbox.ports import HOST, BrokerPorts
from scenarios.brokers import Broker

OAUTH = "org.apache.kafka.common.security.oauthbearer"


@dataclass(frozen=True)
class Listener:
    """A protocol, and the listener's own properties, of a ``mechanism`` if it has one."""

    protocol: str
    properties: Mapping[str, str]
    mechanism: str = ""

    def settings(self, name: str) -> dict[str, str]:
        """Properties of the server for a listener of this name."""
        own = f"listener.name.{name.lower()}."
        found = {own + each: value for each, value in self.properties.items()}
        if self.mechanism:
            found[f"{own}sasl.enabled.mechanisms"] = self.mechanism
        return found


@contextmanager
def guarded(
    folder: Path, listeners: Mapping[str, Listener], **more: str
) -> Iterator[tuple[Broker, dict[str, str]]]:
    """The broker, and the addresses of its guarded listeners by their names."""
    ports, taken = BrokerPorts.free(), dict[str, int]()
    while len(taken) < len(listeners):
        port = BrokerPorts.free().client
        if port not in {ports.client, ports.controller, *taken.values()}:
            taken[[*listeners][len(taken)]] = port
    places = {"PLAIN": ports.client, **taken}
    own = ",".join(f"{name}://{HOST}:{port}" for name, port in places.items())
    protocols = {"PLAIN": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    protocols |= {name: each.protocol for name, each in listeners.items()}
    properties = {
        "listeners": f"{own},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": own,
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
        "sasl.enabled.mechanisms": ",".join({e.mechanism for e in listeners.values()} - {""}),
        **{k: v for name, each in listeners.items() for k, v in each.settings(name).items()},
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    with Broker(folder, ports=ports, properties=properties, die_with_parent=True) as running:
        yield running, {name: f"{HOST}:{port}" for name, port in taken.items()}
