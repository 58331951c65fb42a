"""A server is looked at layer by layer: each fault is named at the layer where it is."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from certificates import PASSWORD, Authority
from drainer.model.finding import Finding, Level
from drainer.probe import network
from drainer.probe.network import probe_server, run_jobs

TLS = {"security.protocol": "SSL"}


def probed(server: str, **properties: str) -> dict[str, tuple[Level, str]]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return {each.check: (each.level, each.text) for each in probe_server(server, named)}


@contextmanager
def listener(certificate: Path | None = None, answer: bytes = b"") -> Iterator[str]:
    """Address on localhost that gives everybody the same answer, behind TLS if it has a
    certificate."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"), PASSWORD)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with suppress(OSError):
                    found = context.wrap_socket(connection, True) if context else connection
                    found.recv(100)
                    found.sendall(answer)
                    found.close()

    with socket.create_server(("localhost", 0)) as server:
        Thread(target=serve, daemon=True).start()
        yield f"localhost:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_a_broker_is_named_reached_and_speaks_kafka(bootstrap: str) -> None:
    found = probed(bootstrap)

    assert [*found] == ["name", "tcp", "kafka"]
    assert {level for level, _ in found.values()} == {Level.OK}
    assert found["kafka"][1] == f"{bootstrap} speaks as Kafka 4.0 or newer"


def test_a_name_a_port_and_another_service_are_distinguished() -> None:
    assert probed("broker.invalid:9092")["name"][0] is Level.BAD
    with listener() as once:
        pass
    assert "refused" in probed(once)["tcp"][1]
    with listener(answer=b"HTTP/1.1 400 Bad Request\r\n") as web:
        assert probed(web)["kafka"] == (Level.BAD, f"{web} does not answer as a broker")


@pytest.mark.parametrize(
    ("hosts", "days", "signs", "reason"),
    [
        (["localhost"], 30, True, None),
        (["broker.internal"], 30, True, "Hostname mismatch"),
        (["localhost"], -1, True, "certificate has expired"),
        (["localhost"], 30, False, "unable to get local issuer certificate"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_named(
    hosts: list[str], days: int, signs: bool, reason: str | None, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    trusted = authority if signs else Authority(tmp_path, "other")
    with listener(authority.issue("broker", *hosts, days=days)) as server:
        level, text = probed(server, **TLS, ssl_ca_location=str(trusted.ca))["tls"]

    assert level is (Level.OK if reason is None else Level.BAD)
    assert (reason or "expires in 29 days") in text


def test_certificates_are_verified_as_the_clients_do(authority: Authority, tmp_path: Path) -> None:
    other = authority.issue("broker", "broker.internal", days=3)
    with listener(other) as server:
        by_name = {"ssl.endpoint.identification.algorithm": "none"}
        soon = probed(server, **TLS, **by_name, ssl_ca_pem=authority.ca.read_text())
        unverified = probed(server, **TLS, **{"enable.ssl.certificate.verification": "false"})
        nothing = probed(server, **TLS, ssl_ca_location=str(tmp_path / "none"))
    with listener() as plain:
        assert "no TLS" in probed(plain, **TLS)["tls"][1]

    assert soon["tls"][0] is Level.WARN
    assert unverified["tls"] == (Level.WARN, f"{server}: the certificate is not verified")
    assert nothing["tls"][0] is Level.BAD


def test_what_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "LATE_S", 0.2)
    over, begun_s = Event(), time.monotonic()

    def stuck() -> Iterator[Finding]:
        yield Finding("name", Level.OK, "a name")
        over.wait(60)

    def broken() -> Iterator[Finding]:
        raise ValueError("no")

    found = run_jobs({("name", "a:1"): stuck, ("tcp", "b:1"): broken})
    over.set()

    assert time.monotonic() - begun_s < 10
    assert [(each.check, each.level) for each in found] == [
        ("name", Level.OK),
        ("name", Level.BAD),
        ("tcp", Level.BAD),
    ]
