"""A Spark Connect server in a process of its own, as it would be on another machine than its
clients."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Self

import pyspark

from drainer.host.process import bound_to_parent

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_START_S = 120  # This is long enough on a machine with other work to do.
_STOP_S = 20
_LOOK_S = 0.05
_LOCALHOST = "127.0.0.1"


class ConnectServer:
    """A Connect server on a free port that can be stopped, killed and started again.

    As a context manager, it starts at the beginning of the block and stops at the end, with its
    workers.

    Args:
        folder: where its files are, among them ``server.log``.
        master: where it runs tasks; by default, a task that failed is tried once more.
        conf: further settings of Spark.
        python: the Python that its workers run.
    """

    def __init__(
        self,
        folder: Path,
        master: str = "local[2,2]",
        conf: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        with closing(socket.socket()) as free:
            free.bind((_LOCALHOST, 0))
            self._port = free.getsockname()[1]
        self._folder = folder
        settings = {
            "spark.connect.grpc.binding.address": _LOCALHOST,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.bindAddress": _LOCALHOST,
            "spark.driver.host": _LOCALHOST,
            "spark.local.dir": str(folder / "blocks"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.ui.port": "0",
            **(conf or {}),
        }
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-submit"), "--class", _CLASS, "--master", master]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        self._command = bound_to_parent([*command, "spark-internal"])
        self._env = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": python}
        self._process = self._begin()

    @property
    def url(self) -> str:
        """The address for clients: ``sc://127.0.0.1:PORT``."""
        return f"sc://{_LOCALHOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The process of its JVM. When that ends, its workers end, too."""
        return self._process.pid

    @property
    def log(self) -> str:
        return (self._folder / "server.log").read_text()

    def __enter__(self) -> Self:
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def start_again(self) -> None:
        """Start the server at the same address, after killing the one that runs."""
        self.kill()
        self._process = self._begin()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Return once the server answers. Raises RuntimeError if it ends or does not answer."""
        until_s = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < until_s:
            with suppress(OSError), closing(socket.create_connection((_LOCALHOST, self._port), 1)):
                return
            time.sleep(_LOOK_S)
        raise RuntimeError(f"the server did not start: {self.log[-3000:]}")

    def _begin(self) -> subprocess.Popen[bytes]:
        with (self._folder / "server.log").open("ab") as output:
            # The script becomes the JVM.
            return subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in a test must not reach the server.
            )
