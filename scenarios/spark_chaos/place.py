"""The place of a chapter's drains on Spark: a Spark for each, or a Connect server for all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from scenarios.chaos.drain import Backlog, Process
from scenarios.chaos.stage import Stage
from scenarios.connect_server import ConnectServer
from scenarios.spark_chaos.processes import below, jvm_of

ALONE = "local[2,4]"
SLICE = "4MiB"


class Place:
    """A master, and the server that has it, if there is one. The drain prints ``is_gone`` once it
    is gone."""

    def __init__(self, master: str, conf: Mapping[str, str], server: ConnectServer | None) -> None:
        self.server = server
        self.is_gone = "Spark's JVM is gone" if server is None else "Spark Connect is gone"
        pairs = () if server else [f"{key}={value}" for key, value in conf.items()]
        where = ("--master", master if server is None else server.url)
        options = [word for pair in pairs for word in ("--spark-conf", pair)]
        slice = ("--spark-conf", f"drainer.slice={SLICE}") if master == ALONE else ()
        self._words = ("--engine", "spark", *where, *options, *slice)

    @classmethod
    @contextmanager
    def of(cls, stage: Stage, master: str, conf: Mapping[str, str]) -> Iterator[Place]:
        """Return the place of a stage, which is on a server if the stage is ``remote``."""
        if not stage.remote:
            yield cls(master, conf, None)
            return
        folder = Path(tempfile.mkdtemp(prefix="server-", dir=stage.folder))
        with ConnectServer(folder, master, conf) as server:
            yield cls(master, conf, server)

    def begin(self, backlog: Backlog, *more: str) -> Process:
        """Begin a drain there, or resume the one that has a plan."""
        return backlog.begin(*self.words(backlog.plan), *more)

    def words(self, plan: Path) -> tuple[str, ...]:
        return (*self._words, "--spark-conf", f"drainer.state={plan}.state")

    def jvm(self, process: Process) -> int:
        """Return the JVM of Spark's driver."""
        return jvm_of(process.pid) if self.server is None else self.server.pid

    def processes(self, process: Process) -> list[int]:
        """Return the processes of Spark that work for a drain."""
        return below(process.pid if self.server is None else self.server.pid)

    def restart(self) -> None:
        """Start a server again, and with it all of its workers."""
        if self.server is not None:
            self.server.start_again()
