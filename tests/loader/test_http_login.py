"""The handler ``http`` and a service on a real socket: logins, TLS, and a look before a drain."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from typing import Any

import aiohttp
import pytest

from command.service import TLS, Service, nothing, service
from drainer.errors import UsageError
from drainer.handler import Context
from drainer.http.handler import Http
from drainer.kafka.settings import ClientSettings
from drainer.message import SubMessage
from drainer.policy.fault import Fault, fault_of
from drainer.testing import message

CA = {"http.ssl.ca.location": str(TLS / "ca.pem")}
CERTIFICATE = {
    "http.ssl.certificate.location": str(TLS / "client.pem"),
    "http.ssl.key.location": str(TLS / "client.key"),
    "http.ssl.key.password": "key-w0rd",
}


def http(url: str) -> Http:
    handler = Http()
    handler.configure({"url": url})
    return handler


def call(called: Service, properties: dict[str, str]) -> None:
    """Handle one sub-message, as with these properties in the client file."""
    client = ClientSettings("broker:9092", {}, properties)
    handler = http(called.url)
    sub = SubMessage("key", {"n": 1})
    sub.message, sub.index = message(b"value"), 0

    async def run() -> None:
        await handler.open(Context("t", "g", "d", 1, extras=client.extension))
        try:
            await handler.handle_batch([sub])
        finally:
            await handler.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("properties", "header"),
    [
        ({"http.token": "t0ken"}, "Bearer t0ken"),
        (
            {"http.user": "me", "http.password": "wörd:"},
            "Basic " + b64encode("me:wörd:".encode()).decode(),
        ),
        ({}, None),
    ],
    ids=["token", "user", "none"],
)
def test_a_service_gets_the_login_of_the_client_file(
    properties: dict[str, str], header: str | None
) -> None:
    with service(nothing, tls=True) as called:
        call(called, {**CA, **CERTIFICATE, **properties})
    assert [each.get("Authorization") for each in called.headers] == [header]


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


def test_a_preview_has_whether_the_service_answers() -> None:
    with service(nothing, tls=True) as called:
        handler = http(f"{called.url}?sig=s3cr3t")
        checks, warnings = handler.check_before_preview({**CA, **CERTIFICATE})
        assert warnings == []
        assert checks[0].startswith(f"the service {called.url} answers (OPTIONS 405 in 0.")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    checks, warnings = http(f"http://127.0.0.1:{port}").check_before_preview({})
    assert checks == []
    assert "does not answer (ConnectionRefusedError" in warnings[0]


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
    ("options", "text"),
    [
        ({}, "needs the URL"),
        ({"url": "http://me:word@x/"}, "has a login"),
        ({"url": "ftp://x/"}, "is not a URL"),
        ({"url": "http://x/", "batch": "0"}, "batch=0"),
        ({"url": "http://x/", "404": "perhaps"}, "404=perhaps"),
        ({"url": "http://x/", "urls": "2"}, "no option urls"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        Http().configure(options)
    assert caught.value.hint
