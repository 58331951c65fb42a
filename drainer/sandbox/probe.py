"""Asks a broker whether it answers, in the bytes of Kafka's own protocol."""

from __future__ import annotations

import socket
import struct

_API_VERSIONS = 18
_CORRELATION_ID = 1729
_CLIENT_ID = b"drainer-sandbox"
_REQUEST = struct.pack(f">hhih{len(_CLIENT_ID)}s", _API_VERSIONS, 0, _CORRELATION_ID,
                       len(_CLIENT_ID), _CLIENT_ID)  # fmt: skip


def answers(host: str, port: int, *, timeout_s: float = 1.0) -> bool:
    """Ask for the supported API versions, the first thing every client asks.

    An open port is not enough: a broker binds it early, and serves requests on it only once its
    controller has let it in.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            header = _read(connection, 10)
    except OSError:
        return False
    if len(header) < 10:
        return False
    _size, correlation_id, error_code = struct.unpack(">iih", header)
    return bool(correlation_id == _CORRELATION_ID and error_code == 0)


def _read(connection: socket.socket, length: int) -> bytes:
    read = b""
    while len(read) < length:
        piece = connection.recv(length - len(read))
        if not piece:
            break
        read += piece
    return read
