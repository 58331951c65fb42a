"""One real Kafka broker as a child process."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from drainer.errors import SandboxRefused
from drainer.java import find_java
from drainer.process import ProcessMark, bound_to_parent
from drainer.sandbox.jars import KAFKA_VERSION, classpath, kafka_jars, quiet
from drainer.sandbox.ports import HOST, BrokerPorts, answers

START_TIMEOUT_S = 90.0  # two seconds on an idle laptop, far more on a busy runner
FORMAT_TIMEOUT_S = 60.0
PROBE_EVERY_S = 0.05
TAIL_LINES = 15
HEAP_MIB = 512

MAIN_CLASS, SETTINGS = "kafka.Kafka", "server.properties"


def new_cluster_id() -> str:
    """Make an id as Kafka's own tools do."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class Broker:
    """A Kafka on 127.0.0.1: broker and controller in one process, data in ``folder``.

    The folder stays when the broker ends; it is the caller's. Launched again, the broker has its
    data.

    It runs in a session of its own: the Ctrl-C meant for drainer does not reach it. The process
    that started it may end; with ``die_with_parent`` (Linux) the broker ends then too, with the
    thread that started it, to be exact.

    Args:
        folder: where everything of it is; made when missing.
        properties: further server properties; they have the last word.
    """

    def __init__(
        self,
        folder: Path,
        ports: BrokerPorts,
        *,
        properties: Mapping[str, str] | None = None,
        die_with_parent: bool = False,
        print_line: Callable[[str], None] = quiet,
    ) -> None:
        self.folder = folder.resolve()
        self.log = self.folder / "broker.log"  # the broker's own
        self._data = self.folder / "data"
        self._settings = self.folder / SETTINGS
        self._output = self.folder / "broker.out"  # what Java prints before or without a log
        self._scratch = self.folder / "tmp"
        self.ports = ports
        self.properties = dict(properties or {})
        self.die_with_parent = die_with_parent
        self.cluster_id = new_cluster_id()  # of its data, unless there are some
        self.mark: ProcessMark | None = None
        self._print_line = print_line
        self._process: subprocess.Popen[bytes] | None = None
        self._log_from = 0

    @property
    def bootstrap_servers(self) -> str:
        """Address where clients connect: ``host:port``."""
        return f"{HOST}:{self.ports.client}"

    @property
    def running(self) -> bool:
        """Whether its process runs, paused or not."""
        return self.mark is not None and self.mark.alive()

    def launch(self) -> None:
        """Start its process without waiting for an answer; ``mark`` identifies it.

        Raises SandboxRefused when Java, the jars, a port or the disk is missing.
        """
        java = find_java()
        path = self.classpath()
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
        """Wait until it answers a client's first request.

        Raises SandboxRefused when it ends instead, or gives no answer in time; then it still runs.
        """
        until_s = time.monotonic() + timeout_s
        while not answers(self.ports.client):
            if not self.running:
                raise self._refused("the broker ended while starting")
            if time.monotonic() > until_s:
                raise self._refused(f"the broker gave no answer in {timeout_s:g} s")
            time.sleep(PROBE_EVERY_S)
        self._print_line(f"Kafka {KAFKA_VERSION} answers on {self.bootstrap_servers}")

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would."""
        if self.mark is not None:
            self.mark.kill()
        if self._process is not None:
            self._process.poll()  # or it stays a zombie for as long as this process runs

    def classpath(self) -> str:
        """Return what its Java runs; fetch the jars first if they are missing."""
        return classpath(kafka_jars(print_line=self._print_line))

    def _write_settings(self) -> None:
        self._scratch.mkdir(parents=True, exist_ok=True)
        text = server_properties(self._data, self.ports, self.properties)
        # It may hold passwords.
        settings = os.open(self._settings, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(settings, "w", encoding="ascii") as file:
            file.write(text)

    def java_command(self, java: Path, path: str, *arguments: str) -> list[str]:
        """Return the command that runs a class of Kafka with the class path ``path``."""
        return [
            str(java),
            f"-Xmx{HEAP_MIB}m",
            "-XX:+ExitOnOutOfMemoryError",
            # Killed brokers would leave native libraries and counters behind in /tmp.
            f"-Djava.io.tmpdir={self._scratch}",
            "-XX:-UsePerfData",
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
            f"-Ddrainer.log={self.log}",
            *("-cp", path),
            *arguments,
        ]

    def _format(self, java: Path, path: str) -> None:
        # The tool writes meta.properties last, and takes a folder without it for a new one: a
        # format that was cut short is simply done again.
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}"]
        formatted = subprocess.run(
            self.java_command(java, path, *tool, "--config", str(self._settings)),
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
        command = self.java_command(java, path, MAIN_CLASS, str(self._settings))
        self._print_line(f"starting Kafka {KAFKA_VERSION} on {self.bootstrap_servers}")
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

    def _refused(self, what: str) -> SandboxRefused:
        return SandboxRefused(
            f"{what}; the end of its log:\n{self._tail()}",
            hint=f"See the log {self.log} and Java's output {self._output}.",
        )

    def _tail(self) -> str:
        printed = self._output.read_text(errors="replace") if self._output.exists() else ""
        if self.log.exists():
            with self.log.open("rb") as log:
                log.seek(self._log_from)
                printed += log.read().decode(errors="replace")
        return "\n".join(printed.splitlines()[-TAIL_LINES:])


def is_broker_of(folder: Path, process: ProcessMark) -> bool:
    """Whether a process is a broker whose folder this is."""
    return process.command().endswith(f" {MAIN_CLASS} {folder / SETTINGS}")


def server_properties(data: Path, ports: BrokerPorts, extra: Mapping[str, str]) -> str:
    """The properties of a broker with its partitions in ``data``; ``extra`` has the last word."""
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
    properties |= extra
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    # Java reads these files as Latin-1, drops leading blanks, and knows the escapes of JSON.
    text = json.dumps(value)[1:-1]
    return "\\" + text if text.startswith(" ") else text
