"""Options to oversee a drain, and the metrics that it serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from drainer.cli.answer import LogFormat
from drainer.cli.options import REPORT, YES
from drainer.engine.signals import signals_to
from drainer.errors import EXIT_DONE
from drainer.model.listed import round_duration
from drainer.model.option import ADDRESS, DURATION, as_field, option
from drainer.view.report.file import ReportFile
from drainer.view.terminal import Terminal

if TYPE_CHECKING:
    from drainer.metrics.server import MetricsServer
    from drainer.model.status import Summary


_monitoring = partial(option, panel="Monitoring", resumes=True)
_hook = partial(_monitoring, default=None, metavar="COMMAND", hides=True, tune=True)


@dataclass(frozen=True, kw_only=True)
class OversightOptions:
    """Options to oversee a drain from outside, and to confirm it."""

    metrics: tuple[str, int] | None = _monitoring(
        "Serve metrics and a status page at this address. Port 0 takes any free port.",
        None,
        ADDRESS,
    )
    metrics_linger_s: float = _monitoring(
        "Time to serve metrics after the end of the drain, for the last scrape.",
        0.0,
        DURATION,
        tune=True,
    )
    log_format: LogFormat = _monitoring(
        "Log format. json writes one object per line, and needs --yes.", LogFormat.TEXT, tune=True
    )
    on_end: str | None = _hook(
        "Command to run at the end, with DRAINER_STATUS set and the summary on stdin."
    )
    on_late: str | None = _hook(
        "Command to run once the deadline can't be met, with the status on stdin."
    )
    accept_dead_letters: bool = option(
        "Exit with 0 instead of 6 if dead letters are all that is left.", False, panel="Output"
    )
    report: ReportFile | None = as_field(REPORT)
    yes: bool = as_field(YES)

    @contextmanager
    def serving(self, terminal: Terminal) -> Iterator[MetricsServer | None]:
        """Serve metrics until the block ends, and yield the server; None without ``--metrics``.

        Raises Refused if the port is taken, or if this user may not use it.
        """
        if self.metrics is None:
            yield None
            return
        # --help must not wait for this import, which takes half as long as --help itself.
        from drainer.metrics.server import MetricsServer  # noqa: PLC0415

        with closing(MetricsServer(*self.metrics)) as metrics:
            terminal.print_line(f"metrics: {metrics.url}")
            terminal.print_line(f"page: {metrics.page_url}")
            yield metrics

    def accepting(self, summary: Summary) -> Summary:
        """Return the summary, with the exit code 0 if it has only dead letters that are accepted.

        Records that are lost, sub-messages that failed without a letter, and letters that a redrive
        left alone are never accepted.
        """
        if self.accept_dead_letters and summary.only_dead:
            return replace(summary, exit_code=EXIT_DONE, accepted=True)
        return summary

    def linger(self, terminal: Terminal) -> None:
        """Keep serving the metrics after the end of the drain, so that the last scrape gets them.

        A signal ends the wait. The exit code stays that of the drain.
        """
        if self.metrics is None or self.metrics_linger_s <= 0:
            return
        terminal.print_line(
            f"metrics stay up for {round_duration(self.metrics_linger_s)}; Ctrl-C ends them"
        )
        over = Event()
        with signals_to(lambda _number, _frame: over.set()):
            over.wait(self.metrics_linger_s)
