"""Several real brokers as child processes, which make one Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from signal import SIGTERM
from typing import Self

from drainer.process import ProcessMark
from drainer.sandbox.broker import Broker, new_cluster_id
from drainer.sandbox.jars import Say, quiet
from drainer.sandbox.ports import BrokerPorts

STOP_TIMEOUT_S = 10.0  # of each; the last ones can't leave in order, for none is left to agree


class Brokers:
    """A Kafka on 127.0.0.1 whose topics have as many replicas as brokers, three at most.

    Each broker is a ``Broker`` (which explains the arguments), and can fail in its ways. As a
    context manager they start, and stop at the end.

    Args:
        folder: of all of them; each has one of its own in it.
        ports: of each; their number is that of the brokers.
    """

    def __init__(
        self,
        folder: Path,
        ports: Sequence[BrokerPorts],
        *,
        properties: Mapping[str, str] | None = None,
        jmx_login: Path | None = None,
        classes: Path | None = None,
        die_with_parent: bool = False,
        say: Say = quiet,
    ) -> None:
        folders = [folder / f"broker-{number}" for number in range(1, len(ports) + 1)]
        # A start that was cut short may have formatted some of them.
        cluster_id = next(filter(None, map(_cluster_id_in, folders)), "") or new_cluster_id()
        self.each = tuple(
            Broker(
                own,
                ports=its,
                properties=properties,
                jmx_login=jmx_login,
                cluster_id=cluster_id,
                cluster=ports,
                classes=classes,
                die_with_parent=die_with_parent,
                say=say,
            )
            for own, its in zip(folders, ports, strict=True)
        )

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: ``host:port``, with commas between."""
        return ",".join(broker.bootstrap_servers for broker in self.each)

    def launch(self) -> None:
        """Start those that don't run, without waiting. Raises SandboxRefused as ``Broker``."""
        for broker in self.each:
            broker.launch()

    def wait_ready(self) -> None:
        """Wait until all answer. Raises SandboxRefused as ``Broker``."""
        for broker in self.each:
            broker.wait_ready()

    def stop(self) -> None:
        """Shut all of them down at once (SIGTERM), and kill those that take too long."""
        end_all([broker.mark for broker in self.each])
        for broker in self.each:
            broker.stop()

    def kill(self) -> None:
        """End all at once, as a power cut would."""
        for broker in self.each:
            broker.kill()

    def __enter__(self) -> Self:
        try:
            self.launch()
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def end_all(marks: Iterable[ProcessMark | None]) -> ProcessMark | None:
    """End brokers together; gives one that can't be ended."""
    known = [mark for mark in marks if mark is not None]
    for mark in known:
        mark.signal(SIGTERM)
    return next((mark for mark in known if not mark.end(grace_s=STOP_TIMEOUT_S)), None)


def _cluster_id_in(folder: Path) -> str:
    try:
        lines = (folder / "data" / "meta.properties").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), "")
