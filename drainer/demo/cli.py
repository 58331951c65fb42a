"""``drainer demo``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from drainer import sandbox
from drainer.cli import options as o
from drainer.cli.answer import answering
from drainer.cli.draining import connect
from drainer.cli.values import parse_concurrency
from drainer.demo.emergency import CONCURRENCY, MESSAGES, UPDATE_S
from drainer.demo.performance import perform
from drainer.demo.recording import RecordingTerminal
from drainer.demo.story import Demo, Size
from drainer.kafka.settings import ClientSettings
from drainer.view.terminal import Terminal


def demo(
    bootstrap_server: o.BootstrapServer = None,
    messages: Annotated[
        int, typer.Option(envvar="DRAINER_DEMO_MESSAGES", min=1, help="Messages in the backlog.")
    ] = MESSAGES,
    concurrency: Annotated[
        str,
        typer.Option(
            "--concurrency",
            "-c",
            metavar="N|auto|auto:MAX",
            callback=o.insist_on_concurrency,
            help="Updates at once.",
        ),
    ] = str(CONCURRENCY),
    record: Annotated[
        Path | None, typer.Option(help="Keep a picture of the terminal in this SVG file.")
    ] = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Act out the emergency on a real broker: two weeks of backlog behind one key.

    Brings the sandbox up unless a broker is named, fills a topic of its own, estimates, drains,
    interrupts itself once, resumes, verifies, and removes topic and group again.

    Example: `drainer demo`
    """
    terminal = (
        RecordingTerminal(json=json, quiet=quiet, debug=debug)
        if record
        else Terminal(json=json, quiet=quiet, debug=debug)
    )
    with answering(terminal), TemporaryDirectory(prefix="drainer-demo-") as folder:
        servers = bootstrap_server or sandbox.up(say=terminal.say).bootstrap_servers
        settings = ClientSettings.load(servers)
        at_once = parse_concurrency(concurrency)
        size = Size(messages, UPDATE_S, at_once.most, at_once.is_auto)
        story = Demo(settings, Path(folder), size)
        with connect(settings) as cluster:
            perform(terminal, story, cluster)
        if isinstance(terminal, RecordingTerminal) and record:
            terminal.save_svg(record, "drainer demo")
