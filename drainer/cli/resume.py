"""``drainer resume``."""

from __future__ import annotations

import typer

from drainer.cli import options as o
from drainer.cli.answer import answering
from drainer.cli.draining import confirm_and_drain, connect, settings_of_plan
from drainer.cli.values import parse_duration, parse_pairs, parse_size
from drainer.engine.settings import LocalSettings
from drainer.operations.resume import prepare_resume
from drainer.store.plan_file import PlanFile
from drainer.view.action import show_plan_of_action
from drainer.view.terminal import Terminal


def resume(
    plan: o.PlanArgument,
    bootstrap_server: o.BootstrapServer = None,
    concurrency: o.Concurrency = 100,
    buffer: o.Buffer = "256MiB",
    plan_interval: o.PlanInterval = "1s",
    grace: o.Grace = "10s",
    set_: o.Set = None,
    client_config: o.ClientConfig = None,
    client_property: o.ClientProperty = None,
    yes: o.Yes = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Go on with a drain that was interrupted, halted or killed.

    What is to be drained is in the plan; only how to drain it can be said anew.

    Examples:

    - `drainer resume orders.indexer.plan.json`
    - `drainer resume orders.indexer.plan.json --concurrency 500 --yes`
    """
    terminal = Terminal(json=json, quiet=quiet, debug=debug)
    with answering(terminal):
        running = LocalSettings(
            concurrency=concurrency,
            buffer_bytes=parse_size(buffer),
            plan_interval_s=parse_duration(plan_interval),
            grace_s=parse_duration(grace),
            options=parse_pairs(set_ or (), "--set"),
        )
        file = PlanFile(plan)
        loaded = file.load()
        settings = settings_of_plan(loaded.plan, bootstrap_server, client_config, client_property)
        with connect(settings) as cluster:
            prepared = prepare_resume(cluster, file, loaded, running)
            show_plan_of_action(terminal, prepared.action)
            raise typer.Exit(confirm_and_drain(terminal, cluster, prepared, running, yes=yes))
