"""One real Kafka broker as a child process, with the ways in which brokers fail."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from drainer.errors import SandboxRefused
from drainer.java import find_java
from drainer.process import ProcessMark, bound_to_parent
from drainer.sandbox.jars import KAFKA_VERSION, Say, classpath, kafka_jars, quiet
from drainer.sandbox.ports import HOST, BrokerPorts, answers

START_TIMEOUT_S = 90.0  # two seconds on an idle laptop, far more on a busy runner
STOP_TIMEOUT_S = 20.0
FORMAT_TIMEOUT_S = 60.0
PROBE_EVERY_S = 0.05
TAIL_LINES = 15
REPLICAS_MOST = 3


def new_cluster_id() -> str:
    """An id as Kafka's own tools make it."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class Broker:
    """A node of Kafka on 127.0.0.1: broker and controller in one process, data in ``folder``.

    Alone it is a whole cluster; ``Brokers`` are several that make one.

    It can be stopped, killed, paused and started again, on the same ports and with its data. As a
    context manager it starts, and stops at the end. The folder stays; it is the caller's.

    It runs in a session of its own: the Ctrl-C meant for drainer does not reach it. The process
    that started it may end; with ``die_with_parent`` (Linux) the broker ends then too, with the
    thread that started it, to be exact.

    Args:
        folder: where everything of it is: data, settings, log; made when missing.
        ports: where it listens; free ones unless given.
        sasl_users: passwords by user name; adds a SASL_PLAINTEXT listener (mechanism PLAIN) on a
            port of its own. The first listener still takes anyone.
        properties: further server properties; they have the last word.
        jmx: open its metrics (JMX) to anyone on this machine, on a port of their own.
        jmx_login: a file with one line, ``user password``, which only its owner may read: then the
            metrics are for whoever knows that.
        cluster_id: of a new cluster; made up unless given.
        cluster: the ports of all its brokers, in the order of their node ids; only itself unless
            given.
        classes: a folder of further Java classes.
        heap_mib: the most that its Java heap grows to.
        die_with_parent: don't outlive this process, even if it is killed.
        say: told what goes on, a line at a time.
    """

    def __init__(
        self,
        folder: Path,
        *,
        ports: BrokerPorts | None = None,
        sasl_users: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        jmx: bool = False,
        jmx_login: Path | None = None,
        cluster_id: str = "",
        cluster: Sequence[BrokerPorts] = (),
        classes: Path | None = None,
        heap_mib: int = 512,
        die_with_parent: bool = False,
        say: Say = quiet,
    ) -> None:
        self.folder = folder.resolve()
        self.ports = ports or BrokerPorts.free(sasl=bool(sasl_users), jmx=jmx)
        self.sasl_users = dict(sasl_users or {})
        self.properties = dict(properties or {})
        self.jmx_login = jmx_login
        self.cluster_id = cluster_id
        self.cluster = tuple(cluster) or (self.ports,)
        self.classes = classes
        self.heap_mib = heap_mib
        self.die_with_parent = die_with_parent
        self.mark: ProcessMark | None = None
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._log_from = 0

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: ``host:port``."""
        return f"{HOST}:{self.ports.client}"

    @property
    def sasl_bootstrap_servers(self) -> str:
        """Where clients with credentials connect. Raises ValueError without ``sasl_users``."""
        return self._address(self.ports.sasl, "sasl_users")

    @property
    def jmx_address(self) -> str:
        """Where its metrics are read: ``host:port``. Raises ValueError without ``jmx``."""
        return self._address(self.ports.jmx, "jmx")

    @property
    def log(self) -> Path:
        """The broker's own log."""
        return self.folder / "broker.log"

    @property
    def running(self) -> bool:
        """Whether its process runs, paused or not."""
        return self.mark is not None and self.mark.alive()

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start it and wait until it answers; nothing happens when it runs already.

        Raises:
            SandboxRefused: when Java, the jars, a port or the disk is missing, or when it does not
                answer in time; then no process is left, and the error holds the end of its log.
        """
        if self.running:
            return
        self.launch()
        try:
            self.wait_ready(timeout_s=timeout_s)
        except BaseException:  # Ctrl-C too: half a broker is of use to nobody
            self.kill()
            raise

    def launch(self) -> None:
        """Start its process without waiting for an answer; ``mark`` says which one it is.

        Raises:
            SandboxRefused: as ``start``.
        """
        if self.running:
            return
        java = find_java()
        path = classpath(kafka_jars(say=self._say))
        if self.classes is not None:
            path = os.pathsep.join([path, str(self.classes)])
        if taken := self.ports.taken():
            raise SandboxRefused(
                f"another process uses port {taken[0]} on {HOST}",
                hint="End that process, or start the broker on other ports.",
            )
        try:
            self._write_settings()
            if not (self._data / "meta.properties").exists():
                self._format(java, path)
            self._log_from = self.log.stat().st_size if self.log.exists() else 0
            self._spawn(java, path)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxRefused(
                f"can't start a broker in {self.folder}: {error}",
                hint="Check that the folder is writable, and that the disk has room.",
            ) from error

    def wait_ready(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until it answers a client's first question.

        Raises:
            SandboxRefused: when it ends instead, or gives no answer in time; then it still runs.
        """
        deadline = time.monotonic() + timeout_s
        while not answers(self.ports.client):
            if not self.running:
                raise self._refused("the broker ended while starting")
            if time.monotonic() > deadline:
                raise self._refused(f"the broker gave no answer in {timeout_s:g} s")
            time.sleep(PROBE_EVERY_S)
        self._say(f"Kafka {KAFKA_VERSION} answers on {self.bootstrap_servers}")

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Shut it down as an operator would (SIGTERM), and kill it if that takes too long."""
        if self.mark is not None:
            self.mark.end(grace_s=timeout_s)
        self._reap()

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would."""
        if self.mark is not None:
            self.mark.kill()
        self._reap()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): its connections stay open, and nothing answers."""
        if self.mark is not None:
            self.mark.pause()

    def resume(self) -> None:
        """Let a paused broker go on (SIGCONT)."""
        if self.mark is not None:
            self.mark.resume()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _address(self, port: int | None, made_with: str) -> str:
        if port is None:
            raise ValueError(f"this broker was made without {made_with}")
        return f"{HOST}:{port}"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _settings(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _output(self) -> Path:
        return self.folder / "broker.out"  # what Java says before there is a log, or without one

    @property
    def _scratch(self) -> Path:
        return self.folder / "tmp"

    def _write_settings(self) -> None:
        self._scratch.mkdir(parents=True, exist_ok=True)
        text = server_properties(
            data=self._data,
            ports=self.ports,
            cluster=self.cluster,
            sasl_users=self.sasl_users,
            extra=self.properties,
        )
        # It may hold passwords.
        settings = os.open(self._settings, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(settings, "w", encoding="ascii") as file:
            file.write(text)

    def _java(self, java: Path, path: str, *arguments: str) -> list[str]:
        return [
            str(java),
            f"-Xmx{self.heap_mib}m",
            "-XX:+ExitOnOutOfMemoryError",
            # Killed brokers would leave native libraries and counters behind in /tmp.
            f"-Djava.io.tmpdir={self._scratch}",
            "-XX:-UsePerfData",
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
            f"-Ddrainer.log={self.log}",
            *("-cp", path),
            *arguments,
        ]

    def _metrics(self) -> list[str]:
        if self.ports.jmx is None:
            return []
        opened = {
            "com.sun.management.jmxremote.host": HOST,
            "com.sun.management.jmxremote.port": self.ports.jmx,
            "com.sun.management.jmxremote.rmi.port": self.ports.jmx,
            "com.sun.management.jmxremote.authenticate": "false",
            "com.sun.management.jmxremote.ssl": "false",
            "java.rmi.server.hostname": HOST,
        }
        if self.jmx_login is not None:
            user = self.jmx_login.read_text(encoding="utf-8").split()[0]
            access = self.folder / "jmx.access"
            access.write_text(f"{user} readonly\n", encoding="utf-8")
            opened |= {
                "com.sun.management.jmxremote.authenticate": "true",
                "com.sun.management.jmxremote.password.file": str(self.jmx_login),
                # Java would write hashes in place of the passwords, which can't be read then.
                "com.sun.management.jmxremote.password.toHashes": "false",
                "com.sun.management.jmxremote.access.file": str(access),
            }
        return [f"-D{name}={value}" for name, value in opened.items()]

    def _format(self, java: Path, path: str) -> None:
        # The tool writes meta.properties last, and takes a folder without it for a new one: a
        # format that was cut short is simply done again.
        cluster_id = self.cluster_id or new_cluster_id()
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}"]
        formatted = subprocess.run(
            self._java(java, path, *tool, "--config", str(self._settings)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
        self._output.write_bytes(formatted.stdout)
        if formatted.returncode != 0:
            raise self._refused("the broker's storage could not be formatted")

    def _spawn(self, java: Path, path: str) -> None:
        command = self._java(java, path, *self._metrics(), "kafka.Kafka", str(self._settings))
        self._say(f"starting Kafka {KAFKA_VERSION} on {self.bootstrap_servers}")
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                bound_to_parent(command) if self.die_with_parent else command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )
        self.mark = ProcessMark.of(self._process.pid)

    def _reap(self) -> None:
        # Otherwise it stays in the process table as a zombie for as long as this process runs.
        if self._process is not None:
            self._process.poll()

    def _refused(self, what: str) -> SandboxRefused:
        return SandboxRefused(
            f"{what}; the end of its log:\n{self._tail()}",
            hint=f"See the log {self.log} and Java's output {self._output}.",
        )

    def _tail(self) -> str:
        said = self._output.read_text(errors="replace") if self._output.exists() else ""
        if self.log.exists():
            with self.log.open("rb") as log:
                log.seek(self._log_from)
                said += log.read().decode(errors="replace")
        return "\n".join(said.splitlines()[-TAIL_LINES:])


def server_properties(
    *,
    data: Path,
    ports: BrokerPorts,
    cluster: Sequence[BrokerPorts],
    sasl_users: Mapping[str, str],
    extra: Mapping[str, str],
) -> str:
    """Write the properties of a broker; ``extra`` has the last word.

    Args:
        data: the folder of its partitions.
        ports: where it listens, on 127.0.0.1.
        cluster: the ports of all brokers, its own among them; node ids count from 1.
        sasl_users: passwords by user name, for the SASL listener.
        extra: further server properties.
    """
    listeners = {"PLAIN": ports.client, "CONTROLLER": ports.controller}
    security = {"PLAIN": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    if ports.sasl is not None:
        listeners["SASL"] = ports.sasl
        security["SASL"] = "SASL_PLAINTEXT"
    addresses = {name: f"{name}://{HOST}:{port}" for name, port in listeners.items()}
    voters = (f"{number}@{HOST}:{each.controller}" for number, each in enumerate(cluster, 1))
    replicas = str(min(REPLICAS_MOST, len(cluster)))
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(cluster.index(ports) + 1),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAIN",
        "listeners": ",".join(addresses.values()),
        "advertised.listeners": ",".join(
            address for name, address in addresses.items() if name != "CONTROLLER"
        ),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in security.items()
        ),
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        # 50 partitions each would make the first group and the first transaction wait.
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        # A broker that comes back from a crash is let in when its former self's session is over;
        # the default makes that 9 s.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # A story's messages may carry old timestamps; retention would delete them at once.
        "log.retention.ms": "-1",
        # The default takes 128 MiB of a small heap.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    }
    if ports.sasl is not None:
        properties["sasl.enabled.mechanisms"] = "PLAIN"
        properties["listener.name.sasl.plain.sasl.jaas.config"] = _plain_login(sasl_users)
    properties |= extra
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _plain_login(users: Mapping[str, str]) -> str:
    accounts = (f"user_{name}={_quoted(password)}" for name, password in users.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return " ".join([module, "required", *accounts]) + ";"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(value: str) -> str:
    # Java reads these files as Latin-1, drops leading blanks, and knows the escapes of JSON.
    text = json.dumps(value)[1:-1]
    return "\\" + text if text.startswith(" ") else text
