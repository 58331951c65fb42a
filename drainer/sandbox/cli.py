"""``drainer sandbox up|down``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from drainer import sandbox
from drainer.cli.groups import command, option, without
from drainer.view.terminal import Terminal

app = typer.Typer(
    no_args_is_help=True,
    help="A real one-node Kafka on this machine. Needs Java 17 or newer.",
)

Folder: TypeAlias = Annotated[
    Path | None,
    option(
        "--folder",
        default=None,
        envvar="DRAINER_SANDBOX",
        help="Where its data is kept; `down` removes it.",
    ),
]


@app.command()
@command
def up(folder: Folder, terminal: Terminal) -> None:
    """Start the sandbox, or print where it runs.

    The first time it fetches Kafka (43 MB) into your cache folder.

    Example: `export DRAINER_BOOTSTRAP_SERVER=$(drainer sandbox up)`
    """
    state = sandbox.up(folder, say=terminal.say)
    if terminal.json:
        terminal.data(
            {
                "bootstrap_servers": state.bootstrap_servers,
                "folder": str(state.folder),
            }
        )
        return
    terminal.say(f"the sandbox runs in {state.folder}; `drainer sandbox down` removes it")
    typer.echo(state.bootstrap_servers)


@app.command()
@command
def down(folder: Folder, terminal: Annotated[Terminal, without("json")]) -> None:
    """Stop the sandbox and remove its data.

    Example: `drainer sandbox down`
    """
    if not sandbox.down(folder, say=terminal.say):
        terminal.say("there was no sandbox")
