"""Brokers of other Kafka versions than the sandbox's, whose jars PySpark's Ivy fetches."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_path

from drainer.host.java import find_java
from drainer.host.process import start_apart
from drainer.sandbox.broker import server_properties
from drainer.sandbox.jars import pyspark_jars
from drainer.sandbox.ports import HOST, free_port
from scenarios.brokers import Broker

FIRST_WITHOUT_ZOOKEEPER = (3, 3)  # KRaft is ready for production since then.
FETCH_S = 600


class OtherBroker(Broker):
    """A broker of another version. Its jars log nothing, as they come without a binding for it."""

    def __init__(self, folder: Path, version: str) -> None:
        super().__init__(folder, die_with_parent=True)
        self.version = version
        self._jars = fetched(version)

    def classpath(self) -> str:
        """Return the class path of this version alone."""
        return os.pathsep.join(str(jar) for jar in sorted(self._jars.glob("*.jar")))


class BrokerWithZooKeeper(OtherBroker):
    """A broker of a version whose metadata are in ZooKeeper, which runs beside it."""

    def __init__(self, folder: Path, version: str) -> None:
        super().__init__(folder, version)
        self._zookeeper: subprocess.Popen[bytes] | None = None
        self._address = f"{HOST}:{free_port()}"

    def launch(self) -> None:
        """Start ZooKeeper, then the broker, which waits for it."""
        server = "org.apache.zookeeper.server.ZooKeeperServerMain"
        data = self.folder / "zookeeper"
        data.mkdir(parents=True, exist_ok=True)
        port = self._address.rpartition(":")[2]
        command = self.java_command(find_java(), self.classpath(), server, port, str(data))
        self._zookeeper = start_apart(
            command, self.folder, self.folder / "zookeeper.out", die_with_parent=True
        )
        super().launch()

    def kill(self) -> None:
        """End both."""
        super().kill()
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper.wait()

    def _format(self, java: Path, path: str) -> None:
        self._data.mkdir()

    def _write_settings(self, data: Path) -> None:
        listener = f"PLAIN://{HOST}:{self.ports.client}"
        extra = {
            "broker.id": "1",
            "zookeeper.connect": self._address,
            "listeners": listener,
            "listener.security.protocol.map": "PLAIN:PLAINTEXT",
        }
        text = server_properties(data, self.ports, extra)
        of_kraft = ("process.roles", "node.id", "controller.", "broker.session", "broker.heartbeat")
        lines = [each for each in text.splitlines() if not each.startswith(of_kraft)]
        self._settings.write_text("\n".join(lines) + "\n")


@contextmanager
def broker_of(version: str, folder: Path) -> Iterator[Broker]:
    """Run a broker of a version until the block ends."""
    numbers = tuple(int(each) for each in version.split(".")[:2])
    kind = OtherBroker if numbers >= FIRST_WITHOUT_ZOOKEEPER else BrokerWithZooKeeper
    with kind(folder, version) as running:
        yield running


def fetched(version: str) -> Path:
    """Return the folder of a version's jars. They are fetched first if it is missing."""
    folder = user_cache_path("drainer") / "support" / f"kafka-{version}"
    if not folder.is_dir():
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        (ivy,) = pyspark_jars().glob("ivy-*.jar")
        command = [
            *(str(find_java()), "-jar", str(ivy), "-cache", str(part / "ivy")),
            *("-dependency", "org.apache.kafka", "kafka_2.13", version),
            *("-retrieve", f"{part}/jars/[artifact]-[revision](-[classifier]).[ext]"),
            *("-confs", "default", "-types", "jar", "bundle"),
        ]
        subprocess.run(command, check=True, timeout=FETCH_S, capture_output=True)
        (part / "jars").rename(folder)
        shutil.rmtree(part)
    return folder
