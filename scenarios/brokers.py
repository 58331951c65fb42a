"""Real brokers for scenarios and tests: with logins, with failures on request, or several as one
Kafka."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypedDict, Unpack

from confluent_kafka import KafkaError, KafkaException

from drainer.kafka.cluster import Cluster
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings
from drainer.sandbox import broker
from drainer.sandbox.ports import HOST, BrokerPorts

STOP_TIMEOUT_S = 20.0
PAUSE_WAIT_S = 5.0
POLL_S = 0.02
GROUP_S = 60.0
REPLICAS_MOST = 3

_REPLICATION = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)


class ProcessOptions(TypedDict, total=False):
    """Options of a broker's process, in the form in which the sandbox takes them."""

    die_with_parent: bool
    print_line: Callable[[str], None]


class Broker(broker.Broker):
    """A broker of the sandbox that can be stopped, killed, paused and started again.

    It keeps its ports and its data. As a context manager, it starts at the beginning of the block
    and stops at the end.

    Args:
        folder: where all of its files are.
        ports: the ports where it listens; free ones by default.
        sasl_users: passwords by user name. They add a SASL_PLAINTEXT listener (mechanism PLAIN) on
            a port of its own. The first listener still takes anyone.
        sasl_port: the port of that listener; a free one by default.
        properties: further server properties, which override all others.
        jmx_port: the port where anyone on this machine can read its metrics (JMX); by default,
            nobody can.
        classes: a folder of further Java classes.
        cluster_id: the id of a new cluster; a made-up one by default.
    """

    def __init__(
        self,
        folder: Path,
        *,
        ports: BrokerPorts | None = None,
        sasl_users: Mapping[str, str] | None = None,
        sasl_port: int | None = None,
        properties: Mapping[str, str] | None = None,
        jmx_port: int | None = None,
        classes: Path | None = None,
        cluster_id: str = "",
        **options: Unpack[ProcessOptions],
    ) -> None:
        ports = ports or BrokerPorts.free()
        while sasl_users and sasl_port in (None, ports.client, ports.controller, jmx_port):
            sasl_port = BrokerPorts.free().client
        self.sasl_port, self.jmx_port = sasl_port, jmx_port
        self.classes = classes
        logins = _with_logins(ports, sasl_port, sasl_users) if sasl_users and sasl_port else {}
        super().__init__(folder, ports, properties=logins | dict(properties or {}), **options)
        self.cluster_id = cluster_id or self.cluster_id

    @property
    def sasl_bootstrap_servers(self) -> str:
        """The address for clients with credentials. Raises ValueError without ``sasl_users``."""
        return _address(self.sasl_port, "sasl_users")

    @property
    def jmx_address(self) -> str:
        """The address of the metrics, as ``host:port``. Raises ValueError without ``jmx_port``."""
        return _address(self.jmx_port, "jmx_port")

    def java_command(self, java: Path, path: str, *arguments: str) -> list[str]:
        """Add the options that open the broker's metrics, if they have a port."""
        opened: dict[str, object] = {}
        if self.jmx_port is not None and broker.MAIN_CLASS in arguments:
            opened = {
                "com.sun.management.jmxremote.host": HOST,
                "com.sun.management.jmxremote.port": self.jmx_port,
                "com.sun.management.jmxremote.rmi.port": self.jmx_port,
                "com.sun.management.jmxremote.authenticate": "false",
                "com.sun.management.jmxremote.ssl": "false",
                "java.rmi.server.hostname": HOST,
            }
        options = [f"-D{name}={value}" for name, value in opened.items()]
        return super().java_command(java, path, *options, *arguments)

    def classpath(self) -> str:
        """Return the sandbox's own classpath, with the further classes."""
        path = super().classpath()
        return path if self.classes is None else os.pathsep.join([path, str(self.classes)])

    def start(self) -> None:
        """Start the broker, and wait until it answers. Do nothing if it runs already.

        Raises SandboxRefused if it does not start. Then no process is left.
        """
        if self.running:
            return
        try:
            self.launch()
            self.wait_ready()
        except BaseException:  # Ctrl-C is caught, too: half a broker is of no use.
            self.kill()
            raise

    def stop(self) -> None:
        """Shut the broker down as an operator would (SIGTERM), and kill it if that takes too
        long."""
        if self.mark is not None:
            self.mark.end(grace_s=STOP_TIMEOUT_S)
        self.kill()

    def pause(self) -> None:
        """Freeze the broker, and return once each of its threads has stopped.

        Its connections stay open, and nothing answers.
        """
        if self.mark is None:
            return
        self.mark.signal(signal.SIGSTOP)
        deadline = time.monotonic() + PAUSE_WAIT_S
        while self.running and not _frozen(self.mark.pid) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def resume(self) -> None:
        """Let a paused broker continue."""
        if self.mark is not None:
            self.mark.signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Brokers:
    """A Kafka on 127.0.0.1 of several brokers. Its topics have as many replicas as there are
    brokers, but at most three.

    Each broker can fail in all ways that ``Broker`` has. As a context manager, they start at the
    beginning of the block and stop at the end.

    Args:
        folder: the folder for all of them. Each broker has one of its own in it.
        count: how many there are.
        jmx: whether to open the metrics of each broker, on a port of its own.
        properties, classes, options: the same as for each ``Broker``.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        *,
        properties: Mapping[str, str] | None = None,
        jmx: bool = False,
        classes: Path | None = None,
        **options: Unpack[ProcessOptions],
    ) -> None:
        numbers: set[int] = set()
        while len(numbers) < 3 * count:
            numbers.add(BrokerPorts.free().client)
        clients, controllers, metrics = (sorted(numbers)[n::3] for n in range(3))
        ports = [BrokerPorts(*each) for each in zip(clients, controllers, strict=True)]
        cluster_id = broker.new_cluster_id()
        self.each = tuple(
            Broker(
                folder / f"broker-{number}",
                ports=own,
                properties=_of_cluster(ports, number) | dict(properties or {}),
                jmx_port=metrics[number - 1] if jmx else None,
                classes=classes,
                cluster_id=cluster_id,
                **options,
            )
            for number, own in enumerate(ports, 1)
        )

    @property
    def bootstrap_servers(self) -> str:
        """The addresses to which clients connect: ``host:port``, separated by commas."""
        return ",".join(each.bootstrap_servers for each in self.each)

    def launch(self) -> None:
        """Start the brokers that don't run, without waiting. Raises SandboxRefused as
        ``Broker.start`` does."""
        for each in self.each:
            if not each.running:
                each.launch()

    def wait_ready(self) -> None:
        """Wait until all brokers answer. Raises SandboxRefused as ``Broker.start`` does."""
        for each in self.each:
            each.wait_ready()

    def stop(self) -> None:
        """Shut all brokers down at once (SIGTERM), and kill those that take too long."""
        for each in self.each:
            if each.mark is not None:
                each.mark.signal(signal.SIGTERM)
        for each in self.each:
            each.stop()

    def kill(self) -> None:
        """Kill all brokers at once, as a power cut would."""
        for each in self.each:
            each.kill()

    def __enter__(self) -> Self:
        try:
            self.launch()
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def delete_topic(settings: ClientSettings, topic: str) -> None:
    """Remove a topic. Raises the same errors as ``Cluster.delete_topic``."""
    with Cluster.connect(settings) as cluster:
        cluster.delete_topic(topic)


def delete_group(settings: ClientSettings, group: str) -> None:
    """Remove an empty group. Nothing happens when it does not exist."""
    try:
        admin = settings.admin(ClientLog())  # It must outlive its request.
        admin.delete_consumer_groups([group])[group].result(GROUP_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise


def _address(port: int | None, made_with: str) -> str:
    if port is None:
        raise ValueError(f"this broker was made without {made_with}")
    return f"{HOST}:{port}"


def _frozen(pid: int) -> bool:
    if sys.platform != "linux":
        return True  # That is so as far as it can be seen.
    # A stop reaches the threads one by one, and the last of them may still answer a client.
    try:
        stats = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False  # A thread ended while the threads were read.
    return all(stat.rpartition(")")[2].split()[0] in "TZX" for stat in stats)


def _of_cluster(ports: Sequence[BrokerPorts], number: int) -> dict[str, str]:
    """Return the properties of the broker with this ``number`` in a cluster of brokers on these
    ports."""
    voters = (f"{number}@{HOST}:{each.controller}" for number, each in enumerate(ports, 1))
    return {
        "node.id": str(number),
        "controller.quorum.voters": ",".join(voters),
        **dict.fromkeys(_REPLICATION, str(min(REPLICAS_MOST, len(ports)))),
    }


def _with_logins(ports: BrokerPorts, port: int, users: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a listener for clients with logins, beside the one that takes
    anyone."""
    plain, sasl = f"PLAIN://{HOST}:{ports.client}", f"SASL://{HOST}:{port}"
    accounts = (f"user_{name}={_quoted(password)}" for name, password in users.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = " ".join([module, "required", *accounts])
    return {
        "listeners": f"{plain},CONTROLLER://{HOST}:{ports.controller},{sasl}",
        "advertised.listeners": f"{plain},{sasl}",
        "listener.security.protocol.map": (
            "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{login};",
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
