"""The port that is scraped."""

from __future__ import annotations

import contextlib
import io
import re
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message

import pytest

from builders import a_status, a_summary
from drainer.engine.history import History
from drainer.errors import Refused
from drainer.metrics.server import CONNECTIONS_MOST, MetricsServer
from drainer.view.status import LivePage


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    made = MetricsServer("127.0.0.1", 0)
    yield made
    made.close()


def scrape(server: MetricsServer) -> str:
    with urllib.request.urlopen(server.url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        found = answer.read().decode()
    assert isinstance(found, str)
    return found


def port_of(server: MetricsServer) -> int:
    return int(server.url.rpartition(":")[2].partition("/")[0])


def test_it_answers_before_during_and_after_the_drain(server: MetricsServer) -> None:
    assert "drainer_" not in scrape(server)

    update = server.begin("orders", "reindexer", "d-1")
    assert 'state="starting",topic="orders"} 1.0' in scrape(server)
    update(a_status())
    assert 'state="running",topic="orders"} 1.0' in scrape(server)
    server.end(a_summary())
    assert 'state="done",topic="orders"} 1.0' in scrape(server)


def test_a_port_or_an_address_that_can_not_be_had_is_refused_with_a_hint(
    server: MetricsServer,
) -> None:
    port = port_of(server)
    for host, number, words in (
        ("127.0.0.1", port, f"127.0.0.1:{port}: Address already in use"),
        ("192.0.2.1", 0, "192.0.2.1"),
        ("not an address", 0, "not an address"),
    ):
        with pytest.raises(Refused, match=words) as no:
            MetricsServer(host, number)
        assert no.value.exit_code == 3
        assert "--metrics 0" in (no.value.hint or "")


def test_a_port_is_free_again_once_it_is_closed() -> None:
    first = MetricsServer("127.0.0.1", 0)
    first.close()
    second = MetricsServer("127.0.0.1", port_of(first))
    assert scrape(second)
    second.close()


def test_one_who_hangs_up_or_sends_nonsense_is_no_concern_of_the_terminal(
    server: MetricsServer,
) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        for words in (b"", b"nonsense\r\n\r\n", b"GET /metrics HTTP/1.0\r\n"):
            rude = socket.create_connection(("127.0.0.1", port_of(server)))
            rude.sendall(words)
            # Closed with a reset, and not in peace.
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            rude.close()
        silent = socket.create_connection(("127.0.0.1", port_of(server)))
        assert scrape(server)  # it does not wait
        silent.close()
        assert scrape(server)

    assert printed.getvalue() == ""


def connected(server: MetricsServer, count: int) -> list[socket.socket]:
    """Clients that begin a request and never end it."""
    made = [socket.create_connection(("127.0.0.1", port_of(server)), 10) for _ in range(count)]
    for each in made:
        each.sendall(b"GET /metrics HTTP/1.0\r\n")
    return made


def is_cut(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_of_connections_beyond_a_few_the_oldest_is_closed(server: MetricsServer) -> None:
    """A probe that slow clients kept out would have the drain ended."""
    slow = connected(server, 3 * CONNECTIONS_MOST)
    for each in slow[:-CONNECTIONS_MOST]:
        assert is_cut(each)
    for _ in range(CONNECTIONS_MOST):
        assert get(server, "healthz")[0] == 200
    for each in slow:
        each.close()


def get(
    server: MetricsServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, str, Message]:
    request = urllib.request.Request(server.page_url + path, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def test_a_page_and_two_answers_for_who_looks_after_processes(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert get(server, "healthz")[0] == 200
    assert get(server, "readyz")[0] == 503
    assert get(server, "")[0] == 503

    page = LivePage(History())
    update = server.begin("orders", "reindexer", "d-1", page)
    update(a_status())
    page.add(a_status())
    assert get(server, "readyz")[:2] == (200, "draining\n")
    update(a_status(trouble="no answer from broker 1", is_kept_waiting=True))
    assert get(server, "readyz")[:2] == (503, "no answer from broker 1\n")
    update(a_status(trouble="the commit waits"))
    assert get(server, "readyz")[0] == 200
    code, body, headers = get(server, "")
    assert code == 200
    assert "25m 40s left" in body
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    [nonce] = re.findall(r'<script nonce="([\w-]+)">', body)
    assert f"'nonce-{nonce}'" in policy
    assert nonce not in get(server, "")[1], "another one each time"

    assert get(server, "", "HEAD")[:2] == (200, "")
    assert get(server, "", "POST")[0] == 405
    assert get(server, "../etc/passwd")[0] == 404
    monkeypatch.setattr("drainer.metrics.server.SILENT_S", 0.0)
    assert get(server, "healthz")[0] == 503
    server.end(a_summary())
    assert get(server, "healthz")[0] == 200
    assert get(server, "readyz")[:2] == (503, "the drain has ended\n")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9464", "127.0.0.1:1", "[::1]:9464", "10.1.2.3", "{machine}:80"]
)
def test_it_answers_to_addresses_and_to_its_own_names(server: MetricsServer, host: str) -> None:
    host = host.format(machine=socket.gethostname())
    for path in ("metrics", "healthz"):
        assert get(server, path, Host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:9464", "[::1", "", "127.0.0.1.evil.example"]
)
def test_a_page_whose_own_name_leads_here_reads_nothing(server: MetricsServer, host: str) -> None:
    server.begin("orders", "reindexer", "d-1", lambda nonce: "hottest sub-keys")(a_status())
    for path in ("", "metrics", "healthz", "readyz"):
        code, body, _ = get(server, path, Host=host)
        assert code == 421
        assert "orders" not in body
