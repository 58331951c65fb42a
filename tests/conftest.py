"""Fixtures for every test: one real broker, which all processes of the session share."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from filelock import FileLock
from hypothesis import settings

from command import forks
from drainer.control import place
from drainer.errors import SandboxRefused
from drainer.host.java import find_java
from drainer.kafka import coordinator
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.sandbox.jars import kafka_jars
from drainer.sandbox.ports import BrokerPorts, free_port
from drainer.text.secret import remembered
from hdfs import running as running_hdfs
from kafka.topic import PASSWORD, USER, await_coordinators
from needs import missing
from s3 import LOGIN, S3, running, versitygw
from scenarios.brokers import Broker
from scenarios.fill import create_topic
from scenarios.trust.rights import strict_broker

# Brokers and Spark live for seconds here: compiling their code as for days takes longer than it
# saves. A caller's own options come later, and win.
os.environ["JDK_JAVA_OPTIONS"] = " ".join(
    ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", os.environ.get("JDK_JAVA_OPTIONS", "")]
).strip()


# An example's time means nothing where others share the processor. .ci/weekly tries more examples,
# and tests whose examples are dear take a part of these counts.
settings.register_profile("gate", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=1_000)
settings.load_profile("gate")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module whose tests are all long, unless long tests are wanted.

    Those modules need packages of the extra ``long``.
    """
    if config.option.markexpr != "not long" or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.long" in collection_path.read_text("utf-8") or None


COSTLY = ("spark", "own_broker")  # to start, once a process


@pytest.hookimpl(trylast=True)  # when what is not selected is gone
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what is costly to start first in one process's stretch of the list, and in no other's.

    Each process begins with a stretch of one length, and one that is done takes over from the ends
    of others' stretches.
    """
    processes = int(getattr(config, "workerinput", {}).get("workercount", 1))
    first: list[list[pytest.Item]] = [[] for _ in range(processes)]
    others: list[pytest.Item] = []
    for item in items:
        used: list[str] = getattr(item, "fixturenames", [])
        place = next((place for place, name in enumerate(COSTLY) if name in used), None)
        (others if place is None else first[place % processes]).append(item)
    left = len(items)
    items.clear()
    for number, costly in enumerate(first):
        length = left // (processes - number)
        room = max(0, length - len(costly))
        items += [*costly, *others[:room]]
        del others[:room]
        left -= length


@pytest.fixture(scope="session", autouse=True)
def signals_not_ignored() -> Iterator[None]:
    """Signals that ``nohup`` or a shell in the background have ignored reach drains again.

    What is ignored is inherited by all that tests start, and a handler is not. So this process goes
    on ignoring SIGHUP and SIGTERM, by handlers that do nothing, and its children begin as from a
    terminal. A test of what is ignored starts its command by ``nohup``.
    """
    handlers = {
        signal.SIGINT: signal.default_int_handler,  # tests raise it
        signal.SIGTERM: lambda *_: None,
        signal.SIGHUP: lambda *_: None,
    }
    ignored = [number for number in handlers if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, handlers[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def forked_coordinators() -> Iterator[None]:
    """Processes for requests to coordinators are forked: a fresh Python takes 0.4 s to start."""
    with patch.object(coordinator, "subprocess", forks.FORKING):
        yield


@pytest.fixture(scope="session", autouse=True)
def runtime_folder() -> Iterator[Path]:
    """Folder of the sockets of drains that tests start. Its name is short: a socket's has to be.

    In this process, no test sees what this machine remembers of other drains.
    """
    with TemporaryDirectory(prefix="run-") as folder, pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", folder)
        for name in ("USERS", "TMP"):
            patched.setattr(place, name, Path(folder))
        yield Path(folder)


@pytest.fixture(autouse=True)
def no_plan_of_another_test(runtime_folder: Path) -> Iterator[None]:
    """A process remembers the unfinished plans of its drains, and its errors name them."""
    yield
    for link in runtime_folder.rglob(f"*{place.PLAN}"):
        link.unlink()


@pytest.fixture(autouse=True)
def no_secret_of_another_test() -> Iterator[None]:
    """A process redacts every secret that it knows: those of one test are words of another."""
    with patch.dict(remembered, clear=True):
        yield


@pytest.fixture(scope="session")
def kafka_installed() -> None:
    """Java and Kafka's jars. A broker that has both and does not start is a failure anywhere."""
    try:
        find_java()
        kafka_jars()
    except SandboxRefused as error:
        missing(f"{error} (hint: {error.hint})")


@pytest.fixture(scope="session")
def folder_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the session's processes share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def broker(
    kafka_installed: None, folder_of_all: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """The session's broker, shared: who stops, kills or pauses a broker starts their own.

    The first process that needs it starts it, and ends it when no other one uses it any more. It
    dies with that process.
    """
    folder = folder_of_all
    ports = folder / "ports.json"
    with (folder / "users").open("w") as users:
        with FileLock(folder / "users.lock"):
            fcntl.flock(users, fcntl.LOCK_SH)
            if ports.exists():
                listens = json.loads(ports.read_text())
                running = Broker(
                    folder,
                    ports=BrokerPorts(**listens["ports"]),
                    sasl_port=listens["sasl"],
                    jmx_port=listens["jmx"],
                )
            else:
                # It is never restarted; to be late on a busy machine must not shut it out.
                running = Broker(
                    tmp_path_factory.mktemp("broker"),
                    sasl_users={USER: PASSWORD},
                    properties=_quick(session_ms=30_000),
                    jmx_port=free_port(),
                    die_with_parent=True,
                )
                running.start()
                _await_coordinators(running)
                listens = {"ports": asdict(running.ports), "sasl": running.sasl_port}
                listens["jmx"] = running.jmx_port
                ports.write_text(json.dumps(listens))
        yield running
        if running.running:
            fcntl.flock(users, fcntl.LOCK_EX)
            ports.unlink()
            running.kill()


@pytest.fixture(scope="session")
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """An S3-compatible server, with the login for it in the environment."""
    program = versitygw(build=request.config.option.markexpr == "long")
    if program is None:
        pytest.skip("there is no versitygw yet; `pytest -m long` builds it once")
    with (
        pytest.MonkeyPatch.context() as patched,
        running(program, tmp_path_factory.mktemp("s3")) as s3,
    ):
        for name, value in LOGIN.items():
            patched.setenv(name, value)
        yield s3


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a name node, for a URI such as ``webhdfs://ADDRESS/path``."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as address:
        yield address


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    """Address of the session's broker."""
    return broker.bootstrap_servers


@pytest.fixture(scope="session")
def cluster(bootstrap: str) -> Iterator[Cluster]:
    """The session's broker, connected to as the command does."""
    with Cluster.connect(ClientSettings.load(bootstrap), 60) as connected:
        # Waits for the coordinator: librdkafka dies of a request for offsets before that
        # (confluentinc/librdkafka#5040).
        connected.group("any")
        yield connected


@pytest.fixture
def topic_name() -> str:
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def own_broker(kafka_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker to pause, kill and restart, where users who log in have only the rights granted.

    Each test leaves it running.
    """
    with strict_broker(tmp_path_factory.mktemp("own"), _quick(session_ms=1000)) as running:
        _await_coordinators(running)
        yield running


def _quick(session_ms: int) -> dict[str, str]:
    """Properties of a broker with short sessions of groups, and a cleaner that is quick."""
    return {
        "group.min.session.timeout.ms": "500",
        "log.cleaner.backoff.ms": "200",
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": "200",
    }


def _await_coordinators(broker: Broker) -> None:
    """The coordinators of a fresh broker take a moment."""
    with Cluster.connect(ClientSettings.load(broker.bootstrap_servers), 60) as cluster:
        create_topic(cluster.settings, "fresh")
        await_coordinators(cluster)
