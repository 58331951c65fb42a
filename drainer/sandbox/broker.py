"""One real Kafka broker as a child process."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from drainer.errors import SandboxRefused, raised_as
from drainer.host.java import find_java
from drainer.host.process import ProcessMark, start_apart
from drainer.sandbox.jars import KAFKA_VERSION, classpath, kafka_jars, quiet
from drainer.sandbox.ports import HOST, BrokerPorts, answers

# To format the storage and to start take two seconds each on an idle laptop, but minutes on a slow
# one. Each may take this long.
START_TIMEOUT_S = 300.0
PROBE_EVERY_S = 0.05
REPORT_EVERY_S = 4.0
TAIL_LINES = 15
HEAP_MIB = 512

MAIN_CLASS, SETTINGS = "kafka.Kafka", "server.properties"


def new_cluster_id() -> str:
    """Make the id of a cluster, as Kafka's own tools do."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


@dataclass(eq=False)
class Broker:
    """A Kafka on 127.0.0.1: broker and controller in one process, with its data in ``folder``.

    The folder belongs to the caller. It stays when the broker ends, and a broker that is launched
    in it again has its data.

    The broker runs in a session of its own, so a Ctrl-C for drainer does not reach it. It goes on
    when the process that started it ends.

    Attributes:
        folder: the place of all its files. It is made if it is missing.
        properties: further server properties, which replace those of this module.
        die_with_parent: end the broker together with the thread that starts it (Linux only).
    """

    folder: Path
    ports: BrokerPorts
    _: KW_ONLY
    properties: Mapping[str, str] = field(default_factory=dict)
    die_with_parent: bool = False
    print_line: Callable[[str], None] = quiet

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.log = self.folder / "broker.log"  # The broker writes it.
        self._data = self.folder / "data"
        self._settings = self.folder / SETTINGS
        self._output = self.folder / "broker.out"  # What Java prints, as long as there is no log.
        self._scratch = self.folder / "tmp"
        self.cluster_id = new_cluster_id()  # New data gets this id.
        self.mark: ProcessMark | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_from = 0

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients: ``host:port``."""
        return f"{HOST}:{self.ports.client}"

    @property
    def running(self) -> bool:
        """Whether the broker's process runs, even if it is paused."""
        return self.mark is not None and self.mark.alive()

    def launch(self) -> None:
        """Start the broker's process, without waiting for an answer. ``mark`` identifies it.

        Raises SandboxRefused when Java, the jars, a port or the disk is missing.
        """
        java = find_java()
        path = self.classpath()
        if taken := self.ports.taken():
            raise SandboxRefused(
                f"another process uses port {taken[0]} on {HOST}",
                hint="End that process, or start the broker on other ports.",
            )
        about = f"can't start a broker in {self.folder}: "
        hint = "Check that the folder is writable, and that the disk has room."
        with raised_as(SandboxRefused, OSError, about=about, hint=hint):
            self._scratch.mkdir(parents=True, exist_ok=True)
            if not self._data.exists():
                self._format(java, path)
            self._write_settings(self._data)
            self._log_from = self.log.stat().st_size if self.log.exists() else 0
            self.print_line(f"starting Kafka {KAFKA_VERSION} on {self.bootstrap_servers}")
            command = self.java_command(java, path, MAIN_CLASS, str(self._settings))
            self._process = start_apart(
                command, self.folder, self._output, die_with_parent=self.die_with_parent
            )
            self.mark = ProcessMark.of(self._process.pid)

    def wait_ready(self) -> None:
        """Wait until the broker answers a client's first request.

        Raises SandboxRefused when the broker ends instead, or when it does not answer in time. In
        the second case it still runs.
        """

        def answered() -> int | None:
            if answers(self.ports.client):
                return 0
            if not self.running:
                raise self._refused("the broker ended while starting")
            return None

        self._waited("starting", answered)
        self.print_line(f"Kafka {KAFKA_VERSION} answers on {self.bootstrap_servers}")

    def kill(self) -> None:
        """End the broker at once (SIGKILL), as a crash would."""
        if self.mark is not None:
            self.mark.kill()
        if self._process is not None:
            self._process.poll()  # Otherwise it stays a zombie for as long as this process runs.

    def classpath(self) -> str:
        """Return the class path of the broker. The jars are fetched first if they are missing."""
        return classpath(kafka_jars(print_line=self.print_line))

    def _write_settings(self, data: Path) -> None:
        text = server_properties(data, self.ports, self.properties)
        # Only this user may read the file, because it may have passwords.
        settings = os.open(self._settings, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(settings, "w", encoding="ascii") as file:
            file.write(text)

    def java_command(self, java: Path, path: str, *arguments: str) -> list[str]:
        """Return the command that runs a class of Kafka with the class path ``path``."""
        return [
            str(java),
            f"-Xmx{HEAP_MIB}m",
            "-XX:+ExitOnOutOfMemoryError",
            # Without these, brokers that are killed leave libraries and counters behind in /tmp.
            f"-Djava.io.tmpdir={self._scratch}",
            "-XX:-UsePerfData",
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
            f"-Ddrainer.log={self.log}",
            *("-cp", path),
            *arguments,
        ]

    def _format(self, java: Path, path: str) -> None:
        # The folder is renamed once it is whole, so what an interrupted format left is not used.
        fresh = self._data.with_name("data.new")
        shutil.rmtree(fresh, ignore_errors=True)
        self._write_settings(fresh)
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}"]
        command = self.java_command(java, path, *tool, "--config", str(self._settings))
        process = start_apart(command, self.folder, self._output, die_with_parent=True)
        try:
            exit_code = self._waited("formatting its storage", process.poll)
        finally:
            process.kill()
            process.wait()
        if exit_code != 0:
            raise self._refused("the broker's storage could not be formatted")
        fresh.rename(self._data)

    def _waited(self, doing: str, result: Callable[[], int | None]) -> int:
        """Return the first result, and print every few seconds what Kafka is still doing.

        Raises SandboxRefused when there is none in time.
        """
        begun_s = time.monotonic()
        report_s = begun_s + REPORT_EVERY_S
        while (found := result()) is None:
            now_s = time.monotonic()
            if now_s > begun_s + START_TIMEOUT_S:
                what = f"Kafka was still {doing} after {START_TIMEOUT_S:g} s"
                raise self._refused(what, "Try again when this machine is less busy.")
            if now_s > report_s:
                self.print_line(f"Kafka is still {doing} ({report_s - begun_s:.0f}s)")
                report_s += REPORT_EVERY_S
            time.sleep(PROBE_EVERY_S)
        return found

    def _refused(self, what: str, hint: str = "") -> SandboxRefused:
        logs = f"See the log {self.log} and Java's output {self._output}."
        return SandboxRefused(f"{what}; the end of its log:\n{self._tail()}", hint=hint or logs)

    def _tail(self) -> str:
        printed = self._output.read_text(errors="replace") if self._output.exists() else ""
        if self.log.exists():
            with self.log.open("rb") as log:
                log.seek(self._log_from)
                printed += log.read().decode(errors="replace")
        return "\n".join(printed.splitlines()[-TAIL_LINES:])


def is_broker_of(folder: Path, process: ProcessMark) -> bool:
    """Return whether a process is the broker of this folder."""
    return process.command().endswith(f" {MAIN_CLASS} {folder / SETTINGS}")


def server_properties(data: Path, ports: BrokerPorts, extra: Mapping[str, str]) -> str:
    """Return the server properties of a broker whose partitions are in ``data``.

    Those in ``extra`` are added, and replace others of the same name.
    """
    client, controller = f"PLAIN://{HOST}:{ports.client}", f"{HOST}:{ports.controller}"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAIN",
        "listeners": f"{client},CONTROLLER://{controller}",
        "advertised.listeners": client,
        "listener.security.protocol.map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # With the default of 50 partitions, the first group and the first transaction would wait.
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        # A broker that comes back from a crash has to wait until its old session is over, which
        # takes 9 s by default.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # Messages of a demo may have old timestamps, and retention would delete them at once.
        "log.retention.ms": "-1",
        # The default takes 128 MiB of a small heap.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    }
    properties |= extra
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    # Java reads the file as Latin-1, drops leading blanks, and understands the escapes of JSON.
    text = json.dumps(value)[1:-1]
    return "\\" + text if text.startswith(" ") else text
