"""A server for a service or a registry. Its account outlives the drains that call it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

JSON, HTML, TEXT = "application/json", "text/html", "text/plain"


class Request(BaseHTTPRequestHandler):
    """A request with its whole body."""

    protocol_version = "HTTP/1.1"
    body = b""

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        assert isinstance(self.server, _Server)
        self.server.respond(self)

    def do_POST(self) -> None:
        self.do_GET()

    def do_OPTIONS(self) -> None:
        self.sends(204, b"")

    def sends(self, status: int, body: bytes, kind: str = JSON, part: float = 1.0) -> None:
        """Send an answer, or only so much of its body."""
        self.send_response(status)
        if body:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: int(len(body) * part)])
        self.close_connection = self.close_connection or part < 1

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    def __init__(self, respond: Callable[[Request], None]) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.respond = respond

    def handle_error(self, *_: object) -> None:
        pass  # A drain that is killed hangs up.


@contextmanager
def serving(respond: Callable[[Request], None]) -> Iterator[str]:
    """Serve on a free port until the block ends, and provide the URL. ``respond`` runs in many
    threads."""
    server = _Server(respond)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
