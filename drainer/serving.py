"""HTTP beside a drain: what its control socket and its metrics port have in common."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer, ThreadingMixIn
from typing import Any

from drainer.forks import keep_from_children


class QuietServer(ThreadingMixIn, BaseServer):
    """A server with a thread per connection; none keeps the process alive."""

    daemon_threads = True
    block_on_close = False

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread; a child that the handler forks does not keep it open."""
        keep_from_children(request)
        super().process_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints nothing: a peer that hangs up is no concern of the drain's terminal."""


class QuietHandler(BaseHTTPRequestHandler):
    """Handles one request by ``answer``, and logs nothing."""

    def answer(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.answer()

    do_HEAD = do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Prints nothing: the terminal is the drain's."""

    def reply(
        self, status: HTTPStatus, kind: str, body: bytes | Iterable[bytes], **headers: str
    ) -> None:
        """Sends an answer, whose end closes the connection."""
        if isinstance(body, bytes):
            headers["Content-Length"], body = str(len(body)), [body]
        self.send_response(status)
        for name, value in ({"Content-Type": kind} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            for part in body:
                self.wfile.write(part)
