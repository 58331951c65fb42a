"""``drainer demo``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from drainer import sandbox
from drainer.cli.connecting import Kafka, connect
from drainer.cli.groups import command, only, option, without
from drainer.demo.emergency import CONCURRENCY, MESSAGES, UPDATE_S
from drainer.demo.story import Demo, Size, perform
from drainer.kafka.settings import ClientSettings
from drainer.view.terminal import Terminal


@command
def demo(
    kafka: Annotated[Kafka, only("bootstrap_server")],
    messages: Annotated[
        int,
        option(
            default=MESSAGES, envvar="DRAINER_DEMO_MESSAGES", min=1, help="Messages in the backlog."
        ),
    ],
    concurrency: Annotated[
        int, option("-c", default=CONCURRENCY, envvar=None, min=1, help="Most updates in flight.")
    ],
    terminal: Annotated[Terminal, without("output")],
) -> None:
    """Act out an emergency on a real broker.

    Two weeks of backlog wait behind one key. If you name no broker, drainer starts the sandbox. It
    fills a topic of its own, estimates, drains, interrupts itself once, resumes and verifies. At
    the end it removes the topic and the group.

    Example: `drainer demo`
    """
    with TemporaryDirectory(prefix="drainer-demo-") as folder:
        servers = (
            kafka.bootstrap_server or sandbox.up(print_line=terminal.print_line).bootstrap_servers
        )
        settings = ClientSettings.load(servers)
        size = Size(messages, UPDATE_S, concurrency)
        story = Demo(settings, Path(folder), size)
        with connect(settings) as cluster:
            perform(terminal, story, cluster)
