"""Values that a shell proposes at Tab, from the cluster, this machine and the current folder.

If there is an error, or no answer within a short time, nothing is proposed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from glob import escape, glob
from importlib.metadata import entry_points

import typer

from drainer.cli.connecting import ConnectionOptions
from drainer.cli.declared import declared_by, given_in
from drainer.cli.profile import folder
from drainer.control import client
from drainer.control.place import remembered, short
from drainer.kafka.cluster import Cluster
from drainer.kafka.group import LOCK
from drainer.loading.importing import ENTRY_POINTS
from drainer.model.option import options_of

WAIT_S = 2.0  # If the cluster does not answer within this time, nothing is proposed.
_PRIVATE = ("__", LOCK)  # Names with these prefixes are proposed only once something is typed.
# A shell evaluates what is proposed, and names of groups, topics and plans may come from strangers.
# So only names without characters that are special to a shell are proposed.
_HARMLESS = re.compile(r"(?![-=])[\w.@/:+,=-]+", re.ASCII)


def propose(wanted: str, context: typer.Context, incomplete: str) -> list[str]:
    """Return the known values of the kind ``wanted`` that begin with the typed text.

    Values that a shell would expand are left out.
    """
    found: Iterable[str] = ()
    with suppress(Exception):
        found = _PROPOSALS[wanted](context, incomplete)
    return sorted(
        each
        for each in found
        if each.startswith(incomplete)
        and (incomplete or not each.startswith(_PRIVATE))
        and _HARMLESS.fullmatch(each)
    )


def _names(
    names_in: Callable[[Cluster], list[str]], context: typer.Context, incomplete: str
) -> list[str]:
    with _cluster(context) as cluster:
        return names_in(cluster)


def _handlers(context: typer.Context, incomplete: str) -> list[str]:
    return [*(each.name for each in entry_points(group=ENTRY_POINTS)), *_files(incomplete, ".py")]


def _plans(context: typer.Context, incomplete: str) -> set[str]:
    """Return the plans in the folder, and those that this machine remembers."""
    known = (short(str(each.resolve())) for each in remembered())
    return {*_files(incomplete, ".plan.json"), *known, *_running(context, incomplete)}


def _running(context: typer.Context, incomplete: str) -> set[str]:
    """Return the plans of the drains that run on this machine."""
    return {short(each.about.plan) for each in client.running()}


_PROPOSALS: Mapping[str, Callable[[typer.Context, str], Iterable[str]]] = {
    "topic": partial(_names, Cluster.topic_names),
    "group": partial(_names, Cluster.group_names),
    "handler": _handlers,
    "plan": _plans,
    "running": _running,
    "profile": lambda context, incomplete: [path.stem for path in folder().glob("*.toml")],
    "tune": lambda context, incomplete: [
        f"{each.label}=" for each in declared_by(context.command).values() if each.tune
    ],
}


def _files(incomplete: str, suffix: str) -> list[str]:
    # Path.glob would return FILE for ./FILE. The shell would drop that, because it does not begin
    # with the typed text.
    return glob(f"{escape(incomplete)}*{suffix}")  # noqa: PTH207


def _cluster(context: typer.Context) -> Cluster:
    kafka = ConnectionOptions(**given_in(context, options_of(ConnectionOptions).values()))
    return Cluster.connect(kafka.settings(), timeout_s=WAIT_S)
