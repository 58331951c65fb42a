"""Proposals of a shell at Tab, from the cluster, this machine and the folder.

A proposal is worth neither an error nor a long wait: without an answer soon there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from glob import escape, glob
from importlib.metadata import entry_points
from pathlib import Path

import typer

from drainer.cli.connecting import ConnectionOptions
from drainer.cli.profile import folder
from drainer.control import client
from drainer.importing import ENTRY_POINTS
from drainer.kafka.cluster import Cluster
from drainer.kafka.group import LOCK

WAIT_S = 2.0  # for the cluster
_PRIVATE = ("__", LOCK)  # names that are proposed only to who begins them
# Strangers name groups, topics and plans, and shells evaluate what is proposed.
_HARMLESS = re.compile(r"(?![-=])[\w.@/:+,=-]+", re.ASCII)


def propose(wanted: str, context: typer.Context, incomplete: str) -> list[str]:
    """Values of an option or argument that begin as it was typed, and that no shell expands."""
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
    """Plans in the folder, and of drains that run here."""
    return {*_files(incomplete, ".plan.json"), *(each.about.plan for each in client.running())}


_PROPOSALS: Mapping[str, Callable[[typer.Context, str], Iterable[str]]] = {
    "topic": partial(_names, Cluster.topic_names),
    "group": partial(_names, Cluster.group_names),
    "handler": _handlers,
    "plan": _plans,
    "profile": lambda context, incomplete: [path.stem for path in folder().glob("*.toml")],
}


def _files(incomplete: str, suffix: str) -> list[str]:
    # Not Path.glob, which would give ./FILE back as FILE, and the shell would drop it.
    return glob(f"{escape(incomplete)}*{suffix}")  # noqa: PTH207


def _cluster(context: typer.Context) -> Cluster:
    given = context.params  # with what variables and the profile give
    config = given.get("client_config")
    kafka = ConnectionOptions(
        bootstrap_server=given.get("bootstrap_server"),
        client_config=None if config is None else Path(config),
        client_properties=tuple(given.get("client_property") or ()),
    )
    return Cluster.connect(kafka.settings(), timeout_s=WAIT_S)
