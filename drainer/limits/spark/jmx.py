"""Metrics of brokers by JMX, read through the JVM that Spark has anyway.

Request handlers mark in a meter how many nanoseconds they had nothing to do, divided by their
number: the growth of its count over a stretch of time is the idle share in just that stretch. The
meter's own rates lag: the fastest is an average over minutes.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext

from drainer.errors import BrokerUnreachable, Refused, UsageError
from drainer.limits.kafka.watch import Watch

REACH_S = 5.0
CALIBRATE_S = 1.0

_POOL = "kafka.server:type=KafkaRequestHandlerPool,name="
# A node that is a broker and a controller has two pools. Since Kafka 4.2 (KIP-1207) each has a
# meter of its own; before, both marked the same one, which read 2 when all was idle.
_OF_BROKER = f"{_POOL}BrokerRequestHandlerAvgIdlePercent"
_OF_ALL = f"{_POOL}RequestHandlerAvgIdlePercent"

Login = tuple[str, str]  # user and password
Reading = tuple[float, int]  # seconds of the monotonic clock, and the nanoseconds idle until then


class BrokerMetrics:
    """Idle share of the request handlers of one broker, by its metrics at ``host:port``.

    ``login`` is for metrics that are not open to all.

    Raises:
        UsageError: when that is not an address.
        BrokerUnreachable: when nothing there speaks JMX, or it is not a broker.
    """

    def __init__(self, context: SparkContext, address: str, login: Login | None = None) -> None:
        self.address = address
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise UsageError(
                f"--jmx {address} is not HOST:PORT", hint="Give one, such as broker-1:9999."
            )
        # Java would wait for minutes.
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from None
        java: Any = context._jvm  # noqa: SLF001 - no public way leads there
        gateway: Any = context._gateway  # noqa: SLF001 - no public way leads there
        self._management = java.javax.management
        with self._failing():
            remote = self._management.remote
            url = remote.JMXServiceURL(f"service:jmx:rmi:///jndi/rmi://{address}/jmxrmi")
            known_as = java.java.util.HashMap()
            if login is not None:
                words = gateway.new_array(java.java.lang.String, len(login))
                words[0], words[1] = login
                known_as.put("jmx.remote.credentials", words)
            self._connector = remote.JMXConnectorFactory.connect(url, known_as)
            self._beans = self._connector.getMBeanServerConnection()
            names = map(self._management.ObjectName, (_OF_BROKER, _OF_ALL))
            known = [name for name in names if self._beans.isRegistered(name)]
            if not known:
                raise self._refused("it has no request handlers, so it is not a Kafka broker")
            self._idle = known[0]
        self.pools = 1  # that mark the meter

    def calibrate(self) -> None:
        """Finds out how many pools mark the meter, while there is no traffic; takes a second."""
        first = self.read()
        time.sleep(CALIBRATE_S)
        self.pools = max(1, round(_share(first, self.read())))

    def read(self) -> Reading:
        """Raises BrokerUnreachable when the broker doesn't answer any more."""
        with self._failing():
            begun_s = time.monotonic()
            idle_ns = int(self._beans.getAttribute(self._idle, "Count"))
            return (begun_s + time.monotonic()) / 2, idle_ns

    def idle_share(self, first: Reading, last: Reading) -> float:
        """The share of the time in between that the broker's request handlers were idle."""
        # Those of the controller have nothing to do with the traffic, and stay idle.
        return min(1.0, max(0.0, _share(first, last) - (self.pools - 1)))

    def close(self) -> None:
        with self._failing():
            self._connector.close()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            raise self._refused(str(error.java_exception.getMessage()).splitlines()[0]) from None
        except (Py4JError, OSError) as error:
            raise self._refused(str(error)) from None

    def _refused(self, why: str) -> BrokerUnreachable:
        return BrokerUnreachable(
            f"no broker metrics at {self.address}: {why}",
            hint="Start the broker with JMX_PORT=9999, and name its login file with --jmx-login. Or"
            " remove --jmx.",
        )


class Jmx:
    """Metrics of all brokers. A broker that doesn't answer for a while is left out."""

    def __init__(
        self, context: SparkContext, addresses: Sequence[str], login: Login | None = None
    ) -> None:
        """Raises UsageError and Refused as ``BrokerMetrics``."""
        brokers = [BrokerMetrics(context, address, login) for address in addresses]
        for broker in brokers:
            broker.calibrate()
        self._watches = [(broker, Watch("jmx", broker.read)) for broker in brokers]

    def start(self) -> None:
        for _, watch in self._watches:
            watch.start()

    def handlers_idle(self, begin_s: float, end_s: float) -> float | None:
        """Idle share of the busiest broker; None when none was read twice in that time."""
        shares = [
            broker.idle_share(samples[0][1], samples[-1][1])
            for broker, watch in self._watches
            if len(samples := watch.within(begin_s, end_s)) > 1
        ]
        return min(shares, default=None)

    def close(self) -> None:
        for broker, watch in self._watches:
            watch.halt()
            with suppress(Refused):  # it is gone
                broker.close()


def _share(first: Reading, last: Reading) -> float:
    return (last[1] - first[1]) / 1e9 / (last[0] - first[0])
