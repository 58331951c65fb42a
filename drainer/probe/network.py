"""Checks of the way to a server, layer by layer: its name, TCP, TLS, and Kafka's protocol.

They use Python's own sockets, because these report an error where librdkafka tries again.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import wait
from urllib.parse import urlsplit

from drainer.errors import DrainerError
from drainer.host.calls import in_a_thread
from drainer.kafka.handshake import request_versions, tls_context
from drainer.model.finding import Finding, Level
from drainer.model.listed import counted, listed
from drainer.text.mask import describe

CONNECT_S = 3.0
LATE_S = 8.0  # A job that takes longer is reported as late.
SOON_DAYS, DAY_S = 14, 24 * 60 * 60

_FETCH, _METADATA, _DESCRIBE_TRANSACTIONS = 1, 3, 65  # Kafka's API keys of these requests.

_AUTHORITY = "Set ssl.ca.location to the certificate of the authority that signed it."
_NAMES = "Connect by a name that the certificate has, or have this one added to it."
_CLOCK = "Renew the certificate, or set this machine's clock."
_HINTS = {9: _CLOCK, 10: _CLOCK, 62: _NAMES, 64: _NAMES}  # The keys are OpenSSL's X509_V_ERR_….
_ADVERTISED = "Brokers advertise it: set advertised.listeners to what this machine reaches."

Job = Callable[[], Iterable[Finding]]
# Jobs by the name of their first check and its subject, such as ("name", "broker-1:9092").
ProbeJobs = Mapping[tuple[str, str], Job]


def run_jobs(jobs: ProbeJobs) -> list[Finding]:
    """Run jobs at the same time, and return their findings.

    An error of a job becomes a finding. If a job takes too long, that is a finding as well, and
    this function no longer waits for it.
    """
    found: dict[tuple[str, str], list[Finding]] = {job: [] for job in jobs}

    def run(job: tuple[str, str]) -> None:
        try:
            for each in jobs[job]():
                found[job].append(each)
        except DrainerError as error:
            found[job].append(Finding(job[0], Level.BAD, str(error), error.hint))
        except Exception as error:
            found[job].append(Finding(job[0], Level.BAD, f"{job[1]}: {describe(error)}"))

    calls = {in_a_thread(run, job): job for job in jobs}
    for job in map(calls.__getitem__, wait(calls, LATE_S).not_done):
        late = f"{job[1]}: no answer within {LATE_S:g} s"
        found[job] = [*found[job], Finding(job[0], Level.BAD, late)]
    return [each for findings in found.values() for each in findings]


def probe_server(
    server: str, properties: Mapping[str, str], advertised: bool = False
) -> Iterator[Finding]:
    """Check a server layer by layer, up to the first layer that fails. The last is ``kafka``."""
    place = urlsplit(f"//{server.rpartition('//')[2]}")
    host, port = place.hostname or "", place.port or 9092
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        hint = _ADVERTISED if advertised else "Check the name, this machine's DNS, and your VPN."
        yield Finding("name", Level.BAD, f"{server}: unknown host ({error.strerror})", hint)
        return
    addresses = listed([*dict.fromkeys(str(each[4][0]) for each in found)])
    yield Finding("name", Level.OK, f"{server} is {addresses}")
    started_s = time.monotonic()
    try:
        connection = socket.create_connection((host, port), CONNECT_S)
    except OSError as error:
        hint = _ADVERTISED if advertised else "Check the port, that the broker runs, and firewalls."
        yield Finding("tcp", Level.BAD, f"{server}: {error.strerror or error}", hint)
        return
    took_ms = 1000 * (time.monotonic() - started_s)
    yield Finding("tcp", Level.OK, f"{server} accepts connections, {took_ms:.0f} ms")
    with connection:
        if not properties.get("security.protocol", "").lower().endswith("ssl"):
            yield _protocol(server, connection)
            return
        try:
            secured = tls_context(properties).wrap_socket(connection, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            hint = _HINTS.get(error.verify_code, _AUTHORITY)
            yield Finding("tls", Level.BAD, f"{server}: {error.verify_message}", hint)
        except OSError as error:
            hint = "Check that this listener speaks TLS: security.protocol."
            yield Finding("tls", Level.BAD, f"{server}: no TLS ({describe(error)})", hint)
        else:
            with secured:
                yield _certificate(server, secured)
                yield _protocol(server, secured)


def _certificate(server: str, connection: ssl.SSLSocket) -> Finding:
    certificate = connection.getpeercert()
    if not certificate:
        return Finding("tls", Level.WARN, f"{server}: the certificate is not verified")
    days = int((ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()) // DAY_S)
    text = f"{server}: {connection.version()}, the certificate expires in {counted(days, 'day')}"
    return Finding("tls", Level.WARN if days < SOON_DAYS else Level.OK, text)


def _protocol(server: str, connection: socket.socket) -> Finding:
    try:
        known = request_versions(connection)
        newest, oldest = known[_METADATA][1], known[_FETCH][0]
    except ssl.SSLError:  # The broker wants a certificate from a keystore that Python can't read.
        return Finding(
            "kafka", Level.UNCHECKED, f"{server} only answers clients with a certificate"
        )
    except (OSError, ValueError, KeyError):
        hint = "Check security.protocol: the listener may expect TLS, or may not be Kafka's."
        return Finding("kafka", Level.BAD, f"{server} does not answer as a broker", hint)
    if newest < 10:  # Version 10 of Metadata has the ids of topics.
        return Finding("kafka", Level.BAD, f"{server} is older than Kafka 2.8, which drainer needs")
    release = "4.0" if oldest >= 4 else "3.0" if _DESCRIBE_TRANSACTIONS in known else "2.8"
    return Finding("kafka", Level.OK, f"{server} speaks as Kafka {release} or newer")
