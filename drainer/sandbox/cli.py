"""``drainer sandbox up|down``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from drainer import sandbox
from drainer.cli.command import command, without
from drainer.model.option import Option
from drainer.sandbox.sandbox import down_command, folder_of
from drainer.view.terminal import Terminal

app = typer.Typer(
    no_args_is_help=True,
    help="Run a real Kafka on this machine. Needs Java 17 or newer.\n\n"
    "Its data is in ~/.local/state/drainer/sandbox on Linux. --folder or DRAINER_SANDBOX names"
    " another folder.",
)

SandboxFolder: TypeAlias = Annotated[
    Path | None,
    Option(
        "Folder for its data.",
        None,
        unset="~/.local/state/drainer/sandbox on Linux",
        envvar="DRAINER_SANDBOX",
        metavar="FOLDER",
    ),
]

WithRegistry: TypeAlias = Annotated[
    bool,
    # DRAINER_REGISTRY has the URL of a registry, which is an option of other commands.
    Option("Start a schema registry beside it (Apicurio's, in memory).", False, envvar=None),
]


@app.command()
@command
def up(folder: SandboxFolder, registry: WithRegistry, terminal: Terminal) -> None:
    """Start the sandbox, or print where it runs.

    The first start downloads Kafka (43 MB) into your cache folder, and with `--registry` also the
    registry (109 MB).

    Examples:

    - `export DRAINER_BOOTSTRAP_SERVER=$(drainer sandbox up)`
    - `drainer sandbox up --registry`
    """
    folder = folder_of(folder)
    state = sandbox.up(folder, registry=registry, print_line=terminal.print_line)
    terminal.data(
        {
            "bootstrap_servers": state.bootstrap_servers,
            "folder": str(folder),
            "registry": None if state.registry is None else state.registry.url,
        }
    )
    if state.registry is not None:
        terminal.print_line(f"schema registry: --registry {state.registry.url}")
    terminal.print_line(f"the sandbox runs in {folder}; `{down_command(folder)}` removes it")
    if not terminal.json:
        typer.echo(state.bootstrap_servers)


@app.command()
@command
def down(folder: SandboxFolder, terminal: Annotated[Terminal, without("output")]) -> None:
    """Stop the sandbox and remove its data.

    Example: `drainer sandbox down`
    """
    if not sandbox.down(folder, print_line=terminal.print_line):
        terminal.print_line("no sandbox was running")
