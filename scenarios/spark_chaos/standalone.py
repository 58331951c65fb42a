"""A standalone cluster of Spark's on this machine, made of the jars that PySpark brings."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from scenarios.chaos.drain import until

SPARK_CLASS = Path(pyspark.__file__).with_name("bin") / "spark-class"


class Standalone:
    """A master that answers. ``worker`` adds a machine, and returns its process."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self._folder = folder
        self._opened = opened
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"spark://127.0.0.1:{port}"
        master = self._start("master.Master", "--port", str(port))
        assert until(lambda: _answers(port), lambda: master.poll() is not None), "no master"

    def worker(
        self, cores: int = 1, memory: str = "1g", host: str = "127.0.0.1"
    ) -> subprocess.Popen[bytes]:
        work = ("--work-dir", str(self._folder / "work"))
        size = ("--cores", str(cores), "--memory", memory)
        return self._start("worker.Worker", *size, *work, self.url, host=host)

    def _start(self, name: str, *words: str, host: str = "127.0.0.1") -> subprocess.Popen[bytes]:
        where = ("--host", host, "--webui-port", "0")
        with (self._folder / "cluster.log").open("ab") as log:
            process = subprocess.Popen(
                [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", *where, *words],
                stdout=log,
                stderr=log,
            )
        self._opened.callback(process.wait)
        self._opened.callback(process.kill)
        return process


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    with ExitStack() as opened:
        yield Standalone(folder, opened)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
