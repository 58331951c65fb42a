"""``drainer metrics``, and serving them while a drain runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

import typer

from drainer.cli.values import parse_duration
from drainer.engine.signals import signals_to
from drainer.view.terminal import Terminal

if TYPE_CHECKING:
    from drainer.metrics.server import MetricsServer

app = typer.Typer(help="What Prometheus and Grafana need of drains.", no_args_is_help=True)


@app.command("dashboard")
def dashboard() -> None:
    """Print a Grafana dashboard of drains, as the JSON that Grafana imports.

    Examples:

    - `drainer metrics dashboard > drainer.json`
    """
    from drainer.metrics.dashboard import make_dashboard  # noqa: PLC0415

    Terminal().data(make_dashboard())


@contextmanager
def serving(
    terminal: Terminal, port: int | None, host: str, linger: str
) -> Iterator[MetricsServer | None]:
    """Serves metrics while inside, and after a drain for ``linger`` more; None without a port.

    Raises UsageError for a linger that is no duration, Refused when the port can't be had.
    """
    linger_s = parse_duration(linger)
    if port is None:
        yield None
        return
    from drainer.metrics.server import MetricsServer  # noqa: PLC0415 - half as long as --help

    metrics = MetricsServer(host, port)
    try:
        terminal.say(f"metrics: {metrics.url}")
        yield metrics
    finally:
        if metrics.ended and linger_s > 0:
            terminal.say(f"metrics stay for {linger}; Ctrl-C ends that")
            _wait(linger_s)
        metrics.close()


def _wait(seconds: float) -> None:
    # The drain is over and told: whoever is impatient gets its exit code all the same.
    over = Event()
    with signals_to(lambda _number, _frame: over.set()):
        over.wait(seconds)
