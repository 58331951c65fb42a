"""Drains by the command on a server of Spark Connect, which knows nothing of drainer but what its
workers have installed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from command.conftest import operations
from command.process import Command
from command.test_spark_chaos import CONCURRENCY, PATIENCE_S
from kafka.topic import eventually
from scenarios.connect_server import ConnectServer

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ConnectServer(tmp_path_factory.mktemp("server")) as server:
        yield server.url


def on(server: str, command: Command) -> tuple[str, ...]:
    state = str(command.home / "state")
    return ("--master", server, "--spark-conf", f"drainer.state={state}", "-c", str(CONCURRENCY))


NEEDS = """
import sys
from pathlib import Path
from zipfile import ZipFile

if "pyspark.worker" in sys.modules:  # the driver has neither
    import travelled
    from pyspark import SparkFiles

    travelled.check(Path(SparkFiles.get("data"), "word").read_text())

def handle(sub): pass
"""


@pytest.mark.parametrize("master", ["local-cluster[1,1,1024]", None])
def test_what_a_handler_imports_and_reads_travels_by_spark_s_own_settings(
    command: Command, server: str, tmp_path: Path, master: str | None
) -> None:
    module, archive = tmp_path / "libs.zip", tmp_path / "data.zip"
    with ZipFile(module, "w") as packed:
        packed.writestr("travelled.py", "def check(word): assert word == 'here'\n")
    with ZipFile(archive, "w") as packed:
        packed.writestr("word", "here")
    topic, handler = command.topic(["[]"]), command.handler(NEEDS)
    where = on(server, command) if master is None else ("--master", master)

    refused = command.drain(topic, *where, handler=handler, code=3)
    assert "No module named 'travelled'" in refused.error
    assert "spark.submit.pyFiles" in refused.hint
    travels = (f"spark.submit.pyFiles={module}", f"spark.archives={archive}#data")
    words = [word for each in travels for word in ("--spark-conf", each)]
    command.drain(topic, *where, *words, handler=handler)


def test_a_session_that_expires_ends_the_drain_and_a_resume_goes_on(
    command: Command, tmp_path: Path
) -> None:
    """A client whose machine slept finds it so."""
    topic = command.topic(operations(400, lanes=50))
    expiry = {
        "spark.connect.session.manager.defaultSessionTimeout": "10s",
        "spark.connect.session.manager.maintenanceInterval": "1s",
    }
    with ConnectServer(tmp_path, conf=expiry) as server:
        where = on(server.url, command)
        running = command.begin(topic, *where, "--spark-conf", "drainer.slice=2KiB", pause_ms=10)
        command.wait_for(running, "done", 100, PATIENCE_S)
        running.signal(signal.SIGSTOP)
        eventually(lambda: "Closing session" in server.log, "the session expires", PATIENCE_S)
        running.signal(signal.SIGCONT)
        outcome = running.ends(4, PATIENCE_S)

        assert "Spark Connect is gone" in outcome.error
        assert "Traceback" not in outcome.err
        command(*command.resume_of(outcome.resume_words[1]), *where, *command.options())
    command.ensure_drained(topic)
