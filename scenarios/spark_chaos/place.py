"""Place of a chapter's drains on Spark: a Spark of each, or a Connect server for all."""

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
WAVE = "4MiB"


class Place:
    """A master, and where given the server that has it. ``is_gone`` is printed when it is."""

    def __init__(self, master: str, conf: Mapping[str, str], server: ConnectServer | None) -> None:
        self.server = server
        self.is_gone = "Spark's JVM is gone" if server is None else "Spark Connect is gone"
        pairs = () if server else [f"{key}={value}" for key, value in conf.items()]
        where = ("--master", master if server is None else server.url)
        options = [word for pair in pairs for word in ("--spark-conf", pair)]
        wave = ("--spark-conf", f"drainer.wave={WAVE}") if master == ALONE else ()
        self._words = ("--engine", "spark", *where, *options, *wave)

    @classmethod
    @contextmanager
    def of(cls, stage: Stage, master: str, conf: Mapping[str, str]) -> Iterator[Place]:
        """The place of a stage: on a server where that is ``remote``."""
        if not stage.remote:
            yield cls(master, conf, None)
            return
        folder = Path(tempfile.mkdtemp(prefix="server-", dir=stage.folder))
        with ConnectServer(folder, master, conf) as server:
            yield cls(master, conf, server)

    def begin(self, backlog: Backlog, *more: str) -> Process:
        """Begin a drain on it, or resume the one that has a plan."""
        return backlog.begin(*self.words(backlog.plan), *more)

    def words(self, plan: Path) -> tuple[str, ...]:
        return (*self._words, "--spark-conf", f"drainer.state={plan}.state")

    def jvm(self, process: Process) -> int:
        """The JVM of Spark's driver."""
        return jvm_of(process.pid) if self.server is None else self.server.pid

    def processes(self, process: Process) -> list[int]:
        """Processes of Spark that work for a drain."""
        return below(process.pid if self.server is None else self.server.pid)

    def restart(self) -> None:
        """Start a server again, and with it all its workers."""
        if self.server is not None:
            self.server.start_again()
