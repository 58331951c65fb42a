"""The command ``drainer demo``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from drainer import sandbox
from drainer.cli.command import command, without
from drainer.cli.connecting import connect
from drainer.demo.story import CONCURRENCY, MESSAGES, MESSAGES_LEAST, Demo
from drainer.kafka.settings import ClientSettings
from drainer.loading.extensions import ensure_installed
from drainer.model.option import Option, number
from drainer.sandbox.sandbox import down_command, folder_of
from drainer.view.terminal import Terminal


@command
def demo(
    messages: Annotated[
        int,
        Option(
            "Messages in the backlog.",
            MESSAGES,
            number(MESSAGES_LEAST),
            envvar="DRAINER_DEMO_MESSAGES",
        ),
    ],
    concurrency: Annotated[
        int, Option("Maximum updates in flight.", CONCURRENCY, number(1), short="-c", envvar=None)
    ],
    terminal: Annotated[Terminal, without("output")],
) -> None:
    """Run a scripted demo on a real Kafka and a real HTTP service.

    A backlog waits behind one key. drainer starts the sandbox, and a service that takes 20 ms for
    an update. It fills a topic, estimates, drains, stops with Ctrl-C, resumes, is killed with
    kill -9, resumes and verifies. Kafka, the topic and the service keep running, for the commands
    that it prints at the end. Ctrl-C ends the demo, and it prints how to stop them.

    Example: `drainer demo`
    """
    ensure_installed("http", "the demo")
    folder = folder_of(None)
    servers = sandbox.up(folder, print_line=terminal.print_line).bootstrap_servers
    with (
        TemporaryDirectory(prefix="drainer-demo-") as plans,
        connect(ClientSettings.load(servers)) as cluster,
    ):
        try:
            Demo(terminal, Path(plans), folder, cluster, messages, concurrency).perform()
        except KeyboardInterrupt:
            gone = "the plan of the demo is removed; Kafka and its service keep running"
            terminal.print_line(f"{gone}: `{down_command(folder)}` stops them, with their data")
            raise
