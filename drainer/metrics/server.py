"""The metrics port, which serves metrics of the latest status, and a page about the drain."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import HTTPServer
from ipaddress import ip_address
from secrets import token_urlsafe
from time import monotonic, sleep
from typing import Any, cast
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, MetricsHandler, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from drainer import __version__
from drainer.control.serving import QuietHandler, QuietServer
from drainer.errors import Refused
from drainer.host.forks import keep_from_children
from drainer.host.os_errors import describe_os, way_out
from drainer.metrics import names as n
from drainer.model.status import Status, Summary

_FAMILIES: dict[str, Any] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "summary": SummaryMetricFamily,
}


@dataclass(eq=False)
class StatusCollector(Collector):
    """Makes the metrics of the latest status.

    Each scrape reads the status in a thread of its own, which is safe because a status is frozen.
    """

    topic: str
    group: str
    drain_id: str
    clock: Callable[[], float] = monotonic

    def __post_init__(self) -> None:
        self._who = (self.topic, self.group)
        self._status: Status | None = None
        self._summary: Summary | None = None
        self._updated_s = 0.0
        self._risen: dict[str, float] = {}

    def update(self, status: Status) -> None:
        """Take a newer status."""
        self._status, self._updated_s = status, self.clock()

    def end(self, summary: Summary) -> None:
        """Take the summary of the drain. The last status stays."""
        self._summary = summary

    def collect(self) -> Iterator[Family]:
        status, summary = self._status, self._summary
        yield self._family(n.INFO, [((self.drain_id, __version__), 1)])
        state = _state(status, summary)
        yield self._family(n.STATE, [((each,), each == state) for each in n.STATES])
        if summary is not None:
            yield self._family(n.EXIT_CODE, [((), summary.exit_code)])
        if status is None:
            return
        age_s = 0 if summary else self.clock() - self._updated_s
        yield self._family(n.STATUS_AGE, [((), age_s)])
        for metric in n.OF_STATUS:
            yield self._family(metric, metric.rows(status))
        yield self._latency(status)
        if isinstance(engine := status.engine_status, n.HasMetrics):
            for metric in engine.metrics:
                yield self._family(metric, metric.rows(engine))

    def _latency(self, status: Status) -> Family:
        family = self._family(n.LATENCY, [])
        who = dict(zip(n.COMMON_LABELS, self._who, strict=True))
        if (recent := status.timing.latency_recent) is not None:
            for quantile in n.QUANTILES:
                value = recent.percentiles_s[round(quantile * 100)]
                family.add_sample(n.LATENCY.name, {**who, "quantile": str(quantile)}, value)
        if (overall := status.timing.latency) is not None:
            # Both are estimates, which may fall a little. Prometheus would take a fall for a reset.
            for name, found in (("count", overall.count), ("sum", overall.count * overall.mean_s)):
                self._risen[name] = max(found, self._risen.get(name, 0.0))
                family.add_sample(f"{n.LATENCY.name}_{name}", who, self._risen[name])
        return family

    def _family(self, metric: n.Metric[Any], rows: Iterable[n.MetricRow]) -> Family:
        labels = (*n.COMMON_LABELS, *metric.labels)
        family = _FAMILIES[metric.kind](metric.name, metric.meaning, labels=labels)
        for own, value in rows:
            if value is not None:
                family.add_metric((*self._who, *own), float(value))
        return cast(Family, family)


def _state(status: Status | None, summary: Summary | None) -> str:
    if summary is not None:
        return summary.status if summary.status in n.STATES else "failed"
    if status is None:
        return "starting"
    return "stopping" if status.control.stopping is not None else "running"


SILENT_S = 60.0  # A drain without a new status for this time is not healthy.
# Each connection takes a descriptor and a thread from the drain.
CONNECTIONS_MOST = 8
CROWDED_S = 0.01  # The pause before a connection is accepted while there are too many.
SLOW_S = 10.0  # A client that neither sends nor reads for this time is dropped.
HTML, TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

Reply = tuple[HTTPStatus, str, str, dict[str, str]]  # The status, content type, body and headers.
PageMaker = Callable[[str], str]  # Makes the HTML of the page. Its script gets the given nonce.


class MetricsServer:
    """A port that answers requests from its construction until it is closed.

    It serves ``/metrics`` for Prometheus, ``/`` with a page about the drain, ``/healthz`` and
    ``/readyz``. Port 0 stands for any free port. ``url`` is the address of the metrics, and
    ``page_url`` that of the page. An answer shows the latest status, so it never waits for the
    drain.

    The host in a request must be an address, ``localhost``, ``host`` or the name of this machine.
    Any other name gets 421, because a web page could make a name of its own lead here (DNS
    rebinding). If there are more than CONNECTIONS_MOST connections, the oldest one is closed.

    Raises Refused if the port is not available.
    """

    def __init__(self, host: str, port: int) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._collector: StatusCollector | None = None
        self._page: PageMaker | None = None
        self._seen_s: float | None = None
        self._why_not = "not draining yet"  # It is empty while the drain reads and handles.
        self.ended = False
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._server = _Server(family, address, partial(_Handler, self))
        except (OSError, OverflowError) as error:
            reason = describe_os(error) if isinstance(error, OSError) else error
            raise Refused(
                f"can't serve metrics on {_address(host, port)}: {reason}",
                hint=way_out(
                    error,
                    "Use --metrics 0 for any free port. For HOST, give an address of this machine,"
                    " or 0.0.0.0 for all.",
                ),
            ) from error
        own: tuple[str, ...] = "localhost", host, self._server.server_name, socket.gethostname()
        self._names = {name.lower() for name in own}
        self.page_url = f"http://{_address(host, self._server.server_port)}/"
        self.url = f"{self.page_url}metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    def begin(
        self, topic: str, group: str, drain_id: str, page: PageMaker | None = None
    ) -> Callable[[Status], None]:
        """Serve a drain from now on. Returns the function that takes its statuses."""
        collector = self._collector = StatusCollector(topic, group, drain_id)
        self.registry.register(collector)
        self._page = page

        def update(status: Status) -> None:
            self._seen_s = monotonic()
            health = status.health
            self._why_not = (health.is_kept_waiting and health.trouble) or ""
            collector.update(status)

        return update

    def end(self, summary: Summary) -> None:
        """Serve the end of the drain until the port is closed."""
        self.ended, self._why_not = True, "the drain has ended"
        if self._collector is not None:
            self._collector.end(summary)

    def close(self) -> None:
        """Free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reply_to(self, method: str, path: str, host: str | None) -> Reply | None:
        """Return the reply to a request; None for the metrics, which prometheus_client writes."""
        if host is not None and not self._is_own(host):
            text = "not a name of this machine: use its address\n"
            return HTTPStatus.MISDIRECTED_REQUEST, TEXT, text, {}
        if method not in ("GET", "HEAD") or (method, path) == ("HEAD", "/metrics"):
            return HTTPStatus.METHOD_NOT_ALLOWED, TEXT, "read only: use GET or HEAD\n", {}
        return None if path == "/metrics" else self._reply_at(path)

    def _reply_at(self, path: str) -> Reply:
        match path:
            case "/":
                return self._shown()
            case "/healthz":
                silent_s = monotonic() - (self._seen_s or monotonic())
                well = self.ended or silent_s < SILENT_S
                return _health(well, "healthy", f"no status from the drain for {silent_s:.0f} s")
            case "/readyz":
                return _health(not self._why_not, "draining", self._why_not)
        text = "there are /, /metrics, /healthz and /readyz\n"
        return HTTPStatus.NOT_FOUND, TEXT, text, {}

    def _is_own(self, host: str) -> bool:
        # An address is safe, because no name server can make it lead here.
        with suppress(ValueError):
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._names or bool(ip_address(name))
        return False

    def _shown(self) -> Reply:
        if self._page is None or self._seen_s is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, "not draining yet\n", {"Refresh": "2"}
        nonce = token_urlsafe(16)
        policy = {"Content-Security-Policy": _POLICY.format(nonce=nonce)}
        return HTTPStatus.OK, HTML, self._page(nonce), policy


def _health(well: bool, yes: str, no: str) -> Reply:
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    return status, TEXT, f"{yes if well else no}\n", {}


class _Server(QuietServer, HTTPServer):
    request_queue_size = 128

    def __init__(self, family: int, *args: Any) -> None:
        self.address_family = family
        self._open: dict[socket.socket, None] = {}  # The connections, the oldest one first.
        # While a connection is shut down, another thread must not close it: its descriptor could
        # be that of another file by then.
        self._lock = threading.Lock()
        super().__init__(*args)
        keep_from_children(self.socket)

    def verify_request(self, request: Any, client_address: object) -> bool:
        """Accept a connection. If there are too many, close the oldest one.

        This way no slow client keeps a probe or Prometheus out. The pause makes sure that many
        clients cost the drain little.
        """
        with self._lock:
            crowded = len(self._open) >= CONNECTIONS_MOST
            if crowded:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        if crowded:
            sleep(CROWDED_S)
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
            super().shutdown_request(request)


class _Handler(QuietHandler, MetricsHandler):
    timeout = SLOW_S

    def __init__(self, server: MetricsServer, *args: Any) -> None:
        self._server = server
        self.registry = server.registry
        super().__init__(*args)

    def answer(self) -> None:
        path, host = self.path.partition("?")[0], self.headers.get("Host")
        reply = self._server.reply_to(self.command, path, host)
        if reply is None:
            MetricsHandler.do_GET(self)
            return
        status, kind, text, headers = reply
        headers |= {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        self.reply(status, kind, text.encode(), **headers)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
