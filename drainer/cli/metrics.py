"""``drainer metrics``, and serving them while a drain runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from threading import Event
from typing import TYPE_CHECKING

import typer

from drainer.cli.answer import LogFormat
from drainer.cli.groups import option, options
from drainer.cli.values import parse_address, parse_duration
from drainer.engine.signals import signals_to
from drainer.model.listed import round_duration
from drainer.secret import secret_of
from drainer.view.terminal import Terminal

if TYPE_CHECKING:
    from drainer.metrics.server import MetricsServer

TOKEN_VARIABLE = "DRAINER_METRICS_TOKEN"  # no option: other users see those

app = typer.Typer(help="Print a dashboard for Grafana.", no_args_is_help=True)


@app.command("dashboard")
def dashboard() -> None:
    """Print a Grafana dashboard for drains, as JSON to import.

    Examples:

    - `drainer metrics dashboard > drainer.json`
    """
    typer.echo(files("drainer.metrics").joinpath("dashboard.json").read_text("utf-8"), nl=False)


@options("Monitoring")
class Watching:
    """How a drain is watched from outside."""

    metrics: tuple[str, int] | None = option(
        default=None,
        parse=parse_address,
        resumes=True,
        help="Serve metrics and a status page here. Port 0: any free port.",
    )
    metrics_linger_s: float = option(
        default="0s",
        parse=parse_duration,
        resumes=True,
        help="After the end, serve metrics this long for the last scrape.",
    )
    log_format: LogFormat = option(
        default=LogFormat.TEXT, resumes=True, help="json: one object per line; needs --yes."
    )

    @contextmanager
    def serving(self, terminal: Terminal) -> Iterator[MetricsServer | None]:
        """Serves metrics while inside, and lingers after a drain; None without a port.

        Raises Refused when the port can't be had; UsageError for a weak token.
        """
        if self.metrics is None:
            yield None
            return
        from drainer.metrics.server import MetricsServer  # noqa: PLC0415 - half as long as --help

        metrics = MetricsServer(*self.metrics, secret_of(TOKEN_VARIABLE))
        try:
            terminal.print_line(f"metrics: {metrics.url}")
            terminal.print_line(f"page: {metrics.page_url}")
            yield metrics
        finally:
            if metrics.ended and self.metrics_linger_s > 0:
                terminal.print_line(
                    f"metrics stay up for {round_duration(self.metrics_linger_s)}; Ctrl-C ends them"
                )
                _wait(self.metrics_linger_s)
            metrics.close()


def _wait(seconds: float) -> None:
    # The drain is over and told: whoever is impatient gets its exit code all the same.
    over = Event()
    with signals_to(lambda _number, _frame: over.set()):
        over.wait(seconds)
