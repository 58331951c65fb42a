"""Free ports on 127.0.0.1 for a broker, and whether a broker answers on one."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass
from pathlib import Path

from drainer.kafka.handshake import request_versions

HOST = "127.0.0.1"
LOWEST_PORT = 20_000
PICKS = 200

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_FROM = 32_768  # This is assumed where the system has no such file.


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """The ports of one broker."""

    client: int
    controller: int

    @classmethod
    def free(cls) -> BrokerPorts:
        """Pick ports that are free now."""
        picked: set[int] = set()
        while len(picked) < 2:
            picked.add(free_port())
        return cls(*picked)

    def taken(self) -> tuple[int, ...]:
        """Return the ports of these two that another process uses."""
        return tuple(port for port in (self.client, self.controller) if not _is_free(port))


def free_port() -> int:
    """Pick a port that is free now, outside the ephemeral range if there is one.

    A port of the ephemeral range, from which bind(0) picks, would be a trap. While the broker is
    down, a client that retries may get the broker's own port as its source port. Then it connects
    to itself, and keeps the broker from coming back.
    """
    above = _ephemeral_from()
    if above - LOWEST_PORT >= PICKS:
        for _ in range(PICKS):
            port = random.randrange(LOWEST_PORT, above)
            if _is_free(port):
                return port
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _ephemeral_from() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text(encoding="utf-8").split()[0])
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL_FROM


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # The broker sets this, too, so that a connection in TIME_WAIT does not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def answers(port: int, *, timeout_s: float = 1.0) -> bool:
    """Return whether a broker answers the first request of every client, ApiVersions.

    An open port is not enough, because a broker opens it early. It serves requests only once its
    controller has let it in.
    """
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            return bool(request_versions(connection))
    except (OSError, ValueError):
        return False
