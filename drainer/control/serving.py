"""The base classes of the HTTP servers beside a drain: its control socket and its metrics port."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer, ThreadingMixIn
from typing import Any

from drainer.host.forks import keep_from_children


class QuietServer(ThreadingMixIn, BaseServer):
    """A server with a thread for each connection. No thread keeps the process alive."""

    daemon_threads = True
    block_on_close = False

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread. Child processes do not inherit the connection."""
        keep_from_children(request)
        super().process_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing, because a peer that hangs up does not concern the drain's user."""


class QuietHandler(BaseHTTPRequestHandler):
    """Handles one request by the method ``answer``, and logs nothing."""

    def answer(self) -> None:
        """Answer the request that ``command``, ``path`` and ``headers`` describe."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self.answer()

    do_HEAD = do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Print nothing, because the terminal is the drain's."""

    def reply(
        self, status: HTTPStatus, kind: str, body: bytes | Iterable[bytes], **headers: str
    ) -> None:
        """Send the response, after which the connection is closed."""
        if isinstance(body, bytes):
            headers["Content-Length"], body = str(len(body)), [body]
        self.send_response(status)
        for name, value in ({"Content-Type": kind} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            for part in body:
                self.wfile.write(part)
