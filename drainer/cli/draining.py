"""The steps that ``run``, ``resume`` and ``redrive`` share: preview, confirm, drain, report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from drainer.cli.answer import ensure_confirmed
from drainer.cli.connecting import ConnectionOptions
from drainer.cli.declared import declared_by, next_command, value_of
from drainer.cli.engines import STATE
from drainer.cli.metrics import OversightOptions
from drainer.cli.options import DrainOptions, Limits
from drainer.engine.control import Control
from drainer.engine.history import History
from drainer.engine.preview import EngineName, Preview
from drainer.engine.signals import ignore_signals, obey_signals_until
from drainer.errors import EXIT_DONE, EXIT_INTERRUPTED, Interrupted, Signalled
from drainer.kafka.cluster import Cluster
from drainer.model.option import Option, options_of
from drainer.model.plan import OffsetPlan
from drainer.model.resuming import Resuming
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.status import Status, Summary
from drainer.operations.drain import Callbacks, drain
from drainer.operations.resume import resuming_of
from drainer.operations.start import Prepared, Request
from drainer.store.place import PlanPlace
from drainer.text.escape import json_text
from drainer.text.mask import describe
from drainer.view.background import InBackground
from drainer.view.live import progress_view
from drainer.view.preview import preview_page
from drainer.view.report.file import ReportFile, write_page
from drainer.view.status import LivePage, status_fields
from drainer.view.summary import drain_page, show_cut_short, show_summary
from drainer.view.terminal import Terminal

if TYPE_CHECKING:
    from drainer.metrics.server import MetricsServer

STEERING = "Ctrl-C stops safely; drainer set, pause and stop steer from elsewhere"
HOOK_S = 60.0  # A shell command of --tune on-end or on-late that runs longer is killed.
REPORT_S = 1.0  # A process that has to end does not wait longer for a blocked terminal.


def request_of(
    what: DrainOptions,
    extras: Mapping[str, str],
    kafka: ConnectionOptions,
    failures: FailureSettings,
    limits: Limits,
    options: Mapping[str, str] | None,
    plan: PlanPlace | None = None,
) -> Request:
    """Return the request that the options of ``run`` or ``estimate`` make.

    ``extras`` are client properties for extensions, and ``options`` those of the handler. Raises
    UsageError or Refused.
    """
    return Request(
        topic=what.topic,
        group=what.group,
        handler=what.load(what.handler, extras),
        partitions=what.partitions,
        from_=what.from_,
        until=what.until,
        commits=not what.no_commit,
        order=what.order,
        plan_path=plan,
        client_config=kafka.client_config,
        failures=failures,
        limits=limits,
        classes=what.over(),
    ).configured(options)


def report_dry_run(
    context: typer.Context,
    terminal: Terminal,
    action: Preview,
    estimated: Mapping[str, object] | None = None,
    *,
    report: ReportFile | None = None,
) -> None:
    """Report the end of a dry run."""
    terminal.print_line("dry run: nothing was touched")
    if report is not None:
        terminal.warn("no report was written: a dry run has none")
    way = next_command(context, context.info_name or "", leave_out=("dry-run", "latency"))
    terminal.data({"status": "dry-run", "next": way, **action.as_json(), **(estimated or {})})


def run_command(
    terminal: Terminal, field: str, command: str, facts: Mapping[str, Any], **variables: str
) -> None:
    """Run the shell command that a field of ``OversightOptions`` has, with ``facts`` on its stdin.

    If the command fails, drainer warns. The drain and its exit code do not depend on it.
    ``variables`` are added to the environment of the command.
    """
    option = options_of(OversightOptions)[field].word
    # Variables of drainer may hold secrets, and the command may print its whole environment.
    others = {n: value for n, value in os.environ.items() if not n.startswith("DRAINER_")}
    try:
        # Standard output is for data, so what the command prints goes to standard error.
        running = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=sys.__stderr__,
            stderr=sys.__stderr__,
            env=others | variables,
            start_new_session=True,
        )
    except OSError as error:
        terminal.warn(f"{option} did not start: {error.strerror or error}")
        return
    try:
        running.communicate(json_text(facts).encode(), HOOK_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        terminal.warn(f"{option} still ran after {HOOK_S:g} s: drainer killed it")
        return
    if running.returncode:
        terminal.warn(f"{option} failed with exit code {running.returncode}")


@dataclass(eq=False)
class Followers:
    """Passes on the course of a drain to its metrics, its page, its report and shell commands."""

    _terminal: Terminal
    _action: Preview
    _metrics: MetricsServer | None
    _oversight: OversightOptions

    def __post_init__(self) -> None:
        self._history = History()
        self._page = LivePage(self._history)
        self._late: threading.Thread | None = None  # It runs the command for a late drain, once.
        terms, metrics = self._action.plan.terms, self._metrics
        who = terms.topic, terms.group, terms.drain_id
        self._measure = None if metrics is None else metrics.begin(*who, self._page)

    def show(self, status: Status) -> None:
        """Pass on a status of the running drain."""
        if self._oversight.report is not None or self._metrics is not None:
            self._page.add(status)
        if self._measure is not None:  # From here on, the port serves the page.
            self._measure(status)
        command = self._oversight.on_late
        if status.progress.is_late and command is not None and self._late is None:
            given = (self._terminal, "on_late", command, status_fields(status))
            self._late = threading.Thread(target=run_command, args=given, daemon=True)
            self._late.start()

    def end(self, summary: Summary) -> None:
        """Pass on the summary of the drain. An error here is a warning: the exit code stays."""
        try:
            page = partial(drain_page, self._action, summary, self._history)
            if self._metrics is not None:
                self._metrics.end(summary)
                self._page.end(page(datetime.now().astimezone()))
            show_summary(self._terminal, summary)
            if self._late is not None:
                self._late.join(HOOK_S)
            if (command := self._oversight.on_end) is not None:
                facts, status = summary.as_json(), summary.status
                run_command(self._terminal, "on_end", command, facts, DRAINER_STATUS=status)
            write_page(self._terminal, self._oversight.report, page)
        except (Exception, KeyboardInterrupt) as error:
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else describe(error)
            self._terminal.warn(f"the drain is over, but its report is incomplete: {why}")


def show_ended(terminal: Terminal, summary: Summary, oversight: OversightOptions) -> int:
    """Show how a drain ended that was over before this command, and return its exit code."""
    summary = oversight.accepting(summary)
    show_summary(terminal, summary)
    return summary.exit_code


def preview_and_drain(
    context: typer.Context,
    terminal: Terminal,
    cluster: Cluster,
    prepared: Prepared,
    running: LocalSettings,
    metrics: MetricsServer | None,
    oversight: OversightOptions,
    *,
    dry_run: bool,
    confirmed: bool = False,
) -> int:
    """Show what was prepared, drain it after a confirmation, and return the exit code.

    If a person has ``confirmed`` the drain before the checks, drainer asks again only if they found
    something to warn of, or if the drain does more than others.
    """
    action, plan = prepared.action, prepared.plan
    (terminal.present if dry_run else terminal.preview)(preview_page(action))
    if dry_run:
        report_dry_run(context, terminal, action, report=oversight.report)
        return EXIT_DONE
    followers = Followers(terminal, action, metrics, oversight)
    if prepared.is_empty:
        summary = drain(cluster, prepared, running)
    else:
        new = "the new group " if action.new_group else ""
        question = drains = f"Drain {plan.terms.topic} for {new}{plan.terms.group}?"
        redrive, needs_yes = plan.terms.redrive, action.needs_yes
        if redrive is not None:
            question = f"Redrive these letters of {plan.terms.topic}?"
            if redrive.to is not None:  # On resume, nothing but this question warns of it.
                question = f"Send letters to {redrive.to}, where all groups of a topic get them?"
                needs_yes = True
        if not plan.terms.commits:
            question = f"Drain these offsets of {plan.terms.topic} again, and commit nothing?"
        if not confirmed or action.warnings or needs_yes or question != drains:
            ensure_confirmed(terminal, question, yes=oversight.yes, needs_yes=needs_yes)
        control = Control()
        obey_signals_until(control.is_over)

        def resuming() -> Resuming:
            return resuming_with(context, plan, action.plan_path, control.retyped())

        try:
            with InBackground(progress_view(terminal, STEERING), terminal.print_line) as view:
                give_up = partial(end_at_once, terminal, view, action.plan_path, resuming)

                def show(status: Status) -> None:
                    followers.show(status)
                    view.update(status)

                summary = drain(
                    *(cluster, prepared, running),
                    Callbacks(show, view.print_line, give_up, resuming),
                    control=control,
                )
        except Signalled as error:  # The signal came before the drain had begun anything.
            if not action.resumes:
                raise
            also = "with all options that you gave: the plan does not have them yet"
            show_cut_short(terminal, error, action.plan_path, resuming(), also)
            return error.exit_code
    followers.end(summary := oversight.accepting(summary))
    oversight.linger(terminal)
    ignore_signals()
    return summary.exit_code


def end_at_once(
    terminal: Terminal, view: InBackground, plan: PlanPlace, resuming: Callable[[], Resuming]
) -> NoReturn:
    """End the process from another thread, because the handler blocks the main one."""
    reporting = threading.Thread(
        target=_report_end, args=(terminal, view, plan, resuming()), daemon=True
    )
    reporting.start()
    reporting.join(REPORT_S)
    os._exit(EXIT_INTERRUPTED)


def _report_end(
    terminal: Terminal, view: InBackground, plan: PlanPlace, resuming: Resuming
) -> None:
    error = Interrupted(
        "stopped at once while the handler blocked the event loop; calls in flight are still"
        " pending",
        hint="Move blocking calls into a plain `def handle`, which runs on threads.",
    )
    view.__exit__(None, None, None)  # This restores the screen and the streams.
    show_cut_short(terminal, error, plan, resuming)
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):  # os._exit() does not flush them.
        if stream is not None:
            stream.flush()


def resuming_with(
    context: typer.Context,
    plan: OffsetPlan,
    place: PlanPlace,
    retyped: Mapping[str, str | None] | None = None,
) -> Resuming:
    """Return the options that a person has to type again to resume this drain.

    They say how to connect, how to drain and how to watch, and set the handler's options. The plan
    has the rest: what to drain, by which handler and which failure policy.

    A value from a variable is repeated, because the next shell may not have the variable.
    ``retyped`` has the settings that a person has to type in another way than for this run, by
    field; None stands for a setting that was dropped.
    """
    given = retyped or {}
    in_process = context.params.get("engine") == EngineName.PROCESS
    typed: list[tuple[Option, Sequence[str]]] = []
    for option in declared_by(context.command).values():
        given_in, value = value_of(context, option)
        if option.field in given:
            value = given[option.field]
        elif not option.resumes or given_in is None:
            continue
        if value is not None:
            texts = value if isinstance(value, list) else [str(value)]
            if in_process and option.field in ("master", "spark_conf"):
                # Such a resume ignores them, but for the place where Spark's tasks reported.
                texts = [text for text in texts if text.startswith(f"{STATE}=")]
            typed.append((option, texts))
    return resuming_of(typed, plan, place)
