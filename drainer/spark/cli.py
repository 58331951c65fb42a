"""``drainer spark warm``."""

from __future__ import annotations

import typer

from drainer.cli.command import command
from drainer.loading.extensions import ensure_installed
from drainer.view.terminal import Terminal

app = typer.Typer(no_args_is_help=True, help="Prepare Spark on this machine.")


@app.callback()
def spark() -> None:
    """Keep ``warm`` a command of its own, however few there are."""


@app.command()
@command
def warm(terminal: Terminal) -> None:
    """Write an archive of Spark's classes, with which each local Spark starts sooner.

    It takes some 160 MB of your cache folder. A drain with a local master uses it from then on, and
    ignores it after an update of Java or PySpark.

    Example: `drainer spark warm`
    """
    ensure_installed("spark", "Spark")
    from drainer.spark.session.start import write_archive  # noqa: PLC0415 - with PySpark

    place = write_archive()
    terminal.print_line(f"wrote {place}")
    terminal.data({"archive": str(place)})
