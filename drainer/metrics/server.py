"""Serves the metrics over HTTP, from threads of its own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from drainer.engine.status import Status, Summary
from drainer.errors import Refused
from drainer.metrics.collector import StatusCollector


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
        try:
            self._server, self._thread = start_http_server(port, host, self._registry)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise Refused(
                f"metrics can't be served on {_address(host, port)}: {reason or error}",
                hint="--metrics-port 0 takes a free port, and tells it; --metrics-host is an"
                " address of this machine, or 0.0.0.0 for all of them",
            ) from error
        # Who hangs up in the middle is no concern of the drain's, nor of its terminal.
        self._server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
        self.url = f"http://{_address(host, self._server.server_port)}/metrics"

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


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
