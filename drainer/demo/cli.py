"""The command ``drainer demo``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from drainer import sandbox
from drainer.cli.command import command, only, without
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.demo.story import CONCURRENCY, MESSAGES, Demo
from drainer.kafka.settings import ClientSettings
from drainer.model.option import Option, number
from drainer.view.terminal import Terminal


@command
def demo(
    kafka: Annotated[ConnectionOptions, only("bootstrap_server")],
    messages: Annotated[
        int, Option("Messages in the backlog.", MESSAGES, number(1), envvar="DRAINER_DEMO_MESSAGES")
    ],
    concurrency: Annotated[
        int, Option("Maximum updates in flight.", CONCURRENCY, number(1), short="-c", envvar=None)
    ],
    terminal: Annotated[Terminal, without("output")],
) -> None:
    """Run a scripted demo on a real broker.

    Two weeks of backlog wait behind one key. If you name no broker, drainer starts the sandbox. It
    fills a topic of its own, estimates, drains, interrupts itself once, resumes and verifies. At
    the end it removes the topic and the group.

    Example: `drainer demo`
    """
    with TemporaryDirectory(prefix="drainer-demo-") as folder:
        servers = (
            kafka.bootstrap_server or sandbox.up(print_line=terminal.print_line).bootstrap_servers
        )
        with connect(ClientSettings.load(servers)) as cluster:
            Demo(terminal, cluster, Path(folder), messages, concurrency).perform()
