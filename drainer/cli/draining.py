"""What ``run`` and ``resume`` share: connecting, asking, and showing the drain."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from drainer.cli.answer import insist_on_yes
from drainer.cli.values import parse_concurrency, parse_duration, parse_pairs, parse_size
from drainer.core.plan import OffsetPlan
from drainer.engine.action import PlanOfAction
from drainer.engine.deadline import DeadlineWatch
from drainer.engine.history import History
from drainer.engine.settings import LocalSettings
from drainer.engine.status import Status
from drainer.errors import EXIT_INTERRUPTED, Interrupted
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.operations.drain import drain
from drainer.operations.start import Prepared, nothing_to_drain
from drainer.view.progress import ProgressView, progress_view
from drainer.view.report.file import ReportFile
from drainer.view.report.write import write_drain_report
from drainer.view.summary import show_cut_short, show_summary
from drainer.view.terminal import Terminal

if TYPE_CHECKING:
    from drainer.metrics.server import MetricsServer

CONNECT_TIMEOUT_S = 7.0  # an unreachable broker is told within ten seconds, all in all
TELL_S = 1.0  # a terminal that is held must not keep a process that is to end


def connect(settings: ClientSettings) -> Cluster:
    """A connection to the cluster; a context manager. Raises BrokerUnreachable."""
    return Cluster.connect(settings, timeout_s=CONNECT_TIMEOUT_S)


def local_settings(
    concurrency: str, buffer: str, plan_interval: str, grace: str, options: Sequence[str] | None
) -> LocalSettings:
    """How to drain, as it was typed. Raises UsageError."""
    return LocalSettings(
        concurrency=parse_concurrency(concurrency),
        buffer_bytes=parse_size(buffer),
        plan_interval_s=parse_duration(plan_interval),
        grace_s=parse_duration(grace),
        options=parse_pairs(options or (), "--set"),
    )


def settings_of_plan(
    plan: OffsetPlan,
    bootstrap: str | None,
    client_config: Path | None,
    properties: Sequence[str] | None,
) -> ClientSettings:
    """The plan's own connection, with what was said on the command line over it."""
    known = Path(plan.client_config) if plan.client_config else None
    overrides = [*(properties or ()), f"isolation.level={plan.isolation}"]
    return ClientSettings.load(
        bootstrap or plan.bootstrap_servers, client_config or known, overrides
    )


def tell_dry_run(
    terminal: Terminal,
    action: PlanOfAction,
    estimated: Mapping[str, object] | None = None,
    *,
    report: ReportFile | None = None,
) -> None:
    """The end of a run that only looked."""
    terminal.say("a dry run: nothing was touched")
    if report is not None and (estimated or {}).get("estimate") is None:
        terminal.warn("no report was written: without an estimate a dry run has none")
    if terminal.json:
        terminal.data(
            {"status": "dry-run", "exit_code": 0, **action.as_json(), **(estimated or {})}
        )


def confirm_and_drain(
    terminal: Terminal,
    cluster: Cluster,
    prepared: Prepared,
    running: LocalSettings,
    metrics: MetricsServer | None,
    *,
    yes: bool,
    deadline: datetime | None = None,
    report: ReportFile | None = None,
) -> int:
    """Drains what was prepared, once a person said yes; gives the exit code."""
    history = History()
    plan = prepared.plan
    measure = metrics.begin(plan.topic, plan.group, plan.drain_id) if metrics else None
    if not prepared.action.resumes and not prepared.action.offsets:
        summary = nothing_to_drain(prepared)
        if metrics is not None:
            metrics.end(summary)
        show_summary(terminal, summary)
        write_drain_report(terminal, report, prepared.action, summary, history)
        return summary.exit_code
    action = prepared.action
    question = f"Drain {action.topic} for {action.group}?"
    if action.redrive is not None:
        question = f"Redrive these letters of {action.topic}?"
    insist_on_yes(terminal, question, yes=yes)
    with progress_view(terminal) as view:
        give_up = partial(end_at_once, terminal, view, prepared.action.plan_path)

        def show(status: Status) -> None:
            if measure is not None:
                measure(status)
            if report is not None:
                history.add(status)
            view.update(status)

        observe = show
        if deadline is not None:
            observe = DeadlineWatch(deadline, prepared.action.failures.rate, show)
        summary = drain(cluster, prepared, running, observe, terminal.say, give_up)
    if metrics is not None:
        metrics.end(summary)
    show_summary(terminal, summary)
    write_drain_report(terminal, report, action, summary, history)
    return summary.exit_code


def end_at_once(terminal: Terminal, view: ProgressView, plan: Path) -> NoReturn:
    """Ends the process from another thread: the main one is in the handler, and won't leave it."""
    telling = threading.Thread(target=_tell_the_end, args=(terminal, view, plan), daemon=True)
    telling.start()
    telling.join(TELL_S)
    os._exit(EXIT_INTERRUPTED)


def _tell_the_end(terminal: Terminal, view: ProgressView, plan: Path) -> None:
    error = Interrupted(
        "stopped at once while the handler held the event loop; what was in the handler is still"
        " pending",
        hint="a call that blocks belongs into a plain `def handle`, which runs on threads",
    )
    with suppress(OSError, ValueError):
        view.__exit__(None, None, None)  # gives the screen and the streams back
        show_cut_short(terminal, error, plan)
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):  # os._exit() flushes nothing
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[union-attr]
