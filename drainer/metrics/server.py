"""Serves the metrics over HTTP, from threads of its own."""

from __future__ import annotations

import socket
from collections.abc import Callable
from socketserver import TCPServer, ThreadingMixIn
from threading import Thread
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from drainer.engine.status import Status, Summary
from drainer.errors import Refused
from drainer.metrics.collector import StatusCollector

POLL_S = 0.05  # how soon it stops
REQUEST_S = 10.0  # for one that connects and says nothing


class MetricsServer:
    """A port that answers scrapes from when it is made until it is closed.

    Port 0 takes a free one; ``url`` tells which. A scrape reads the latest status that it was
    given, and never asks the drain.

    Raises Refused when the port can't be had.
    """

    def __init__(self, host: str, port: int) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._collector: StatusCollector | None = None
        self.ended = False
        server_class = _Server6 if ":" in host else _Server
        try:
            self._server = server_class((host, port), _Request)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise Refused(
                f"metrics can't be served on {_address(host, port)}: {reason or error}",
                hint="--metrics-port 0 takes a free port, and tells it; --metrics-host is an"
                " address of this machine, or 0.0.0.0 for all of them",
            ) from error
        self._server.set_app(make_wsgi_app(self._registry))
        self.url = f"http://{_address(host, self._server.server_port)}/metrics"
        self._thread = Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="metrics", daemon=True
        )
        self._thread.start()

    def begin(self, topic: str, group: str, drain_id: str) -> Callable[[Status], None]:
        """Says which drain it is about; gives what takes its status."""
        self._collector = StatusCollector(topic, group, drain_id)
        self._registry.register(self._collector)
        return self._collector.update

    def end(self, summary: Summary) -> None:
        """Says how the drain ended; that stays to be read until it is closed."""
        self.ended = True
        if self._collector is not None:
            self._collector.end(summary)

    def close(self) -> None:
        """Frees the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # Not HTTPServer's: it asks the DNS for the machine's name, which may take its time.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever hangs up in the middle is no concern of the drain's, nor of its terminal."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Request(WSGIRequestHandler):
    timeout = REQUEST_S

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not told."""


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
