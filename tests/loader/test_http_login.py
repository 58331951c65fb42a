"""The handler ``http`` and a service on a real socket: logins, TLS, and a look before a drain."""

from __future__ import annotations

import asyncio
import gzip
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

import aiohttp
import pytest

from command.service import TLS, Service, nothing, service
from drainer.errors import UsageError
from drainer.handler import Context, GiveUp, Skip
from drainer.http import handler
from drainer.http.handler import Http
from drainer.http.protocol import UnclearAnswer
from drainer.kafka.settings import ClientSettings
from drainer.message import SubMessage
from drainer.policy.fault import Fault, fault_of
from drainer.sandbox.ports import free_port
from drainer.testing import message

CA = {"http.ssl.ca.location": str(TLS / "ca.pem")}
CERTIFICATE = {
    "http.ssl.certificate.location": str(TLS / "client.pem"),
    "http.ssl.key.location": str(TLS / "client.key"),
    "http.ssl.key.password": "key-w0rd",
}


def http(url: str, **options: str) -> Http:
    made = Http()
    made.configure({"url": url, **options})
    return made


def call(called: Service, properties: dict[str, str], **options: str) -> None:
    """Handle one sub-message, as with these properties in the client file."""
    client = ClientSettings("broker:9092", {}, properties)
    made = http(called.url, **options)
    sub = SubMessage("key", {"n": 1})
    sub.message, sub.index = message(b"value"), 0

    async def run() -> None:
        await made.open(Context("t", "g", "d", 1, extras=client.extension))
        try:
            await made.handle_batch([sub])
        finally:
            await made.close()

    asyncio.run(run())


def test_a_batch_that_is_answered_without_json_is_told_what_it_needs() -> None:
    with service(nothing) as called, pytest.raises(UnclearAnswer) as caught:
        call(called, {}, batch="2")
    assert "answered 204 with no content type" in str(caught.value)
    assert str(caught.value).endswith("answer JSON with the result of each id")


@pytest.mark.parametrize(
    ("properties", "header"),
    [
        ({"http.token": "t0ken"}, "Bearer t0ken"),
        (
            {"http.user": "me", "http.password": "wörd:"},
            "Basic " + b64encode("me:wörd:".encode()).decode(),
        ),
        ({"http.token": "t0ken\n"}, "Bearer t0ken"),
        ({}, None),
    ],
    ids=["token", "user", "line", "none"],
)
def test_a_service_gets_the_login_of_the_client_file(
    properties: dict[str, str], header: str | None
) -> None:
    with service(nothing, tls=True, login=header or "") as called:
        call(called, {**CA, **CERTIFICATE, **properties})
        checks, warnings = http(called.url).check_before_preview(
            {**CA, **CERTIFICATE, **properties}
        )
        _, without = http(called.url).check_before_preview({**CA, **CERTIFICATE})
    assert [each.get("Authorization") for each in called.headers] == [header]
    assert (len(checks), warnings) == (1, [])
    assert not header or "rejects the login (OPTIONS 401)" in without[0]


@pytest.mark.parametrize("properties", [CERTIFICATE, CA], ids=["no CA", "no certificate"])
def test_without_a_ca_or_a_certificate_nothing_is_sent(properties: dict[str, str]) -> None:
    with service(nothing, tls=True) as called:
        with pytest.raises(aiohttp.ClientError) as caught:
            call(called, properties)
        checks, warnings = http(called.url).check_before_preview(properties)
    assert fault_of(caught.value) is Fault.DOWNSTREAM
    assert called.bodies == []
    assert checks == []
    assert f"{called.url} does not answer" in warnings[0]


@contextmanager
def answering(answer: bytes, *, endless: bool = False) -> Iterator[str]:
    """URL of a server that answers so, byte by byte if it is ``endless``, and hangs up."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                with server.accept()[0] as client, suppress(OSError):
                    client.recv(1 << 16)
                    client.sendall(answer)
                    while endless and not over.wait(0.01):
                        client.sendall(answer)

    over = Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/?sig=s3cr3t"
        over.set()
        server.shutdown(socket.SHUT_RDWR)


GZIPPED = gzip.compress(b"{}", mtime=0)
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 204 No Content\r\n",  # and no end of its headers
        JSON + b"Connection: close\r\n\r\n",  # as of one that died
        JSON + b"Content-Length: 9\r\n\r\n{}",
        JSON + b"Content-Length: 0\r\nContent-Length: 9\r\n\r\n",
        JSON + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        JSON + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + GZIPPED,
        JSON + b"X: " + b"x" * 10_000 + b"\r\n\r\n",
        JSON + b"Content-Length: 2000000\r\n\r\n" + b" " * 2_000_000,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
    ids=range(11),
)
@pytest.mark.parametrize("batch", [False, True])
def test_a_broken_answer_finishes_nothing_and_is_no_fault_of_what_was_sent(
    answer: bytes, batch: bool
) -> None:
    with answering(answer) as url, pytest.raises(Exception) as caught:
        call(Service(nothing, url), {"http.token": "s3cr3t"}, **({"batch": "9"} if batch else {}))
    assert fault_of(caught.value) is not Fault.OWN
    assert not isinstance(caught.value, Skip | GiveUp)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("answer", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_preview_waits_for_no_answer_without_an_end(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "CHECK_S", 0.2)
    with answering(answer, endless=True) as url:
        checks, warnings = http(url).check_before_preview({})
    assert checks == []
    assert "does not answer" in warnings[0]


def test_a_preview_has_whether_the_service_answers() -> None:
    with service(nothing, tls=True) as called:
        checks, warnings = http(f"{called.url}?sig=s3cr3t").check_before_preview(
            {**CA, **CERTIFICATE}
        )
        assert warnings == []
        assert checks[0].startswith(f"the service {called.url} answers (OPTIONS 405 in 0.")
    with answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") as url:
        checks, warnings = http(url).check_before_preview({})
    assert checks == []
    assert "answers (OPTIONS 404 in 0." in warnings[0]
    assert warnings[0].endswith("check the path in url=")
    checks, warnings = http(f"http://127.0.0.1:{free_port()}").check_before_preview({})
    assert checks == []
    assert "does not answer (ConnectionRefusedError" in warnings[0]
    _, warnings = http("http://no..name/").check_before_preview({})
    assert "does not answer (UnicodeError" in warnings[0]


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"http.tokn": "x"}, "the client file has http.tokn"),
        ({"http.ssl.ca.location": "/nowhere/ca.pem"}, "can't use the files of http.ssl"),
        ({**CERTIFICATE, "http.ssl.key.password": "other"}, "can't use the files of http.ssl"),
    ],
    ids=str,
)
def test_a_wrong_client_file_is_refused_before_the_preview(
    properties: dict[str, Any], text: str
) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        http("https://localhost:1/").check_before_preview(properties)
    assert caught.value.hint
    assert "other" not in str(caught.value)


@pytest.mark.parametrize(
    "properties",
    [
        {"http.token": "s3cr3t\nX: y"},
        {"http.token": "s3cr3t "},
        {"http.token": "s3cr3t\u201d"},
        {"http.user": "s3cr3t:"},
        {"http.password": "s3cr3t\0", "http.user": "me"},
    ],
    ids=range(5),
)
def test_a_login_that_no_header_may_have_is_refused_by_its_name(properties: dict[str, str]) -> None:
    with service(nothing) as called:
        for use in (
            lambda: http(called.url).check_before_preview(properties),
            lambda: call(called, properties),
        ):
            with pytest.raises(
                UsageError, match=f"{next(iter(properties))} .* has a character"
            ) as caught:
                use()
            assert "s3cr3t" not in f"{caught.value} {caught.value.hint}"
    assert called.bodies == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "needs the URL"),
        ({"url": "http://me:word@x/"}, "has a login"),
        ({"url": "ftp://x/"}, "is not a URL"),
        ({"url": "http://x/\u00fc?sig=s3cr3t"}, "url= has a character"),
        ({"url": "http://x/a b"}, "url= has a character"),
        ({"url": "http://x/", "batch": "0"}, "batch=0"),
        ({"url": "http://x/", "404": "perhaps"}, "404=perhaps"),
        ({"url": "http://x/", "urls": "2"}, "no option urls"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options: dict[str, str], text: str) -> None:
    def use() -> None:
        handler = Http()
        handler.configure(options)
        handler.check_before_preview({})  # the client file may have the URL

    with pytest.raises(UsageError, match=text) as caught:
        use()
    assert caught.value.hint
    assert "s3cr3t" not in str(caught.value)
