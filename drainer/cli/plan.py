"""``drainer plan`` and its commands, which show, verify or undo an offset plan."""

from __future__ import annotations

from typing import Annotated

import typer

from drainer.cli.answer import ensure_confirmed
from drainer.cli.command import changing, command, only
from drainer.cli.connecting import ConnectionOptions, confirm_plan, connect
from drainer.cli.engines import STATE, EngineOptions
from drainer.cli.options import PlanArgument, Reason, Yes
from drainer.errors import EXIT_DONE, EXIT_FOUND, PlanRefused
from drainer.operations import plan as operation
from drainer.operations.examine import Check, changes, examine, group_offsets
from drainer.operations.plan import already_back, undo_moves
from drainer.view.page import Line
from drainer.view.plan import checks_page, history_page, plan_page
from drainer.view.terminal import Terminal

Reported = Annotated[EngineOptions, only("spark_conf")]

app = typer.Typer(no_args_is_help=True, help="Show, check or undo an offset plan.")


@app.command()
@command
def show(
    plan: PlanArgument,
    kafka: ConnectionOptions,
    reported: Reported,
    yes: Yes,
    terminal: Terminal,
) -> None:
    """Show what a plan holds. drainer connects to brokers only if the plan is in a topic.

    Example: `drainer plan show orders.indexer.plan.json`
    """
    file, state = kafka.plan_at(plan, reported.state), reported.state
    confirm_plan(terminal, file, file.load(without_reports=True).plan, yes=yes)
    loaded = file.load()
    account = loaded.plan.account
    ended = None if account.last_end is None else account.last_end.as_json()
    last_run = "running" if file.is_locked else account.how_ended
    options = ("--spark-conf", f"{STATE}={state}") if state else ()
    page = plan_page(loaded.plan, plan, options, runs=file.is_locked)
    terminal.answer({**loaded.plan.as_json(), "last_run": last_run, "last_end": ended}, page)


@app.command()
@command
def history(plan: PlanArgument, kafka: ConnectionOptions, terminal: Terminal) -> None:
    """Show who did what with a drain, when and why.

    If an event moved the group, its line shows the new offsets.

    Example: `drainer plan history orders.indexer.plan.json`
    """
    known = kafka.plan_at(plan).load(without_reports=True).plan
    events = [each.as_json() for each in known.account.history]
    terminal.data({"plan": str(plan), "drain_id": known.terms.drain_id, "history": events})
    terminal.present(history_page(known))


@app.command()
@command
def verify(
    context: typer.Context,
    plan: PlanArgument,
    kafka: ConnectionOptions,
    reported: Reported,
    yes: Yes,
    terminal: Terminal,
) -> int:
    """Check a plan against itself and the cluster.

    drainer prints each check. If the plan can't be resumed as is, the exit code is 7.

    Example: `drainer plan verify orders.indexer.plan.json`
    """
    file, checks, found = kafka.plan_at(plan, reported.state), list[Check](), list[str]()
    try:
        settings, _ = kafka.settings_by_plan(
            context, terminal, file, file.load(without_reports=True).plan, yes=yes
        )
        runs, loaded = file.is_locked, file.load()
    except PlanRefused as error:
        if not file.exists:
            raise
        checks = [("the plan can be read with its journal", error)]
    else:
        with connect(settings) as cluster:
            checks = examine(cluster, loaded, runs=runs)
            if runs:
                found = ["a drain works by this plan now, so group and journal are not checked"]
            elif all(error is None for _, error in checks):
                committed = group_offsets(cluster, loaded)
                found = [*loaded.warnings, *changes(cluster, loaded.plan, committed)]
    failed = any(error is not None for _, error in checks)
    code = EXIT_FOUND if failed else EXIT_DONE
    results = [
        {"text": text, "ok": error is None, "error": str(error) if error else None}
        for text, error in checks
    ]
    answer = {"checks": results, "warnings": found}
    page = checks_page(checks, warnings=found)
    terminal.answer({"status": "refused" if failed else "ok", "exit_code": code, **answer}, page)
    return code


@app.command()
@changing
def undo(
    context: typer.Context,
    plan: PlanArgument,
    kafka: ConnectionOptions,
    reported: Reported,
    reason: Reason,
    yes: Yes,
    terminal: Terminal,
) -> None:
    """Reset the group to its offsets before the drain.

    Where the group had no offset, it gets the start of the backlog. The group's consumers then read
    again what the drain handled. The plan keeps what is done: a resume commits it again.

    Example: `drainer plan undo orders.indexer.plan.json`
    """
    file = kafka.plan_at(plan, reported.state)
    file.ensure_free()
    known = file.load(without_reports=True).plan
    settings, _ = kafka.settings_by_plan(context, terminal, file, known, yes=yes)
    loaded = file.load()
    group = loaded.plan.terms.group
    with connect(settings) as cluster:
        moves = undo_moves(cluster, loaded)
        if moves:
            for each in moves:
                terminal.items(Line(str(each)), urgent=not yes)
            ensure_confirmed(terminal, "Reset the group to these offsets?", yes=yes)
            operation.undo(cluster, file, loaded, moves, terminal.print_line, reason)
            terminal.print_line(f"moved group {group}, and checked its offsets")
        else:
            terminal.print_line(already_back(loaded.plan))
    moved = {
        str(each.partition): {"found": each.found, "committed": each.target, "prior": each.prior}
        for each in moves
    }
    status = "moved" if moves else "unmoved"
    terminal.data({"status": status, "group": group, "partitions": moved})
