"""Commands that a drain runs when it ends or will be late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from drainer.cli.metrics import TOKEN_VARIABLE, MonitoringOptions, monitoring
from drainer.cli.options import REPORT, YES
from drainer.escape import json_text
from drainer.model.option import as_field
from drainer.model.status import Status, Summary
from drainer.view.report.file import ReportFile
from drainer.view.status import status_fields
from drainer.view.terminal import Terminal

MOST_S = 60.0
# What only the drain needs, and a command may print.
KEPT = {"DRAINER_SET", "DRAINER_CLIENT_PROPERTY", "DRAINER_SPARK_CONF", TOKEN_VARIABLE}

_hook = partial(monitoring, default=None, metavar="COMMAND", hides=True)


@dataclass(frozen=True, kw_only=True)
class OversightOptions(MonitoringOptions):
    """Options for overseeing a drain, and for confirming it.

    What becomes of the commands for the shell never changes how the drain ends.
    """

    on_end: str | None = _hook("Command to run at the end: DRAINER_STATUS set, summary on stdin.")
    on_late: str | None = _hook("Command to run when the deadline will be missed: status on stdin.")
    report: ReportFile | None = as_field(REPORT)
    yes: bool = as_field(YES)

    def ended(self, terminal: Terminal, summary: Summary) -> None:
        """Runs the command for the end, with the status of the summary in DRAINER_STATUS."""
        if self.on_end is not None:
            found = summary.as_json()
            _run(terminal, "--on-end", self.on_end, found, DRAINER_STATUS=str(found["status"]))


@dataclass(eq=False)
class Lateness:
    """Runs the command for a drain that will be late, once, beside it."""

    terminal: Terminal
    command: str | None
    _running: threading.Thread | None = None

    def check(self, status: Status) -> None:
        missed = status.progress.deadline is not None and status.progress.deadline.missed
        if missed and self.command is not None and self._running is None:
            given = (self.terminal, "--on-late", self.command, status_fields(status))
            self._running = threading.Thread(target=_run, args=given, daemon=True)
            self._running.start()

    def wait(self) -> None:
        """Until it is over, when it runs."""
        if self._running is not None:
            self._running.join(MOST_S)


def _run(
    terminal: Terminal, option: str, command: str, facts: Mapping[str, Any], **variables: str
) -> None:
    try:
        # What it prints is for people, as all words are; standard output is for data.
        running = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=sys.__stderr__,
            stderr=sys.__stderr__,
            env={name: value for name, value in os.environ.items() if name not in KEPT} | variables,
            start_new_session=True,
        )
    except OSError as error:
        terminal.warn(f"{option} did not start: {error.strerror or error}")
        return
    try:
        running.communicate(json_text(facts).encode(), MOST_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        terminal.warn(f"{option} still ran after {MOST_S:g} s: drainer killed it")
        return
    if running.returncode:
        terminal.warn(f"{option} failed with exit code {running.returncode}")
