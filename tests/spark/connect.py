"""A Spark Connect server of its own process, as a client's other machine would be."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

from kafka.topic import eventually

# Where the tests of Spark run: a master, or "connect" for a server of Spark Connect. A task that
# failed is tried once more.
ON = os.environ.get("DRAINER_TEST_SPARK", "local[2,2]")
classic = pytest.mark.skipif(ON == "connect", reason="needs a SparkContext")
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_S = 120  # on a machine with other work to do
STOP_S = 20
LOCALHOST = "127.0.0.1"


@contextmanager
def connect_server(
    folder: Path,
    master: str = "local[2,2]",
    conf: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Iterator[str]:
    """Start a Connect server on a free port, and give its address: ``sc://127.0.0.1:PORT``.

    ``folder`` keeps its files, among them ``server.log``; ``python`` runs its workers. At the end
    of the block the server has stopped, and its workers with it.
    """
    port = _free_port()
    settings = {
        "spark.connect.grpc.binding.address": LOCALHOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": LOCALHOST,
        "spark.driver.host": LOCALHOST,
        "spark.local.dir": str(folder / "blocks"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.port": "0",
        **(conf or {}),
    }
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--class", SERVER, "--master", master]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    log = folder / "server.log"
    with log.open("wb") as output:
        # The script becomes the JVM, whose end is that of the workers.
        server = subprocess.Popen(
            [*command, "spark-internal"],
            cwd=folder,
            env={**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": python},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in a test is not for the server
        )

    def answers() -> bool:
        if server.poll() is not None:
            raise AssertionError(f"the server ended: {log.read_text()[-3000:]}")
        with suppress(OSError), closing(socket.create_connection((LOCALHOST, port), 1)):
            return True
        return False

    try:
        eventually(answers, "the server answers", START_S)
        yield f"sc://{LOCALHOST}:{port}"
    finally:
        server.terminate()
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _free_port() -> int:
    with closing(socket.socket()) as free:
        free.bind((LOCALHOST, 0))
        port: int = free.getsockname()[1]
        return port
