"""Real libraries that write dead letters, fetched once into the user's cache by PySpark's Ivy."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock
from platformdirs import user_cache_path

from drainer.host.java import find_java
from drainer.host.process import bound_to_parent
from drainer.sandbox.jars import classpath, pyspark_jars
from kafka.topic import Topic
from letters.foreign_letters import RECORDED, Record
from scenarios.brokers import Broker

FETCH_S = 600
RUN_S = 240.0  # Connect takes a minute to start on a busy machine
KAFKA, SPRING, SHARING, SMALLRYE = "4.2.0", "3.3.16", "4.4.0", "4.36.0"
FAST_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")


def jars(organisation: str, module: str, revision: str) -> Path:
    """The folder of a library's jars, with those that it needs."""
    folder = user_cache_path("drainer") / "tests" / f"{module}-{revision}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"), TemporaryDirectory(dir=folder.parent) as part:
        if not folder.exists():
            whole = Path(part) / "jars"
            ivy = max(pyspark_jars().glob("ivy-*.jar"))
            fetch: list[str | Path] = [
                *(find_java(), "-jar", ivy, "-cache", Path(part) / "ivy"),
                *("-dependency", organisation, module, revision),
                *("-retrieve", f"{whole}/[artifact]-[revision](-[classifier]).[ext]"),
                *("-confs", "default", "-types", "jar", "bundle"),
            ]
            subprocess.run(fetch, check=True, capture_output=True, timeout=FETCH_S)
            whole.rename(folder)
    return folder


def spring_letters(bootstrap: str, letters: Topic) -> None:
    library = jars("org.springframework.kafka", "spring-kafka", SPRING)
    with running([f"{library}/*"], RECORDED / "SpringLetters.java", bootstrap):
        wait_for(letters)


def smallrye_letters(bootstrap: str, letters: Topic) -> None:
    library = jars("io.smallrye.reactive", "smallrye-reactive-messaging-kafka", SMALLRYE)
    with running([f"{library}/*"], RECORDED / "SmallRyeLetters.java", bootstrap, letters.name):
        wait_for(letters)


def streams_letters(bootstrap: str, letters: Topic, folder: Path) -> None:
    library = jars("org.apache.kafka", "kafka-streams", KAFKA)
    with running([f"{library}/*"], RECORDED / "StreamsLetters.java", bootstrap, folder):
        wait_for(letters)


def connect_letters(bootstrap: str, letters: Topic, folder: Path, port: int) -> None:
    runtime = jars("org.apache.kafka", "connect-runtime", KAFKA)
    sink = {
        "name": "filesink",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "topics": "csrc",
        "file": folder / "out.txt",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": letters.name,
        "errors.deadletterqueue.topic.replication.factor": 1,
        "errors.deadletterqueue.context.headers.enable": "true",
        "consumer.override.auto.offset.reset": "earliest",
    }
    worker = {
        "bootstrap.servers": bootstrap,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.storage.file.filename": folder / "offsets",
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "only_scan",
        "plugin.path": jars("org.apache.kafka", "connect-file", KAFKA),
    }
    files = [_properties(folder / "worker", worker), _properties(folder / "sink", sink)]
    program = "org.apache.kafka.connect.cli.ConnectStandalone"
    with running([f"{runtime}/*"], program, *files):
        wait_for(letters)


class SharingBroker(Broker):
    """A broker of a Kafka that writes dead letters of share groups."""

    def classpath(self) -> str:
        return classpath(tuple(sorted(_sharing().glob("*.jar"))))


def share_letters(bootstrap: str, source: Topic, group: str, letters: Topic, copy: str) -> None:
    program = RECORDED / "ShareLetters.java"
    with running([f"{_sharing()}/*"], program, bootstrap, source.name, group, letters.name, copy):
        wait_for(letters)


def _sharing() -> Path:
    return jars("org.apache.kafka", "kafka_2.13", SHARING)


def wait_for(letters: Topic) -> None:
    assert len(letters.read_all(2, wait_s=RUN_S)) == 2


@contextmanager
def running(classpath: Sequence[str], *words: object) -> Iterator[None]:
    """A Java program, killed at the end."""
    command = [find_java(), *FAST_JVM, "-cp", os.pathsep.join(classpath), *words]
    program = subprocess.Popen(
        bound_to_parent(list(map(str, command))),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        program.kill()
        program.wait(30)


def _properties(file: Path, values: dict[str, object]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return file


def without_traces(records: Sequence[Record]) -> list[Record]:
    """Records but for what differs from run to run: times and stack traces."""
    return [
        Record(
            each.key,
            each.value,
            0,
            [(name, b"" if name.endswith("stacktrace") else value) for name, value in each.headers],
        )
        for each in records
    ]
