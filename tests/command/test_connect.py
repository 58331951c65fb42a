"""Drains by the command on a server of Spark Connect, which knows nothing of drainer but what its
workers have installed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from command.conftest import operations
from command.process import FAST, Command
from command.test_spark_chaos import CONCURRENCY, IN_PROCESS, PATIENCE_S, ensure_few_repeats
from kafka.topic import eventually
from scenarios.connect_server import ConnectServer

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ConnectServer(tmp_path_factory.mktemp("server")) as server:
        yield server.url


def on(server: str, command: Command) -> tuple[str, ...]:
    state = str(command.home / "state")
    return (*FAST, "--remote", server, "--state", state, "-c", str(CONCURRENCY))


def test_a_drain_moves_from_a_process_to_a_server_and_to_spark_of_its_own(
    command: Command, server: str
) -> None:
    topic = command.topic(operations(600, lanes=50))
    first = command.begin(topic, *IN_PROCESS, pause_ms=5)
    command.wait_for(first, "done", 150)
    first.signal(signal.SIGINT)
    first.ends(4)
    words = ["resume", str(command.plan(topic)), "--yes", *command.options(pause_ms=200)]
    second = command.start(*words, *on(server, command))
    command.wait_for(second, "done", 300, PATIENCE_S)
    second.signal(signal.SIGINT)
    stopped = second.ends(4, PATIENCE_S)

    assert "■ interrupted by SIGINT" in stopped.err
    assert "Traceback" not in stopped.err
    assert len(command.record.done()) < 1_200
    local = ("--engine", "spark", "--master", "local[2]", "-c", "20")
    command(*words[:3], *command.options(), *FAST, *local)
    command.ensure_drained(topic, once=True)
    assert command.left_behind == [command.plan(topic).name]


def test_what_a_worker_raises_comes_back_in_drainer_s_words(command: Command, server: str) -> None:
    handler = command.handler(
        "import sys\nif 'pyspark.worker' in sys.modules:\n"
        "    raise OSError('not on this machine')\n"
        "def handle(sub): pass\n"
    )
    topic = command.topic(["[]"])

    refused = command.drain(topic, *on(server, command), handler=handler, code=3)

    assert "not on this machine" in refused.error
    assert "Traceback" not in refused.err


def test_a_server_that_is_killed_ends_the_drain_and_a_process_resumes_it(
    command: Command, tmp_path: Path
) -> None:
    topic = command.topic(operations(800, lanes=50))
    with ConnectServer(tmp_path) as server:
        running = command.begin(topic, *on(server.url, command), pause_ms=10)
        command.wait_for(running, "done", 200, PATIENCE_S)
        server.kill()
    outcome = running.ends(4, PATIENCE_S)

    assert "Spark" in outcome.error
    assert outcome.hint
    command(*outcome.resume_words[:2], "--yes", *IN_PROCESS, *command.options())
    command.ensure_drained(topic)
    killed = {line.pid for line in command.record.lines()}
    ensure_few_repeats(command, killed, victims=2)


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
        running = command.begin(topic, *where, "--wave", "2KiB", pause_ms=10)
        command.wait_for(running, "done", 100, PATIENCE_S)
        running.signal(signal.SIGSTOP)
        eventually(lambda: "Closing session" in server.log, "the session expires", PATIENCE_S)
        running.signal(signal.SIGCONT)
        outcome = running.ends(4, PATIENCE_S)

        assert "Spark Connect is gone" in outcome.error
        assert "Traceback" not in outcome.err
        command(*outcome.resume_words[:2], "--yes", *where, *command.options())
    command.ensure_drained(topic)
