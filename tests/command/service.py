"""A service on a real socket, in the process of the test, that the handler ``http`` calls."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

# A CA, and what it signed: a service for localhost, and a client whose key has a password.
TLS = Path(__file__).parent / "tls"

aiohttp_web = pytest.importorskip("aiohttp.web")


@dataclass
class Service:
    """Record of a service's calls, and its URL; ``answer`` makes the response to a body."""

    answer: Callable[[Any], Any]
    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)

    async def handle(self, request: Any) -> Any:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(request.headers)
        response = self.answer(body)
        return await response if asyncio.iscoroutine(response) else response

    @property
    def items(self) -> list[Any]:
        """All sub-messages that it was sent, each as often as it was."""
        return [item for body in self.bodies for item in body.get("batch", [body])]


@contextmanager
def service(
    answer: Callable[[Any], Any], *, tls: bool = False, login: str = ""
) -> Iterator[Service]:
    """Serve on a free port while the block lasts; by TLS only who has a certificate of the CA.

    ``login`` is the header Authorization that it requires, if any.
    """
    context = None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=TLS / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(TLS / "service.pem")
    made = Service(answer)
    loop = asyncio.new_event_loop()

    @aiohttp_web.middleware  # type: ignore[untyped-decorator]
    async def guard(request: Any, handler: Any) -> Any:
        if login and request.headers.get("Authorization") != login:
            return aiohttp_web.Response(status=401)
        return await handler(request)

    application = aiohttp_web.Application(client_max_size=1 << 26, middlewares=[guard])
    application.router.add_post("/drain", made.handle)

    async def start() -> Any:
        runner = aiohttp_web.AppRunner(application)
        await runner.setup()
        await aiohttp_web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        scheme = "http" if context is None else "https"
        made.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/drain"
        return runner

    runner = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def nothing(body: Any) -> Any:
    """204: a single call is done."""
    return aiohttp_web.Response(status=204)


def results(body: Any, **others: str) -> Any:
    """A result for each of a batch: done, or what ``others`` have for a key."""
    found = [
        {"id": item["id"], "result": others.get(str(item["key"]), "done"), "after": 0.01}
        for item in body["batch"]
    ]
    return aiohttp_web.json_response({"results": found})
