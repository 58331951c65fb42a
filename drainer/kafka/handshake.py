"""The first steps of a Kafka client: TLS, and the request for the versions that a broker knows."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path

_CORRELATION_ID = 1729
# An ApiVersions request: its size, API key, API version, correlation id, and a null client id.
_REQUEST = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)


def request_versions(connection: socket.socket) -> dict[int, tuple[int, int]]:
    """Return the lowest and highest version that a broker supports of each request, by API key.

    This needs no login. Raises OSError; ValueError when the answer does not come from a broker, or
    when the broker does not serve requests yet.
    """
    connection.sendall(_REQUEST)
    with connection.makefile("rb") as answer:
        header = answer.read(14)
        if header[4:10] != struct.pack(">ih", _CORRELATION_ID, 0) or len(header) < 14:
            raise ValueError("not a broker's answer")
        found = answer.read(6 * min(int.from_bytes(header[10:]), 1000))
    versions = struct.iter_unpack(">hhh", found[: len(found) // 6 * 6])
    return {key: (low, high) for key, low, high in versions}


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context that librdkafka's properties ask for.

    Raises OSError when a file can't be used.
    """
    place = properties.get("ssl.ca.location", "probe")
    file, folder = (None, place) if Path(place).is_dir() else (place, None)
    if place == "probe":
        file = None
    pem = properties.get("ssl.ca.pem")
    context = ssl.create_default_context(cafile=file, capath=folder, cadata=pem)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # librdkafka is not strict, either.
    if properties.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification") == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if own := properties.get("ssl.certificate.location"):
        key = properties.get("ssl.key.location")
        context.load_cert_chain(own, key, properties.get("ssl.key.password", ""))
    return context
