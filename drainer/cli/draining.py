"""What ``run`` and ``resume`` share: connecting, asking, and showing the drain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from drainer.cli.answer import insist_on_yes
from drainer.core.plan import OffsetPlan
from drainer.engine.local import LocalSettings
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.operations.drain import drain
from drainer.operations.start import Prepared, nothing_to_drain
from drainer.view.progress import progress_view
from drainer.view.summary import show_summary
from drainer.view.terminal import Terminal

CONNECT_TIMEOUT_S = 8.0  # an unreachable broker is told within ten seconds, all in all


def connect(settings: ClientSettings) -> Cluster:
    """A connection to the cluster; a context manager. Raises BrokerUnreachable."""
    return Cluster.connect(settings, timeout_s=CONNECT_TIMEOUT_S)


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


def confirm_and_drain(
    terminal: Terminal, cluster: Cluster, prepared: Prepared, running: LocalSettings, *, yes: bool
) -> int:
    """Drains what was prepared, once a person said yes; gives the exit code."""
    if not prepared.action.resumes and not prepared.action.offsets:
        summary = nothing_to_drain(prepared)
        show_summary(terminal, summary)
        return summary.exit_code
    insist_on_yes(terminal, f"Drain {prepared.action.topic} for {prepared.action.group}?", yes=yes)
    with progress_view(terminal) as view:
        summary = drain(cluster, prepared, running, view.update, terminal.say)
    show_summary(terminal, summary)
    return summary.exit_code
