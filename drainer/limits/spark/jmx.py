"""The brokers' own metrics by JMX, which only Java speaks, so they are read through a small JVM.

A meter of each broker counts the nanoseconds in which its request handlers are idle, divided by
their number. So the growth of that count, divided by the time, is the share in which they are idle.
The meter also has rates, but these are averages over minutes.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import files
from typing import Any

from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

from drainer.errors import BrokerUnreachable, Interrupted, Refused, UsageError, raised_as
from drainer.host.java import find_java
from drainer.limits.kafka.watch import Watch

REACH_S = 5.0
CALIBRATE_S = 1.0

_POOL = "kafka.server:type=KafkaRequestHandlerPool,name="
# A node that is both a broker and a controller has two pools of request handlers. Since Kafka 4.2
# (KIP-1207), each pool has a meter of its own. Before, both counted in the same meter, which showed
# an idle share of 2 when all handlers were idle.
_OF_BROKER = f"{_POOL}BrokerRequestHandlerAvgIdlePercent"
_OF_ALL = f"{_POOL}RequestHandlerAvgIdlePercent"

# A time in seconds by the monotonic clock, and the nanoseconds idle until then.
Reading = tuple[float, int]


@contextmanager
def java_machine() -> Iterator[Any]:
    """Start a JVM, and yield its packages, such as ``java.javax``. It ends with the block.

    It also ends with this process. It requires a token, so that other users can't call it.

    Raises Refused if it does not start.
    """
    logging.getLogger("py4j").propagate = False  # It would print a traceback when the JVM is gone.
    # py4j itself would search for its jar in the working folder first, which may be another user's.
    (jar,) = (str(file.locate()) for file in files("py4j") or () if file.suffix == ".jar")
    java = str(find_java("--jmx"))
    with raised_as(Refused, ValueError, about=f"{java} does not start: "):
        gateway = JavaGateway.launch_gateway(
            jarpath=jar, classpath=jar, java_path=java, die_on_exit=True, enable_auth=True
        )
    try:
        yield gateway.jvm
    finally:
        gateway.close()
        gateway.java_process.kill()


class BrokerMetrics:
    """The metrics of one broker, at ``host:port``: how idle its request handlers are.

    ``java`` has the packages of a JVM. The constructor takes a second, without any traffic, to find
    out how many pools count in the meter.

    Raises:
        UsageError: when ``address`` is not an address.
        BrokerUnreachable: when there is no JMX without a login, or when it is not a Kafka broker.
    """

    def __init__(self, java: Any, address: str) -> None:
        self.address = address
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise UsageError(
                f"--jmx {address} is not HOST:PORT", hint="Give one, such as broker-1:9999."
            )
        # Without an answer, Java would wait for minutes, so the address is tried first.
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from None
        self._management = java.javax.management
        with self._failing():
            remote = self._management.remote
            url = remote.JMXServiceURL(f"service:jmx:rmi:///jndi/rmi://{address}/jmxrmi")
            self._beans = remote.JMXConnectorFactory.connect(url).getMBeanServerConnection()
            names = map(self._management.ObjectName, (_OF_BROKER, _OF_ALL))
            known = [name for name in names if self._beans.isRegistered(name)]
            if not known:
                raise self._refused("it has no request handlers, so it is not a Kafka broker")
            self._idle = known[0]
        first = self.read()
        time.sleep(CALIBRATE_S)
        self.pools = max(1, round(_share(first, self.read())))  # So many count in the meter.

    def read(self) -> Reading:
        """Read the meter.

        Raises BrokerUnreachable if the broker no longer answers; Interrupted if the JVM is gone.
        """
        with self._failing():
            begun_s = time.monotonic()
            idle_ns = int(self._beans.getAttribute(self._idle, "Count"))
            return (begun_s + time.monotonic()) / 2, idle_ns

    def idle_share(self, first: Reading, last: Reading) -> float:
        """Return the share of the time in between that the broker's request handlers were idle."""
        # The handlers of a controller take no part in the traffic, so they are always idle.
        return min(1.0, max(0.0, _share(first, last) - (self.pools - 1)))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            raise self._refused(str(error.java_exception.getMessage()).splitlines()[0]) from None
        except (Py4JError, OSError) as error:
            raise Interrupted(
                f"the Java that reads --jmx is gone: {error}", hint="Try again."
            ) from None

    def _refused(self, why: str) -> BrokerUnreachable:
        return BrokerUnreachable(
            f"no broker metrics at {self.address}: {why}",
            hint="Start the broker with JMX_PORT=9999 and no password. Or remove --jmx.",
        )


class Jmx:
    """The metrics of all brokers. A broker that does not answer for a while is left out.

    ``java`` has the packages of a JVM. It may be None if there are no addresses.

    Raises UsageError and Refused as ``BrokerMetrics`` does.
    """

    def __init__(self, java: Any, addresses: Sequence[str]) -> None:
        brokers = [BrokerMetrics(java, address) for address in addresses]
        self._watches = [(broker, Watch("jmx", broker.read)) for broker in brokers]
        for _, watch in self._watches:
            watch.start()

    def handlers_idle(self, begin_s: float, end_s: float) -> float | None:
        """Return the idle share of the busiest broker; None if none was read twice in that time.

        Raises Interrupted when the JVM is gone.
        """
        for _, watch in self._watches:
            watch.ensure_working()
        shares = [
            broker.idle_share(samples[0][1], samples[-1][1])
            for broker, watch in self._watches
            if len(samples := watch.within(begin_s, end_s)) > 1
        ]
        return min(shares, default=None)

    def close(self) -> None:
        for _, watch in self._watches:
            watch.halt()


def _share(first: Reading, last: Reading) -> float:
    return (last[1] - first[1]) / 1e9 / (last[0] - first[0])
