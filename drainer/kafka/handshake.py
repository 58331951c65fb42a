"""The first request of every Kafka client: which versions of requests a server supports."""

from __future__ import annotations

import socket
import struct

_NUMBER = 1729
# Its size, the request's key and version, its number, and no client's name.
_REQUEST = struct.pack(">ihhih", 10, 18, 0, _NUMBER, -1)


def request_versions(connection: socket.socket) -> dict[int, tuple[int, int]]:
    """The lowest and highest version by the key of each request; no login is needed for that.

    Raises OSError, or ValueError when it is not an answer of a broker that serves requests.
    """
    connection.sendall(_REQUEST)
    with connection.makefile("rb") as answer:
        header = answer.read(14)
        if header[4:10] != struct.pack(">ih", _NUMBER, 0) or len(header) < 14:
            raise ValueError("not a broker's answer")
        found = answer.read(6 * min(int.from_bytes(header[10:]), 1000))
    versions = struct.iter_unpack(">hhh", found[: len(found) // 6 * 6])
    return {key: (low, high) for key, low, high in versions}
