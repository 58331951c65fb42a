"""Connections to a cluster, which options or a plan name."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from drainer.cli.answer import ensure_confirmed
from drainer.cli.declared import value_of
from drainer.model.option import option, options_of
from drainer.view.terminal import Terminal

if TYPE_CHECKING:  # Without librdkafka, the help appears in half the time.
    from drainer.kafka.cluster import Cluster
    from drainer.kafka.settings import ClientSettings
    from drainer.model.plan import OffsetPlan
    from drainer.store.place import PlanPlace
    from drainer.store.saved_plan import SavedPlan

# This leaves enough time for the rest of the start to report an unreachable broker within ten
# seconds.
CONNECT_TIMEOUT_S = 7.0

_connection = partial(option, panel="Connection", resumes=True)


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """Options of the connection to the brokers."""

    bootstrap_server: str | None = _connection(
        "Bootstrap brokers, comma-separated.", None, short="-b", basic=True, metavar="HOST:PORT"
    )
    client_config: Path | None = _connection(
        "File of librdkafka properties. Keep secrets here.", None, basic=True, metavar="FILE"
    )
    client_properties: tuple[str, ...] = _connection(
        "librdkafka property; repeatable. Other users can see it: give no secrets.",
        (),
        name="--client-property",
        short="-X",
        pairs=True,
        metavar="KEY=VALUE",
    )

    def settings(self) -> ClientSettings:
        """Return the settings of the client. Raises UsageError."""
        from drainer.kafka.settings import ClientSettings  # noqa: PLC0415

        return ClientSettings.load(
            self.bootstrap_server, self.client_config, self.client_properties
        )

    def plan_at(self, place: PlanPlace, state: str | None = None) -> SavedPlan:
        """Return the plan at a place. If that is a topic, these options have to name its brokers.

        ``state`` is the place that a person gave for the reports of Spark's tasks. Raises what the
        function of this name raises.
        """
        from drainer.store.plan_file import plan_at  # noqa: PLC0415

        return plan_at(place, state, self.settings)

    def connect(self) -> Cluster:
        """Connect to the cluster; the connection is a context manager. Raises BrokerUnreachable."""
        return connect(self.settings())

    def settings_by_plan(
        self,
        context: typer.Context,
        terminal: Terminal,
        file: SavedPlan,
        plan: OffsetPlan,
        *,
        yes: bool,
        loads: Collection[str] | None = None,
        unnamed: Sequence[tuple[str, str]] = (),
        then: str = "",
    ) -> tuple[ClientSettings, bool]:
        """Return the client settings of the plan, overridden by the client file and the options.

        The second value says whether a person has confirmed the plan.

        A plan may have come from anywhere. So this requires confirmation before brokers that only
        the plan names get a login, before state is read from a place that only the plan names, and
        before the plan's handler is loaded.

        Args:
            loads: the names of the handler's options that the command line gives; None if the
                handler is not loaded.
            unnamed: the code that only the plan names, each piece with the option that would name
                it and the option's value. ``yes`` does not confirm this code.
            then: what the command does with the plan, if the question is to include that.

        Raises Refused when nobody confirms it, or when a service or a registry that only the plan
        names would get a login.
        """
        from drainer.kafka.settings import BootstrapMissing, ClientSettings  # noqa: PLC0415
        from drainer.model.destinations import with_own_destinations  # noqa: PLC0415

        overrides = [*self.client_properties, f"isolation.level={plan.terms.isolation}"]
        known = Path(plan.terms.client_config) if plan.terms.client_config else None
        config = self.client_config or known
        load = partial(ClientSettings.load, config_file=config, overrides=overrides)
        try:
            settings, by_plan = load(self.bootstrap_server), False
            place, _ = value_of(context, options_of(ConnectionOptions)["bootstrap_server"])
            own = (place or "your options").removeprefix("in ")
            named_by = f"from {'the client properties' if place is None else own}"
        except BootstrapMissing:
            settings, by_plan = load(plan.terms.bootstrap_servers), True
            named_by = "from the plan"
        sends = by_plan and settings.has_login
        brokers, extras = (settings.bootstrap_servers, named_by), None
        if loads is not None:
            extras = settings.extras
            plan = replace(plan, terms=with_own_destinations(plan.terms, loads, extras)[0])
        confirmed = confirm_plan(
            *(terminal, file, plan, brokers, config, extras),
            sends=sends,
            unnamed=unnamed,
            then=then,
            yes=yes,
        )
        return settings, confirmed


def confirm_plan(
    terminal: Terminal,
    file: SavedPlan,
    plan: OffsetPlan,
    brokers: tuple[str, str] | None = None,
    config: Path | None = None,
    extras: Mapping[str, str] | None = None,
    *,
    sends: bool = False,
    unnamed: Sequence[tuple[str, str]] = (),
    then: str = "",
    yes: bool,
) -> bool:
    """Require confirmation before drainer acts on a plan that may be a stranger's.

    What needs the confirmation is to load its handler, to send a login to brokers that only the
    plan names (``sends``), and to read state from a place that only the plan names. Code that only
    the plan names (``unnamed``) runs with all rights of this user, so a person must have seen it,
    and ``yes`` alone does not confirm it. ``brokers`` are the addresses to connect to, and who
    names them. ``extras`` are the properties that the handler gets; None if the handler is not
    loaded. ``then`` is what the command does with the plan.

    Returns whether a person was asked. Raises Refused if nobody confirms it.
    """
    from drainer.view.plan import fields_before_connecting  # noqa: PLC0415

    state, loads = file.state_to_confirm(plan), extras is not None
    asks = bool(unnamed) or ((loads or sends or bool(state)) and not yes)
    if asks:
        fields = fields_before_connecting(plan, file.path, brokers, config, extras, state)
        terminal.items(*fields, urgent=True)
        known = (brokers, "connect"), (loads, "load this handler"), (state, "read this state")
        acts = [act for does, act in (*known, (then, then)) if does]
        if yes:
            terminal.warn("--yes does not confirm code that only the plan names")
        words = [word for option, text in unnamed for word in (option, text)]
        words += [] if yes else ["--yes"]
        hint = f"If this is right, add {shlex.join(words)}."
        question = " and ".join(filter(None, (", ".join(acts[:-1]), acts[-1])))
        ensure_confirmed(terminal, f"{question.capitalize()}?", yes=False, hint=hint)
    if state:
        file.allow_state(state)
    return asks


def connect(settings: ClientSettings) -> Cluster:
    """Connect to the cluster; the connection is a context manager. Raises BrokerUnreachable."""
    from drainer.kafka.cluster import Cluster  # noqa: PLC0415

    return Cluster.connect(settings, timeout_s=CONNECT_TIMEOUT_S)
