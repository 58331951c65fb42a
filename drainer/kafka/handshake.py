"""The first words of every Kafka client: TLS, and which versions of requests a server supports."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path

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


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """TLS by librdkafka's properties. Raises OSError when a file can't be used."""
    place = properties.get("ssl.ca.location", "probe")
    file, folder = (None, place) if Path(place).is_dir() else (place, None)
    if place == "probe":
        file = None
    pem = properties.get("ssl.ca.pem")
    context = ssl.create_default_context(cafile=file, capath=folder, cadata=pem)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # which librdkafka is not
    if properties.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification") == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if own := properties.get("ssl.certificate.location"):
        key = properties.get("ssl.key.location")
        context.load_cert_chain(own, key, properties.get("ssl.key.password", ""))
    return context
